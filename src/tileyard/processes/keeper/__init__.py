"""The keeper: a small program between its starter and one worker that ends the worker's whole tree.

Run as ``python -S -E -I .../keeper/start.py KEY=VALUE.. -- ARGV..``. Every worker waits for its
start, so it uses the standard library only, and of that only what loads fast: ctypes instead of
``signal`` (which brings ``enum``), and relative imports, so that nothing else of ours is loaded.

It is child subreaper: every process that the worker leaves behind, detached or not, becomes its child, so
having no children proves that the tree is gone. Only then does it give the lease back.

Options: ``parent`` (pid of the starter), ``tree`` (a token that marks the tree's environment),
``outer`` (tokens of the trees that the starter is in), ``memory`` (bytes of address space),
``cores`` (``0,1``), ``pass`` (inherited descriptors for the worker, ``5,6``), ``grace`` and
``confirm`` (seconds), ``cwd``, ``control`` and ``reports`` (descriptors), ``plain`` (a user's own
command: it keeps the three standard streams, core dumps and its place before the OOM killer),
``fixed`` (the worker's addresses are not randomized),
``starters`` (the starter itself uses the devices, and is ended with a lease that root's limit ends),
``step`` (a program of a user's, started through ``fork_server``: it keeps its output streams, and what it
leaves behind is killed at once),
``early`` (the worker starts before there is a lease; the order ``lease`` asks for it, and the lease's
number is written to the descriptor that ``TILEYARD_LEASE_PIPE`` names in the worker's environment),
``count``, ``priority`` and ``job`` of the lease, ``command`` (what its record shows instead of ARGV).
After these, for each device that would do: ``choice`` (its name), ``lock`` (repeated), ``env`` (repeated,
``K=V``), ``device-cores``, ``probe`` (repeated), ``probe-limit`` (seconds).

The control pipe (0 by default) takes orders, one a line: ``kill SECONDS``, ``withdraw`` (give
up a request that still waits; not before a first try, and nothing once there is a lease), ``lease
BYTES`` (ask for the lease of an early worker, and hold it to this much memory), ``probe``
(probe the devices after the end), ``signal N``, ``signal-group N``, ``stop``, ``continue``. Its end
shows that the starter is gone; the starter's pidfd is watched too, since a fork of it may hold a
copy of the pipe. Its parent-death signal is not used: it follows the thread that started the
keeper. The reports pipe (1) takes one JSON line per event; 2 is the log, the worker's stdout and
stderr.

The protocol by which keepers of all users share devices is in ``directory`` (the files on disk),
``turns`` and ``deciding`` (who gets what), ``ticket`` (from request to lease), ``holding`` (the lease),
``quarantine``, ``rules`` (root's limits) and ``log`` (past leases).
"""

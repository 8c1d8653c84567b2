"""The keeper: a small program between the engine and one worker that ends the worker's whole tree.

Run as ``python -S -E -I .../keeper/start.py KEY=VALUE.. -- ARGV..``. Every worker waits for its
start, so it uses the standard library only, and of that only what loads fast: ctypes instead of
``signal`` (which brings ``enum``), and relative imports, so that nothing else of ours is loaded.

It is child subreaper: whatever the worker leaves behind, detached or not, becomes its child, so
that having no children is the proof that the tree is gone. Only then does it give the locks back.

Options: ``parent`` (pid of the engine), ``tree`` (a token that marks the tree's environment),
``lock`` (repeated, ascending), ``memory`` (bytes of address space), ``cores`` (``0,1``), ``pass``
(inherited descriptors for the worker, ``5,6``), ``grace`` and ``confirm`` (seconds), ``cwd``.

Descriptors: 0 is the control pipe, from which ``kill SECONDS`` is read and whose end means that the
engine is gone; 1 takes one JSON line per event; 2 is the log, the worker's stdout and stderr.
The engine's pidfd is watched too, since a fork of the engine may hold a copy of the pipe. The
engine's parent-death signal is not used: it follows the thread that started the keeper.
"""

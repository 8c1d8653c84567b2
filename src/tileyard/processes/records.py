"""What the engine says about a worker it wants, and what it learns about how that one ended."""

import enum

from tileyard.model import Device, Record


class LeaseRequest(Record):
    """Devices that a worker needs before it starts: ``count`` of ``choices``, all of them or none.

    Who asks with a higher ``priority`` comes first; within one, who asked first.
    """

    choices: tuple[Device, ...]
    count: int = 1
    priority: int = 0


class Place(Record):
    """Where a request for devices stands: 1 is next in turn. ``holder`` says who has one of them."""

    position: int
    holder: str = ""


class WorkerCommand(Record):
    """What to start, and with what.

    ``env`` is the whole environment. ``log`` gets stdout and stderr appended; empty for none.
    ``memory_bytes`` limits the address space of each of its processes, 0 for no limit. ``cores``
    are those it may run on, none for all. ``lease`` says which devices it holds for as long as
    its tree lives, None for none; it starts once it has them, or, if it is ``early``, before that: then
    it waits with ``wait_for_lease``, and is held to its memory from there on. ``fixed`` asks for the same
    addresses in every process that is started alike. ``fds`` are descriptors of the caller's that the worker
    inherits under the same numbers. ``grace_s`` is the time between
    TERM and KILL for what it leaves behind, and for the whole tree when the engine dies.
    """

    argv: tuple[str, ...]
    env: dict[str, str]
    cwd: str
    log: str = ""
    memory_bytes: int = 0
    cores: tuple[int, ...] = ()
    lease: LeaseRequest | None = None
    early: bool = False
    fixed: bool = False
    fds: tuple[int, ...] = ()
    grace_s: float = 0.2


class Ended(Record):
    """How a worker ended.

    One of ``code`` and ``signal`` is set, unless it never ran or its keeper was lost. ``confirmed``
    says that its whole tree is gone; if not, ``survivors`` are the pids that are known to be left.
    ``reason`` is why the engine ended it, empty if it ended by itself. ``oom_kill`` says that the
    kernel killed something for lack of memory meanwhile; ``log_tail`` is what was logged last.
    """

    code: int | None = None
    signal: int | None = None
    survivors: tuple[int, ...] = ()
    confirmed: bool = False
    reason: str = ""
    memory_bytes: int = 0
    peak_rss_bytes: int = 0
    oom_kill: bool = False
    log_tail: str = ""


class State(enum.StrEnum):
    """How far a leased command has come, or why it came no further."""

    WAITING = "waiting"
    RUNNING = "running"
    ENDED = "ended"
    QUEUE_TIMEOUT = "queue_timeout"
    MAX_TIME = "max_time"
    DEVICE_SICK = "device_sick"
    NO_DEVICE = "no_device"
    NESTED = "nested"
    NOT_RUN = "not_run"
    INTERRUPTED = "interrupted"
    KEEPER_LOST = "keeper_lost"


class LeaseStatus(Record):
    """What became of a leased command.

    ``code`` and ``signal`` are how it ended by itself, None where it did not. ``leases`` gives the
    number of the lease of each device. ``message`` says in one line why it did not simply end.
    """

    state: State
    code: int | None = None
    signal: int | None = None
    leases: dict[str, int] = {}
    waited_s: float = 0.0
    held_s: float = 0.0
    place: int = 0
    holder: str = ""
    message: str = ""


class Limits(Record):
    """How long a command may wait for its devices, and how long it may run; None for ever."""

    queue_s: float | None = None
    run_s: float | None = None

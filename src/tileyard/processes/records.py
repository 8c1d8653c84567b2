"""Defines the engine's order for a worker, and the record of how that worker ended."""

import enum

from tileyard.base.model import Device, Record


class LeaseRequest(Record):
    """Devices that a worker needs before it starts: ``count`` of ``choices``, all of them or none.

    A request with a higher ``priority`` comes first; within a priority, the earliest one.
    """

    choices: tuple[Device, ...]
    count: int = 1
    priority: int = 0


class Place(Record):
    """The place of a request for devices in the queue: 1 is next in turn. ``holder`` is a holder of one of them."""

    position: int
    holder: str = ""


class WorkerCommand(Record):
    """A program to start, and its settings.

    ``env`` is the whole environment. ``log`` gets stdout and stderr appended; empty for none.
    ``memory_bytes`` limits the address space of each of its processes, 0 for no limit. ``cores``
    are those it may run on, none for all. ``lease`` are the devices that it holds as long as
    its tree lives, None for none; it starts once it has them, or, if it is ``early``, before that: then
    it waits with ``wait_for_lease``, and its memory is limited from then on. ``fixed`` asks for the same
    addresses in every process that is started in the same way. ``fds`` are descriptors of the caller's that the worker
    inherits under the same numbers. ``title`` is what others read who wait for its devices, its argv if empty. ``grace_s`` is the time between
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
    title: str = ""
    grace_s: float = 0.2


class Ended(Record):
    """How a worker ended.

    One of ``code`` and ``signal`` is set, unless it never ran or its keeper was lost. ``confirmed``:
    its whole tree is gone; if not, ``survivors`` are the pids that are known to be left.
    ``reason`` is why the engine ended it, empty if it ended by itself. ``oom_kill``: the
    kernel killed something for lack of memory meanwhile; ``log_tail`` is the end of its log.
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
    """The progress of a leased command, or why it stopped."""

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
    """The result of a leased command.

    ``code`` and ``signal`` are how it ended by itself, None if it did not. ``leases`` has the
    number of the lease of each device. ``message`` is the reason, in one line, if it did not simply end.
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
    """Seconds that a command may wait for its devices, and that it may run; None for no limit."""

    queue_s: float | None = None
    run_s: float | None = None

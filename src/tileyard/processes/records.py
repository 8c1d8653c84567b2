"""Defines the engine's order for a worker, and the record of how that worker ended."""

import enum

from tileyard.base.model import Device, Record


class LeaseRequest(Record):
    """Devices that a worker needs: ``count`` of ``choices``, all or none, by ``priority``, then age."""

    choices: tuple[Device, ...]
    count: int = 1
    priority: int = 0


class Place(Record):
    """A request's place in the queue: 1 is next. ``holder`` holds one of the devices."""

    position: int
    holder: str = ""


class WorkerCommand(Record):
    """A program to start, and its settings.
    ``env`` is the whole environment; ``log`` gets stdout and stderr appended, empty for none;
    ``memory_bytes`` limits each process's address space, 0 for no limit; ``cores`` may be used, all if empty.
    ``lease``: devices held as long as the tree lives; it starts with them or, if ``early``, calls
    ``wait_for_lease`` and is limited from then on. ``fixed``: the same addresses in every process; ``fds``
    are inherited under their numbers; ``title`` is shown to those who wait, else argv. ``grace_s`` is the
    time between TERM and KILL, of leftovers and of the tree when the engine dies.
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
    """How a worker ended: by ``code`` or ``signal``, neither if it never ran or its keeper was lost.
    ``confirmed``: the tree is gone, else ``survivors`` are known pids. ``reason``: why the engine ended it,
    if so; ``overdue``: why its keeper did, under root's limit. ``oom_kill``: the kernel killed something for
    lack of memory; ``log_tail``: the log's end.
    """

    code: int | None = None
    signal: int | None = None
    survivors: tuple[int, ...] = ()
    confirmed: bool = False
    reason: str = ""
    overdue: str = ""
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
    """How a leased command ended; ``message``: why not by itself. ``leases``: number by device."""

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

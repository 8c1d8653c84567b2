"""Defines the engine's order for a worker, the record of how that worker ended, and which outcome of the
case that it was running follows.
"""

import enum
import signal
from typing import Final

from tileyard.base.model import Device, Outcome, Record


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


MEMORY_SIGNS: Final = (
    "MemoryError",
    "std::bad_alloc",
    "annot allocate memory",
    "LLVM ERROR: out of memory",
)
"""The last output of Python, C++, the C library and LLVM when an allocation was refused."""
DISK_SIGNS: Final = (
    "No space left on device",
    "Disk quota exceeded",
    "Input/output error",
    "Read-only file system",
    "Too many open files",
)
"""The messages of a program that could not write because of a disk, and not because of its input."""
FROM_OUTSIDE: Final = frozenset({signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP})
SUSPECT: Final = frozenset({Outcome.CRASHED, Outcome.TIMEOUT})
"""After one of these it may be the device that is at fault."""
NEAR_LIMIT: Final = 0.9
"""Share of its limit from which a worker's memory use counts as the cause of its death."""


class Verdict(Record):
    """``message`` continues a subject: "the runner" + "died of SIGSEGV (...)"."""

    outcome: Outcome
    message: str


def judge_end(ended: Ended, *, limit: str = "") -> Verdict:
    """Distinguish a crash, a time limit, lack of memory and a fault of the host. ``limit`` names
    the limit for which the engine ended it; not if the worker ended before.
    """
    if not ended.confirmed:
        return Verdict(outcome=Outcome.INFRA_ERROR, message=_describe_unconfirmed(ended))
    if ended.overdue:
        return Verdict(
            outcome=Outcome.INFRA_ERROR, message=f"was ended by its keeper: {ended.overdue}"
        )
    if ended.reason:
        if limit:
            means = f"killed with {describe_signal(ended.signal)}" if ended.signal else "ended"
            message = f"ran past its {limit} and was {means}; its process tree is gone"
            return Verdict(outcome=Outcome.TIMEOUT, message=message)
        return Verdict(
            outcome=Outcome.INFRA_ERROR, message=f"was ended by the engine: {ended.reason}"
        )
    how = _describe_end(ended)
    if evidence := _find_memory_evidence(ended):
        return Verdict(outcome=Outcome.OUT_OF_MEMORY, message=f"{how}: {evidence}")
    if ended.signal in FROM_OUTSIDE:
        return Verdict(outcome=Outcome.INFRA_ERROR, message=f"{how}, which the engine had not sent")
    return Verdict(outcome=Outcome.CRASHED, message=how)


def tells_of_memory(text: str) -> bool:
    """Whether a program's last output shows that it was refused memory."""
    return any(sign in text for sign in MEMORY_SIGNS)


def find_disk_fault(text: str) -> str:
    """The first line in which a program reports a disk failure; empty if there is none."""
    lines = (line.strip() for line in text.splitlines())
    return next((line for line in lines if any(sign in line for sign in DISK_SIGNS)), "")


def describe_signal(number: int) -> str:
    """``SIGSEGV (Segmentation fault)``; a number without a name stays a number."""
    try:
        name = signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
    text = signal.strsignal(number)
    return f"{name} ({text})" if text else name


def _describe_end(ended: Ended) -> str:
    if ended.signal is not None:
        return f"died of {describe_signal(ended.signal)}"
    return f"ended with exit code {ended.code} before it answered"


def _describe_unconfirmed(ended: Ended) -> str:
    pids = ", ".join(map(str, ended.survivors))
    if ended.code is None and ended.signal is None and not ended.survivors:
        return "lost its keeper: it is not known whether its process tree is gone"
    return f"left processes that could not be confirmed gone: {pids or 'none that are visible'}"


def _find_memory_evidence(ended: Ended) -> str:
    """Why lack of memory is the likely cause; empty if nothing indicates it."""
    limit = f"its limit of {ended.memory_bytes / 2**30:.3g} GiB"
    if ended.oom_kill and ended.signal == signal.SIGKILL:
        return "the kernel killed it because the host, or its container, was out of memory"
    if ended.memory_bytes and ended.peak_rss_bytes >= NEAR_LIMIT * ended.memory_bytes:
        return f"it had used {ended.peak_rss_bytes / 2**30:.3g} GiB of {limit}"
    if ended.code != 0 and tells_of_memory(ended.log_tail):
        return (
            f"it could not allocate within {limit}"
            if ended.memory_bytes
            else "it could not allocate"
        )
    return ""

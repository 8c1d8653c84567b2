"""What the engine says about a worker it wants, and what it learns about how that one ended."""

from tileyard.model import Record


class WorkerCommand(Record):
    """What to start, and with what.

    ``env`` is the whole environment. ``log`` gets stdout and stderr appended; empty for none.
    ``memory_bytes`` limits the address space of each of its processes, 0 for no limit. ``cores``
    are those it may run on, none for all. ``locks`` are lock files that are held for as long as
    its tree lives, in the order in which everyone takes them. ``grace_s`` is the time between
    TERM and KILL for what it leaves behind, and for the whole tree when the engine dies.
    """

    argv: tuple[str, ...]
    env: dict[str, str]
    cwd: str
    log: str = ""
    memory_bytes: int = 0
    cores: tuple[int, ...] = ()
    locks: tuple[str, ...] = ()
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

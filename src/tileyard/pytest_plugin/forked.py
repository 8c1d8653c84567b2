"""Runs work in a process that begins as a copy of this one: no imports, no pickled functions. A copy from
``lanes`` reports through a pipe; a crash or hang leaves its location in ``log``. No thread may hold anything.
"""

import faulthandler
import io
import os
import pickle
import select
import signal
import struct
import sys
import threading
import time
import traceback
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any, Final, NoReturn, TypeVar

from tileyard.base.clock import NAP_S, Countdown
from tileyard.base.model import Record
from tileyard.base.modes import make_folder, open_file
from tileyard.processes.keeper.tree import descendants_of
from tileyard.processes.records import describe_signal
from tileyard.pytest_plugin.lanes import FAILED, Lane

T = TypeVar("T")
NICENESS: Final = 10
"""With this niceness a process gets a tenth of the usual share of a core that others want."""
GRACE_S: Final = 0.5
"""Seconds between the signal that makes a process report its location, and the one that ends it."""
FATAL: Final = (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL)
HEADER: Final = struct.Struct("<I")
"""The size of a message, sent before it."""
OPENMP: Final = "OMP_NUM_THREADS"
OPENBLAS: Final = "OPENBLAS_NUM_THREADS"
ASKED_THREADS: Final = "TILEYARD_PYTEST_THREADS"
"""The variable that keeps the original ``OMP_NUM_THREADS``, for the tests' own processes."""
TAIL_BYTES: Final = 4096
STACK_BYTES: Final = 1 << 16
CALLERS: Final = ("/_pytest/", "/pluggy/", "/tileyard/pytest_plugin/", "/tileyard/frontend/")
"""What the innermost frame that is not the user's has in its path."""


@dataclass(frozen=True)
class _Thread:
    """``counts``: nanoseconds that it ran and waited, excluding a wait that began ``since``."""

    counts: tuple[int, int]
    since: float
    waited_s: float


class CoreWaits:
    """The waits of all processes below ``root``. Of threads that wait at once, the longest one counts."""

    def __init__(self, root: int, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._root = root
        self._monotonic = monotonic
        self._threads: dict[int, _Thread] = {}

    def __call__(self) -> float:
        """Seconds since the last call; 0 where Linux does not count them."""
        now, before = self._monotonic(), self._threads
        self._threads = {
            thread: self._look(before.get(thread), counts, now, can_run=can_run)
            for pid, _ in descendants_of(self._root)
            for thread, counts, can_run in _read_threads(pid)
        }
        waits = (
            one.waited_s - (before[thread].waited_s if thread in before else 0.0)
            for thread, one in self._threads.items()
        )
        return max(waits, default=0.0)

    def _look(
        self, seen: _Thread | None, counts: tuple[int, int], now: float, *, can_run: bool
    ) -> _Thread:
        since = seen.since if seen and seen.counts == counts and can_run else now
        return _Thread(counts, since, counts[1] / 1e9 + now - since)


def _read_threads(pid: int) -> Iterator[tuple[int, tuple[int, int], bool]]:
    """A process's threads, with their counts and whether they can run; nothing of what ended meanwhile."""
    with suppress(OSError, ValueError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            ran, waited, _ = map(int, (task / "schedstat").read_text(encoding="ascii").split())
            state = (task / "stat").read_bytes().rpartition(b")")[2].split()[0]
            yield int(task.name), (ran, waited), state == b"R"


# ---- what a copy leaves behind ----------------------------------------------------------------


def out_log(log: Path) -> Path:
    """The file of its stdout; its stderr goes to ``log``."""
    return log.with_suffix(".out")


def stack_log(log: Path) -> Path:
    """The file in which a copy writes its stack when it dies of a signal."""
    return log.with_suffix(".stack")


def take_tail(path: Path, size: int = TAIL_BYTES, *, keep: bool = False) -> str:
    """The end of a file, which is then removed unless ``keep`` is set and it is not empty."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return ""
    if not (data and keep):
        path.unlink()
    return data[-size:].decode("utf-8", "replace").replace("\0", "").strip()


def cut_stack(text: str) -> str:
    """The user's frames: up to those of pytest, or of this module, which called them."""
    lines = takewhile(lambda line: not any(part in line for part in CALLERS), text.splitlines())
    return "\n".join(lines)


# ---- threads ----------------------------------------------------------------------------------


def spare_threads() -> None:
    """Keep OpenMP from starting threads in the process that tests are copied from: copies would hang."""
    if ASKED_THREADS in os.environ:
        return
    asked = os.environ.get(OPENMP, "")
    os.environ[ASKED_THREADS] = asked
    os.environ.setdefault(OPENBLAS, asked or str(len(os.sched_getaffinity(0))))
    os.environ[OPENMP] = "1"


def allow_threads(cores: int, processes: int) -> None:
    """In a test's own process: its share of the cores, or the number that the user has set."""
    asked = os.environ.pop(ASKED_THREADS, "")
    count = int(asked) if asked.isascii() and asked.isdecimal() else max(1, cores // processes)
    os.environ[OPENMP] = asked or str(count)
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(count)


# ---- in the copy ------------------------------------------------------------------------------


class Teller:
    """The copy's end of the pipe; usable from any thread."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._lock = threading.Lock()

    def tell(self, message: Record) -> None:
        """Send one message, waiting for room."""
        data = pickle.dumps(message)
        data = HEADER.pack(len(data)) + data
        with self._lock:
            while data:
                data = data[os.write(self.fd, data) :]


def print_to(log: Path) -> None:
    """Have all that this process and its programs print go to a copy's log."""
    fd = open_file(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for number in (1, 2):
        os.dup2(fd, number)
    os.close(fd)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)  # in order with what programs print


def yield_cores() -> None:
    """Give way to processes that hold a device on this host, if this one leads its session: Linux
    shares cores among sessions, if it groups them, and by niceness within one.
    """
    os.nice(NICENESS)
    with suppress(OSError):
        Path("/proc/self/autogroup").write_text(str(NICENESS))


def make_lane(work: Callable[[int, Teller], None]) -> Lane:
    """A lane of copies that do ``work``, each with its own number."""
    return Lane(lambda number, fds: be_copy(lambda teller: work(number, teller), fds))


def be_copy(work: Callable[[Teller], None], fds: Sequence[int]) -> NoReturn:
    """In the copy: do the work and end, without the original's own work at exit."""
    pipe, log_fd, stack_fd = fds
    code = FAILED
    try:
        faulthandler.disable()
        for number in FATAL:  # TVM's own handler spends a second on C frames, device in hand
            signal.signal(number, signal.SIG_DFL)
        faulthandler.enable(file=stack_fd)
        if "asyncio" in sys.modules:
            sys.modules["asyncio"].set_event_loop(None)
        work(Teller(pipe))
        code = 0
    except BaseException:  # noqa: BLE001 - a worker's entry
        os.write(log_fd, traceback.format_exc().encode())
    finally:
        for stream in (sys.stdout, sys.stderr):
            with suppress(ValueError, OSError):
                stream.flush()
        os._exit(code)


# ---- in the original --------------------------------------------------------------------------


class ForkEnd(Record):
    """How a copy ended: by ``code``, by ``signal``, or, with neither, as its parent was killed;
    ``timed_out``: for its limit. ``at`` is monotonic, ``tail`` the log's end, ``stack`` the Python
    stack of a signal.
    """

    at: float
    seconds: float
    code: int | None
    signal: int | None
    timed_out: bool
    tail: str
    stack: str

    @property
    def is_lost(self) -> bool:
        """Whether its parent was killed."""
        return self.code is None and self.signal is None

    def describe(self, limit_s: float) -> str:
        """One line that continues a sentence after its subject."""
        if self.timed_out:
            how = f", killed with {describe_signal(self.signal)}" if self.signal else ""
            return f"ran past its limit of {limit_s:g} s{how}"
        if self.signal is not None:
            return f"died of {describe_signal(self.signal)}"
        if self.is_lost:
            return "ended because its parent was killed: a test may only signal processes that it started"
        return f"ended with exit code {self.code} before it was done"


class Forked:
    """A copy in a lane, which does the work of ``number``; call ``read`` once one of ``fds`` is
    readable. ``end`` is None while it runs; ``paused_s`` is how long its limit was paused.
    """

    def __init__(
        self, lane: Lane, number: int, limit_s: float, log: Path, *, goes_on: bool = False
    ) -> None:
        """``goes_on``, for compile steps: it is resumed if stopped, and its limit excludes waits
        for a core. Else it is ended at its limit, as if the test had stopped it.
        """
        self.lane = lane
        self._goes_on = goes_on
        self.limit_s = limit_s
        self.log = log
        self._unread = b""
        self._began = time.monotonic()
        self._waited = CoreWaits(lane.guard) if goes_on else lambda: 0.0
        self._limit = self._count_down(limit_s)
        self._left_s = limit_s
        self._paused_at: float | None = None
        self.paused_s = 0.0
        self._is_late = False
        self.end: ForkEnd | None = None
        make_folder(log.parent)
        log_fd, stack_fd = (
            open_file(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND)
            for path in (log, stack_log(log))
        )
        self._pipe, write_end = os.pipe()
        lane.start(number, (write_end, log_fd, stack_fd))
        for fd in (write_end, log_fd, stack_fd):
            os.close(fd)
        os.set_blocking(self._pipe, False)
        self.fds = (self._pipe, lane.channel.fileno())

    def pause(self) -> None:
        """Pause its limit."""
        if self._paused_at is None:
            self._paused_at = time.monotonic()
            self._left_s = self._limit.left_s()

    def resume(self) -> None:
        """Resume its limit."""
        if self._paused_at is not None:
            self.paused_s += time.monotonic() - self._paused_at
            self._paused_at = None
            if not self._is_late:
                self._limit = self._count_down(self._left_s)

    def begin_anew(self) -> None:
        """Restart its limit from now."""
        self._limit = self._count_down(self.limit_s)

    def _count_down(self, seconds: float) -> Countdown:
        return Countdown(seconds, waited=self._waited)

    @property
    def _is_paused(self) -> bool:
        return self._paused_at is not None and not self._is_late

    def wait_s(self) -> float:
        """Seconds until `enforce` has to be called again."""
        return NAP_S if self._is_paused else self._limit.wait_s()

    def enforce(self) -> None:
        """End it if its time is over. One that waits has no limit of ours, and is resumed if stopped."""
        if self.end is None and (self._is_paused or self._goes_on):
            self.lane.go_on()
        if self.end is not None or self.wait_s() != 0.0:
            return
        if self._is_late:
            self.lane.end()
        else:
            self._is_late = True
            self._limit = Countdown(GRACE_S)
            self.lane.abort()  # writes its stack; see be_copy

    def read(self) -> list[Record]:
        """The messages since the last call; after the last message, ``end`` is set."""
        is_over, status = self.lane.read()
        with suppress(BlockingIOError):
            while data := os.read(self._pipe, 1 << 16):
                self._unread += data
        messages: list[Record] = []
        while len(self._unread) >= HEADER.size:
            (size,) = HEADER.unpack_from(self._unread)
            if len(self._unread) < HEADER.size + size:
                break
            messages.append(pickle.loads(self._unread[HEADER.size : HEADER.size + size]))
            self._unread = self._unread[HEADER.size + size :]
        if is_over:
            self._conclude(status)
        return messages

    def close(self) -> None:
        """End it now if it still runs, and its lane. Harmless once it has ended."""
        if self.end is None:
            self.lane.end()
            self._conclude(None)

    def _conclude(self, status: int | None) -> None:
        self.resume()
        os.close(self._pipe)
        if not self.lane.is_open:
            status = signal.SIGKILL
        code = None if status is None else os.waitstatus_to_exitcode(status)
        at = time.monotonic()
        self.end = ForkEnd(
            at=at,
            seconds=at - self._began,
            code=code if code is None or code >= 0 else None,
            signal=-code if code is not None and code < 0 else None,
            timed_out=self._is_late,
            tail=take_tail(self.log, keep=True),
            stack=cut_stack(take_tail(stack_log(self.log), STACK_BYTES)),
        )


def wait_any(copies: Iterable[Forked]) -> list[Forked]:
    """Wait until some copy has a message or has to be ended; the latter are ended."""
    by_fd = {fd: copy for copy in copies for fd in copy.fds}
    waiting = select.poll()
    for fd in by_fd:
        waiting.register(fd, select.POLLIN)
    timeout_ms = min((copy.wait_s() for copy in by_fd.values()), default=NAP_S) * 1000 + 1
    ready = {id(by_fd[fd]): by_fd[fd] for fd, _ in waiting.poll(timeout_ms)}
    for copy in set(by_fd.values()):
        copy.enforce()
    return list(ready.values())


def run_loop(main: Coroutine[Any, Any, T]) -> T:
    """As ``asyncio.run``; what a second Ctrl-C leaves undone is not printed."""
    import asyncio  # as below

    def complain(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if not isinstance(context.get("exception"), KeyboardInterrupt | None):
            loop.default_exception_handler(context)

    with asyncio.Runner() as runner:
        runner.get_loop().set_exception_handler(complain)
        return runner.run(main)


async def follow(copy: Forked) -> AsyncGenerator[Record, None]:
    """All messages of a copy, until it has ended, and its lane with it; within a running event loop."""
    import asyncio  # not on the far side, which has a device in its hands

    loop = asyncio.get_running_loop()
    told = asyncio.Event()
    fds = copy.fds
    for fd in fds:
        loop.add_reader(fd, told.set)
    try:
        while copy.end is None:
            with suppress(TimeoutError):
                async with asyncio.timeout(copy.wait_s()):
                    await told.wait()
            told.clear()
            for message in copy.read():  # one may say that it waits, which its limit does not count
                yield message
            copy.enforce()
    finally:
        for fd in fds:
            loop.remove_reader(fd)
        copy.close()
        copy.lane.close()

"""Work in a process of its own that begins as a copy of this one: no imports, no pickled functions.

The copy leads a session of its own and dies with the thread that made it. What it has to say comes
through a pipe; a crash or a hang says where it was in ``log``. A process that is copied must have no
threads that hold anything.

One module because both ends of a copy, what it may not inherit and where it leaves its last words are
one agreement.
"""

import asyncio
import faulthandler
import os
import pickle
import secrets
import select
import signal
import struct
import sys
import threading
import time
import traceback
import warnings
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import suppress
from itertools import takewhile
from pathlib import Path
from typing import Final, NoReturn

from tileyard.model import Record
from tileyard.modes import make_folder, open_file
from tileyard.processes.keeper.tree import kill_marked, libc
from tileyard.processes.outcomes import describe_signal

GRACE_S: Final = 0.5
"""Between the signal that has a process say where it is, and the one that ends it."""

CONFIRM_S: Final = 5.0
"""How long what it left behind may take to vanish."""
POLL_S: Final = 0.01
FATAL: Final = (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL)
PR_SET_PDEATHSIG: Final = 1
FAILED: Final = 70
"""The exit code of a copy whose work raised."""
HEADER: Final = struct.Struct("<I")
"""The size of a message, which goes before it."""
_own_trees: list[str] = []
OPENMP: Final = "OMP_NUM_THREADS"
OPENBLAS: Final = "OPENBLAS_NUM_THREADS"
ASKED_THREADS: Final = "TILEYARD_PYTEST_THREADS"
"""The variable that keeps what ``OMP_NUM_THREADS`` was, for the tests' own processes."""
TAIL_BYTES: Final = 4096
STACK_BYTES: Final = 1 << 16
CALLERS: Final = ("/_pytest/", "/pluggy/", "/tileyard/pytest_plugin/")
"""What the innermost frame that is not the user's has in its path."""


# ---- what a copy leaves behind ----------------------------------------------------------------


def out_log(log: Path) -> Path:
    """Where its stdout goes; its stderr goes to ``log``."""
    return log.with_suffix(".out")


def stack_log(log: Path) -> Path:
    """Where a copy says where it was when it died of a signal."""
    return log.with_suffix(".stack")


def take_tail(path: Path, size: int = TAIL_BYTES, *, keep: bool = False) -> str:
    """The end of a file that is not needed any more, unless it is to be kept and not empty."""
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
    """Keep OpenMP from starting threads in the process that tests are copied from.

    A copy of a process with such threads hangs where it wants to use them. OpenBLAS has means of its
    own. Harmless in a process that inherits from one where that was done.
    """
    if ASKED_THREADS in os.environ:
        return
    asked = os.environ.get(OPENMP, "")
    os.environ[ASKED_THREADS] = asked
    os.environ.setdefault(OPENBLAS, asked or str(len(os.sched_getaffinity(0))))
    os.environ[OPENMP] = "1"


def allow_threads(cores: int, processes: int) -> None:
    """In a test's own process: its share of the cores, or what the user has asked for."""
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


def keeper_environment() -> dict[str, str]:
    """The environment without the mark of this copy: whoever ends all that it started spares a keeper."""
    marks = [mark for mark in os.environ.get("TILEYARD_TREE", "").split(":") if mark]
    left = ":".join(mark for mark in marks if mark not in _own_trees)
    return {**os.environ, "TILEYARD_TREE": left}


def be_copy(
    work: Callable[[Teller], None], teller: Teller, logs: tuple[int, int], parent: int, tree: str
) -> NoReturn:
    """In the copy: do the work and end, without anything that the original would do at its end."""
    log_fd, stack_fd = logs
    code = FAILED
    try:
        os.setsid()
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(FAILED)
        above = os.environ.get("TILEYARD_TREE", "")
        _own_trees[:] = [tree]
        os.environ["TILEYARD_TREE"] = f"{above}:{tree}" if above else tree
        signal.set_wakeup_fd(-1)
        faulthandler.disable()
        for number in FATAL:  # TVM's own handler spends a second on C frames, device in hand
            signal.signal(number, signal.SIG_DFL)
        faulthandler.enable(file=stack_fd)
        asyncio.set_event_loop(None)
        work(teller)
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
    """How a copy ended: by ``code`` or ``signal``. ``timed_out`` says that it was ended for its limit.

    ``at`` is when that was seen, on the monotonic clock; ``tail`` is the end of its log, and ``stack``
    where its Python code was if it died of a signal.
    """

    at: float
    seconds: float
    code: int | None
    signal: int | None
    timed_out: bool
    tail: str
    stack: str

    def describe(self, limit_s: float) -> str:
        """One line, to go on from a subject."""
        if self.timed_out:
            how = f", killed with {describe_signal(self.signal)}" if self.signal else ""
            return f"ran past its limit of {limit_s:g} s{how}"
        if self.signal is not None:
            return f"died of {describe_signal(self.signal)}"
        return f"ended with exit code {self.code} before it was done"


class Forked:
    """A copy of this process that does ``work``. Once one of ``fds`` is readable, call ``read``.

    ``end`` is how it ended, None while it runs; ``paused_s`` for how long its limit was stopped.
    """

    def __init__(self, work: Callable[[Teller], None], limit_s: float, log: Path) -> None:
        self.limit_s = limit_s
        self.log = log
        self._tree = secrets.token_hex(8)
        self._unread = b""
        self._began = self._since = time.monotonic()
        self._used = self.paused_s = 0.0
        self._is_paused = False
        self._asked_at: float | None = None
        self._is_killed = False
        self.end: ForkEnd | None = None
        make_folder(log.parent)
        log_fd, stack_fd = (
            open_file(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC) for path in (log, stack_log(log))
        )
        self._pipe, write_end = os.pipe()
        for stream in (sys.stdout, sys.stderr):
            with suppress(ValueError, OSError):  # closed by somebody
                stream.flush()
        parent = os.getpid()
        with warnings.catch_warnings():
            # Of other threads that may hold locks. Should they, the limit ends it.
            warnings.simplefilter("ignore", DeprecationWarning)
            self.pid = os.fork()
        if self.pid == 0:
            be_copy(work, Teller(write_end), (log_fd, stack_fd), parent, self._tree)
        for fd in (write_end, log_fd, stack_fd):
            os.close(fd)
        os.set_blocking(self._pipe, False)
        self._handle = os.pidfd_open(self.pid)
        self.fds = (self._pipe, self._handle)

    def pause(self) -> None:
        """Stop its limit."""
        if not self._is_paused:
            now = time.monotonic()
            self._used += now - self._since
            self._since, self._is_paused = now, True

    def resume(self) -> None:
        """Let its limit go on."""
        if self._is_paused:
            now = time.monotonic()
            self.paused_s += now - self._since
            self._since, self._is_paused = now, False

    def begin_anew(self) -> None:
        """Let its limit count from now on."""
        self._used, self._since = 0.0, time.monotonic()

    def left_s(self) -> float | None:
        """Seconds until something has to be done about its limit, None for nothing."""
        if self._asked_at is not None:
            return self._asked_at + GRACE_S - time.monotonic()
        if self._is_paused:
            return None
        return self.limit_s - self._used - (time.monotonic() - self._since)

    def enforce(self) -> None:
        """End it if its time is over."""
        left_s = self.left_s()
        if left_s is None or left_s > 0 or self.end is not None:
            return
        if self._asked_at is None:
            self._asked_at = time.monotonic()
            os.kill(self.pid, signal.SIGABRT)  # says where it is; see be_copy
        else:
            self._kill()

    def read(self) -> list[Record]:
        """What it has told since the last time; once that is all, ``end`` is set."""
        is_over = bool(select.select([self._handle], [], [], 0)[0])
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
            self._conclude()
        return messages

    def close(self) -> None:
        """End it now if it still runs. Harmless once it has ended."""
        if self.end is None:
            self._kill()
            self._conclude()

    def _kill(self) -> None:
        if not self._is_killed:
            self._is_killed = True
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)  # where it has not yet got its session

    def _conclude(self) -> None:
        _, status = os.waitpid(self.pid, 0)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)  # what it left behind
        until_s = time.monotonic() + CONFIRM_S
        while kill_marked(self._tree) and time.monotonic() < until_s:
            time.sleep(POLL_S)
        self.resume()
        os.close(self._handle)
        os.close(self._pipe)
        code = os.waitstatus_to_exitcode(status)
        at = time.monotonic()
        self.end = ForkEnd(
            at=at,
            seconds=at - self._began,
            code=code if code >= 0 else None,
            signal=-code if code < 0 else None,
            timed_out=self._asked_at is not None,
            tail=take_tail(self.log, keep=True),
            stack=cut_stack(take_tail(stack_log(self.log), STACK_BYTES)),
        )


def wait_any(copies: Iterable[Forked]) -> list[Forked]:
    """Wait until some copy has something to say or has to be ended; see to the latter."""
    by_fd = {fd: copy for copy in copies for fd in copy.fds}
    waiting = select.poll()
    for fd in by_fd:
        waiting.register(fd, select.POLLIN)
    lefts = [left_s for copy in by_fd.values() if (left_s := copy.left_s()) is not None]
    timeout_ms = max(0.0, min(lefts)) * 1000 + 1 if lefts else None
    ready = {id(by_fd[fd]): by_fd[fd] for fd, _ in waiting.poll(timeout_ms)}
    for copy in set(by_fd.values()):
        copy.enforce()
    return list(ready.values())


async def follow(copy: Forked) -> AsyncGenerator[Record, None]:
    """All that a copy has to say, until it has ended; within a running event loop."""
    loop = asyncio.get_running_loop()
    told = asyncio.Event()
    fds = copy.fds
    for fd in fds:
        loop.add_reader(fd, told.set)
    try:
        while copy.end is None:
            with suppress(TimeoutError):
                async with asyncio.timeout(copy.left_s()):
                    await told.wait()
            told.clear()
            copy.enforce()
            for message in copy.read():
                yield message
    finally:
        for fd in fds:
            loop.remove_reader(fd)
        copy.close()

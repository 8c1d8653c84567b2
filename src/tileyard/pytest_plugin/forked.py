"""Work in a process of its own that begins as a copy of this one: no imports, no pickled functions.

The copy leads a session of its own and dies with the thread that made it. What it has to say comes
through a pipe; a crash or a hang says where it was in ``log``.
"""

import asyncio
import os
import pickle
import secrets
import select
import signal
import sys
import time
import warnings
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from tileyard.model import Record
from tileyard.modes import make_folder, open_file
from tileyard.processes.keeper.tree import kill_marked
from tileyard.processes.outcomes import describe_signal
from tileyard.pytest_plugin.copied import HEADER, Teller, be_copy
from tileyard.pytest_plugin.logs import STACK_BYTES, cut_stack, stack_log, take_tail

GRACE_S: Final = 0.5
"""Between the signal that has a process say where it is, and the one that ends it."""

CONFIRM_S: Final = 5.0
"""How long what it left behind may take to vanish."""
POLL_S: Final = 0.01


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
    """A copy of this process that does ``work``. Wait on ``fds``, then call ``read``.

    ``paused`` stops its limit for as long as it is true.
    """

    def __init__(self, work: Callable[[Teller], None], limit_s: float, log: Path) -> None:
        self.limit_s = limit_s
        self.log = log
        self._tree = secrets.token_hex(8)
        self._unread = b""
        self._began = self._since = time.monotonic()
        self._used = self._paused_s = 0.0
        self._is_paused = False
        self._asked_at: float | None = None
        self._is_killed = False
        self._end: ForkEnd | None = None
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

    @property
    def fds(self) -> tuple[int, int]:
        """What becomes readable when there is something to ``read``."""
        return (self._pipe, self._handle)

    @property
    def end(self) -> ForkEnd | None:
        """How it ended, None while it runs."""
        return self._end

    @property
    def paused_s(self) -> float:
        """For how long its limit was stopped."""
        return self._paused_s

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
            self._paused_s += now - self._since
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
        if left_s is None or left_s > 0 or self._end is not None:
            return
        if self._asked_at is None:
            self._asked_at = time.monotonic()
            os.kill(self.pid, signal.SIGABRT)  # says where it is; see _be_copy
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
        if self._end is None:
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
        self._end = ForkEnd(
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

"""Lanes: copies of this process, one after another, none of which leaves anything running.
This process starts a guard, that a forker, that each copy. The guard is child subreaper: what a copy starts
stays below it. The forker waits for a copy and ends what it left; if it dies, the guard ends all below and
makes another. If this process dies, all ends. Copies begin as this process was when the lane was made.
"""

import os
import select
import signal
import socket
import struct
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, NoReturn

from tileyard.base.clock import Countdown
from tileyard.processes.keeper.tree import descendants_of, libc, read_process, signal_child

FAILED: Final = 70
"""The exit code of a process whose work raised."""
CONFIRM_S: Final = 5.0
"""Seconds within which killed processes must vanish."""
POLL_S: Final = 0.002
PR_SET_PDEATHSIG: Final = 1
PR_SET_CHILD_SUBREAPER: Final = 36
SPARED: Final = "TILEYARD_SPARED"
"""The variable that marks the keeper of a lease, which outlives a copy: it has to return the lease."""
WATCHED: Final = (signal.SIGCHLD, signal.SIGTERM)
MESSAGE: Final = struct.Struct("<qq")
"""To the forker: the copy's serial number, and its work's number, or ABORT. From it: how that copy ended."""
ABORT: Final = -1
LOST: Final = -1
"""In place of a serial number: the forker was killed, and its copy with it."""

Work = Callable[[int, Sequence[int]], NoReturn]
"""The work of a copy: it gets a number and the descriptors that were sent with it."""


class Lane:
    """Runs one copy at a time, below the process ``guard``. ``channel`` is readable once a copy has ended."""

    def __init__(self, work: Work) -> None:
        self._serial = 0
        self.channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for stream in (sys.stdout, sys.stderr):
            with suppress(ValueError, OSError):  # closed by somebody
                stream.flush()
        parent = os.getpid()
        self.guard = _fork()
        if self.guard == 0:
            self.channel.close()
            _carry_out(lambda: _be_guard(parent, theirs, work))
        theirs.close()
        self.channel.setblocking(False)
        self._handle = os.pidfd_open(self.guard)
        self.is_open = True

    @property
    def is_usable(self) -> bool:
        """Whether a copy can be started."""
        return self.is_open and not _is_readable(self._handle)

    def start(self, number: int, fds: Sequence[int]) -> None:
        """Have a copy do the work of this number, with these descriptors."""
        self._serial += 1
        with suppress(OSError):  # the guard was killed, which `read` finds
            socket.send_fds(self.channel, [MESSAGE.pack(self._serial, number)], fds)

    def abort(self) -> None:
        """Send SIGABRT to the copy, and resume it if it is stopped."""
        with suppress(OSError):
            self.channel.send(MESSAGE.pack(self._serial, ABORT))

    def go_on(self) -> None:
        """Resume the copy if somebody has stopped it."""
        below = descendants_of(self.guard)
        forkers = {pid for pid, parent in below if parent == self.guard}
        for pid, parent in below:
            if parent in forkers:
                signal_child(pid, parent, signal.SIGCONT)

    def read(self) -> tuple[bool, int | None]:
        """Whether the copy has ended, and its wait status: None if its parent was killed."""
        while True:
            try:
                data = self.channel.recv(MESSAGE.size)
            except BlockingIOError:
                return False, None
            except OSError:
                data = b""
            if not data:
                return True, None
            serial, status = MESSAGE.unpack(data)
            if serial in (LOST, self._serial):
                return True, None if serial == LOST else status

    def close(self) -> None:
        """End it, and read no more."""
        self.end()
        self.channel.close()

    def end(self) -> None:
        """End everything that this process has below it in this lane."""
        if not self.is_open:
            return
        self.is_open = False
        for number in (signal.SIGTERM, signal.SIGCONT):
            os.kill(self.guard, number)
        countdown = Countdown(2 * CONFIRM_S)
        while not _is_readable(self._handle, countdown.wait_s()) and countdown.left_s():
            pass
        if not _is_readable(self._handle):  # somebody stops it again and again
            end_below(self.guard, set())
            os.kill(self.guard, signal.SIGKILL)
        os.waitpid(self.guard, 0)
        os.close(self._handle)


# ---- the guard ----------------------------------------------------------------------------------


def _be_guard(parent: int, channel: socket.socket, work: Work) -> None:
    os.setsid()
    signal.set_wakeup_fd(-1)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)
    _follow_parent(parent, signal.SIGTERM)
    guard = os.getpid()
    while True:
        forker = os.fork()
        if forker == 0:
            _carry_out(lambda: _be_forker(guard, channel, work, mask))
        is_told = _watch(forker)
        end_below(guard, set())
        if is_told:
            return
        channel.send(MESSAGE.pack(LOST, 0))


def _watch(forker: int) -> bool:
    """Wait for the order to end (True), or the forker's end; reap others, resume a stopped forker."""
    while signal.sigwait(WATCHED) != signal.SIGTERM:
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
            if pid == 0:
                break
            if pid == forker and not os.WIFSTOPPED(status):
                return False
            if pid == forker:
                os.kill(forker, signal.SIGCONT)
    return True


def end_below(guard: int, spared: set[int]) -> None:
    """Kill all below the guard but ``spared`` and keepers with what they run; spare what cannot be ended."""
    countdown = Countdown(CONFIRM_S)
    while left := _find_below(guard, spared):
        if not countdown.left_s():
            spared.update(pid for pid, _ in left)
        for pid, parent in left:
            signal_child(pid, parent, signal.SIGKILL)
        os.kill(guard, signal.SIGCONT)  # or it would not reap them
        time.sleep(POLL_S)
        if os.getpid() == guard:
            with suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass


def _find_below(guard: int, spared: set[int]) -> list[tuple[int, int]]:
    """``(pid, parent)`` of the processes below the guard that have to end."""
    children = read_process(guard, f"task/{guard}/children").split()
    if children and spared.issuperset(map(int, children)):
        return []  # the usual case, without a look at every process of the host
    kept = set(spared)
    left = []
    mark = f"{SPARED}=1".encode()
    for pid, parent in descendants_of(guard):
        if pid in kept or parent in kept or mark in read_process(pid, "environ").split(b"\0"):
            kept.add(pid)
        else:
            left.append((pid, parent))
    return left


# ---- the forker ---------------------------------------------------------------------------------


def _be_forker(guard: int, channel: socket.socket, work: Work, mask: set[int]) -> None:
    os.setsid()
    _follow_parent(guard, signal.SIGKILL)
    forker = os.getpid()
    spared = {forker}
    flags = socket.MSG_CMSG_CLOEXEC
    while data := (received := socket.recv_fds(channel, MESSAGE.size, 8, flags))[0]:
        serial, number = MESSAGE.unpack(data)
        if number == ABORT:
            continue  # it has ended meanwhile
        copy = os.fork()
        if copy == 0:
            channel.close()
            os.setsid()
            _follow_parent(forker, signal.SIGKILL)
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            work(number, received[1])
        for fd in received[1]:
            os.close(fd)
        status = _wait_for(copy, channel)
        end_below(guard, spared)
        channel.send(MESSAGE.pack(serial, status))


def _wait_for(copy: int, channel: socket.socket) -> int:
    """The wait status of a copy. Any message that arrives before its end is an order to abort it."""
    handle = os.pidfd_open(copy)
    waiting = select.poll()
    waiting.register(channel, select.POLLIN)
    waiting.register(handle, select.POLLIN)
    while (handle, select.POLLIN) not in waiting.poll():
        if not channel.recv(MESSAGE.size):
            os._exit(FAILED)
        for number in (signal.SIGABRT, signal.SIGCONT):
            os.kill(copy, number)
    os.close(handle)
    return os.waitpid(copy, 0)[1]


# ---- processes ----------------------------------------------------------------------------------


def _fork() -> int:
    with warnings.catch_warnings():
        # Of other threads that may hold locks. If they do, the limit ends it.
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def _carry_out(work: Callable[[], None]) -> NoReturn:
    """Do the work and end, without the original's own work at exit."""
    code = FAILED
    try:
        work()
        code = 0
    except (ConnectionError, KeyboardInterrupt):
        pass  # the process that asked is gone, or a copy has sent SIGINT to its parent
    except BaseException:  # noqa: BLE001 - a worker's entry
        traceback.print_exc()
    finally:
        os._exit(code)


def _follow_parent(parent: int, number: int) -> None:
    """Receive this signal when the parent dies."""
    libc.prctl(PR_SET_PDEATHSIG, number, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(FAILED)


def _is_readable(fd: int, seconds: float = 0.0) -> bool:
    waiting = select.poll()
    waiting.register(fd, select.POLLIN)
    return bool(waiting.poll(seconds * 1000))

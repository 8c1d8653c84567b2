"""A fork server: starts keepers as copies of itself, which takes a millisecond instead of twenty.
Run as ``python -S -E -I .../keeper/start.py serve SOCKET``. A request is four descriptors (the program's
stdout and stderr, the keeper's control and reports) and, after its size, items that end with NUL: the number
of arguments, the keeper's arguments, and the program's environment. The answers are the keeper's reports. As
child subreaper it ends what a killed keeper leaves, then reports it as ``lost``.
"""

import _socket
import ctypes
import gc
import os
import select
import sys
import time

from . import report
from .report import emit
from .run import Keeper
from .tree import SIGCHLD, SIGKILL, descendants_of, libc, parent_of, signal_child, signal_set
from .watching import PR_SET_CHILD_SUBREAPER, SIG_BLOCK
from .worker import Options

SIZE_BYTES = 8
FDS = 4
POLL_S = 0.01
CONFIRM_S = 5.0
"""Seconds that the processes left by a killed keeper may take to vanish."""


class ForkServer:
    """Serves the one process at the other end of the socket, and ends with it."""

    def __init__(self, socket: _socket.socket) -> None:
        self.socket = socket
        self.reports: dict[int, int] = {}
        mask = ctypes.byref(signal_set(SIGCHLD))
        libc.sigprocmask(SIG_BLOCK, mask, None)
        self.signals = libc.signalfd(-1, mask, os.O_NONBLOCK | os.O_CLOEXEC)
        libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

    def run(self) -> None:
        """Start keepers until the socket is closed."""
        poll = select.poll()
        poll.register(self.socket.fileno(), select.POLLIN)
        poll.register(self.signals, select.POLLIN)
        while True:
            for fd, _ in poll.poll():
                if fd == self.signals:
                    os.read(fd, 128)
                    self.reap()
                elif not self.serve():
                    return

    def serve(self) -> bool:
        """Take one request; False if there will be no further one."""
        head, ancillary, _, _ = self.socket.recvmsg(
            SIZE_BYTES, _socket.CMSG_SPACE(4 * FDS), _socket.MSG_CMSG_CLOEXEC
        )
        packed = b"".join(data for _, _, data in ancillary)
        fds = [int.from_bytes(packed[i : i + 4], sys.byteorder) for i in range(0, len(packed), 4)]
        head += self.read(SIZE_BYTES - len(head)) if head else b""
        size = int.from_bytes(head, "little")
        text = self.read(size) if len(head) == SIZE_BYTES else b""
        if not text or len(text) < size:  # the other side is gone, perhaps mid-request
            return False
        items = [os.fsdecode(item) for item in text.split(b"\0")]
        count = 1 + int(items[0])
        pairs = (item.partition("=") for item in items[count:-1])
        pid = self.fork(items[1:count], {name: text for name, _, text in pairs}, fds)
        self.reports[pid] = fds.pop()
        for fd in fds:
            os.close(fd)
        return True

    def read(self, size: int) -> bytes:
        """Exactly ``size`` bytes; fewer if the other side is gone."""
        data = b""
        while len(data) < size and (part := self.socket.recv(size - len(data))):
            data += part
        return data

    def fork(self, arguments: list[str], environment: dict[str, str], fds: list[int]) -> int:
        """The pid of a new keeper."""
        pid = os.fork()
        if pid:
            return pid
        try:
            for fd in (self.socket.fileno(), self.signals, *self.reports.values()):
                os.close(fd)
            null = os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
            for number, fd in enumerate((null, *fds[:2])):
                os.dup2(fd, number)
                os.close(fd)
            options = Options(arguments, environment)
            options.control, options.reports = fds[2:]
            report.reports = options.reports
            Keeper(options).run()
            os._exit(0)
        finally:
            os._exit(1)

    def reap(self) -> None:
        """Reap ended children; end the processes that killed keepers have left behind."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            report.reports = self.reports.pop(pid, -1)
            if report.reports >= 0:
                if status:
                    ending = os.waitstatus_to_exitcode(status)
                    emit("lost", signal=max(-ending, 0), survivors=self.end_orphans())
                os.close(report.reports)

    def end_orphans(self) -> list[int]:
        """End the processes below this process and no keeper; return those that would not end."""
        deadline = time.monotonic() + CONFIRM_S
        while orphans := descendants_of(os.getpid(), self.reports):
            for pid, parent in orphans:
                signal_child(pid, parent, SIGKILL)
            if time.monotonic() > deadline:
                return [pid for pid, _ in orphans]
            time.sleep(POLL_S)
            for pid, _ in orphans:
                if parent_of(pid) == os.getpid():
                    os.waitpid(pid, os.WNOHANG)
        return []


def main(fd: int) -> None:
    """Serve the process at the other end of a socket."""
    server = ForkServer(_socket.socket(fileno=fd))
    gc.disable()  # objects that it visits would have to be copied in a fork
    gc.freeze()
    server.run()
    os._exit(0)

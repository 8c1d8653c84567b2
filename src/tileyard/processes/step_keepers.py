"""Starts keepers of single programs, forked from a waiting process, for a worker that runs many side by side.
Each dies with its keeper, and the fork server ends its leftovers: one that kills its parent harms no other.
"""

import atexit
import contextlib
import os
import select
import signal
import socket
import subprocess
import threading
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from tileyard.base.clock import Countdown
from tileyard.base.errors import WorkerStartError
from tileyard.processes.keeper.tree import kill_marked, signal_child
from tileyard.processes.keeper_line import PYTHON, START, Report, keeper_argv

START_LIMIT_S: Final = 3.0
"""Seconds until a program must run; normally it takes milliseconds."""
GONE_LIMIT_S: Final = 6.0
ATTEMPTS: Final = 3
SIZE_BYTES: Final = 8

_decoder = msgspec.json.Decoder(Report)


class StepKeeper(contextlib.AbstractContextManager["StepKeeper"]):
    """The keeper of one program, started with it; call ``read`` once ``reports`` is readable.
    ``stdout`` and ``stderr`` are the program's; ``end`` is the last report, None before that.
    """

    def __init__(self, tree: str, text: bytes) -> None:
        """Fork the keeper. Raises OSError if the fork server is lost; then nothing of it runs."""
        self.end: Report | None = None
        self._pid = 0
        self._tree = tree
        self._unread = b""
        with contextlib.ExitStack() as theirs, contextlib.ExitStack() as ours:
            ends = [_open_pipe(theirs, ours, is_read_here=name != "control") for name in PIPES]
            self.stdout, self.stderr, self._control, self.reports = (own for own, _ in ends)
            server = _forking.send(text, [other for _, other in ends])
            theirs.close()
            if not self._wait_for_start(server):
                _forking.replace(server)
                self._abandon()
                raise ConnectionError("its fork server is lost")
            self._server = server.pid
            self._ours = ours.pop_all()

    def read(self) -> bool:
        """Read its reports; False once nothing more will come."""
        data = os.read(self.reports, 1 << 16)
        *lines, self._unread = (self._unread + data).split(b"\n")
        for line in lines:
            report = _decoder.decode(line)
            if report.event == "started":
                self._pid = report.keeper
            else:
                self.end = report
        return bool(data) and self.end is None

    def go_on(self) -> None:
        """Continue the keeper if it was stopped."""
        if self._pid:
            signal_child(self._pid, self._server, signal.SIGCONT)

    def tell_to_end(self, grace_s: float) -> None:
        """Have the tree ended: TERM, and KILL after ``grace_s``."""
        with contextlib.suppress(BrokenPipeError):  # then its report is on the way
            os.write(self._control, f"kill {grace_s:f}\n".encode())
        self.go_on()

    def kill(self) -> list[int]:
        """Kill a keeper that does not answer, and all processes with its token; return these."""
        if self._pid:
            signal_child(self._pid, self._server, signal.SIGKILL)
        return kill_marked(self._tree)

    def __exit__(self, *_: object) -> None:
        self._ours.close()

    def _wait_for_start(self, server: "_ForkServer") -> bool:
        """Whether the program runs, or is refused; False if the fork server is lost."""
        countdown = Countdown(START_LIMIT_S)
        poll = select.poll()
        poll.register(self.reports, select.POLLIN)
        while not self._pid and self.end is None and (wait_s := countdown.wait_s()):
            if not poll.poll(wait_s * 1000):
                server.go_on()
            elif not self.read() and self.end is None:
                return False
        return bool(self._pid or self.end)

    def _abandon(self) -> None:
        """End a keeper that may have been forked and has no reader: it sees the end of its orders."""
        with contextlib.suppress(BrokenPipeError):  # there is no keeper
            os.write(self._control, b"kill 0\n")
        poll = select.poll()
        poll.register(self.reports, select.POLLIN)
        while poll.poll(GONE_LIMIT_S * 1000) and os.read(self.reports, 1 << 16):
            pass


PIPES: Final = ("stdout", "stderr", "control", "reports")


def _open_pipe(
    theirs: contextlib.ExitStack, ours: contextlib.ExitStack, *, is_read_here: bool
) -> tuple[int, int]:
    own, other = os.pipe() if is_read_here else os.pipe()[::-1]
    ours.callback(os.close, own)
    theirs.callback(os.close, other)
    return own, other


class _ForkServer:
    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [*PYTHON, START, "serve", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        self._socket.settimeout(START_LIMIT_S)
        self.pid = self._process.pid

    def send(self, text: bytes, fds: Sequence[int]) -> None:
        """Ask for a keeper. Raises OSError if the process is gone, or does not listen."""
        self.go_on()
        socket.send_fds(self._socket, [len(text).to_bytes(SIZE_BYTES, "little")], list(fds))
        self._socket.sendall(text)

    def go_on(self) -> None:
        """Continue it if it was stopped."""
        self._process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        """End the process. The keepers that it has forked continue."""
        self._socket.close()
        self._process.kill()
        self._process.wait()


class _Forking:
    """The fork server of this process: started at its first use, and again if it is lost."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._server: _ForkServer | None = None

    def warm(self) -> None:
        """Start it if necessary."""
        with self._lock:
            self._server = self._server or _ForkServer()

    def send(self, text: bytes, fds: Sequence[int]) -> _ForkServer:
        """Ask for a keeper; return the server that was asked. Raises OSError."""
        with self._lock:
            server = self._server = self._server or _ForkServer()
            try:
                server.send(text, fds)
            except OSError:
                self._end(server)
                raise
            return server

    def replace(self, server: _ForkServer) -> None:
        """End a server that is lost."""
        with self._lock:
            self._end(server)

    def close(self) -> None:
        """End it, if it runs."""
        if self._server is not None:
            self._end(self._server)

    def _end(self, server: _ForkServer) -> None:
        if self._server is server:
            self._server = None
        server.close()


_forking = _Forking()
atexit.register(_forking.close)
warm = _forking.warm


def start_step(
    tree: str, options: Sequence[str], env: Mapping[str, str], argv: Sequence[str]
) -> StepKeeper:
    """Start a program under its own keeper. Raises WorkerStartError, ValueError for impossible arguments."""
    line = keeper_argv(tree, ["step=1", *options], None, argv)[len(PYTHON) + 1 :]
    items = [os.fsencode(item) for item in (str(len(line)), *line, *map("=".join, env.items()))]
    if any(b"\0" in item for item in items):
        raise ValueError("embedded null byte")
    text = b"".join(item + b"\0" for item in items)
    lost = OSError()
    for _ in range(ATTEMPTS):
        try:
            return StepKeeper(tree, text)
        except OSError as error:
            lost = error
    raise WorkerStartError(f"cannot start {argv[0]}: no keeper could be forked: {lost}") from lost

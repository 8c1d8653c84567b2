"""What a program prints while it runs: read, written to its log, and shown line by line to who asks."""

import math
import os
import select
import subprocess
import time
from typing import Final

from tileyard.modes import open_file

DRAIN_S: Final = 0.2
"""How long the output of a program is read once all of it has ended: a stranger may hold the pipe."""
TAIL_BYTES: Final = 2048
LOG_BYTES: Final = 32 << 20
"""How much of what a program prints is kept in a log; beyond that only its end."""
COUNTED: Final = 1000
"""So many complaints are told from empty lines; who has more of them is not read line by line."""


class Heard:
    """What is done with a program's output while it runs; this one does nothing."""

    reads_lines = False
    """Whether lines are shown to it, and go to the logs that it names."""

    def log_of(self, text: str) -> str:
        """The log that a line of its standard output belongs to, empty for the step's."""
        return ""

    def line(self, text: str) -> None:
        """Take in a line of its standard output, which is in its log by now."""

    def log(self) -> str:
        """The log that a line of its standard error belongs to now, empty for the step's."""
        return ""

    def wants_end(self) -> bool:
        """Whether it is to be ended now, with whatever it has done."""
        return False

    def deadline_s(self, since_s: float, limit_s: float) -> float:
        """When, on the monotonic clock, it is to be ended: by default its limit, if not 0, after its start."""
        return since_s + limit_s if limit_s else math.inf


class Follower:
    """Reads what a program prints until it has ended, or its time is over."""

    def __init__(
        self, process: subprocess.Popen[bytes], log: int, heard: Heard, started_s: float
    ) -> None:
        self.printed = 0
        self.complaints = 0
        self.tail = b""
        self._logs = {"": _Log(log)}
        self._heard = heard
        self._started_s = started_s
        self._handle = os.pidfd_open(process.pid)
        self._process = process
        self._poll = select.poll()
        self._poll.register(self._handle, select.POLLIN)
        self._streams: dict[int, bytes] = {}
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                os.set_blocking(stream.fileno(), False)
                self._streams[stream.fileno()] = b""
                self._poll.register(stream.fileno(), select.POLLIN)
        self._stderr = process.stderr.fileno() if process.stderr is not None else -1

    def follow(self, limit_s: float) -> bool:
        """Read until it has ended; True if its time was over before."""
        while True:
            if self._heard.wants_end():
                return True
            left_ms: float | None = None
            until_s = self._heard.deadline_s(self._started_s, limit_s)
            if until_s < math.inf:
                left_ms = (until_s - time.monotonic()) * 1000
                if left_ms <= 0:
                    return True
            ready = {fd for fd, _ in self._poll.poll(left_ms)}
            for fd in ready & self._streams.keys():
                self._read(fd)
            if self._handle in ready:
                return False

    def drain(self) -> None:
        """Read what is still in the pipes, once what could write to them has been ended."""
        self._poll.unregister(self._handle)
        os.close(self._handle)
        until_s = time.monotonic() + DRAIN_S
        while self._streams and (left_s := until_s - time.monotonic()) > 0:
            ready = {fd for fd, _ in self._poll.poll(left_s * 1000)}
            if sum(self._read(fd) for fd in ready & self._streams.keys()) == 0:  # all are read
                break
        for fd, rest in self._streams.items():
            if rest:
                self._tell(fd, rest)
        for path, log in self._logs.items():
            log.end(self.tail)
            if path:
                os.close(log.handle)

    def _read(self, fd: int) -> bool:
        """Take in what a stream holds; False if that was nothing."""
        try:
            data = os.read(fd, 1 << 16)
        except BlockingIOError:
            return False
        if not data:
            self._poll.unregister(fd)
            rest = self._streams.pop(fd)
            if rest:
                self._tell(fd, rest)
            return False
        self.printed += len(data)
        self.tail = (self.tail + data)[-TAIL_BYTES:]
        if not self._heard.reads_lines:
            self._logs[""].write(data)
            if fd != self._stderr:
                return True
            if self.complaints >= COUNTED:
                self.complaints += data.count(b"\n")
                return True
        *lines, rest = (self._streams[fd] + data).split(b"\n")
        self._streams[fd] = rest[-(1 << 16) :]
        for line in lines:
            self._tell(fd, line)
        return True

    def _tell(self, fd: int, line: bytes) -> None:
        if fd == self._stderr:
            self.complaints += bool(line.strip())
            if self._heard.reads_lines:
                self._find(self._heard.log()).write(line + b"\n")
        elif self._heard.reads_lines:
            text = line.decode("utf-8", "replace")
            self._find(self._heard.log_of(text)).write(line + b"\n")
            self._heard.line(text)

    def _find(self, path: str) -> "_Log":
        if path not in self._logs:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
            self._logs[path] = _Log(open_file(path, flags))
        return self._logs[path]


class _Log:
    """A file that takes so much and no more."""

    def __init__(self, handle: int) -> None:
        self.handle = handle
        self._room = LOG_BYTES
        self._left_out = 0

    def write(self, data: bytes) -> None:
        kept = data[: self._room]
        self._room -= len(kept)
        self._left_out += len(data) - len(kept)
        if kept:
            self._put(kept)

    def end(self, tail: bytes) -> None:
        """Say how much is not in the file, and what the program printed last."""
        if self._left_out:
            said = f"\n==== {self._left_out} bytes more were printed; the last of them:\n"
            self._put(said.encode() + tail)

    def _put(self, data: bytes) -> None:
        try:
            os.write(self.handle, data)
        except OSError:  # a full disk decides about the log, not about the case
            self._room = 0

"""What a program prints while it runs: read, written to its log, and shown line by line to who asks."""

import os
import select
import subprocess
import time
from pathlib import Path
from typing import Final

DRAIN_S: Final = 0.2
"""How long the output of a program is read once all of it has ended: a stranger may hold the pipe."""
TAIL_BYTES: Final = 2048


class Heard:
    """What is done with a program's output while it runs; this one does nothing."""

    splits_log = False
    """Whether lines go to logs of their own, as ``line`` and ``log`` say."""

    def line(self, text: str) -> str:
        """Take in a line of its standard output; the log that it belongs to, empty for the step's."""
        return ""

    def log(self) -> str:
        """The log that a line of its standard error belongs to now, empty for the step's."""
        return ""

    def wants_end(self) -> bool:
        """Whether it is to be ended now, with whatever it has done."""
        return False

    def deadline_s(self, since_s: float, limit_s: float) -> float:
        """When, on the monotonic clock, it is to be ended: by default its limit after its start."""
        return since_s + limit_s


class Follower:
    """Reads what a program prints until it has ended, or its time is over."""

    def __init__(
        self, process: subprocess.Popen[bytes], log: int, heard: Heard, started_s: float
    ) -> None:
        self.printed = 0
        self.complaints = 0
        self.tail = b""
        self._log = log
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
            if limit_s:
                until_s = self._heard.deadline_s(self._started_s, limit_s)
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
        if not self._heard.splits_log:
            os.write(self._log, data)
        self.printed += len(data)
        self.tail = (self.tail + data)[-TAIL_BYTES:]
        *lines, rest = (self._streams[fd] + data).split(b"\n")
        self._streams[fd] = rest[-(1 << 16) :]
        for line in lines:
            self._tell(fd, line)
        return True

    def _tell(self, fd: int, line: bytes) -> None:
        if fd == self._stderr:
            self.complaints += bool(line.strip())
            log = self._heard.log()
        else:
            log = self._heard.line(line.decode("utf-8", "replace"))
        if self._heard.splits_log:
            self._write(log, line + b"\n")

    def _write(self, log: str, line: bytes) -> None:
        if not log:
            os.write(self._log, line)
            return
        with Path(log).open("ab") as file:
            file.write(line)

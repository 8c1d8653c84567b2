"""Runs one program of a user, under its own keeper: reads output, limits it, ends its tree, reports."""

import contextlib
import errno
import math
import os
import re
import secrets
import select
import shlex
import time
from collections.abc import Callable
from io import FileIO
from pathlib import Path
from typing import Final

from tileyard.base.clock import Countdown
from tileyard.base.errors import HomeError, WorkerStartError
from tileyard.base.model import Record
from tileyard.base.modes import make_folder, open_file
from tileyard.base.wording import count_of
from tileyard.processes.keeper_line import Report
from tileyard.processes.records import describe_signal
from tileyard.processes.step_keepers import StepKeeper, start_step

ATTEMPTS: Final = 3
"""Number of runs of a program whose keeper is killed: by the program itself, if that happens each time."""
GRACE_S: Final = 0.2
"""Seconds between TERM and KILL for a program that ran past its limit."""
CONFIRM_S: Final = 5.0
"""Seconds that a killed tree may take to vanish."""
COMPILER_ERROR: Final = re.compile(r"\berror: ")
_DETOUR: Final = re.compile(r"(?<![^\s/\"'])(?!\.\.?/)[^\s/:]+/\.\./")
"""``tadd/../`` in a path."""
_FRAME: Final = re.compile(r'\s+File ".*", line \d')
LONGEST: Final = 2000
"""Most characters of its arguments that a log shows."""
DRAIN_S: Final = 0.2
"""Seconds for which a program's output is read after all of it has ended: a stranger may hold the pipe."""
TAIL_BYTES: Final = 2048
LOG_BYTES: Final = 32 << 20
"""Most bytes of a program's output that a log keeps; beyond that only its end."""
COUNTED: Final = 1000
"""Number of complaints that are read line by line; in a program with more, the rest is not."""


class Heard:
    """Receives a program's output while it runs; this one does nothing."""

    reads_lines = False
    """Whether it receives lines, and chooses their logs."""

    def takes(self, data: bytes) -> bool:
        """Take in standard output; False leaves it to lines, logs and the tail."""
        return False

    def log_of(self, text: str) -> str:
        """The log of a line of its standard output, empty for the step's."""
        return ""

    def line(self, text: str) -> None:
        """Take in a line of its standard output, which is already in its log."""

    def log(self) -> str:
        """The log of its standard error at this moment, empty for the step's."""
        return ""

    def wants_end(self) -> bool:
        """Whether the program must end now, whatever it has done."""
        return False

    def deadline_s(self, since_s: float, limit_s: float) -> float:
        """When, on the monotonic clock, the program must end: ``limit_s`` after its start, if not 0."""
        return since_s + limit_s if limit_s else math.inf


class Printed(Heard):
    """Keeps a program's standard output in ``data``; ends the program at more than ``most_bytes``."""

    def __init__(self, most_bytes: int) -> None:
        self.data = bytearray()
        self._most_bytes = most_bytes

    def takes(self, data: bytes) -> bool:
        """Keep it."""
        self.data += data
        return True

    def wants_end(self) -> bool:
        """Whether the output is too large."""
        return len(self.data) > self._most_bytes


class Follower:
    """Reads a program's output until its keeper reports its end, or its time is over."""

    def __init__(self, keeper: StepKeeper, log: FileIO, heard: Heard, started_s: float) -> None:
        self.printed = 0
        self.complaints = 0
        self.tail = b""
        self._keeper = keeper
        self._logs = {"": _Log(log)}
        self._heard = heard
        self._started_s = started_s
        self._until_s = 0.0
        self._countdown = Countdown(None)
        self._poll = select.poll()
        self._poll.register(keeper.reports, select.POLLIN)
        self._streams: dict[int, bytes] = {}
        for fd in (keeper.stdout, keeper.stderr):
            os.set_blocking(fd, False)
            self._streams[fd] = b""
            self._poll.register(fd, select.POLLIN)
        self._stderr = keeper.stderr

    def follow(self, limit_s: float) -> bool:
        """Read until it has ended; True if its time was over before."""
        while not self._heard.wants_end():
            until_s = self._heard.deadline_s(self._started_s, limit_s)
            if until_s != self._until_s:
                self._until_s, self._countdown = until_s, Countdown(until_s - time.monotonic())
            if not (wait_s := self._countdown.wait_s()):
                return True
            if not self._look(wait_s):
                return False
        return True

    def end(self, grace_s: float) -> list[int]:
        """Have the program ended, and read its output meanwhile; return the processes that would not end."""
        self._keeper.tell_to_end(grace_s)
        if self._wait(grace_s + CONFIRM_S):
            return []
        killed = self._keeper.kill()
        return [] if self._wait(CONFIRM_S) else killed

    def _wait(self, limit_s: float) -> bool:
        countdown = Countdown(limit_s)
        while wait_s := countdown.wait_s():
            if not self._look(wait_s):
                return True
        return False

    def _look(self, wait_s: float) -> bool:
        """Read what has arrived; False once its keeper will report nothing more."""
        if self._keeper.end is not None:
            return False
        ready = {fd for fd, _ in self._poll.poll(wait_s * 1000)}
        if not ready:
            self._keeper.go_on()
        for fd in ready & self._streams.keys():
            self._read(fd)
        return self._keeper.reports not in ready or self._keeper.read()

    def drain(self) -> None:
        """Read what is still in the pipes, after all processes that could write to them have ended."""
        self._poll.unregister(self._keeper.reports)
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
                log.file.close()

    def _read(self, fd: int) -> bool:
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
        if fd != self._stderr and self._heard.takes(data):
            return True
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
            self._logs[path] = _Log(_open_log(path))
        return self._logs[path]


class _Log:
    def __init__(self, file: FileIO) -> None:
        self.file = file
        self._room = LOG_BYTES
        self._left_out = 0

    def write(self, data: bytes) -> None:
        kept = data[: self._room]
        self._room -= len(kept)
        self._left_out += len(data) - len(kept)
        if kept:
            self._put(kept)

    def end(self, tail: bytes) -> None:
        """Write how much is missing in the file, and the end of the output."""
        if self._left_out:
            said = f"\n==== {self._left_out} bytes more were printed; the last of them:\n"
            self._put(said.encode() + tail)

    def _put(self, data: bytes) -> None:
        try:
            self.file.write(data)
        except OSError:  # a full disk concerns the log, not the case
            self._room = 0


class StepOrder(Record):
    """A program to run in the environment ``env``; output is appended to ``log``, with the call and
    the end if it has a ``title``. ``limit_s`` and ``memory_bytes`` (address space of each process)
    are 0 for no limit.
    """

    argv: tuple[str, ...]
    env: dict[str, str]
    cwd: str
    log: str
    title: str = ""
    limit_s: float = 0.0
    memory_bytes: int = 0


class StepEnd(Record):
    """How a program ended: by exit ``code``, by ``signal``, or not begun because of ``refusal``
    (``errno``, 0 if none, and path ``refused``). ``timed_out``: killed past its limit.
    ``complaints``: lines on stderr, ``printed``: bytes of both streams, ``tail``: their end.
    ``seconds``: total time here, ``ran_ns``: the program's from start to exit, ``cpu_ns``: with the
    processes it waited for. ``survivors`` could not be ended. ``lost``: killed with its keeper.
    """

    seconds: float
    ran_ns: int = 0
    cpu_ns: int = 0
    code: int | None = None
    signal: int | None = None
    refusal: str = ""
    errno: int = 0
    refused: str = ""
    timed_out: bool = False
    printed: int = 0
    complaints: int = 0
    tail: str = ""
    survivors: tuple[int, ...] = ()
    lost: bool = False

    @property
    def ok(self) -> bool:
        """Whether it ended by itself, with exit code 0."""
        return self.code == 0 and not self.timed_out and not self.survivors


def run_step(order: StepOrder, heard: Heard | None = None) -> StepEnd:
    """Run a program to its end, or to its limit; no process of it is left afterwards."""
    tree = secrets.token_hex(8)
    env = {**order.env, "TILEYARD_TREE": os.environ.get("TILEYARD_TREE", "")}
    options = [
        f"cwd={order.cwd}",
        f"memory={order.memory_bytes}",
        f"grace={GRACE_S:f}",
        f"confirm={CONFIRM_S:f}",
    ]
    with _open_log(order.log) as log:
        if order.title:
            _note(log, describe_start(order))
        try:
            with start_step(tree, options, env, order.argv) as keeper:
                started_s = time.monotonic()
                follower = Follower(keeper, log, heard or Heard(), started_s)
                timed_out = follower.follow(order.limit_s)
                survivors = follower.end(GRACE_S) if timed_out else []
                if keeper.end is None:  # and its fork server is gone, too
                    keeper.kill()
                follower.drain()
        except ValueError as error:
            return _refuse(order, log, str(error))
        except WorkerStartError as error:
            return StepEnd(seconds=0.0, refusal=error.message)
        last = keeper.end
        if last is not None and last.refused_step:
            return _refuse(order, log, os.strerror(last.errno or 0), last)
        is_lost = last is None or last.event == "lost"
        end = StepEnd(
            seconds=time.monotonic() - started_s,
            ran_ns=0 if last is None else last.ran_ns,
            cpu_ns=0 if last is None else last.cpu_ns,
            code=None if last is None else last.code,
            signal=None if last is None else last.signal,
            timed_out=timed_out,
            lost=is_lost and not timed_out,
            printed=follower.printed,
            complaints=follower.complaints,
            tail=follower.tail.decode("utf-8", "replace"),
            survivors=tuple(survivors) if last is None else last.survivors,
        )
        if order.title:
            _note(log, f"{describe_kind(end, order)} after {end.seconds:.2f} s")
        return end


def insist_on(
    order: StepOrder, clear: Callable[[], object] = list, heard: Heard | None = None
) -> StepEnd:
    """Run a program without a device, again at most twice if its keeper was killed, after ``clear``
    of its results. Raises HomeError if the host is at fault.
    """
    for left in reversed(range(ATTEMPTS)):
        end = run_step(order, heard)
        if end.refusal and not end.refused:
            raise HomeError(end.refusal)
        if not (end.lost and left):
            break
        clear()
    return end


def describe_start(order: StepOrder) -> str:
    """The lines of a log before a step's output: what is run, and where."""
    return f"{order.title}: {shlex.join(order.argv)[:LONGEST]}\n==== in {order.cwd}"


def note_in(log: Path, text: str) -> None:
    """Append a line of ours to a log of programs' output."""
    with _open_log(log) as file:
        _note(file, text)


def _open_log(path: str | Path) -> FileIO:
    """A log to append to; if it cannot be opened, the output is lost."""
    with contextlib.suppress(OSError):  # a full disk concerns the log, not the case
        make_folder(Path(path).parent)
        return open(path, "ab", buffering=0, opener=open_file)
    return Path(os.devnull).open("ab", buffering=0)


def _note(log: FileIO, text: str) -> None:
    with contextlib.suppress(OSError):  # a full disk concerns the log, not the case
        log.write(f"==== {text}\n".encode(errors="replace"))


def _refuse(order: StepOrder, log: FileIO, what: str, last: Report | None = None) -> StepEnd:
    number = (last.errno if last is not None else 0) or 0
    refusal = f"{order.argv[0]} cannot be started: {what}"
    refused = order.argv[0]
    if last is not None and last.refused_step == "cwd":
        refused = order.cwd
        refusal = f"{refusal}: its directory {order.cwd}"
    elif number == errno.ENOENT and Path(order.cwd, refused).is_file():
        refusal = f"{refusal}: the interpreter or loader that it asks for"
    if order.title:
        _note(log, refusal)
    return StepEnd(seconds=0.0, refusal=refusal, errno=number, refused=refused)


def describe_complaints(end: StepEnd, what: str) -> str:
    """The warning for a program that ended well and wrote to stderr; empty if it did not."""
    if not end.complaints:
        return ""
    return f"{what}wrote {count_of(end.complaints, 'line')} to stderr, kept in its log"


def describe_end(end: StepEnd, order: StepOrder) -> str:
    """One line on a program that failed: how it ended, and what it said. Its log has its arguments."""
    if end.refusal:
        return end.refusal
    if end.survivors:
        pids = ", ".join(map(str, end.survivors))
        return f"left processes that could not be ended: {pids}"
    how = f"{Path(order.argv[0]).name} {describe_kind(end, order)}"
    telling = find_telling(end.tail)
    return f"{how}: {telling[:200]}" if telling else f"{how}; no output"


def find_telling(tail: str) -> str:
    """The line that says why a program failed: a compiler's first error, else Python's last
    exception, joined, else the last line. Parts of a path that lead nowhere are left out.
    """
    lines = tail.strip().splitlines()
    # A compiler goes on after its first error; other programs say why they fail last.
    if error := next((line for line in lines if COMPILER_ERROR.search(line)), ""):
        while (shorter := _DETOUR.sub("", error)) != error:
            error = shorter
        return error.strip()
    frames = [number for number, line in enumerate(lines) if _FRAME.match(line)]
    last = frames[-1] + 1 if frames else max(len(lines) - 1, 0)
    begins = (n for n in range(last, len(lines)) if not lines[n].startswith(" "))
    return " ".join(" ".join(lines[next(begins, -1) :]).split())


def describe_kind(end: StepEnd, order: StepOrder) -> str:
    """How a program ended, in a few words."""
    if end.timed_out:
        return f"ran past its limit of {order.limit_s:g} s and was killed with all it had started"
    if end.lost:
        return "died with the process that watches it, which it or somebody else has killed"
    if end.signal is not None:
        return f"was killed by {describe_signal(end.signal)}"
    return f"ended with exit code {end.code}"

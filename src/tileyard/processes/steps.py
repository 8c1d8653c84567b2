"""One program of a user's: run it, hear it, end its whole tree, and say how it went.

For a process that runs many programs side by side and is itself a worker. What a program leaves behind
becomes a child of this process, so that having no such children is the proof that nothing was left;
what there is, is told apart by the token in its environment. Should this process die, its keeper ends all.

One module because what a program prints is read, kept and shown by the loop that waits for its end.
"""

import contextlib
import errno
import functools
import math
import os
import re
import resource
import secrets
import select
import shlex
import signal
import subprocess
import threading
import time
from io import FileIO
from pathlib import Path
from typing import Final

from tileyard.model import Record
from tileyard.modes import open_file
from tileyard.processes.keeper.tree import (
    all_pids,
    carries,
    kill_marked,
    libc,
    read_process,
)
from tileyard.processes.outcomes import describe_signal
from tileyard.wording import count_of

GRACE_S: Final = 0.2
"""Between TERM and KILL for a program that ran past its limit."""
CONFIRM_S: Final = 5.0
"""How long a killed tree may take to vanish."""
COMPILER_ERROR: Final = re.compile(r"\berror: ")
POLL_S: Final = 0.01
LONGEST: Final = 2000
"""How much of its arguments a log shows."""
PR_SET_CHILD_SUBREAPER: Final = 36
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
        self, process: subprocess.Popen[bytes], log: FileIO, heard: Heard, started_s: float
    ) -> None:
        self.printed = 0
        self.complaints = 0
        self.tail = b""
        self._logs = {"": _Log(log)}
        self._heard = heard
        self._started_s = started_s
        self._handle = os.pidfd_open(process.pid)
        self._poll = select.poll()
        self._poll.register(self._handle, select.POLLIN)
        self._streams: dict[int, bytes] = {}
        for stream in filter(None, (process.stdout, process.stderr)):
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
                log.file.close()

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
            self._logs[path] = _Log(_open_log(path))
        return self._logs[path]


class _Log:
    """A file that takes so much and no more."""

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
        """Say how much is not in the file, and what the program printed last."""
        if self._left_out:
            said = f"\n==== {self._left_out} bytes more were printed; the last of them:\n"
            self._put(said.encode() + tail)

    def _put(self, data: bytes) -> None:
        try:
            self.file.write(data)
        except OSError:  # a full disk decides about the log, not about the case
            self._room = 0


class StepOrder(Record):
    """What to run. ``env`` is all of its environment; ``log`` gets what it prints appended.

    With a ``title`` the log also says what was run, where, and how that ended. ``limit_s`` and
    ``memory_bytes`` (address space of each process) are 0 for no limit.
    """

    argv: tuple[str, ...]
    env: dict[str, str]
    cwd: str
    log: str
    title: str = ""
    limit_s: float = 0.0
    memory_bytes: int = 0


class StepEnd(Record):
    """How a program ended: by exit ``code``, by ``signal``, or not begun for ``refusal``.

    ``errno`` is the number of that refusal, 0 where it has none, and ``refused`` the path that it is about.
    ``timed_out`` says that it ran past its limit and was killed. ``complaints`` counts the lines that
    it wrote to stderr, ``printed`` the bytes of both streams; ``tail`` is the end of them.
    ``survivors`` are processes that could not be ended.
    """

    seconds: float
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

    @property
    def ok(self) -> bool:
        """It ended by itself, with exit code 0."""
        return self.code == 0 and not self.timed_out and not self.survivors


def run_step(order: StepOrder, heard: Heard | None = None) -> StepEnd:
    """Run a program to its end, or to its limit; nothing of it is left afterwards."""
    adopt_orphans()
    tree = secrets.token_hex(8)
    above = os.environ.get("TILEYARD_TREE", "")
    env = {**order.env, "TILEYARD_TREE": f"{above}:{tree}" if above else tree}
    started_s = time.monotonic()
    try:
        log = _open_log(order.log)
    except OSError as error:
        return StepEnd(seconds=0.0, refusal=f"{order.log}: {error.strerror}")
    with log:
        if order.title:
            _note(log, describe_start(order))
        try:
            process = subprocess.Popen(
                order.argv,
                env=env,
                cwd=order.cwd,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            refused = _describe_refusal(order, error)
            if order.title:
                _note(log, refused.refusal)
            return refused
        with process:
            _limit_memory(process.pid, order.memory_bytes)
            follower = Follower(process, log, heard or Heard(), started_s)
            timed_out = follower.follow(order.limit_s)
            if timed_out:
                _end(process, tree)
            survivors = _end_leftovers(tree, process.pid)
            follower.drain()
        code = process.returncode
        end = StepEnd(
            seconds=time.monotonic() - started_s,
            code=code if code >= 0 else None,
            signal=-code if code < 0 else None,
            timed_out=timed_out,
            printed=follower.printed,
            complaints=follower.complaints,
            tail=follower.tail.decode("utf-8", "replace"),
            survivors=tuple(survivors),
        )
        if order.title:
            _note(log, f"{describe_kind(end, order)} after {end.seconds:.2f} s")
        return end


def describe_start(order: StepOrder) -> str:
    """What a log says of a step before what it prints: what is run, and where."""
    return f"{order.title}: {shlex.join(order.argv)[:LONGEST]}\n==== in {order.cwd}"


def note_in(log: Path, text: str) -> None:
    """Append a line of ours to a log, among those of programs."""
    with contextlib.suppress(OSError), _open_log(log) as file:
        _note(file, text)


def _open_log(path: str | Path) -> FileIO:
    return open(path, "ab", buffering=0, opener=open_file)


def _note(log: FileIO, text: str) -> None:
    with contextlib.suppress(OSError):  # a full disk decides about the log, not about the case
        log.write(f"==== {text}\n".encode(errors="replace"))


def _describe_refusal(order: StepOrder, error: OSError | ValueError) -> StepEnd:
    what = getattr(error, "strerror", None) or str(error)
    number = getattr(error, "errno", None) or 0
    refused = str(getattr(error, "filename", None) or order.argv[0])
    refusal = f"{order.argv[0]} cannot be started: {what}"
    if refused == order.cwd and refused != order.argv[0]:
        refusal = f"{refusal}: its directory {order.cwd}"
    elif number == errno.ENOENT and Path(order.cwd, refused).is_file():
        refusal = f"{refusal}: the interpreter or loader that it asks for"
    return StepEnd(seconds=0.0, refusal=refusal, errno=number, refused=refused)


def describe_complaints(end: StepEnd, what: str) -> str:
    """What to say of a program that ended well and wrote to stderr; empty where it did not."""
    if not end.complaints:
        return ""
    return f"{what}wrote {count_of(end.complaints, 'line')} to stderr, kept in its log"


def describe_end(end: StepEnd, order: StepOrder) -> str:
    """One line on a program that failed: how it ended, and what and where it was if it said nothing."""
    if end.refusal:
        return end.refusal
    if end.survivors:
        pids = ", ".join(map(str, end.survivors))
        return f"left processes that could not be ended: {pids}"
    how = f"{Path(order.argv[0]).name} {describe_kind(end, order)}"
    lines = end.tail.strip().splitlines()
    if lines:
        # A compiler goes on after its first error; whoever else fails says so last.
        telling = next((line for line in lines if COMPILER_ERROR.search(line)), lines[-1])
        return f"{how}: {telling.strip()[:200]}"
    return f"{how} and printed nothing; argv {list(order.argv)}, in {order.cwd}"


def describe_kind(end: StepEnd, order: StepOrder) -> str:
    """How a program ended, in a few words."""
    if end.timed_out:
        return f"ran past its limit of {order.limit_s:g} s and was killed with all it had started"
    if end.signal is not None:
        return f"died of {describe_signal(end.signal)}"
    return f"ended with exit code {end.code}"


def _limit_memory(pid: int, memory_bytes: int) -> None:
    """Dumps of cores take seconds; the limit counts from the first page that it asks for now."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        resource.prlimit(pid, resource.RLIMIT_CORE, (0, 0))
        if memory_bytes:
            resource.prlimit(pid, resource.RLIMIT_AS, (memory_bytes, memory_bytes))


def _end(process: subprocess.Popen[bytes], tree: str) -> None:
    """TERM to its session, KILL to everything that carries its token."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(GRACE_S)
        return
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    kill_marked(tree)
    process.wait()


@functools.cache
def adopt_orphans() -> None:
    """From now on what a child leaves behind becomes a child of this process."""
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _has_orphans(leader: int) -> bool:
    """Whether anything was left behind by any program; what has ended meanwhile is reaped.

    Orphans are given to the main thread, which starts no program, or just this one.
    """
    main = threading.main_thread()
    try:
        children = Path(f"/proc/self/task/{main.native_id}/children").read_bytes().split()
    except OSError:  # this kernel does not tell
        return True
    found = False
    for pid in map(int, children):
        if pid == leader:
            continue
        with contextlib.suppress(ChildProcessError):
            found = found or os.waitpid(pid, os.WNOHANG)[0] == 0
    return found


def _end_leftovers(tree: str, leader: int) -> list[int]:
    """End what a program left behind, and say what would not end."""
    until_s = time.monotonic() + CONFIRM_S
    while _has_orphans(leader) and kill_marked(tree):
        if time.monotonic() > until_s:
            return [pid for pid in all_pids() if carries(read_process(pid, "environ"), tree)]
        time.sleep(POLL_S)
    return []

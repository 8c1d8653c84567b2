"""One program of a user's: run it, hear it, end its whole tree, and say how it went.

For a process that runs many programs side by side and is itself a worker. What a program leaves behind
becomes a child of this process, so that having no such children is the proof that nothing was left;
what there is, is told apart by the token in its environment. Should this process die, its keeper ends all.
"""

import contextlib
import functools
import os
import resource
import secrets
import select
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import Final

from tileyard.model import Record
from tileyard.processes.keeper.tree import (
    all_pids,
    carries,
    kill_marked,
    libc,
    read_process,
)
from tileyard.processes.outcomes import describe_signal

GRACE_S: Final = 0.2
"""Between TERM and KILL for a program that ran past its limit."""
CONFIRM_S: Final = 5.0
"""How long a killed tree may take to vanish."""
DRAIN_S: Final = 0.2
"""How long the output of a program is read once all of it has ended: a stranger may hold the pipe."""
TAIL_BYTES: Final = 2048
POLL_S: Final = 0.01
PR_SET_CHILD_SUBREAPER: Final = 36


class StepOrder(Record):
    """What to run. ``env`` is all of its environment; ``log`` gets what it prints appended.

    ``limit_s`` and ``memory_bytes`` (address space of each process) are 0 for no limit.
    """

    argv: tuple[str, ...]
    env: dict[str, str]
    cwd: str
    log: str
    limit_s: float = 0.0
    memory_bytes: int = 0


class StepEnd(Record):
    """How a program ended: by exit ``code``, by ``signal``, or not begun for ``refusal``.

    ``timed_out`` says that it ran past its limit and was killed. ``complaints`` counts the lines that
    it wrote to stderr, ``printed`` the bytes of both streams; ``tail`` is the end of them.
    ``survivors`` are processes that could not be ended.
    """

    seconds: float
    code: int | None = None
    signal: int | None = None
    refusal: str = ""
    timed_out: bool = False
    printed: int = 0
    complaints: int = 0
    tail: str = ""
    survivors: tuple[int, ...] = ()

    @property
    def ok(self) -> bool:
        """It ended by itself, with exit code 0."""
        return self.code == 0 and not self.timed_out and not self.survivors


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

    def deadline_s(self, since_s: float, limit_s: float) -> float:
        """When, on the monotonic clock, it is to be ended: by default its limit after its start."""
        return since_s + limit_s


def run_step(order: StepOrder, heard: Heard | None = None) -> StepEnd:
    """Run a program to its end, or to its limit; nothing of it is left afterwards."""
    adopt_orphans()
    tree = secrets.token_hex(8)
    above = os.environ.get("TILEYARD_TREE", "")
    env = {**order.env, "TILEYARD_TREE": f"{above}:{tree}" if above else tree}
    started_s = time.monotonic()
    try:
        log = os.open(order.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    except OSError as error:
        return StepEnd(seconds=0.0, refusal=f"{order.log}: {error.strerror}")
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
        os.close(log)
        what = getattr(error, "strerror", None) or str(error)
        return StepEnd(seconds=0.0, refusal=f"{order.argv[0]} cannot be started: {what}")
    try:
        _limit_memory(process.pid, order.memory_bytes)
        follower = _Follower(process, log, heard or Heard(), started_s)
        timed_out = follower.follow(order.limit_s)
        if timed_out:
            _end(process, tree)
        survivors = _end_leftovers(tree, process.pid)
        follower.drain()
    finally:
        os.close(log)
        with process:
            pass
    code = process.returncode
    return StepEnd(
        seconds=time.monotonic() - started_s,
        code=code if code >= 0 else None,
        signal=-code if code < 0 else None,
        timed_out=timed_out,
        printed=follower.printed,
        complaints=follower.complaints,
        tail=follower.tail.decode("utf-8", "replace"),
        survivors=tuple(survivors),
    )


def describe_end(end: StepEnd, order: StepOrder) -> str:
    """One line on a program that failed: how it ended, and what and where it was if it said nothing."""
    if end.refusal:
        return end.refusal
    if end.survivors:
        pids = ", ".join(map(str, end.survivors))
        return f"left processes that could not be ended: {pids}"
    name = Path(order.argv[0]).name
    if end.timed_out:
        how = f"{name} ran past its limit of {order.limit_s:g} s and was killed with all it had started"
    elif end.signal is not None:
        how = f"{name} died of {describe_signal(end.signal)}"
    else:
        how = f"{name} ended with exit code {end.code}"
    if end.tail.strip():
        return f"{how}: {end.tail.strip().splitlines()[-1][:200]}"
    return f"{how} and printed nothing; argv {list(order.argv)}, in {order.cwd}"


class _Follower:
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

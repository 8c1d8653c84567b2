"""Waits in one place for all events of the keeper, ends the processes below it, and probes devices."""

import ctypes
import os
import select
import sys
import time

from .tree import (
    SIGCHLD,
    SIGCONT,
    SIGHUP,
    SIGINT,
    SIGKILL,
    SIGSTOP,
    SIGTERM,
    descendants_of,
    go_on_with_parent_gone,
    libc,
    signal_child,
    signal_set,
)
from .worker import Device, Options, start_program

PR_SET_CHILD_SUBREAPER = 36
SIG_BLOCK = 0
RESCAN_S = 0.02
"""Seconds between two looks at the tree while it dies; the end of a child wakes the keeper earlier."""

CANNOT_TELL = 75
"""Exit code of a probe that could not look at the device: a tool is missing, or the card is in use."""


class Watcher:
    """Receives orders, signals and the ends of children. ``kill_at``: when it kills, once ordered to end;
    ``is_withdrawn``: give up a request that still waits. ``ran_ns``: from the worker's start to its end,
    ``cpu_ns``: CPU time of it and children it waited for. ``asked_bytes``: of the lease asked for, -1 before.
    """

    def __init__(self, options: Options) -> None:
        self.options = options
        self.worker = 0
        self.ended: dict[int, int] = {}
        self.peak_rss_bytes = 0
        self.started_ns = self.ran_ns = self.cpu_ns = 0
        self.kill_at: float | None = None
        self.is_withdrawn = False
        self.is_suspect = False
        self.asked_bytes = -1
        self.orders = b""
        self.output_fd = -1
        self.output = b""
        mask = ctypes.byref(signal_set(SIGCHLD, SIGTERM, SIGINT, SIGHUP))
        libc.sigprocmask(SIG_BLOCK, mask, None)
        self.signals = libc.signalfd(-1, mask, os.O_NONBLOCK | os.O_CLOEXEC)
        libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        go_on_with_parent_gone()
        self.poll = select.poll()
        self.poll.register(options.control, select.POLLIN)
        self.poll.register(self.signals, select.POLLIN)
        self.bell = -1
        self.watch_engine()

    def watch_engine(self) -> None:
        """Notice the engine's end even if a copy of its pipe lives on."""
        try:
            engine = os.pidfd_open(self.options.parent)
        except OSError:
            pass  # gone already, which the next line sees, or a kernel that has no pidfd
        else:
            self.poll.register(engine, select.POLLIN)
        if os.getppid() != self.options.parent and not self.options.is_step:
            self.ask_to_end(self.options.grace_s)

    def ask_to_end(self, grace_s: float) -> None:
        """Begin the end, or hasten it."""
        at = time.monotonic() + grace_s
        self.kill_at = at if self.kill_at is None else min(self.kill_at, at)

    # ---- waiting ------------------------------------------------------------------------------

    def wait(self, seconds: float | None) -> None:
        """Sleep until an order, a signal, the end of the engine or of a child, and record it."""
        for fd, _ in self.poll.poll(None if seconds is None else max(0.0, seconds) * 1000):
            if fd == self.signals:
                number = int.from_bytes(os.read(fd, 128)[:4], sys.byteorder)
                if number != SIGCHLD:
                    self.ask_to_end(self.options.grace_s)
            elif fd == self.bell:
                pass  # the caller checks for itself
            elif fd == self.output_fd:
                self.take_output(os.read(fd, 4096))
            elif fd == self.options.control and (order := os.read(fd, 4096)):
                *lines, self.orders = (self.orders + order).split(b"\n")
                for line in lines:
                    self.obey(line)
            else:
                self.poll.unregister(fd)
                self.ask_to_end(self.options.grace_s)

    def take_output(self, data: bytes) -> None:
        """Keep the end of a probe's output."""
        self.output = (self.output + data)[-2000:]
        if not data:
            self.poll.unregister(self.output_fd)
            os.close(self.output_fd)
            self.output_fd = -1

    def obey(self, line: bytes) -> None:
        """Carry out one order."""
        verb, _, rest = line.partition(b" ")
        if verb == b"kill":
            self.ask_to_end(float(rest))
        elif verb == b"withdraw":
            self.is_withdrawn = True
        elif verb == b"lease":
            self.asked_bytes = int(rest)
        elif verb == b"probe":
            self.is_suspect = True
        elif self.is_working:
            self.pass_on(verb, rest)

    def pass_on(self, verb: bytes, rest: bytes) -> None:
        """Send a signal to the worker, to the group to which a terminal would send it, or to all."""
        try:
            if verb == b"signal":
                os.kill(self.worker, int(rest))
            elif verb == b"signal-group":
                os.killpg(self.worker, int(rest))
            elif verb in (b"stop", b"continue"):
                for pid, parent in descendants_of(os.getpid()):
                    signal_child(pid, parent, SIGSTOP if verb == b"stop" else SIGCONT)
        except OSError:
            pass  # it has just ended

    # ---- ends ---------------------------------------------------------------------------------

    def reap(self) -> bool:
        """Take in children that ended; True while any is left."""
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            self.ended[pid] = os.waitstatus_to_exitcode(status)
            if pid == self.worker:
                self.ran_ns = time.monotonic_ns() - self.started_ns
                self.cpu_ns = round((usage.ru_utime + usage.ru_stime) * 1e9)
                self.peak_rss_bytes = usage.ru_maxrss * 1024

    def end_tree(self) -> list[int]:
        """TERM now, KILL when the grace period is over, until no child is left; return those that stay."""
        if self.kill_at is None:
            self.ask_to_end(self.options.grace_s)
        if self.grace_left_s() > 0:
            for pid, parent in descendants_of(os.getpid()):
                signal_child(pid, parent, SIGTERM)
                signal_child(pid, parent, SIGCONT)  # a stopped process could not obey
        while (rest_s := self.grace_left_s()) > 0:
            if not self.reap():
                return []
            self.wait(rest_s)
        return self.kill_tree()

    @property
    def is_working(self) -> bool:
        """Whether the worker was started and its end was not seen yet."""
        return self.worker != 0 and self.worker not in self.ended

    def kill_tree(self, spared: int = 0) -> list[int]:
        """KILL until no child is left but ``spared`` and those below; return those that outlast the limit."""
        deadline = time.monotonic() + self.options.confirm_s
        while self.reap():
            family = descendants_of(os.getpid(), (spared,))
            if not family and spared:
                break
            self.is_suspect = True
            for pid, parent in family:
                signal_child(pid, parent, SIGKILL)
            if time.monotonic() > deadline:
                return [pid for pid, _ in family]
            self.wait(RESCAN_S)
        return []

    def grace_left_s(self) -> float:
        """Seconds until KILL, once the end has begun."""
        return (self.kill_at or 0.0) - time.monotonic()


def is_writable(fd: int) -> bool:
    """Whether a write to a descriptor would not block."""
    poll = select.poll()
    poll.register(fd, select.POLLOUT)
    return any(event & select.POLLOUT for _, event in poll.poll(0))


def run_probe(watcher: Watcher, device: Device, environment: dict[str, str]) -> str:
    """Why the device is sick, empty if not known to be; no process of the probe is left. Exit code
    75, or a program that this user cannot run, proves nothing: one user's lack must not matter to
    all. It runs under the lease, so that nobody gets a ruined device.
    """
    keeper = os.getpid()
    read_end, write_end = os.pipe2(os.O_CLOEXEC)
    child = os.fork()
    if child == 0:
        try:
            os.setsid()
            os.dup2(os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC), 0)
            os.dup2(write_end, 1)
            os.dup2(write_end, 2)
            start_program(device.probe, environment | dict(device.env), keeper)
        except OSError as error:
            os.write(write_end, f"cannot run {device.probe[0]}: {error.strerror}".encode())
        finally:
            os._exit(CANNOT_TELL)
    os.close(write_end)
    watcher.output, watcher.output_fd = b"", read_end
    watcher.poll.register(read_end, select.POLLIN)
    deadline = time.monotonic() + device.probe_limit_s
    while watcher.reap() and child not in watcher.ended and time.monotonic() < deadline:
        watcher.wait(deadline - time.monotonic())
    is_late = child not in watcher.ended
    was_suspect = watcher.is_suspect
    survivors = watcher.kill_tree(spared=watcher.worker if watcher.is_working else 0)
    watcher.is_suspect = was_suspect  # processes that a probe leaves prove nothing about a worker
    while watcher.output_fd >= 0 and not survivors:
        watcher.wait(RESCAN_S)
    code = watcher.ended.get(child)
    if survivors:
        return "its probe cannot be ended"
    if is_late:
        return f"its probe took longer than {device.probe_limit_s:g} s"
    if code in (0, CANNOT_TELL):
        return ""
    how = (
        f"ended with code {code}"
        if code is not None and code > 0
        else f"died of signal {-(code or 0)}"
    )
    last = watcher.output.decode("utf-8", "replace").strip().rpartition("\n")[2]
    return f"its probe {how}: {last}" if last else f"its probe {how}"

"""The keeper's life: take the locks, start the worker, wait, end the tree, report."""

import ctypes
import os
import resource
import select
import sys
import time

from .locks import Lock
from .report import RefusedError, emit
from .tree import (
    SIGCHLD,
    SIGCONT,
    SIGHUP,
    SIGINT,
    SIGKILL,
    SIGPIPE,
    SIGTERM,
    SIGXFSZ,
    descendants_of,
    kill_marked,
    libc,
    signal_child,
    signal_set,
)

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
SIG_BLOCK, SIG_SETMASK = 0, 2

LOCK_POLL_S = 0.01
"""How often a waiting keeper tries again: the longest time for which a free device lies idle."""
RESCAN_S = 0.02
"""How often the tree is looked at while it dies; the end of a child wakes the keeper earlier."""
LINGER_S = 1.0  # the same, once the tree was reported as not confirmed gone
OOM_PREFERENCE = b"500"
"""A kernel short of memory ends a worker rather than the engine."""


class Options:
    """The command line, as the package describes it."""

    def __init__(self, arguments: list[str]) -> None:
        end = arguments.index("--")
        pairs = [argument.partition("=")[::2] for argument in arguments[:end]]
        one = dict(pairs)
        self.argv = arguments[end + 1 :]
        self.locks = [value for key, value in pairs if key == "lock"]
        self.parent = int(one["parent"])
        self.tree = one["tree"]
        self.cwd = one["cwd"]
        self.memory_bytes = int(one.get("memory", "0"))
        self.cores = [int(core) for core in one.get("cores", "").split(",") if core]
        self.pass_fds = [int(fd) for fd in one.get("pass", "").split(",") if fd]
        self.grace_s = float(one["grace"])
        self.confirm_s = float(one["confirm"])


class Keeper:
    """Starts one worker and ends its tree. ``kill_at`` is when it kills, once it was told to end."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.locks: list[Lock] = []
        self.lease = 0
        self.worker = 0
        self.status: int | None = None
        self.peak_rss_bytes = 0
        self.kill_at: float | None = None
        self.orders = b""
        mask = ctypes.byref(signal_set(SIGCHLD, SIGTERM, SIGINT, SIGHUP))
        libc.sigprocmask(SIG_BLOCK, mask, None)
        self.signals = libc.signalfd(-1, mask, os.O_NONBLOCK | os.O_CLOEXEC)
        libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self.poll = select.poll()
        self.poll.register(0, select.POLLIN)
        self.poll.register(self.signals, select.POLLIN)
        self.watch_engine()

    def watch_engine(self) -> None:
        """Notice the engine's end even if a copy of its pipe lives on."""
        try:
            engine = os.pidfd_open(self.options.parent)
        except OSError:
            pass  # gone already, which the next line sees, or a kernel that has no pidfd
        else:
            self.poll.register(engine, select.POLLIN)
        if os.getppid() != self.options.parent:
            self.ask_to_end(self.options.grace_s)

    def ask_to_end(self, grace_s: float) -> None:
        """Begin the end, or hasten it."""
        at = time.monotonic() + grace_s
        self.kill_at = at if self.kill_at is None else min(self.kill_at, at)

    def wait(self, seconds: float | None) -> None:
        """Sleep until an order, a signal, the end of the engine or of a child, and take note."""
        for fd, _ in self.poll.poll(None if seconds is None else max(0.0, seconds) * 1000):
            if fd == self.signals:
                number = int.from_bytes(os.read(fd, 128)[:4], sys.byteorder)
                if number != SIGCHLD:
                    self.ask_to_end(self.options.grace_s)
            elif fd == 0 and (order := os.read(0, 4096)):
                *lines, self.orders = (self.orders + order).split(b"\n")
                for line in lines:
                    if line.startswith(b"kill "):
                        self.ask_to_end(float(line[5:]))
            else:
                self.poll.unregister(fd)
                self.ask_to_end(self.options.grace_s)

    # ---- start ------------------------------------------------------------------------------

    def acquire(self) -> bool:
        """Take all locks in order, waiting for each; False if told to end before that."""
        for index, path in enumerate(self.options.locks):
            lock = Lock(path)
            self.locks.append(lock)
            if not lock.try_take():
                emit("waiting", lock=index)
                while self.kill_at is None and not lock.try_take():
                    self.wait(LOCK_POLL_S)
            if self.kill_at is not None:
                return False
        records = [lock.read() for lock in self.locks]
        for lock, (_, tree) in zip(self.locks, records, strict=True):
            if tree:
                self.end_orphans(tree, lock.path)
        if self.locks:
            self.lease = max(number for number, _ in records) + 1
            for lock in self.locks:
                lock.write(self.lease, self.options.tree)
            emit("locked", lease=self.lease)
        return True

    def end_orphans(self, tree: str, lock: str) -> None:
        """End what a keeper that was killed itself has left of its tree."""
        deadline = time.monotonic() + self.options.confirm_s
        while pids := kill_marked(tree, lock):
            if time.monotonic() > deadline:
                raise RefusedError("orphans", 0, pids)
            self.wait(RESCAN_S)

    def start(self) -> None:
        """Start the worker; return once it runs its own program."""
        read_end, write_end, keeper = *os.pipe(), os.getpid()
        self.worker = os.fork()
        if self.worker == 0:
            try:
                self.become_worker(keeper)
            except RefusedError as error:
                os.write(write_end, f"{error.step} {error.number}".encode())
            finally:
                os._exit(127)
        os.close(write_end)
        for fd in self.options.pass_fds:  # or the engine would not see the worker's end
            os.close(fd)
        answer = os.read(read_end, 64).decode()  # nothing, once exec has closed the other end
        os.close(read_end)
        if answer:
            os.waitpid(self.worker, 0)
            step, _, number = answer.partition(" ")
            raise RefusedError(step, int(number))
        emit("started", pid=self.worker)

    def become_worker(self, keeper: int) -> None:
        """In the child: make everything ready, then run the worker's program in its place."""
        options = self.options
        step = "session"
        try:
            os.setsid()
            libc.prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0)
            if os.getppid() != keeper:  # it died before the line above
                os._exit(127)
            step = "memory"
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # dumping a big worker takes seconds
            if options.memory_bytes:
                hard = resource.getrlimit(resource.RLIMIT_AS)[1]
                limit = options.memory_bytes if hard < 0 else min(options.memory_bytes, hard)
                resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
            self.prefer_for_oom()
            step = "cores"
            if options.cores:
                os.sched_setaffinity(0, options.cores)
            step = "cwd"
            os.chdir(options.cwd)
            step = "argv"
            os.dup2(os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC), 0)
            os.dup2(2, 1)
            libc.sigprocmask(SIG_SETMASK, ctypes.byref(signal_set()), None)
            for number in (SIGPIPE, SIGXFSZ):  # Python ignores them, which would be inherited
                libc.signal(number, None)
            environment = dict(os.environ)
            environment["TILEYARD_TREE"] = options.tree
            environment["TILEYARD_LOCKS"] = ":".join(options.locks)
            environment["TILEYARD_LEASE"] = str(self.lease)
            os.execvpe(options.argv[0], options.argv, environment)
        except OSError as error:
            raise RefusedError(step, error.errno or 0) from error

    @staticmethod
    def prefer_for_oom() -> None:
        """Let the kernel choose this process first; where it may not be told so, never mind."""
        try:
            with open("/proc/self/oom_score_adj", "wb") as file:
                file.write(OOM_PREFERENCE)
        except OSError:
            pass

    # ---- end --------------------------------------------------------------------------------

    def reap(self) -> bool:
        """Take in children that ended; True while any is left."""
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self.worker:
                self.status = status
                self.peak_rss_bytes = usage.ru_maxrss * 1024

    def end_tree(self) -> list[int]:
        """TERM now, KILL when the grace is over, until no child is left; return those that stay."""
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
        deadline = time.monotonic() + self.options.confirm_s
        while self.reap():
            family = descendants_of(os.getpid())
            for pid, parent in family:
                signal_child(pid, parent, SIGKILL)
            if time.monotonic() > deadline:
                return [pid for pid, _ in family]
            self.wait(RESCAN_S)
        return []

    def grace_left_s(self) -> float:
        """How long until KILL, once the end has begun."""
        return (self.kill_at or 0.0) - time.monotonic()

    def run(self) -> None:
        """Everything, from the locks to the report."""
        try:
            if not self.acquire():
                self.report(told=True, survivors=[])
                return
            self.start()
        except RefusedError as error:
            emit(f"refused_{error.step}", errno=error.number, pids=error.pids)
            return
        except OSError as error:
            emit("refused_lock", errno=error.errno, pids=[])
            return
        while self.reap() and self.status is None and self.kill_at is None:
            self.wait(None)
        told = self.status is None
        survivors = self.end_tree() if self.reap() else []
        if survivors:  # the locks stay taken while anything is there
            self.report(told=told, survivors=survivors)
            while self.reap():
                self.wait(LINGER_S)
        self.release()
        if not survivors:
            self.report(told=told, survivors=[])

    def release(self) -> None:
        """Give the locks back, noting that nothing is left of the tree."""
        for lock in self.locks:
            try:
                lock.write(self.lease, "")
            except OSError:
                pass  # the next holder then looks for what is not there
            lock.close()

    def report(self, *, told: bool, survivors: list[int]) -> None:
        """Say how the worker ended; ``told`` if it did so because the keeper was told to end it."""
        code = None if self.status is None else os.waitstatus_to_exitcode(self.status)
        emit(
            "ended",
            code=code if code is not None and code >= 0 else None,
            signal=-code if code is not None and code < 0 else None,
            told=int(told),
            peak_rss_bytes=self.peak_rss_bytes,
            survivors=survivors,
        )


def main(arguments: list[str]) -> None:
    """Keep one worker, and exit: tidying up an interpreter costs 4 ms."""
    Keeper(Options(arguments)).run()
    os._exit(0)

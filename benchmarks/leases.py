"""What leases promise under contention, and what they cost.

``python benchmarks/leases.py contend [LEASES]``: 64 processes, 48 of one job and 16 of another, contend for 4
devices while some of them are killed with SIGKILL at random. Every holder writes to its device's own file and
checks that nobody else does; afterwards the log of all grants is checked for order, for the jobs' turns, and
for what was lost.

``python benchmarks/leases.py cost``: an uncontended lease inside a running process, and ``tileyard
lease -- true`` beside ``flock FILE true``, in turn.
"""

import fcntl
import os
import random
import select
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tileyard.processes.keeper.deciding import Choice, Wish
from tileyard.processes.keeper.holding import Holding, LeaseFacts
from tileyard.processes.keeper.ticket import Ticket

PROCESSES, DEVICES, LEASES = 64, 4, 10_000
HOLD_S = 0.02
KILL_SHARE = 0.1
"""Of the leases, how many end with a SIGKILL; as many processes again are killed while they wait."""
URGENT_SHARE = 0.1
"""How many of the requests have priority 1 instead of 0."""
PF_EXITING = 0x4
"""In the flags of a process: it is on its way out of the kernel, and runs nothing of its own."""
JOBS = ("big", "big", "big", "small")
"""The jobs of the processes, in turn."""
NOTICE_NS = 20 * 10**6
"""Nanoseconds after which a request is certainly seen by others: the kernel's times of files are coarse."""
NOBODY = b"0000000000 00000000000000000000"
ROUNDS = 1000
COMMANDS = 40


def wait_for(ticket: Ticket) -> Holding:
    """Block until the lease is there and what killed holders have left is gone. Closes the ticket."""
    waiting = select.poll()
    waiting.register(ticket.bell.fd, select.POLLIN)
    try:
        while (holding := ticket.try_take()) is None:
            waiting.poll(ticket.rescan_s * 1000)
        while ticket.end_survivors(holding):
            waiting.poll(1)
    finally:
        ticket.close()
    return holding


# ---- contention -----------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Grant:
    """One line of the log: a lease that began. ``ended_ns`` is 0 if its holder was killed."""

    pid: int
    device: str
    number: int
    priority: int
    job: str
    asked_ns: int
    taken_ns: int
    began_ns: int
    ended_ns: int


class Yard:
    """A directory for locks, the devices' own files and the log of all grants."""

    def __init__(self, folder: Path) -> None:
        self.locks = folder / "locks"
        self.locks.mkdir()
        self.devices = folder / "devices"
        self.devices.mkdir()
        for number in range(DEVICES):
            (self.devices / f"dev-{number}").write_bytes(NOBODY)
        self.log = os.open(folder / "log", os.O_RDWR | os.O_CREAT | os.O_APPEND)
        self.violations = os.open(folder / "wrong", os.O_RDWR | os.O_CREAT | os.O_APPEND)

    def write(self, *facts: object) -> None:
        """Add a line to the log, as a whole."""
        os.write(self.log, (" ".join(map(str, facts)) + "\n").encode())

    def read(self) -> list[list[str]]:
        """The lines of the log so far."""
        return [line.split() for line in _read_all(self.log).splitlines()]

    def use(self, device: str, number: int, chance: random.Random) -> None:
        """What a holder does: claim the device's own file, stay, and see that it was left alone."""
        mine = f"{os.getpid():010d} {time.time_ns():020d}".encode()
        file = os.open(self.devices / device, os.O_RDWR)
        before = os.pread(file, len(mine), 0)
        state = _find_state(int(before.split()[0]))
        if state == "leaving":
            self.write("leaving", *before.decode().split())
        if state == "running":
            os.write(self.violations, b"%s took %s from %s\n" % (mine, device.encode(), before))
        os.pwrite(file, mine, 0)  # of one width: a kill leaves the old text or the new one
        time.sleep(HOLD_S * chance.uniform(0.5, 1.5))
        if os.pread(file, len(mine), 0) != mine:
            os.write(self.violations, b"%s had no peace on %s\n" % (mine, device.encode()))
        if chance.random() < KILL_SHARE:
            self.write("killed", os.getpid(), device, number, time.time_ns())
            os.kill(os.getpid(), signal.SIGKILL)
        os.pwrite(file, NOBODY, 0)
        os.close(file)


def _read_all(fd: int) -> str:
    return os.pread(fd, os.fstat(fd).st_size, 0).decode()


def _find_state(pid: int) -> str:
    if not pid:
        return "gone"
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii")
    except OSError:
        return "gone"
    state, *fields = stat.rpartition(")")[2].split()
    # The kernel closes the files of a process that was killed, and with them its lease, a moment before
    # it is a zombie; none of its own code can run any more.
    if state in "ZX":
        return "gone"
    return "leaving" if int(fields[5]) & PF_EXITING else "running"


def contend(yard: Yard, seed: int, job: str) -> None:
    """One of the processes: take any device, use it, give it back, and so on."""
    chance = random.Random(seed)
    wish = Wish(tuple(Choice(f"dev-{n}", (f"dev-{n}",)) for n in range(DEVICES)))
    yard.write("began", os.getpid(), job)
    while True:
        priority = int(chance.random() < URGENT_SHARE)
        facts = LeaseFacts("contend", os.urandom(8).hex(), job=job)
        ticket = Ticket(str(yard.locks), wish, facts, priority)
        holding = wait_for(ticket)
        device, number = holding.choices[0].device, holding.number
        for record in holding.unclean:
            yard.write("unclean", record.pid, record.number)
        yard.write(
            "grant", os.getpid(), device, number, priority, job, ticket.asked_ns, holding.taken_ns,
            time.time_ns()
        )  # fmt: skip
        yard.use(device, number, chance)
        yard.write("ended", os.getpid(), device, number, time.time_ns())
        holding.release()


class Crowd:
    """The processes that contend: killed at random, and replaced."""

    def __init__(self, yard: Yard) -> None:
        self._yard = yard
        self._chance = random.Random(7)
        self._running: dict[int, str] = {}
        self._seen_bytes = 0
        self.granted = self.kills = self.failed = 0

    def start(self, job: str) -> None:
        """One more."""
        seed = self._chance.getrandbits(32)
        pid = os.fork()
        if pid == 0:
            try:
                contend(self._yard, seed, job)
            except BaseException:  # noqa: BLE001 - the child must end here, whatever it was
                traceback.print_exc()
            finally:
                os._exit(1)
        self._running[pid] = job

    def tend(self) -> None:
        """Count what was granted meanwhile, kill somebody, replace who died."""
        size = os.fstat(self._yard.log).st_size
        news = os.pread(self._yard.log, size - self._seen_bytes, self._seen_bytes)
        self._seen_bytes = size
        self.granted += news.count(b"grant ")
        if self.kills < self.granted * KILL_SHARE:  # whoever it is: most of them wait
            os.kill(self._chance.choice(sorted(self._running)), signal.SIGKILL)
            self.kills += 1
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            self.failed += os.waitstatus_to_exitcode(ended[1]) != -signal.SIGKILL
            self.start(self._running.pop(ended[0]))

    def end(self) -> None:
        """Kill them all."""
        for pid in self._running:
            os.kill(pid, signal.SIGKILL)
        for pid in self._running:
            os.waitpid(pid, 0)


def run_contention(leases: int) -> None:
    """Print what came of it."""
    folder = Path(tempfile.mkdtemp(prefix="leases-"))
    yard = Yard(folder)
    crowd = Crowd(yard)
    began = time.monotonic()
    for number in range(PROCESSES):
        crowd.start(JOBS[number % len(JOBS)])
    while crowd.granted < leases:
        time.sleep(0.02)
        crowd.tend()
    took_s = time.monotonic() - began
    crowd.end()
    grants = collect(yard.read())[:leases]
    killed = sum(not grant.ended_ns for grant in grants)
    print(f"{len(grants)} leases by {PROCESSES} processes on {DEVICES} devices in {took_s:.1f} s")
    print(f"{killed} holders and {crowd.kills} others were killed with SIGKILL")
    wrong = _read_all(yard.violations).splitlines()
    print(f"double grants          {len(wrong)}")
    for line in wrong:
        print(f"  {line}")
    leaving = sum(line[0] == "leaving" for line in yard.read())
    print(f"after one on its way out {leaving}")
    print(f"processes that failed  {crowd.failed}")
    print(f"numbers out of order   {count_number_faults(grants)}")
    print(f"served out of order    {count_order_faults(grants)}")
    print(f"out of turn            {count_turn_faults(grants, find_unlogged(yard.read()))}")
    for job, count in sorted(Counter(grant.job for grant in grants).items()):
        print(f"turns of job {job:9} {count} ({count / len(grants):.1%})")
    for priority in (0, 1):
        waits = [g.taken_ns - g.asked_ns for g in grants if g.asked_ns and g.priority == priority]
        show(f"time in the queue, priority {priority}", [wait / 1e6 for wait in waits])
    report_gaps(grants, yard.read())
    shutil.rmtree(folder)


def collect(lines: Iterable[list[str]]) -> list[Grant]:
    """The grants of a log, in the order in which they were decided."""
    ends = {tuple(line[1:4]): int(line[4]) for line in lines if line[0] == "ended"}
    found = []
    for line in lines:
        if line[0] == "grant":
            pid, device, number, priority, job, asked, taken, began = line[1:]
            found.append(
                Grant(
                    pid=int(pid),
                    device=device,
                    number=int(number),
                    priority=int(priority),
                    job=job,
                    asked_ns=int(asked),
                    taken_ns=int(taken),
                    began_ns=int(began),
                    ended_ns=ends.get((pid, device, number), 0),
                )
            )
    return sorted(found, key=lambda grant: grant.taken_ns)


def count_number_faults(grants: Iterable[Grant]) -> int:
    """Leases whose number is not above all earlier ones of their device."""
    last: dict[str, int] = defaultdict(int)
    faults = 0
    for grant in grants:
        faults += grant.number <= last[grant.device]
        last[grant.device] = max(last[grant.device], grant.number)
    return faults


def count_order_faults(grants: Iterable[Grant]) -> int:
    """Leases given while an earlier request of the same job, as urgent, still waited."""
    last: dict[tuple[str, int], int] = defaultdict(int)
    faults = 0
    for grant in grants:
        if grant.asked_ns:
            faults += grant.asked_ns < last[grant.job, grant.priority]
            last[grant.job, grant.priority] = max(last[grant.job, grant.priority], grant.asked_ns)
    return faults


def find_unlogged(lines: Sequence[list[str]]) -> dict[int, str]:
    """The jobs, by number, of leases whose holders were killed before they had written to the log."""
    jobs = {line[1]: line[2] for line in lines if line[0] == "began"}
    logged = {line[3] for line in lines if line[0] == "grant"}
    unclean = [line[1:] for line in lines if line[0] == "unclean"]
    return {int(number): jobs[pid] for pid, number in unclean if number not in logged}


def count_turn_faults(grants: Sequence[Grant], unlogged: dict[int, str]) -> int:
    """Leases of a job while one of another job, as urgent, had not had a turn for longer and still waited.
    After an unlogged lease of one of the two, it is not known whether that counted as a turn, until the job
    has the next one.
    """
    turns: dict[str, int] = {}
    unsure: set[str] = set()
    faults = 0
    for index, grant in enumerate(grants):
        unsure |= {unlogged.pop(number) for number in [*unlogged] if number < grant.number}
        waiting = [
            other
            for other in grants[index + 1 : index + PROCESSES]
            if 0 < other.asked_ns < grant.taken_ns - NOTICE_NS
        ]
        faults += any(
            other.job != grant.job
            and unsure.isdisjoint((other.job, grant.job))
            and other.priority == grant.priority
            and turns.get(other.job, other.asked_ns) < turns.get(grant.job, 0)
            for other in waiting
        )
        if waiting:  # otherwise the turn costs nothing
            turns[grant.job] = grant.taken_ns
            unsure.discard(grant.job)
    return faults


def report_gaps(grants: Iterable[Grant], lines: Iterable[list[str]]) -> None:
    """From the end of each lease to the next one of that device, while others always wait."""
    deaths = {tuple(line[1:4]): int(line[4]) for line in lines if line[0] == "killed"}
    before: dict[str, Grant] = {}
    gaps: dict[str, list[float]] = {"given back": [], "killed": []}
    for grant in grants:
        last = before.get(grant.device)
        before[grant.device] = grant
        if last is None:
            continue
        end = last.ended_ns or deaths.get((str(last.pid), last.device, str(last.number)), 0)
        if end:
            kind = "given back" if last.ended_ns else "killed"
            gaps[kind].append((grant.began_ns - end) / 1e6)
    for kind, samples in gaps.items():
        show(f"next holder after one that was {kind}", samples)


def show(name: str, samples: list[float]) -> None:
    """Median, 99 % and worst, in milliseconds."""
    ordered = sorted(samples)
    p99 = ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
    print(
        f"{name:44} {statistics.median(ordered):8.2f} ms  p99 {p99:8.2f} ms"
        f"  max {ordered[-1]:8.2f} ms  ({len(ordered)})"
    )


# ---- cost -----------------------------------------------------------------------------------


def time_ms(step: Callable[[], object]) -> float:
    """How long one step takes."""
    began = time.perf_counter()
    step()
    return (time.perf_counter() - began) * 1e3


def run_cost() -> None:
    """Leases that nobody else wants."""
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        (folder / "locks").mkdir()
        (folder / "file").touch()
        wish = Wish((Choice("dev-0", ("dev-0",)),))

        def lease() -> None:
            ticket = Ticket(str(folder / "locks"), wish, LeaseFacts("cost", os.urandom(8).hex()))
            wait_for(ticket).release()

        def bare() -> None:
            fd = os.open(folder / "file", os.O_RDWR)
            fcntl.flock(fd, fcntl.LOCK_EX)
            os.close(fd)

        show("lease and release in a running process", [time_ms(lease) for _ in range(ROUNDS)])
        show("bare flock and close", [time_ms(bare) for _ in range(ROUNDS)])
        env = {**os.environ, "TILEYARD_LOCK_DIR": str(folder / "locks")}
        commands = {
            "tileyard lease -- true": [sys.executable, "-m", "tileyard", "lease", "--", "true"],
            "flock FILE true": ["flock", str(folder / "file"), "true"],
            "python -S -E -I -c pass": [sys.executable, "-S", "-E", "-I", "-c", "pass"],
        }
        times: dict[str, list[float]] = defaultdict(list)
        for _ in range(COMMANDS):
            for name, argv in commands.items():

                def call(argv: list[str] = argv) -> None:
                    subprocess.run(argv, env=env, check=True)

                times[name].append(time_ms(call))
        for name, samples in times.items():
            show(name, samples)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["cost"]:
            run_cost()
        case ["contend", *rest]:
            run_contention(int(rest[0]) if rest else LEASES)
        case _:
            run_contention(LEASES)
            run_cost()

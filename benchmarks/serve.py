"""What the pages of ``tileyard serve`` take with a large store, and what slow readers cost.

First a store of many trials in runs of a thousand (made once, in a folder that can be named), each a study
with its events and its result, one of 5,000 trials, and a run under way. Then a server, a process of its own,
answers: each page many times, quantiles of the time until its last byte; again while 64 pages are followed;
and while 1,000 connections ask for the largest page and do not read, with the server's memory before and
after. Reports are of runs at random, of which the server keeps a few; of the large one also the first page
after another result of it was kept. The alternatives are the same report and list of trials from the command
line.
"""

import argparse
import http.client
import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

from report_page import make_study
from tests.unit.show.simulated_runs import simulate

from tileyard.base.events import CaseEnded, CasePlanned, CaseStarted, Event, RunStarted
from tileyard.base.model import (
    BuildKey,
    Case,
    CommandWork,
    Device,
    Keys,
    Measurement,
    Outcome,
    RunKey,
    Step,
    Trial,
)
from tileyard.store.events import EventLog
from tileyard.store.results import keep_result
from tileyard.store.trials import open_store
from tileyard.verbs.tune.result import StudyResult

TRIALS, OF_RUN, UNDER_WAY, LARGE = 1_000_000, 1_000, 5_000, 5_000
BEGAN_S = 1.7e9
LARGE_RUN = "20231101-0000-1a5e"
AGAIN = "the same, made again"
"""Of which there are a tenth of the requests: each takes a second."""
WORK = CommandWork(run=Step(argv=("true",)))
DEVICES = tuple(Device(name=f"npu:{i}", kind="npu", identity=f"{i}") for i in range(8))
OUTCOMES = (*[Outcome.PASSED] * 17, Outcome.MISMATCH, Outcome.COMPILE_ERROR, Outcome.TIMEOUT)


def main() -> None:
    """Print all of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=TRIALS)
    parser.add_argument(
        "--requests", type=int, default=200, help="how often each page is asked for, at least 20"
    )
    parser.add_argument("--home", type=Path, help="where the store is kept, or is made")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        home = options.home or Path(folder)
        chance = random.Random(1)
        runs = make_store(home, options.trials, chance)
        with running(home) as run, serving(home) as (server, at):
            pages: dict[str, Callable[[], str]] = {
                "now": lambda: "/",
                "runs": lambda: "/runs",
                "runs, earlier ones": lambda: f"/runs?before={chance.choice(runs)}",
                "a report": lambda: f"/runs/{chance.choice(runs)}",
                f"a report of {LARGE:,} trials": lambda: f"/runs/{LARGE_RUN}",
                AGAIN: lambda: f"/runs/{keep_again(home)}",
                "trials of a run that has ended": lambda: f"/runs/{chance.choice(runs)}/trials",
                f"a run of {UNDER_WAY:,} cases under way": lambda: f"/runs/{run}",
                "devices": lambda: "/devices",
            }
            print(f"{options.trials:,} trials in {len(runs):,} runs; ms: median, p95, most, CPU")
            for name, path in pages.items():
                print_times(
                    name, server, at, path, options.requests // (10 if name == AGAIN else 1)
                )
            with ExitStack() as followed:
                for i in range(64):
                    path = ("/events", f"/runs/{run}/events", "/devices/events")[i % 3]
                    followed.enter_context(following(at, path))
                print("the same while 64 pages are followed")
                for name, path in pages.items():
                    print_times(
                        name, server, at, path, options.requests // (10 if name == AGAIN else 1)
                    )
            before = memory_mb(server)
            with slow_readers(at, f"/runs/{runs[0]}", 1000):
                print("the same beside 1,000 connections that do not read")
                for name, path in pages.items():
                    print_times(
                        name, server, at, path, options.requests // (10 if name == AGAIN else 1)
                    )
                print(
                    f"  memory of the server: {before:.0f} MB before, {memory_mb(server):.0f} MB now"
                )
        run = runs[len(runs) // 2]
        print_alternative(home, "trials", "--run", run, "--rows", "200")
        print_alternative(home, "report", LARGE_RUN, "-o", str(Path(folder) / "report.html"))


# ---- what there is --------------------------------------------------------------------------------


def make_store(home: Path, count: int, chance: random.Random) -> list[str]:
    """A store of so many trials, unless it is there; the names of its runs."""
    names = [
        time.strftime("%Y%m%d-%H%M", time.gmtime(BEGAN_S + 3600 * i)) + f"-{i % 65536:04x}"
        for i in range(count // OF_RUN)
    ]
    if (home / "store.db").exists():
        return names
    began = time.perf_counter()
    study, events = make_study(OF_RUN), simulate(seed=1, cases=OF_RUN).events
    with open_store(home) as store:
        for i, run in enumerate(names):
            at = BEGAN_S + 3600 * i
            store.record_all([make_trial(run, number, at, chance) for number in range(OF_RUN)])
            end_run(home, run, study, events)
    end_run(home, LARGE_RUN, make_study(LARGE), simulate(seed=1, cases=LARGE).events)
    size = (home / "store.db").stat().st_size
    print(f"made in {time.perf_counter() - began:.0f} s, {size / 1e9:.1f} GB")
    return names


def end_run(home: Path, run: str, study: StudyResult, events: Sequence[Event]) -> None:
    """What a run leaves beside its trials: its events, and its result."""
    with EventLog(home, run) as log:
        for event in events:
            log.add(event)
    keep_result(home, run, msgspec.structs.replace(study, run=run))


def keep_again(home: Path) -> str:
    """The large run, whose result is kept once more, so that its report has to be made."""
    os.utime(home / "results" / f"{LARGE_RUN}.zst")
    return LARGE_RUN


def make_trial(run: str, number: int, at: float, chance: random.Random) -> Trial:
    """A trial of a kernel, with 30 samples if it passed."""
    outcome = chance.choice(OUTCOMES)
    median_ns = 1e6 * chance.lognormvariate(0.0, 0.5)
    measured = Measurement(
        median_ns=median_ns,
        low_ns=median_ns * 0.99,
        high_ns=median_ns * 1.01,
        confidence=0.95,
        samples_ns=tuple(median_ns * chance.uniform(0.98, 1.05) for _ in range(30)),
    )
    return Trial(
        id=f"{run}.{number}",
        run=run,
        case=f"gemm/{number}",
        batch="",
        kernel="gemm",
        arguments={"M": 1024, "N": 1024, "K": 1024},
        config={
            "block_M": 32 << number % 4,
            "block_N": 32 << number // 4 % 4,
            "stages": number % 5,
        },
        target="cpu",
        device=f"cpu:{number % 8}",
        outcome=outcome,
        keys=Keys(build=BuildKey(f"b{number}"), run=RunKey(f"r{number}")),
        measurement=measured if outcome is Outcome.PASSED else None,
        message="" if outcome is Outcome.PASSED else f"C differs in {number} of 1048576 elements",
        started_at=at + number,
        run_s=0.5,
    )


@contextmanager
def running(home: Path) -> Iterator[str]:
    """A run under way of which most has ended, as this process writes it."""
    now = time.time()
    run = time.strftime("%Y%m%d-%H%M", time.localtime(now)) + f"-{os.getpid() % 65536:04x}"
    with EventLog(home, run) as log:
        log.add(
            RunStarted(
                run=run,
                at=now,
                title="test all",
                target="command",
                devices=DEVICES,
                cases=UNDER_WAY,
            )
        )
        for number in range(UNDER_WAY):
            case = Case(id=f"ops/{number}", work=WORK, expected_s=1.0)
            log.add(CasePlanned(case=case))
            if number < UNDER_WAY - 100:
                log.add(CaseStarted(case=case.key, device=DEVICES[number % 8].name, at=now))
                fields = {"id": f"{run}.{number}", "case": case.id, "kernel": "", "testcase": "ops"}
                made = make_trial(run, number, now, random.Random(number))
                log.add(CaseEnded(trial=Trial(**{**_fields(made), **fields})))
        log.flush()
        try:
            yield run
        finally:
            log.path.unlink()


def _fields(trial: Trial) -> dict[str, object]:
    return {name: getattr(trial, name) for name in trial.__struct_fields__}


# ---- who asks -------------------------------------------------------------------------------------


@contextmanager
def serving(home: Path) -> Iterator[tuple[int, tuple[str, int]]]:
    """A server of this home: its process, and where it listens."""
    environment = {**os.environ, "TILEYARD_HOME": str(home)}
    argv = [sys.executable, "-m", "tileyard", "serve", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(argv, env=environment, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            at = urlsplit(server.stdout.readline().split()[1])
            yield server.pid, (str(at.hostname), int(at.port or 0))
        finally:
            server.kill()


def print_times(
    name: str, server: int, at: tuple[str, int], path: Callable[[], str], requests: int
) -> None:
    """Quantiles of the milliseconds until the last byte, each in a connection of its own, and the mean of the
    server's CPU time, which other work on the machine hardly changes.
    """
    times = []
    began_ms = cpu_ms(server)
    for _ in range(requests):
        connection = http.client.HTTPConnection(*at)
        began = time.perf_counter()
        connection.request("GET", path())
        answer = connection.getresponse()
        answer.read()
        times.append(1e3 * (time.perf_counter() - began))
        assert answer.status == 200, answer.status
        connection.close()
    p95 = statistics.quantiles(times, n=20)[-1]
    cpu = (cpu_ms(server) - began_ms) / requests
    columns = (statistics.median(times), p95, max(times), cpu)
    print(f"  {name:<36}", *(f"{one:7.1f}" for one in columns), flush=True)


@contextmanager
def following(at: tuple[str, int], path: str) -> Iterator[None]:
    """A subscriber of a page; its buffer is read at the end, and holds what comes."""
    with socket.create_connection(at) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
        head = f"GET {path} HTTP/1.1\r\nHost: {at[0]}\r\nAccept: text/event-stream\r\n\r\n"
        connection.sendall(head.encode())
        yield


@contextmanager
def slow_readers(at: tuple[str, int], path: str, count: int) -> Iterator[None]:
    """Connections that ask for a page and do not read it; the server ends most of them."""
    with ExitStack() as opened:
        for _ in range(count):
            connection = opened.enter_context(socket.socket())
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.connect(at)
            connection.sendall(f"GET {path} HTTP/1.1\r\nHost: {at[0]}\r\n\r\n".encode())
        yield


def cpu_ms(process: int) -> float:
    """The CPU time of a process so far."""
    fields = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return 1e3 * (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_mb(process: int) -> float:
    """The memory that a process has now."""
    pages = int(Path(f"/proc/{process}/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def print_alternative(home: Path, *words: str) -> None:
    """What a user would call instead of opening a page."""
    argv = [sys.executable, "-m", "tileyard", *words]
    environment = {**os.environ, "TILEYARD_HOME": str(home)}
    began = time.perf_counter()
    subprocess.run(argv, env=environment, capture_output=True, check=True)
    print(f"  {f'tileyard {words[0]}':<36} {1e3 * (time.perf_counter() - began):7.1f}")


if __name__ == "__main__":
    main()

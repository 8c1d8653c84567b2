"""What the engine itself costs: cases that do nothing, through real keepers, runners and store.

Prints milliseconds per case from built to recorded on a warm runner, the time of 10,000 cases, and
with ``--long`` the curve of 100,000 planned cases with the memory they take. A case is planned,
elaborated by an author that answers at once, looked up, handed to the runner, run, checked,
recorded and told. ``--profile`` prints where the engine's process spends its time.
"""

import argparse
import asyncio
import cProfile
import itertools
import os
import pstats
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tileyard.base.model import Value
from tileyard.engine.driver import Driver
from tileyard.store.events import EventLog

sys.path[:0] = [str(Path(__file__).parents[1])]
from tests.simulated_yard import FixedSource, open_simulated_yard, plan_cases, simulated_devices

STEP = 10_000


def configs(count: int, size: int) -> Iterator[dict[str, Value]]:
    """One artifact, many cases."""
    return ({"n": number, "size": size} for number in range(count))


async def run(folder: Path, count: int, step: int, size: int) -> list[float]:
    """Run no-op cases; the seconds that each ``step`` of them took, the first without the start."""
    devices = simulated_devices(1, folder / "locks")
    source = FixedSource(plan_cases(configs(count, size)))
    source.keep = False
    marks: list[float] = []
    with open_simulated_yard(folder, devices, tuple(os.sched_getaffinity(0))) as yard:
        driver = Driver(source, yard, "bench")
        await driver.open()
        with EventLog(yard.home, "bench") as log:
            yard.listeners.append(log.add)
            yard.flushes.append(log.flush)
            try:
                told = itertools.count(1)
                async for _ in driver.trials():
                    number = next(told)
                    if number == 100 or number % step == 0:
                        marks.append(time.perf_counter())
                        if len(marks) > 1 and count > step:
                            print(line(number, marks[-1] - marks[-2], step), flush=True)
            finally:
                await driver.close()
    return [after - before for before, after in itertools.pairwise(marks)]


def line(number: int, seconds: float, step: int) -> str:
    """One point of the curve."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return f"{number:7} cases   {seconds / step * 1e3:6.3f} ms per case   peak {peak:5.0f} MB"


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--long", action="store_true", help="100,000 cases")
    parser.add_argument("--cases", type=int, default=STEP)
    parser.add_argument("--size", type=int, default=1, help="elements of a case's output")
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()
    count = 100_000 if options.long else options.cases
    step = min(STEP, count)
    profile = cProfile.Profile(time.thread_time)
    with tempfile.TemporaryDirectory() as name:
        if options.profile:
            profile.enable()
        began, began_cpu = time.perf_counter(), time.process_time()
        steps = asyncio.run(run(Path(name), count, step, options.size))
        total, cpu = time.perf_counter() - began, time.process_time() - began_cpu
        profile.disable()
    if options.profile:
        pstats.Stats(profile).sort_stats("tottime").print_stats(45)
    each = sum(steps) / (count - 100)
    print(f"{count} no-op cases: {total:.2f} s in all, {each * 1e3:.3f} ms each on a warm runner")
    workers = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"workers: {(workers.ru_utime + workers.ru_stime) / count * 1e3:.3f} ms of CPU time each")
    print(f"of it {cpu / count * 1e3:.3f} ms of the engine's own CPU time each")
    if len(steps) > 1:
        print(f"last tenth / second tenth: {steps[-1] / steps[1]:.2f}")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"peak memory of the engine: {peak:.0f} MB")


if __name__ == "__main__":
    main()

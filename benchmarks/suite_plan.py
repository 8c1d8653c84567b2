"""What planning a suite costs, and what its plans and shards are worth.

First 100,000 cases: seconds to expect their times, to plan them and to shard them, for testcases of
several sizes. Then the long tail of a real suite (tests/data/st_long_tail.csv) and random ones: the
predicted wall time beside the floor max(longest case, total / slots), and beside what is usual instead.
Then shards: the longest of them beside the mean, and how many cases change shards when one case is
added, beside longest-first bins and beside a plain hash.
"""

import argparse
import random
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from zlib import crc32

from tileyard.base.model import CommandWork, Step
from tileyard.verbs.test.plan.durations import Known, expect, expect_imported
from tileyard.verbs.test.plan.imports import read_times
from tileyard.verbs.test.plan.pieces import Costs, assign_shards
from tileyard.verbs.test.plan.plan import compare, find_floor_s, make_plan
from tileyard.verbs.test.result.result import Expected, SuiteCase

LONG_TAIL = Path(__file__).parents[1] / "tests" / "data" / "st_long_tail.csv"
CASES = 100_000
ROUNDS = 5
WORK = CommandWork(run=Step(argv=("true",)))
Assign = Callable[[Sequence[Expected], int], list[int]]


def main() -> None:
    """Print all of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="how often each is timed")
    rounds = parser.parse_args().rounds
    chance = random.Random(1)
    time_planning(chance, rounds)
    long_tail = expect_imported(read_times(LONG_TAIL), 60.0)
    show_plans("the real suite, 64 slots", long_tail, 64)
    for spread in (0.5, 1.0, 1.5):
        show_plans(
            f"100 testcases of 20 cases, spread {spread}, 64 slots",
            make_cases(chance, 100, 20, spread),
            64,
        )
    show_shards("the real suite in cases of a minute", long_tail, chance)
    show_shards("the real suite in whole testcases", expect_imported(read_times(LONG_TAIL)), chance)
    show_shards("2,000 cases of 100 testcases", make_cases(chance, 100, 20, 1.0), chance)


def make_cases(
    chance: random.Random, testcases: int, cases: int, spread: float
) -> tuple[Expected, ...]:
    """Testcases with log-normal times, and cases that differ less within them."""
    made = []
    for testcase in range(testcases):
        usual_s = 10.0 * chance.lognormvariate(0.0, spread)
        for case in range(cases):
            seconds = usual_s * chance.lognormvariate(0.0, 0.4)
            name = f"t{testcase}"
            made.append(Expected(case=f"{name}/{case}", testcase=name, seconds=seconds))
    return tuple(made)


def time_planning(chance: random.Random, rounds: int) -> None:
    """Seconds for 100,000 cases, the median of some rounds: wall time, and the CPU's."""
    print(f"{CASES:,} cases, seconds (wall, CPU; median of {rounds})")
    cases = [
        SuiteCase(
            testcase=f"t{i % 1000}",
            name=str(i),
            work=WORK,
            dtype=chance.choice(("f16", "f32")),
            shape=(chance.choice((64, 256, 1024)), 128),
        )
        for i in range(CASES)
    ]
    known = {c.id: Known(seconds=1.0 + i % 7, high_s=9.0, samples=3) for i, c in enumerate(cases)}
    print_times("  expected times, all known", lambda: expect(cases, known), rounds)
    half = dict(list(known.items())[::2])
    print_times("  expected times, half estimated", lambda: expect(cases, half), rounds)
    for testcases in (100_000, 1_000, 70):
        expected = make_cases(chance, testcases, CASES // testcases, 1.5)
        for slots in (64, 1000):
            for startup_s, launch_s in ((0.0, 0.0), (2.0, 0.0), (2.0, 0.01)):
                title = f"  plan {testcases:,} testcases, {slots} slots, start-up {startup_s:g} s"
                title += f", launch {launch_s:g} s" if launch_s else ""
                costs = Costs(startup_s=startup_s, launch_s=launch_s)
                print_times(
                    title,
                    lambda e=expected, s=slots, c=costs: make_plan(e, s, costs=c),  # type: ignore[misc]
                    rounds,
                )
    print_times("  shards", lambda: assign_shards(expected, 8), rounds)


def print_times(title: str, work: Callable[[], object], rounds: int) -> None:
    """One line."""
    wall_s, cpu_s = [], []
    for _ in range(rounds):
        wall, cpu = time.perf_counter(), time.process_time()
        work()
        wall_s.append(time.perf_counter() - wall)
        cpu_s.append(time.process_time() - cpu)
    wall, cpu = statistics.median(wall_s), statistics.median(cpu_s)
    print(f"{title:75} {wall:6.2f} {cpu:6.2f}", flush=True)


def show_plans(title: str, expected: Sequence[Expected], slots: int) -> None:
    """Predicted wall times beside the floor, for several start-ups."""
    floor_s = find_floor_s(expected, slots)
    print(f"\n{title}: floor {floor_s / 60:.2f} min")
    for startup_s in (0.0, 5.0, 30.0):
        costs = Costs(startup_s=startup_s)
        plan = make_plan(expected, slots, costs=costs)
        ways = {f"this plan ({len(plan.pieces)} pieces)": plan.predicted_s}
        ways |= {
            f"{way.name} ({way.pieces})": way.predicted_s for way in compare(expected, slots, costs)
        }
        print(f"  start-up {startup_s:g} s")
        for name, predicted_s in ways.items():
            print(f"    {name:52} {predicted_s / 60:6.2f} min  {predicted_s / floor_s:.3f} x floor")


def show_shards(title: str, expected: Sequence[Expected], chance: random.Random) -> None:
    """How even and how steady shards are."""
    ways: dict[str, Assign] = {
        "shards": assign_shards,
        "longest first into the emptiest": fill_longest_first,
        "hash of the name": lambda cases, count: [
            crc32(c.case.encode()) % count + 1 for c in cases
        ],
    }
    print(f"\n{title}, {len(expected)} cases: longest shard to mean, moved by one more case")
    for count in (2, 8, 32):
        for name, assign in ways.items():
            numbers = assign(expected, count)
            loads = [0.0] * count
            for one, number in zip(expected, numbers, strict=True):
                loads[number - 1] += one.seconds
            even = max(loads) / max(sum(loads) / count, *(one.seconds for one in expected))
            moved = statistics.fmean(
                sum(a != b for a, b in zip(numbers, assign(more, count), strict=False))
                for more in (add_one(expected, chance) for _ in range(8))
            )
            print(f"  {count:3} {name:34} {even:6.3f} x   {moved:7.1f} cases")


def add_one(expected: Sequence[Expected], chance: random.Random) -> list[Expected]:
    """The same and one more case, of a testcase that is there."""
    like = chance.choice(expected)
    name = f"{like.case}-{chance.random()}"
    return [*expected, Expected(case=name, testcase=like.testcase, seconds=like.seconds)]


def fill_longest_first(expected: Sequence[Expected], count: int) -> list[int]:
    """What balances best, and moves most."""
    loads, numbers = [0.0] * count, [0] * len(expected)
    for place in sorted(range(len(expected)), key=lambda i: -expected[i].seconds):
        shard = loads.index(min(loads))
        loads[shard] += expected[place].seconds
        numbers[place] = shard + 1
    return numbers


if __name__ == "__main__":
    main()

"""A real suite replayed sixty times as fast, with real processes, beside what its plan had predicted.

    python benchmarks/suite_replay.py [--slots 64] [--rounds 3]

71 testcases of 595.86 simulator minutes in all become 635 programs that sleep, one second for each
minute of an inner case. Prints, side by side, what was predicted and what it took: with automatic
splitting, whole, and in pieces of at most five minutes; by name as predicted only. Times of cases are
those of the table at first, which know nothing of starting a program; then those that the replays
themselves have shown, as in any second run of a suite.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tileyard.verbs.test.plan.durations import expect_imported
from tileyard.verbs.test.plan.imports import read_times
from tileyard.verbs.test.plan.plan import compare, make_plan
from tileyard.verbs.test.result.result import Expected

TABLE = Path(__file__).parent.parent / "tests" / "data" / "st_long_tail.csv"
SCALE = 60.0
CASE_S = 60.0
TABLED = ("--durations", "durations.csv")
WAYS = {"auto": "auto", "whole": "off", "5 minutes": "5s"}


def main() -> None:
    """Replay each way, the automatic one ``--rounds`` times."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--slots", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    expected = expect_imported(read_times(TABLE), CASE_S)
    scaled = [
        Expected(case=one.case, testcase=one.testcase, seconds=one.seconds / SCALE)
        for one in expected
    ]
    plan = make_plan(scaled, options.slots)
    floor_s = max(plan.total_s / options.slots, *(one.seconds for one in scaled))
    print(f"{len(scaled)} cases, {plan.total_s:.1f} s in all, {options.slots} slots")
    print(f"floor, max(longest case, total / slots): {floor_s:.2f} s")
    print(
        f"plan, no costs:            {plan.predicted_s:6.2f} s  {plan.predicted_s / floor_s:.3f} x"
    )
    for way in compare(scaled, options.slots, fixed_s=300.0 / SCALE):
        print(
            f"{way.name:26} {way.predicted_s:6.2f} s  {way.predicted_s / floor_s:.3f} x  (predicted)"
        )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_suite(folder, scaled)
        replay(folder, options.slots, "auto", TABLED)  # what starting costs is known from now on
        for said, told in (("the table", TABLED), ("earlier runs", ())):
            print(f"expected from {said}:")
            ratios = []
            for _ in range(options.rounds):
                found = replay(folder, options.slots, "auto", told)
                ratios.append(show("auto", found, floor_s))
            print(f"took / predicted, median of {len(ratios)}: {statistics.median(ratios):.3f}")
        for way in ("whole", "5 minutes"):
            show(way, replay(folder, options.slots, WAYS[way]), floor_s)


def write_suite(folder: Path, expected: list[Expected]) -> None:
    """A suite whose cases sleep, and how long each does."""
    lines = ['name = "replay"', "[run]", 'argv = ["sleep", "{seconds}"]']
    table = ["testcase,case,seconds"]
    for number, one in enumerate(expected):
        if number == 0 or expected[number - 1].testcase != one.testcase:
            lines += ["[[testcase]]", f'name = "{one.testcase}"']
        case = one.case.rpartition("/")[2]
        lines += [
            "[[testcase.case]]",
            f'name = "{case}"',
            f"vars = {{ seconds = {one.seconds:.6f} }}",
        ]
        table.append(f"{one.testcase},{case},{one.seconds:.6f}")
    (folder / "suite.toml").write_text("\n".join(lines) + "\n")
    (folder / "durations.csv").write_text("\n".join(table) + "\n")


def replay(folder: Path, slots: int, split: str, told: Sequence[str] = ()) -> dict[str, Any]:
    """Run the suite as a user would."""
    argv = [sys.executable, "-m", "tileyard", "test", "suite.toml", "--slots", str(slots)]
    argv += ["--split", split, *told, "--json"]
    env = {**os.environ, "TILEYARD_HOME": str(folder / "home")}
    done = subprocess.run(argv, cwd=folder, env=env, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def show(way: str, found: dict[str, Any], floor_s: float) -> float:
    """Print one replay; what it took over what was predicted."""
    span, plan = found["makespan"], found["plans"][0]
    ratio = float(span["achieved_s"] / span["predicted_s"])
    print(
        f"{way:10} {len(plan['pieces']):4} pieces: predicted {span['predicted_s']:6.2f} s, "
        f"took {span['achieved_s']:6.2f} s ({ratio:.3f} x, {span['achieved_s'] / floor_s:.3f} x floor); "
        f"{span['reason']}"
    )
    return ratio


if __name__ == "__main__":
    main()

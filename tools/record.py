"""Records which tests run which lines of the source, and what they cost.

``python -m tools.record`` (``make test-record``) writes ``tests/recorded.json``, by which ``make quick``
chooses, and what runs of each module to ``build/coverage.json``. Costs are those of tests that note lines,
which are somewhat slower. ``python -m tools.record --report FILE [--tree TREE] [PYTEST ARGUMENT ...]`` writes
how many statements of each module run, and which do not, as JSON. The tree can be another revision with a
``.venv``, which need not know this tool. ``python -m tools.record --compare BEFORE AFTER`` says what two such
files differ in.
"""

import argparse
import itertools
import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from tests.recording import FOLDER, Notes
from tools.closures import Closures
from tools.pytest_runs import run_pytest
from tools.recorded import CoveringTest, Recorded, cover, read_recorded, settle, write_recorded
from tools.recorder import Recording, environment, recording

COVERAGE = Path("build/coverage.json")
LEAST_SHARED_S = 0.2
"""What several tests need counts if it costs this at least."""


# ---- What quick chooses by -------------------------------------------------------------------------


@dataclass
class AllNotes:
    """The notes of all test processes of a run."""

    cpu_s: dict[str, float] = field(default_factory=dict)
    needs: dict[str, set[str]] = field(default_factory=dict)
    lines: dict[str, np.ndarray[Any, np.dtype[np.uint8]]] = field(default_factory=dict)
    tests: set[str] = field(default_factory=set)
    slow: set[str] = field(default_factory=set)
    good: set[str] = field(default_factory=set)

    def list_needs(self, name: str) -> set[str]:
        """What a test needs, directly or for what it needs."""
        direct = self.needs.get(name, set())
        return direct.union(*(self.list_needs(one) for one in direct))


def join_notes(all_notes: Iterable[Notes]) -> AllNotes:
    """Add up what processes have noted; what several have paid for costs as much as it did for one of
    them."""
    joined = AllNotes()
    failed: set[str] = set()
    for notes in all_notes:
        for name, cpu_s in notes.cpu_s.items():
            joined.cpu_s[name] = max(cpu_s, joined.cpu_s.get(name, 0.0))
        for name, needs in notes.needs.items():
            joined.needs.setdefault(name, set()).update(needs)
        for name, ran in notes.lines.items():
            bits = np.frombuffer(ran, np.uint8)
            joined.lines[name] = joined.lines[name] | bits if name in joined.lines else bits
        joined.tests |= notes.tests
        joined.slow |= notes.slow
        joined.good |= notes.passed
        failed |= notes.failed
    joined.good -= failed
    return joined


def note_tests(
    jobs: int, arguments: list[str], env: dict[str, str]
) -> tuple[pytest.ExitCode, AllNotes]:
    """Run tests that note; how they ended, and their notes."""
    with tempfile.TemporaryDirectory(prefix="tileyard-notes-") as folder:
        options = ["-p", "tests.recording", "-p", "no:randomly", *arguments]
        status = pytest.ExitCode(run_pytest(jobs, options, {**env, FOLDER: folder}))
        decoder = msgspec.msgpack.Decoder(Notes)
        notes = (decoder.decode(path.read_bytes()) for path in Path(folder).iterdir())
        return status, join_notes(notes)


def is_chosen_by_lines(test: str, notes: AllNotes, closures: Closures) -> bool:
    """Whether what a test imports does not tell what it runs."""
    file = Path(test.partition("::")[0])
    return test in notes.slow or closures.reaches_anything(file)


def settle_all(costs: Mapping[str, float], before: Mapping[str, float]) -> dict[str, float]:
    """Costs as they are recorded."""
    return {name: settle(cpu_s, before.get(name)) for name, cpu_s in costs.items()}


def sum_up(ran: AllNotes, begun: Recording, closures: Closures, before: Recorded) -> Recorded:
    """What is recorded of these notes."""
    shared = settle_all(
        {
            name: cpu_s
            for name, cpu_s in ran.cpu_s.items()
            if name and name not in ran.tests and cpu_s >= LEAST_SHARED_S
        },
        before.shared,
    )
    files: Counter[str] = Counter()
    whole_files: Counter[str] = Counter()
    by_lines = []
    for name, cpu_s in ran.cpu_s.items():
        if (file := name.partition("::")[0]).endswith(".py"):
            whole_files[file] += cpu_s
    for test in sorted(ran.good):
        if is_chosen_by_lines(test, ran, closures):
            by_lines.append(test)
        else:
            files[test.partition("::")[0]] += ran.cpu_s[test]
    known = {
        test: (
            settle(ran.cpu_s[test], before.tests[test].cpu_s if test in before.tests else None),
            sorted(ran.list_needs(test) & shared.keys()),
        )
        for test in by_lines
    }
    covers = cover_modules(known, shared, ran, begun)
    return Recorded(
        shared=shared,
        files=settle_all(files, before.files),
        whole_files=settle_all(whole_files, before.whole_files),
        tests={
            test: CoveringTest(cpu_s=known[test][0], needs=tuple(known[test][1]), covers=modules)
            for test, modules in covers.items()
        },
    )


def cover_modules(
    costs: dict[str, tuple[float, list[str]]],
    shared: dict[str, float],
    ran: AllNotes,
    begun: Recording,
) -> dict[str, dict[str, int]]:
    """For each chosen test the modules that it covers, with the lines that it adds."""
    tests = sorted(costs)
    empty = np.zeros((begun.size + 7) // 8, np.uint8)
    packed = np.array(
        [
            np.bitwise_or.reduce([ran.lines.get(n, empty) for n in (test, *ran.list_needs(test))])
            for test in tests
        ]
    )
    bits = np.unpackbits(packed, axis=1)
    chosen: dict[str, dict[str, int]] = {}
    for source in begun.sources:
        own = bits[:, source.first : source.first + source.count].astype(bool)
        for index, gain in cover(own, [costs[test] for test in tests], shared):
            chosen.setdefault(tests[index], {})[begun.name(source)] = gain
    return chosen


def record(jobs: int, arguments: list[str]) -> pytest.ExitCode:
    """Run all tests, and write what is recorded of them unless they were interrupted; how they ended."""
    with recording(Path.cwd()) as begun:
        status, ran = note_tests(jobs, arguments, environment(begun.begin("all")))
        if status > pytest.ExitCode.TESTS_FAILED:
            return status
        write_recorded(sum_up(ran, begun, Closures(), read_recorded()))
        imported = np.bitwise_or.reduce(
            [np.frombuffer(begun.read(path)[0], np.uint8) for path in begun.folder.glob("all*")]
        )
        called = np.unpackbits(np.bitwise_or.reduce([*ran.lines.values()]))
        write_coverage(describe_coverage(begun, imported, called), COVERAGE)
    return status


# ---- How much runs ---------------------------------------------------------------------------------


def describe_coverage(
    begun: Recording, imported: Sequence[int], called: Sequence[int]
) -> dict[str, Any]:
    """How many statements there are and how many ran, in all and for each module, with the lines of the
    others."""
    modules = {}
    for source in begun.sources:
        ran = {
            first
            for line, first in source.statements.items()
            if imported[source.first + line - 1] or called[source.first + line - 1]
        }
        lacking = sorted({*source.statements.values()} - ran)
        name = source.path.relative_to(begun.root / "src").as_posix()
        modules[name] = {**_count(len(ran), len(ran) + len(lacking)), "missing": shorten(lacking)}
    sums = (sum(one[key] for one in modules.values()) for key in ("covered", "statements"))
    return {"total": _count(*sums), "modules": modules}


def _count(covered: int, statements: int) -> dict[str, Any]:
    percent = round(100 * covered / statements, 2) if statements else 100.0
    return {"statements": statements, "covered": covered, "percent": percent}


def shorten(numbers: list[int]) -> str:
    """Sorted numbers as text, those in a row as the first and the last."""
    groups = itertools.groupby(enumerate(numbers), lambda pair: pair[1] - pair[0])
    runs = ([number for _, number in group] for _, group in groups)
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def expand(text: str) -> set[int]:
    """The numbers that were shortened."""
    ends = [[int(end) for end in part.split("-")] for part in text.split(", ") if part]
    return {number for end in ends for number in range(end[0], end[-1] + 1)}


def compare(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """The total of both, and a line for each module that has lost, the most first."""
    totals = (
        f"{one['total']['percent']} % of {one['total']['statements']}" for one in (before, after)
    )
    losses = []
    for name, then in before["modules"].items():
        now = after["modules"].get(name, then)
        if now["percent"] < then["percent"]:
            lost = shorten(sorted(expand(now["missing"]) - expand(then["missing"])))
            points = now["percent"] - then["percent"]
            losses.append((points, f"{points:+.1f}  {name}: {now['percent']} %, lines {lost}"))
    return [f"total: {' -> '.join(totals)}", *(line for _, line in sorted(losses))]


def report(tree: Path, file: Path, jobs: str, arguments: list[str]) -> int:
    """Run the tests of a tree, and write how much runs; the exit status of the tests."""
    beside = [] if jobs == "0" else ["-n", jobs, "--dist", "loadfile", "--no-loadscope-reorder"]
    argv = [str(tree / ".venv/bin/python"), "-m", "pytest", "-q", *beside, *arguments]
    with recording(tree) as begun:
        path = begun.begin("all")
        status = subprocess.run(argv, cwd=tree, check=False, env=environment(path)).returncode
        write_coverage(describe_coverage(begun, *begun.read(path)), file)
    return status


def write_coverage(coverage: dict[str, Any], file: Path) -> None:
    """Write it as JSON, and print the total."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(coverage, indent=1) + "\n", encoding="utf-8")
    total = coverage["total"]
    print(f"coverage: {total['percent']} % of {total['statements']} statements")


def main() -> int:
    """Record; the exit status of the tests."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--report", type=Path, help="write what runs of each module to this file")
    parser.add_argument(
        "--tree", type=Path, default=Path.cwd(), help="the folder of another revision"
    )
    parser.add_argument("--compare", type=Path, nargs=2, metavar=("BEFORE", "AFTER"))
    parser.add_argument("-n", dest="jobs", default="3", help="how many test processes [3]")
    options, arguments = parser.parse_known_args()
    if options.compare:
        print("\n".join(compare(*(json.loads(path.read_bytes()) for path in options.compare))))
    elif options.report:
        return report(options.tree, options.report, options.jobs, arguments)
    else:
        return record(int(options.jobs), arguments)
    return 0


if __name__ == "__main__":
    sys.exit(main())

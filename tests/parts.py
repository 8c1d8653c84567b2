"""Parts of a test run, each short enough for one job: ``make test-all PART=2/6`` runs the second of six.

A part is made of whole files, except that each part has its share of the tests of a file in ``SPLIT``. Parts
are the same each time, have no test in common, and together they are everything.
"""

import heapq
import re
from collections.abc import Iterable, Mapping

import pytest

MINUTES: dict[str, float] = {
    "tests/faults/test_disk_faults.py": 70,  # 2,500 runs, each with a fault
    "tests/sync/test_read_back.py": 54,  # images that are laid out element by element take 2 minutes each
    "tests/faults/test_hits.py": 20,
    "tests/passes/test_kernels.py": 15,
    "tests/faults/test_kills.py": 6,
    "tests/faults/test_contained.py": 5,
    "tests/e2e/test_ci.py": 5,
    "tests/e2e/test_queue.py": 4,
    "tests/e2e/test_pages.py": 3,
    "tests/passes/test_random.py": 3,
    "tests/sync/test_corpus.py": 3,
    "tests/differential/test_cuda_kernels.py": 2.5,
    "tests/sync/test_generated.py": 2,
    "tests/sync/test_random.py": 1.5,
    "tests/faults/test_storm.py": 1,
    "tests/passes/test_schedules.py": 1,
    "tests/differential/test_language_coverage.py": 1,
    "tests/conformance/test_cpu.py": 1,
}
"""CPU minutes of files under ``make test-all``, where sweeps make them long: measured, or estimated from
what the sample takes.

With all other files they are some 210, so six parts take 35 each: about half an hour on two cores.
"""
SPLIT = frozenset(
    {
        "tests/faults/test_disk_faults.py",
        "tests/sync/test_read_back.py",
        "tests/passes/test_kernels.py",
    }
)
"""Long files of which each part has a share: their tests have nothing in common that is expensive to make."""
SECONDS = 4.0
"""For a file of which nothing is known."""


def choose_part(tests: Iterable[str], part: str, known: Mapping[str, float]) -> set[str]:
    """The tests (``FILE::NAME``) of one part, written ``2/6``. ``known`` has CPU seconds by file, which
    balance the parts. Raises UsageError for a part that there is not.
    """
    written = re.fullmatch(r"(\d+)/(\d+)", part)
    number, count = map(int, written.groups()) if written else (0, 0)
    if not 1 <= number <= count:
        raise pytest.UsageError(f"there is no part {part!r}: write the second of six as 2/6")
    units: dict[str, list[str]] = {}
    sizes: dict[str, int] = {}
    for test in sorted(tests):
        file = test.partition("::")[0]
        units.setdefault(test if file in SPLIT else file, []).append(test)
        sizes[file] = sizes.get(file, 0) + 1

    def weigh(unit: str) -> float:
        file = unit.partition("::")[0]
        seconds = 60 * MINUTES[file] if file in MINUTES else known.get(file, SECONDS)
        return seconds if file == unit else seconds / sizes[file]

    loads = [(0.0, place) for place in range(count)]
    chosen: set[str] = set()
    for unit in sorted(units, key=lambda one: (-weigh(one), one)):
        load, place = heapq.heappop(loads)
        heapq.heappush(loads, (load + weigh(unit), place))
        if place == number - 1:
            chosen.update(units[unit])
    return chosen

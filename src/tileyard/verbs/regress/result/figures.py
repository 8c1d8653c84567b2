"""Compares the figures of binaries that compilers report, between two builds.

Registers, memory and instructions are facts of a binary: any difference counts. Build times vary.
"""

from collections import Counter
from collections.abc import Iterable, Iterator

from tileyard.artifacts.manifest import Build
from tileyard.base.model import Outcome, Record
from tileyard.targets.reported import Resources, read_reported

BUILD = "build"
MIX = "mix."
METRICS = (
    *("registers", "spills", "stack", "shared", "threads", "occupancy", "code", "instructions"),
    BUILD,
)
"""The compared figures, besides ``mix.KIND`` for the instructions of each kind.

Bytes for spills, stack, shared and code; percent for occupancy; seconds for build.
"""
TELLING_ROUNDS = 3
"""Fewest rounds for judging a single kernel's build time."""
TELLING_RATIO = 1.1
"""Smallest change of a build time that is reported."""


class Change(Record):
    """A figure that differs, None where it depends on the call. An empty ``function`` is the only one."""

    metric: str
    base: float | None
    head: float | None
    function: str = ""


class BuildTimes(Record):
    """Build times of the kernels that both sides built, in seconds per round. ``ratio`` is the median of head
    over base, with its extremes. ``is_first``: this was the only round, in which caches were filled.
    """

    base_s: tuple[float, ...]
    head_s: tuple[float, ...]
    ratio: float
    low: float
    high: float
    is_first: bool


def find_changes(base: Build, head: Build) -> Iterator[Change]:
    """The figures that differ, without build times; none if one of the two was not built."""
    if not base.outcome == head.outcome == Outcome.PASSED:
        return
    here, there = _functions_of(base), _functions_of(head)
    names = dict.fromkeys([*here, *there])
    for name in names:
        before, after = here.get(name, {}), there.get(name, {})
        for metric in dict.fromkeys([*before, *after]):
            old, new = before.get(metric), after.get(metric)
            # A kind of instructions that one side lacks counts as 0; other missing figures are unknown.
            if metric.startswith(MIX) and before and after:
                old, new = old or 0.0, new or 0.0
            if old != new:
                function = name if len(names) > 1 else ""
                yield Change(metric=metric, base=old, head=new, function=function)


def list_metrics(builds: Iterable[Build]) -> set[str]:
    """The figures that any of these builds has, without build times."""
    functions = (one for build in builds for one in _functions_of(build).values())
    return {metric for figures in functions for metric in figures}


def _functions_of(build: Build) -> dict[str, dict[str, float]]:
    """Figures of each device function by its name, without the part that makes the name unique."""
    seen: Counter[str] = Counter()
    found: dict[str, dict[str, float]] = {}
    for taken in read_reported(build.details).resources:
        name = taken.symbol.rpartition("_")[0] or taken.symbol
        seen[name] += 1
        found[name if seen[name] == 1 else f"{name}#{seen[name]}"] = _figures_of(taken)
    return found


def _figures_of(taken: Resources) -> dict[str, float]:
    dynamic, occupancy = taken.dynamic_shared_bytes, taken.occupancy
    figures: dict[str, float | None] = {
        "registers": taken.registers,
        "spills": taken.spilled_bytes,
        "stack": taken.stack_bytes,
        "shared": None if dynamic is None else taken.shared_bytes + dynamic,
        "threads": taken.threads,
        "occupancy": None if occupancy is None else 100 * occupancy,
        "code": taken.code_bytes,
        "instructions": sum(taken.mix.values()),
        **{f"{MIX}{kind}": count for kind, count in taken.mix.items()},
    }
    return {name: figure for name, figure in figures.items() if figure is not None}

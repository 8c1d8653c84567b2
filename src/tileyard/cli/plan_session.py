"""A prediction as the command line makes it: cases and their times in, a view of the plan out."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from msgspec.structs import replace

from tileyard.cli.opening import load_settings, present, read_run_times
from tileyard.errors import UsageError
from tileyard.report.plan import print_prediction
from tileyard.store.base import RunTime
from tileyard.suite.durations import Known, expect_imported, learn_imported
from tileyard.suite.imports import read_times
from tileyard.suite.memory import read_memory
from tileyard.suite.outlook import (
    Bounds,
    Outlook,
    expect_all,
    hold_one,
    look_ahead,
    narrow,
    target_of,
)
from tileyard.suite.pieces import NO_COSTS
from tileyard.suite.plan import Split, predict
from tileyard.suite.reading import read_suite
from tileyard.suite.records import Expected, Suite, SuiteCase, Wish
from tileyard.suite.shards import Shard
from tileyard.suite.step_times import Goldens, KnownSteps, add_steps
from tileyard.targets.registry import COMMAND
from tileyard.wording import count_of


@dataclass(frozen=True)
class Times:
    """A file that says how long cases took, and which of its lines do; empty where that is known."""

    file: Path
    pattern: str = ""


def run(  # noqa: PLR0913 - options, by keyword only
    *,
    suite: Path | None,
    parameters: Mapping[str, str],
    times: Times | None,
    case_s: float,
    slots: int | None,
    split: Split,
    costs_s: Mapping[str, float],
    per: Literal["piece", "case"],
    wish: Wish,
    target: str,
    device_class: str,
    shard: Shard | None,
    budget_s: float,
    as_json: bool,
) -> None:
    """Predict and print; 0 and empty ask for nothing. Raises UsageError for what cannot be planned.

    ``slots`` is None for one a core. ``costs_s`` are fields of ``Costs``; what it leaves out is as the suite's
    last run measured it.
    """
    settings = load_settings()
    slots = len(settings.cores) if slots is None else slots
    notes: tuple[str, ...] = ()
    costs = replace(NO_COSTS, per=per, **costs_s)
    bounds = Bounds(shard=shard, budget_s=budget_s, slots=slots, costs=costs)
    if suite is not None:
        if not suite.exists():
            raise UsageError(f"there is no suite {suite}")
        whole = read_suite(suite, settings, parameters=parameters)
        if not device_class:
            whole = replace(whole, cases=tuple(map(hold_one, whole.cases)))
        memory = read_memory(settings.home, whole.remembered_as)
        costs = replace(memory.costs(settings.lanes), per=per, **costs_s)
        imported = {} if times is None else _learn(times, whole)
        classes = dict.fromkeys((COMMAND, target), device_class)
        find_target = partial(target_of, kernels=target)

        def expect(known: Sequence[RunTime]) -> dict[str, Expected]:
            return expect_all(whole, known, classes, find_target, imported)

        bounds = replace(bounds, costs=costs)
        outlook = look_ahead(whole, wish, expect, bounds, read_run_times())
        parts = _divide(outlook, whole, find_target, memory.steps)
        left_out, shards_s = outlook.selection.left_out, outlook.shards_s
        notes = outlook.selection.notes
    elif times is not None:
        expected = expect_imported(read_times(times.file, times.pattern), case_s)
        found = narrow(expected, [one.testcase for one in expected], bounds)
        parts, left_out, shards_s = [(found.expected, 1)], found.left_out, found.shards_s
    else:
        raise UsageError("nothing to plan", "name a suite, or a file of times with --durations")
    first, *others = [predict(part, slots // count, split, costs) for part, count in parts]
    whole_run = replace(
        first,
        left_out=left_out,
        notes=notes,
        shard=shard,
        shards_s=shards_s,
        then=tuple(others),
    )
    present(whole_run, as_json, print_prediction)


def _learn(times: Times, suite: Suite) -> dict[str, Known]:
    imported = learn_imported(read_times(times.file, times.pattern), suite.cases)
    if not imported:
        raise UsageError(
            f"{times.file}: says of none of the {count_of(len(suite.cases), 'case')} of {suite.path}"
            " how long it took"
        )
    return imported


def _divide(
    outlook: Outlook, suite: Suite, find_target: Callable[[SuiteCase], str], steps: KnownSteps
) -> list[tuple[tuple[Expected, ...], int]]:
    """What ``tileyard test`` would run of a suite, one part after another, and expect of that; and how many devices each case holds."""
    keys = [(find_target(case), case.work.devices) for case in suite.cases]
    members: dict[tuple[str, int], list[SuiteCase]] = {key: [] for key in keys}
    for case in outlook.selection.cases:
        members[find_target(case), case.work.devices].append(case)
    goldens = Goldens(Path(suite.folder))
    return [
        (add_steps(cases, outlook.of(cases), steps, goldens), count)
        for (_, count), cases in members.items()
        if cases
    ]

"""A prediction: from cases and their times to the plan of their run."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from tileyard.base.errors import UsageError
from tileyard.base.settings import Settings
from tileyard.base.wording import count_of
from tileyard.show.options import complete, fill, read_options
from tileyard.show.values import refuse_unused
from tileyard.store.base import RunTime
from tileyard.targets.registry import COMMAND
from tileyard.verbs.test.options import EVERYTHING, PlanOptions, Wish
from tileyard.verbs.test.plan.budget import (
    Bounds,
    Outlook,
    expect_all,
    hold_one,
    look_ahead,
    narrow,
    target_of,
)
from tileyard.verbs.test.plan.durations import (
    Goldens,
    Known,
    KnownSteps,
    add_steps,
    expect_imported,
    learn_imported,
    note_strangers,
)
from tileyard.verbs.test.plan.imports import ImportedTime, read_times
from tileyard.verbs.test.plan.lanes import read_memory
from tileyard.verbs.test.plan.pieces import NO_COSTS, parse_shard
from tileyard.verbs.test.plan.plan import Prediction, Split, predict
from tileyard.verbs.test.plan.reading import read_suite
from tileyard.verbs.test.result.result import Expected, Suite, SuiteCase

COSTS = ("startup", "launch", "lead")
"""The costs of starting: options, and with ``_s`` fields of ``Costs``."""


def predict_run(
    suite: Path | None,
    given: PlanOptions,
    settings: Settings,
    read_run_times: Callable[[], Sequence[RunTime]],
) -> Prediction:
    """Predict the run time of a suite, or of the cases in a file of times. Raises UsageError if it cannot be
    planned. For a suite, start-up costs not given are those that its last run measured.
    """
    options = complete(PlanOptions, given)
    _refuse_contradictions(suite, options)
    values = read_options(PlanOptions, options)
    costs_s = {f"{name}_s": values[name] for name in COSTS if values[name] is not None}
    file, shard = options["durations"], options["shard"]
    bounds = Bounds(
        shard=parse_shard(shard) if shard else None,
        budget_s=values["budget"],
        slots=len(settings.cores) if options["slots"] is None else options["slots"],
        costs=replace(NO_COSTS, per=options["per"], **costs_s),
    )
    split = values["split"]
    times = None if file is None else read_times(Path(file), options["durations_pattern"])
    if suite is not None:
        if not suite.exists():
            raise UsageError(f"there is no suite {suite}")
        whole = read_suite(suite, settings, parameters=values["set"])
        memory = read_memory(settings.home, whole.remembered_as)
        costs = memory.costs(settings.lanes, has_devices=bool(options["class_"]))
        costs = replace(costs, per=options["per"], **costs_s)
        imported = {} if times is None else _learn(times, whole, Path(str(file)))
        ahead = _Ahead(whole, values, replace(bounds, costs=costs), memory.steps)
        found = ahead.predict(imported, read_run_times(), split)
        notes = (*found.notes, *note_strangers(times or (), whole.cases))
        then = tuple(replace(part, file=str(file or "")) for part in found.then)
        return replace(found, notes=notes, then=then, file=str(file or ""))
    if times is None:
        raise UsageError("nothing to plan", "name a suite, or a file of times with --durations")
    expected = expect_imported(times, values["case_time"])
    some = narrow(expected, [one.testcase for one in expected], bounds)
    alone = predict(some.expected, bounds.slots, split, bounds.costs)
    alone = replace(alone, left_out=some.left_out, file=str(file))
    return replace(alone, shard=bounds.shard, shards_s=some.shards_s)


def _refuse_contradictions(suite: Path | None, options: PlanOptions) -> None:
    if suite is not None and options["case_time"] is not None:
        raise UsageError("--case-time is for imported times: a suite's cases are known")
    chooses = options["policy"] != EVERYTHING or options["select"] or options["skip"]
    if suite is None and (chooses or options["class_"]):
        raise UsageError(
            "--policy, --select, --skip and --class choose of a suite, and none is named"
        )
    if suite is None:
        refuse_unused("without a suite", {"--set": options["set"]})
    if options["durations"] is None:
        pattern = {"--durations-pattern": options["durations_pattern"]}
        refuse_unused("without --durations", pattern)


class _Ahead:
    """The run of a suite that the options request, examined before it begins."""

    def __init__(
        self, suite: Suite, values: Mapping[str, Any], bounds: Bounds, steps: KnownSteps
    ) -> None:
        self._classes = dict.fromkeys((COMMAND, values["target"]), values["class_"])
        if not values["class_"]:
            suite = replace(suite, cases=tuple(map(hold_one, suite.cases)))
        self._suite = suite
        self._bounds = bounds
        self._steps = steps
        self._find_target = partial(target_of, kernels=values["target"])
        self._wish = fill(Wish, values)

    def predict(
        self, imported: dict[str, Known], known: Sequence[RunTime], split: Split
    ) -> Prediction:
        """Predict its parts one after another, with what is not selected."""

        def expect(times: Sequence[RunTime]) -> dict[str, Expected]:
            return expect_all(self._suite, times, self._classes, self._find_target, imported)

        bounds = self._bounds
        outlook = look_ahead(self._suite, self._wish, expect, bounds, known)
        parts = _divide(outlook, self._suite, self._find_target, self._steps)
        first, *others = [
            predict(part, bounds.slots // count, split, bounds.costs) for part, count in parts
        ]
        return replace(
            first,
            left_out=outlook.selection.left_out,
            notes=outlook.selection.notes,
            shard=bounds.shard,
            shards_s=outlook.shards_s,
            then=tuple(others),
        )


def _learn(times: Sequence[ImportedTime], suite: Suite, file: Path) -> dict[str, Known]:
    imported = learn_imported(times, suite.cases)
    if not imported:
        raise UsageError(
            f"{file}: has no time for any of the {count_of(len(suite.cases), 'case')} of {suite.path}"
        )
    return imported


def _divide(
    outlook: Outlook, suite: Suite, find_target: Callable[[SuiteCase], str], steps: KnownSteps
) -> list[tuple[tuple[Expected, ...], int]]:
    """The parts of a run, one after another: expected times, and the devices that each case holds."""
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

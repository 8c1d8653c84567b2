"""A prediction as the command line makes it: cases and their times in, a view of the plan out."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from msgspec.structs import replace

from tileyard.cli.opening import print_json, read_run_times
from tileyard.errors import UsageError
from tileyard.report.console import Console
from tileyard.report.plan import print_prediction
from tileyard.settings import Settings, read_settings
from tileyard.store.run_times import RunTime
from tileyard.suite.budget import gather_facts
from tileyard.suite.durations import expect_imported, learn_imported
from tileyard.suite.imports import read_times
from tileyard.suite.memory import read_memory
from tileyard.suite.narrowing import Narrowed, narrow
from tileyard.suite.outlook import COMMAND, Bounds, expect_all, look_ahead, target_of
from tileyard.suite.pieces import NO_COSTS, Costs
from tileyard.suite.plan import Split
from tileyard.suite.prediction import predict_parts
from tileyard.suite.reading import read_suite
from tileyard.suite.records import Expected, Suite, SuiteCase, Wish
from tileyard.suite.shards import Shard
from tileyard.wording import count_of


@dataclass(frozen=True, kw_only=True)
class PlanRequest:
    """What is to be predicted; 0 and empty ask for nothing.

    ``slots`` is None for one a core; what starting costs is None for what the suite's last run measured.
    """

    suite: Path | None
    durations: Path | None
    case_s: float
    slots: int | None
    split: Split
    startup_s: float | None
    launch_s: float | None
    lead_s: float | None
    per: Literal["piece", "case"]
    wish: Wish
    target: str
    device_class: str
    shard: Shard | None
    budget_s: float
    as_json: bool

    def costs(self, known: Costs) -> Costs:
        """What starting costs: as asked, else as it is known."""
        return Costs(
            startup_s=known.startup_s if self.startup_s is None else self.startup_s,
            launch_s=known.launch_s if self.launch_s is None else self.launch_s,
            lead_s=known.lead_s if self.lead_s is None else self.lead_s,
            per=self.per,
        )


def run(request: PlanRequest) -> int:
    """Predict and print; the exit status. Raises UsageError for what cannot be planned."""
    settings = read_settings(os.environ, Path.cwd())
    slots = len(settings.cores) if request.slots is None else request.slots
    costs = request.costs(NO_COSTS)
    if request.suite is not None:
        suite = _read_suite(request.suite, settings)
        costs = request.costs(read_memory(settings.home, suite.path).costs)
        parts = _look_at(suite, request, slots, costs, settings)
    elif request.durations is not None:
        expected = expect_imported(read_times(request.durations), request.case_s)
        facts = gather_facts(expected, [one.testcase for one in expected])
        parts = [narrow(facts, request.shard, request.budget_s, slots, costs)]
    else:
        raise UsageError("nothing to plan", "name a suite, or a file of times with --durations")
    prediction = predict_parts(parts, slots, request.split, costs)
    if request.as_json:
        print_json(prediction)
    else:
        print_prediction(Console(), prediction)
    return 0


def _read_suite(path: Path, settings: Settings) -> Suite:
    if not path.exists():
        raise UsageError(f"there is no suite {path}")
    return read_suite(path, settings)


def _look_at(
    suite: Suite, request: PlanRequest, slots: int, costs: Costs, settings: Settings
) -> list[Narrowed]:
    """What ``tileyard test`` would run of a suite, one part after another, and expect of that."""
    imported = {}
    if request.durations is not None:
        imported = learn_imported(read_times(request.durations), suite.cases)
        if not imported:
            raise UsageError(
                f"{request.durations}: says of none of the {count_of(len(suite.cases), 'case')} of {suite.path}"
                " how long it took"
            )
    classes = dict.fromkeys((COMMAND, request.target), request.device_class)
    find_target = partial(target_of, kernels=request.target)

    def expect(known: Sequence[RunTime]) -> dict[str, Expected]:
        return expect_all(suite, known, classes, find_target, imported)

    bounds = Bounds(shard=request.shard, budget_s=request.budget_s, slots=slots, costs=costs)
    outlook = look_ahead(suite, request.wish, expect, bounds, read_run_times(settings.home))
    whole = Narrowed(
        expected=(),
        left_out=outlook.selection.left_out,
        shard=request.shard,
        shards_s=outlook.shards_s,
    )
    members: dict[str, list[SuiteCase]] = {find_target(case): [] for case in suite.cases}
    for case in outlook.selection.cases:
        members[find_target(case)].append(case)
    first, *others = [outlook.of(cases) for cases in members.values() if cases]
    return [replace(whole, expected=first), *(Narrowed(expected=part) for part in others)]

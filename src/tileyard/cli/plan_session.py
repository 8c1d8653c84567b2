"""A prediction as the command line makes it: cases and their times in, a view of the plan out."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from msgspec.structs import replace
from rich.console import Console

from tileyard.cli.opening import print_json, read_run_times
from tileyard.errors import UsageError
from tileyard.report.plan import print_prediction
from tileyard.settings import Settings, read_settings
from tileyard.suite.budget import gather_facts
from tileyard.suite.durations import expect_imported, learn_imported
from tileyard.suite.imports import read_times
from tileyard.suite.memory import read_memory
from tileyard.suite.narrowing import Narrowed, narrow
from tileyard.suite.outlook import COMMAND, Bounds, expect_all, look_ahead, target_of
from tileyard.suite.pieces import Costs
from tileyard.suite.plan import Split
from tileyard.suite.prediction import predict
from tileyard.suite.reading import read_suite
from tileyard.suite.records import Suite, Wish
from tileyard.suite.shards import Shard


@dataclass(frozen=True, kw_only=True)
class PlanRequest:
    """What is to be predicted; 0 and empty ask for nothing.

    ``slots`` is None for one a core, ``startup_s`` for what the suite's last run measured.
    """

    suite: Path | None
    durations: Path | None
    case_s: float
    slots: int | None
    split: Split
    startup_s: float | None
    launch_s: float
    lead_s: float
    per: Literal["piece", "case"]
    wish: Wish
    target: str
    device_class: str
    shard: Shard | None
    budget_s: float
    as_json: bool


def run(request: PlanRequest) -> int:
    """Predict and print; the exit status. Raises UsageError for what cannot be planned."""
    settings = read_settings(os.environ, Path.cwd())
    slots = len(settings.cores) if request.slots is None else request.slots
    costs = Costs(
        startup_s=request.startup_s or 0.0,
        launch_s=request.launch_s,
        lead_s=request.lead_s,
        per=request.per,
    )
    if request.suite is not None:
        suite = _read_suite(request.suite, settings)
        narrowed = _look_at(suite, request, slots, settings)
        if request.startup_s is None:
            costs = replace(costs, startup_s=read_memory(settings.home, suite.path).startup_s)
    elif request.durations is not None:
        expected = expect_imported(read_times(request.durations), request.case_s)
        facts = gather_facts(expected, [one.testcase for one in expected])
        narrowed = narrow(facts, request.shard, request.budget_s, slots, costs)
    else:
        raise UsageError("nothing to plan", "name a suite, or a file of times with --durations")
    prediction = predict(narrowed, slots, request.split, costs)
    if request.as_json:
        print_json(prediction)
    else:
        print_prediction(Console(), prediction)
    return 0


def _read_suite(path: Path, settings: Settings) -> Suite:
    if not path.exists():
        raise UsageError(f"there is no suite {path}")
    return read_suite(path, settings)


def _look_at(suite: Suite, request: PlanRequest, slots: int, settings: Settings) -> Narrowed:
    """What ``tileyard test`` would run of a suite, and what it would expect of that."""
    # A shard is cut without the store: jobs agree on it only if they expect the same.
    times = () if request.shard is not None else read_run_times(settings.home)
    imported = {}
    if request.durations is not None:
        imported = learn_imported(read_times(request.durations), suite.cases)
        if not imported:
            raise UsageError(
                f"{request.durations}: says of none of the {len(suite.cases)} cases of {suite.path}"
                " how long it took"
            )
    classes = dict.fromkeys((COMMAND, request.target), request.device_class)
    expected = expect_all(
        suite, times, classes, lambda case: target_of(case, request.target), imported
    )
    bounds = Bounds(shard=request.shard, budget_s=request.budget_s, slots=slots)
    outlook = look_ahead(suite, request.wish, expected, bounds, times)
    return Narrowed(
        expected=outlook.of(outlook.selection.cases),
        left_out=outlook.selection.left_out,
        shard=request.shard,
    )

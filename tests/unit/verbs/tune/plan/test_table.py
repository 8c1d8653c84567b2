"""Studies of many shapes in one run, and the dispatch table that they make."""

import asyncio
import itertools
from collections.abc import Iterable, Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.verbs.tune.plan.test_study import StillClock, measured

from tileyard.base.errors import UsageError
from tileyard.base.events import Note, RunStarted
from tileyard.base.model import (
    Batch,
    BuildKey,
    Case,
    Device,
    KernelWork,
    Keys,
    Outcome,
    Trial,
    Value,
)
from tileyard.service.runs import Plan
from tileyard.verbs.tune.options import Shape, StartTable, TuneOptions, TuneRequest, start_tune
from tileyard.verbs.tune.plan import table, tables
from tileyard.verbs.tune.plan.space import OpenSpace
from tileyard.verbs.tune.plan.study import Study
from tileyard.verbs.tune.plan.table import (
    ShapeStudy,
    Studies,
    choose_greedily,
    draw_curve,
    find_fewest,
)
from tileyard.verbs.tune.plan.tables import open_table
from tileyard.verbs.tune.result import TableResult

DEVICE = Device(name="cpu:0", kind="cpu", identity="x")
SHAPES = 7
TABLES = st.dictionaries(
    st.sampled_from("abcdef"),
    st.frozensets(st.integers(0, SHAPES - 1), max_size=4),
    min_size=1,
)
WEIGHTS = st.lists(st.integers(1, 9).map(float), min_size=SHAPES, max_size=SHAPES)
TRAP = {
    "left": frozenset({0, 1, 2}),
    "right": frozenset({3, 4, 5}),
    "tempting": frozenset({1, 2, 3, 4}),
}
"""The config that serves the most shapes is in no smallest table."""


class Run:
    """Answers several studies' cases with scripted latencies by shape and tile size, 0 for wrong. ``met`` are
    those of interleaved batches, where they differ.
    """

    def __init__(
        self,
        latencies_ns: Mapping[int, Mapping[int, float]],
        met: Mapping[tuple[int, int], float] | None = None,
        *,
        within: float = 0.05,
        binaries: Mapping[int, str] | None = None,
        **request: object,
    ) -> None:
        self.latencies_ns = latencies_ns
        self.met = met or {}
        self.binaries = binaries or {}
        self.batches: list[Batch] = []
        self.disturbed: set[str] = set()
        """The ids of batches that take ten times as long."""
        self.clock = StillClock()
        self.pauses_s: list[float] = []
        made = TuneRequest(**request)  # type: ignore[arg-type]  # fields of the request
        self.studies = [
            ShapeStudy(
                Study(made, self.open(m), self.clock, sleep=self.sleep),
                Shape(arguments={"M": m}, weight=float(m)),
                number,
            )
            for number, m in enumerate(latencies_ns, start=1)
        ]
        self.source = Studies(self.studies, made, within)

    async def sleep(self, seconds: float) -> None:
        """Let the time pass."""
        self.pauses_s.append(seconds)
        self.clock.now_s += seconds

    def open(self, m: int) -> OpenSpace:
        """The space of a shape."""
        tiles = self.latencies_ns[m]
        configs: list[dict[str, Value]] = [{"tile": tile} for tile in tiles]
        return OpenSpace(
            kernel="k", arguments={"M": m}, configs=configs, size=len(configs), flops=0.0
        )

    def tell(self, batch: Batch) -> None:
        """How the cases of a batch end."""
        self.batches.append(batch)
        for case in batch.cases:
            m, tile = int(case.work.arguments["M"]), int(case.config["tile"])  # type: ignore[union-attr]
            took_ns = self.latencies_ns[m][tile]
            if batch.order == "interleaved":
                took_ns = self.met.get((m, tile), took_ns)
            took_ns *= 10.0 if batch.id in self.disturbed else 1.0
            self.source.tell(
                Trial(
                    id=f"run.{case.id}",
                    run="run",
                    case=case.id,
                    batch=batch.id,
                    kernel="k",
                    arguments={"M": m},
                    config=case.config,
                    target="cpu",
                    control=case.control,
                    outcome=Outcome.PASSED if took_ns else Outcome.MISMATCH,
                    keys=Keys(binary=self.binaries.get(tile, "")),
                    measurement=measured(took_ns) if took_ns else None,
                )
            )

    def drive(self) -> TableResult:
        """Carry the studies to their end."""
        while not self.source.done():
            for batch in asyncio.run(self.source.ask(3)):
                self.tell(batch)
        results = [one.study.result("run", "done", DEVICE) for one in self.studies]
        return self.source.result("run", "done", results)


def tiles(result: TableResult) -> list[Value | None]:
    """The table's tile size of each shape."""
    return [None if row.trial is None else row.trial.config["tile"] for row in result.rows]


def test_one_config_serves_where_it_is_nearly_the_best() -> None:
    """It has met the best one of each shape, and its row says how it did there."""
    run = Run({1: {16: 100.0, 32: 103.0, 64: 200.0}, 2: {16: 300.0, 32: 204.0, 64: 200.0}})
    result = run.drive()
    assert tiles(result) == [32, 32]
    assert [study.best and study.best.config["tile"] for study in result.studies] == [16, 64]
    assert all(1 < row.slowdown <= 1.05 for row in result.rows)
    assert [(len(point.configs), point.share) for point in result.curve] == [(1, 1.0)]
    assert result.exit_status == 0


def test_the_curve_says_what_fewer_configs_do() -> None:
    """By weight, and how bad the worst shape is with them."""
    run = Run(
        {1: {16: 100.0, 32: 150.0}, 2: {16: 200.0, 32: 100.0}, 7: {16: 400.0, 32: 100.0}},
    )
    curve = run.drive().curve
    assert [(len(point.configs), point.share) for point in curve] == [(1, 0.9), (2, 1.0)]
    assert [point.worst for point in curve] == [1.5, 1.0]


def test_what_is_too_slow_beside_the_best_leaves_the_table() -> None:
    """Times of the screening only propose: 32 looks good for both shapes, and is not for one."""
    latencies = {1: {16: 100.0, 32: 103.0, 64: 200.0}, 2: {16: 300.0, 32: 100.0, 64: 200.0}}
    run = Run(latencies, {(1, 32): 120.0})
    assert sorted(filter(None, tiles(run.drive()))) == [16, 32]


def test_what_is_no_finalist_meets_the_best_one_afterwards() -> None:
    """And serves the shape if it is within the limit there."""
    latencies = {1: {16: 100.0, 32: 130.0}, 2: {16: 300.0, 32: 100.0}}
    run = Run(latencies, within=0.5)
    result = run.drive()
    assert tiles(result) == [32, 32]
    assert [batch.id for batch in run.batches if batch.order == "interleaved"] == ["s1/meeting1"]
    assert 1.29 < result.rows[0].slowdown < 1.5
    assert Run(latencies, {(1, 32): 160.0}, within=0.5).drive().rows[0].slowdown == 1.0


def test_a_shape_without_a_winner_is_named() -> None:
    """The others have their table."""
    result = Run({1: {16: 100.0}, 2: {16: 0.0}}).drive()
    assert tiles(result) == [16, None]
    assert [point.share for point in result.curve] == [1 / 3]
    assert result.exit_status == 1


def test_configs_with_one_binary_share_what_is_known() -> None:
    """What one of them has shown holds for the other, without another meeting."""
    latencies = {1: {16: 100.0, 32: 100.0}, 2: {16: 300.0, 32: 100.0}}
    run = Run(latencies, binaries={16: "a", 32: "a"})
    assert len(set(tiles(run.drive()))) == 1
    assert all(batch.order != "interleaved" for batch in run.batches)


def test_a_pause_of_one_shape_lets_the_others_go_on() -> None:
    """Their own pauses are at the same time, so all wait no longer than one of them."""
    run = Run({m: {16: 100.0, 32: 101.0} for m in (1, 2, 3)}, pause_s=7.0)
    run.disturbed = {"s1/finals", "s2/finals"}
    result = run.drive()
    assert run.pauses_s == [7.0]
    assert [len(study.disturbances) for study in result.studies] == [1, 1, 0]
    ids = [batch.id for batch in run.batches]
    assert ids.index("s3/finals") < ids.index("s1/finals-held2")
    assert result.exit_status == 0


def test_times_are_compared_within_a_shape_only() -> None:
    """No case has the name of another one, and none is given up for the times of another shape."""
    run = Run({1: {16: 100.0, 32: 102.0}, 2: {16: 900.0, 32: 905.0}})
    run.drive()
    cases = [case for batch in run.batches for case in batch.cases]
    assert len({case.id for case in cases}) == len(cases)
    groups = {(case.timing.group, str(case.id).partition("/")[0]) for case in cases if case.timing}
    assert groups == {("s1/study", "s1"), ("s2/study", "s2")}


def test_a_budget_is_for_all_shapes_alike() -> None:
    """With one they take turns; without it one comes after the other."""
    latencies = {1: dict.fromkeys(range(9), 100.0), 2: dict.fromkeys(range(9), 100.0)}
    for budget_s, expected in ((None, {"s1"}), (9.0, {"s1", "s2"})):
        run = Run(latencies, budget_s=budget_s)
        for limit in (1, 3):
            asked = [*asyncio.run(run.source.ask(limit)), *asyncio.run(run.source.ask(limit))]
            assert len(asked) == 2 * limit
            assert {batch.id.partition("/")[0] for batch in asked} == expected
    assert [one.study.budgets.screening_s for one in Run(latencies, budget_s=600.0).studies] == [
        576.0
    ] * 2


def start_many(options: TuneOptions) -> StartTable:
    """What begins a table for three shapes with these options."""
    shapes = tuple(Shape(arguments={"M": m}) for m in (1, 2, 3))
    return StartTable(tune=start_tune("k.py", "k", options), shapes=shapes, within=0.05)


def test_a_strategy_with_a_process_of_its_own_is_for_one_shape() -> None:
    """Many shapes would start as many at once; nothing is opened."""
    start = start_many({"strategy": "optuna-tpe"})
    with pytest.raises(UsageError, match="optuna-tpe would need a process for each shape"):
        asyncio.run(open_table(start, cast(Any, None), [DEVICE], cast(Any, None)))


def open_plans(monkeypatch: pytest.MonkeyPatch, plans: Iterable[Plan[Any]]) -> Plan[TableResult]:
    """The plan of a table of the studies with these plans."""
    left = iter(plans)

    async def open_next(*_: object) -> Plan[Any]:
        return next(left)

    monkeypatch.setattr(tables, "open_study", open_next)
    bench = cast(Any, SimpleNamespace(store=None))
    return asyncio.run(open_table(start_many({}), bench, [DEVICE], cast(Any, None)))


def plan_of(study: Study, **fields: Any) -> Plan[Any]:  # noqa: ANN401 - of any type
    """A study's plan."""
    return Plan(
        source=study,
        fold=cast(Any, None),
        authors=cast(Any, None),
        grounds={},
        begun=RunStarted(title="tune k", run="", cases=5),
        find_excess=lambda: "",
        **fields,
    )


def test_notes_of_studies_are_those_of_their_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """What several have in common is printed once, and what won elsewhere is counted in one line."""
    run = Run({1: {16: 1.0}, 2: {16: 1.0}, 3: {16: 1.0}})
    studies = [one.study for one in run.studies]
    for study in studies[:2]:
        study.space.origins = ("M=4",)
    texts = [("common", study.space.describe_start()) for study in studies]
    notes = [[Note(text=text) for text in told if text] for told in texts]
    plan = open_plans(monkeypatch, map(lambda one, of: plan_of(one, notes=of), studies, notes))
    told = [note.text for note in plan.notes]
    assert told == ["common", "configs that won elsewhere are tried first for 2 shapes"]
    assert (plan.begun.title, plan.begun.cases) == ("tune k for 3 shapes", 15)
    assert plan.rank is None


def test_each_strategy_learns_of_its_own_binaries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not of those of other shapes; and nothing is ranked, as a small shape would always come first."""
    run = Run({1: {16: 1.0}, 2: {16: 1.0}, 3: {16: 1.0}})
    heard: list[tuple[int, str]] = []

    def rank_as(number: int, case: Case, build: BuildKey) -> float:
        heard.append((number, f"{case.id} {build}"))
        return 1.0

    plans = [
        plan_of(one.study, rank=partial(rank_as, number) if number != 3 else None)
        for number, one in enumerate(run.studies, start=1)
    ]
    rank = open_plans(monkeypatch, plans).rank
    assert rank is not None
    cases = [Case(id=f"s{number}/c1", work=KernelWork()) for number in (2, 1, 3)]
    assert [rank(case, BuildKey("b")) for case in cases] == [None] * 3
    assert heard == [(2, "s2/c1 b"), (1, "s1/c1 b")]


def test_what_has_not_met_is_in_no_table() -> None:
    """A run that ends before has the best config of each shape."""
    run = Run({1: {16: 100.0, 32: 130.0}, 2: {16: 300.0, 32: 100.0}}, within=0.5)
    for batch in asyncio.run(run.source.ask(9)):
        run.tell(batch)
    results = [one.study.result("run", "interrupted", DEVICE) for one in run.studies]
    result = run.source.result("run", "interrupted", results)
    assert tiles(result) == [16, 32]
    assert [row.slowdown for row in result.rows] == [1.0, 1.0]
    assert result.exit_status == 130


def reach(served: table.Served, chosen: tuple[str, ...]) -> frozenset[int]:
    """The shapes that some configs serve together."""
    return frozenset().union(*(served[name] for name in chosen))


def weigh(served: table.Served, chosen: tuple[str, ...], weights: list[float]) -> float:
    """Their weight."""
    return sum(weights[shape] for shape in reach(served, chosen))


@settings(max_examples=15)
@given(TABLES)
def test_no_smaller_table_serves_all(served: dict[str, frozenset[int]]) -> None:
    """By trying all of them."""
    found = find_fewest(served)
    everything = reach(served, tuple(served))
    assert reach(served, found) == everything
    smaller = itertools.combinations(served, max(len(found) - 1, 0))
    assert not everything or all(reach(served, chosen) != everything for chosen in smaller)


@settings(max_examples=15)
@given(TABLES, WEIGHTS)
def test_no_other_choice_serves_more(
    served: dict[str, frozenset[int]], weights: list[float]
) -> None:
    """At each point of the curve, by trying all of them."""
    curve = draw_curve(served, weights, 3)
    assert len(curve) == 3
    for count, chosen in enumerate(curve, start=1):
        assert len(chosen) <= count
        others = itertools.combinations(served, min(count, len(served)))
        assert weigh(served, chosen, weights) == max(weigh(served, one, weights) for one in others)


def test_the_greedy_choice_can_be_worse() -> None:
    """It takes the config that adds most."""
    assert choose_greedily(TRAP, [1.0] * 6) == ("tempting", "left", "right")
    assert find_fewest(TRAP) == ("left", "right")
    assert draw_curve(TRAP, [1.0] * 6, 2) == [("tempting",), ("left", "right")]


def test_weights_decide_what_is_served_first() -> None:
    """A shape that occurs often counts more than two that do not."""
    assert draw_curve(TRAP, [9.0, 1, 1, 1, 1, 1], 1) == [("left",)]


def test_without_a_solution_the_greedy_choice_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    """A solver that finds nothing in its time makes nothing worse."""
    monkeypatch.setattr(table, "milp", lambda *_, **__: type("Nothing", (), {"x": None}))
    assert find_fewest(TRAP) == ("left", "right", "tempting")
    assert draw_curve(TRAP, [1.0] * 6, 2) == [("tempting",), ("left", "tempting")]


def test_no_config_serves_no_shape() -> None:
    """Where nothing passed, the table is empty."""
    assert find_fewest({}) == ()
    assert find_fewest({"a": frozenset()}) == ()

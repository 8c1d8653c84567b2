"""A study as a source of cases, and the judge that names its winner."""

import asyncio
from collections.abc import Iterator

import msgspec
import pytest

from tileyard.model import (
    Batch,
    Device,
    Keys,
    Limits,
    Measurement,
    Outcome,
    RunKey,
    TimingPolicy,
    Trial,
)
from tileyard.tuning.request import StudyResult, TuneRequest
from tileyard.tuning.space import OpenSpace
from tileyard.tuning.study import FINALS, Study


class StillClock:
    """A clock that moves only when told."""

    now_s = 0.0

    def monotonic_s(self) -> float:
        """The time set by the test."""
        return self.now_s

    def wall_s(self) -> float:
        """The time set by the test."""
        return self.now_s


def measured(median_ns: float, spread: float = 0.01, count: int = 12) -> Measurement:
    """A measurement with a symmetric interval."""
    steps = [1 + spread * ((i * 7) % 5 - 2) / 2 for i in range(count)]
    return Measurement(
        median_ns=median_ns,
        low_ns=median_ns * (1 - spread),
        high_ns=median_ns * (1 + spread),
        confidence=0.95,
        samples_ns=tuple(median_ns * step for step in steps),
    )


class Bench:
    """Answers a study's cases with scripted latencies, by tile size."""

    def __init__(self, latencies_ns: dict[int, float], **request: object) -> None:
        self.latencies_ns = latencies_ns
        self.clock = StillClock()
        space = OpenSpace(
            kernel="k",
            arguments={},
            configs=[{"tile": tile} for tile in latencies_ns],
            size=len(latencies_ns),
            flops=1e9,
        )
        made = TuneRequest(**request)  # type: ignore[arg-type]  # fields of the request
        self.study = Study(made, space, self.clock)
        self.final: Batch | None = None
        self.binaries: dict[object, str] = {}
        self.right = Outcome.PASSED

    def trials(self, batch: Batch) -> Iterator[Trial]:
        """One trial per case of a batch."""
        for case in batch.cases:
            latency_ns = self.latencies_ns[int(case.config["tile"])]
            ok = latency_ns > 0
            yield Trial(
                id=f"run.{case.id}",
                run="run",
                case=case.id,
                batch=batch.id,
                kernel="k",
                arguments={},
                config=case.config,
                target="cpu",
                control=case.control,
                outcome=self.right if ok else Outcome.MISMATCH,
                keys=Keys(run=RunKey(case.id), binary=self.binaries.get(case.config["tile"], "")),
                measurement=measured(latency_ns) if ok else None,
            )

    def drive(self) -> StudyResult:
        """Run the study to its end."""
        while not self.study.done():
            batches = asyncio.run(self.study.ask(3))
            assert batches or self.study.done()
            for batch in batches:
                if batch.id == FINALS:
                    self.final = batch
                for trial in self.trials(batch):
                    self.study.tell(trial)
        return self.study.result("run", "done", Device(name="cpu:0", kind="cpu", identity="x"))


def test_the_fastest_passing_config_wins() -> None:
    """Every config is screened once and the clearly fastest one is named."""
    bench = Bench({16: 400.0, 32: 200.0, 64: 100.0, 128: 300.0})
    result = bench.drive()
    expected = {"tile": 64}
    assert result.best is not None
    assert result.best.config == expected
    assert len(result.trials) == 4


def test_a_wrong_result_never_wins() -> None:
    """A config whose output was wrong is not a contender, however fast."""
    result = Bench({16: 400.0, 32: -1.0, 64: 300.0}).drive()
    expected = {"tile": 64}
    assert result.best is not None
    assert result.best.config == expected
    assert result.count(Outcome.MISMATCH) == 1


def test_finals_hold_the_contenders_and_a_control() -> None:
    """Configs whose intervals come near the best one's meet it, and it meets itself."""
    bench = Bench({16: 100.0, 32: 101.0, 64: 103.0, 128: 200.0})
    bench.drive()
    assert bench.final is not None
    expected = [16, 32, 64, 16]
    assert [case.config["tile"] for case in bench.final.cases] == expected
    assert [case.control for case in bench.final.cases] == [False, False, False, True]
    assert bench.final.order == "interleaved"


def test_ties_are_named_and_broken_by_the_canonical_order() -> None:
    """Equal finalists are called tied, and the same one wins whoever was screened first."""
    expected = {"tile": 16}
    for order in ([16, 32], [32, 16]):
        result = Bench(dict.fromkeys(order, 100.0)).drive()
        assert result.best is not None
        assert result.best.config == expected
        assert [final.tied for final in result.finals] == [True, True]


def test_of_equal_binaries_one_meets_the_others() -> None:
    """It stands for all of them, and they are named with the winner."""
    bench = Bench({16: 100.0, 32: 100.0, 64: 101.0})
    bench.binaries = {16: "same", 32: "same", 64: "other"}
    result = bench.drive()
    assert bench.final is not None
    expected = [16, 64, 16]
    assert [case.config["tile"] for case in bench.final.cases] == expected
    assert result.best is not None
    assert [trial.config["tile"] for trial in result.same_binary(result.best)] == [16, 32]


def test_where_equal_binaries_are_all_there_is_nothing_meets() -> None:
    """A binary is not compared with itself."""
    bench = Bench(dict.fromkeys((16, 32), 100.0))
    bench.binaries = {16: "same", 32: "same"}
    assert bench.drive().best is not None
    assert bench.final is None


@pytest.mark.parametrize(("required", "expected"), [(False, {"tile": 16}), (True, None)])
def test_what_was_not_checked_wins_unless_a_check_is_required(
    required: bool, expected: dict[str, int] | None
) -> None:
    """And the result says why nothing was compared."""
    bench = Bench({16: 100.0}, require_check=required)
    bench.right = Outcome.UNCHECKED
    result = bench.drive()
    assert (result.best and result.best.config) == expected
    assert result.unchecked == "unchecked: no reference"


def test_the_times_that_decided_are_those_of_the_finals() -> None:
    """Also where the screening had given the winner up early."""
    bench = Bench({16: 100.0, 32: 101.0})
    result = bench.drive()
    assert result.best is not None
    abandoned = msgspec.structs.replace(measured(900.0), abandoned=True)
    best = msgspec.structs.replace(result.best, measurement=abandoned)
    expected = 100.0
    found = result.measurement_of(best)
    assert found is not None
    assert (found.median_ns, found.abandoned) == (expected, False)


def test_the_control_reports_itself() -> None:
    """The A/A control's ratio and verdict are part of the result."""
    result = Bench({16: 100.0, 32: 101.0}).drive()
    assert result.control is not None
    expected = 1.0
    assert result.control.ratio == pytest.approx(expected)
    assert not result.control.false_alarm


def test_a_lone_contender_needs_no_finals() -> None:
    """Where one config is clearly best there is nothing to compare."""
    bench = Bench({16: 100.0, 32: 300.0})
    result = bench.drive()
    expected = ()
    assert bench.final is None
    assert result.finals == expected


def test_nothing_passed_means_no_winner() -> None:
    """Without a right result there is no best config."""
    result = Bench({16: -1.0, 32: -1.0}).drive()
    expected = None
    assert result.best is expected


def test_the_budget_ends_the_screening_but_not_the_finals() -> None:
    """Once the time is spent no new config is asked, and the finals still take place."""
    bench = Bench({16: 100.0, 32: 100.5, 64: 50.0, 128: 40.0}, budget_s=10.0)
    first = asyncio.run(bench.study.ask(2))
    bench.clock.now_s = 11.0
    for batch in first:
        for trial in bench.trials(batch):
            bench.study.tell(trial)
    result = bench.drive()
    expected = {16, 32}
    assert {trial.config["tile"] for trial in result.trials} == expected
    assert bench.final is not None


def test_screening_is_over_once_the_finals_are_planned() -> None:
    """From then on there is nothing that a budget could end."""
    bench = Bench({16: 100.0, 32: 100.5})
    seen = []
    for _ in range(2):
        for batch in asyncio.run(bench.study.ask(2)):
            seen.append(bench.study.is_screening)
            for trial in bench.trials(batch):
                bench.study.tell(trial)
    expected = [True, True, False]
    assert seen == expected


def test_later_cases_know_the_best_so_far() -> None:
    """A case planned after a result carries the bound above which it is abandoned."""
    bench = Bench({16: 100.0, 32: 300.0})
    (first,) = asyncio.run(bench.study.ask(1))
    for trial in bench.trials(first):
        bench.study.tell(trial)
    (second,) = asyncio.run(bench.study.ask(1))
    expected = 101.0
    assert first.cases[0].abandon_above_ns == 0.0
    assert second.cases[0].abandon_above_ns == pytest.approx(expected)


@pytest.mark.parametrize(
    ("asked", "limits", "expected"),
    [
        (TimingPolicy(), Limits(), (9, 2, 7.0)),
        (TimingPolicy(graph=True), Limits(), (9, 2, 7.0)),
        (TimingPolicy(launches=5), Limits(run_s=3.0), (5, 0, 3.0)),
        (TimingPolicy(max_ns=1), Limits(), (0, 0, 7.0)),
    ],
)
def test_what_a_kernel_asks_for_counts_where_nobody_else_does(
    asked: TimingPolicy, limits: Limits, expected: tuple[int, int, float]
) -> None:
    """Numbers of launches and the limit of a run are the kernel's unless the request has its own."""
    bench = Bench({16: 100.0}, timing=asked, limits=limits)
    space = bench.study.space
    space.timing, space.run_s = TimingPolicy(launches=9, warmup_launches=2), 7.0
    study = Study(TuneRequest(timing=asked, limits=limits), space, bench.clock)
    (batch,) = asyncio.run(study.ask(1))
    (case,) = batch.cases
    assert case.timing is not None
    found = (case.timing.launches, case.timing.warmup_launches, case.limits.run_s)
    assert (found, case.timing.graph) == (expected, asked.graph)

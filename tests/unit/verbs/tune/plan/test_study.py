"""A study as a source of cases, and the judge that names its winner."""

import asyncio
import itertools
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from tileyard.base.events import HostJoined
from tileyard.base.model import (
    Batch,
    Device,
    Draw,
    KernelWork,
    Keys,
    Limits,
    Measurement,
    Outcome,
    RunKey,
    TimingPolicy,
    Tolerance,
    Trial,
    Value,
)
from tileyard.store.trials import open_store
from tileyard.verbs.tune.options import TuneRequest
from tileyard.verbs.tune.plan.contest import FINALS
from tileyard.verbs.tune.plan.deciding import find_deciding
from tileyard.verbs.tune.plan.goals import TIME_ALONE, Goals
from tileyard.verbs.tune.plan.space import OpenSpace
from tileyard.verbs.tune.plan.study import Study
from tileyard.verbs.tune.result import StudyResult
from tileyard.verbs.tune.view.trials import list_trials


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

    def __init__(
        self,
        latencies_ns: dict[int, float],
        devices: tuple[Device, ...] = (),
        incumbents: tuple[tuple[str, dict[str, Value]], ...] = (),
        goals: Goals = TIME_ALONE,
        **request: object,
    ) -> None:
        self.latencies_ns = latencies_ns
        self.clock = StillClock()
        space = OpenSpace(
            kernel="k",
            arguments={},
            configs=[{"tile": tile} for tile in latencies_ns],
            size=len(latencies_ns),
            flops=1e9,
            incumbents=incumbents,
        )
        made = TuneRequest(**request)  # type: ignore[arg-type]  # fields of the request
        self.pauses_s: list[float] = []
        self.study = Study(made, space, self.clock, devices=devices, sleep=self.sleep, goals=goals)
        self.final: Batch | None = None
        self.finals: list[Batch] = []
        self.binaries: dict[object, str] = {}
        self.right = Outcome.PASSED
        self.slower: dict[str, float] = {}
        self.spread = 0.01
        self.wrong: set[tuple[int, Draw]] = set()
        self.wrong_in: set[tuple[str, int]] = set()
        self.wrong_outcome = Outcome.MISMATCH
        self.speeds: dict[str, float] = {}
        self.speeds_of: dict[tuple[str, int], float] = {}
        self.times: dict[str, Measurement] = {}
        """Measurements of single cases, by their ids."""
        self.turns = itertools.cycle(device.name for device in devices)
        self.asked: list[Batch] = []
        self.told: list[Trial] = []
        self.reused: set[str] = set()
        self.devices = devices

    async def sleep(self, seconds: float) -> None:
        """Let the time pass."""
        self.pauses_s.append(seconds)
        self.clock.now_s += seconds

    def trials(self, batch: Batch) -> Iterator[Trial]:
        """One trial per case of a batch."""
        able = batch.devices or tuple(one.name for one in self.devices)
        device = next((name for name in self.turns if name in able), "") if able else ""
        for case in batch.cases:
            tile = int(case.config["tile"])
            latency_ns = self.latencies_ns[tile] * self.slower.get(device, 1.0)
            latency_ns *= self.speeds.get(batch.id, 1.0) * self.speeds_of.get((batch.id, tile), 1.0)
            assert isinstance(case.work, KernelWork)
            ok = latency_ns > 0 and (tile, case.work.draw) not in self.wrong
            ok = ok and (batch.id, tile) not in self.wrong_in
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
                reused=batch.id in self.reused,
                device=device,
                message="" if ok else "wrong",
                outcome=self.right if ok else self.wrong_outcome,
                keys=Keys(run=RunKey(case.id), binary=self.binaries.get(case.config["tile"], "")),
                measurement=self.times.get(case.id, measured(latency_ns, self.spread))
                if ok and case.timing
                else None,
            )

    def drive(self) -> StudyResult:
        """Run the study to its end."""
        while not self.study.done():
            batches = asyncio.run(self.study.ask(3))
            assert batches or self.study.done()
            self.asked += batches
            for batch in batches:
                if batch.id.startswith(FINALS):
                    self.final = batch
                    self.finals.append(batch)
                for trial in self.trials(batch):
                    self.told.append(trial)
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


def test_a_result_says_when_configs_had_ended_and_how_many_were_rejected() -> None:
    """In seconds of the run, one for each config."""
    bench = Bench({16: 400.0, 32: 200.0})
    bench.study.space.rejected = 5
    first, second = asyncio.run(bench.study.ask(2))
    for now_s, batch in ((3.0, second), (7.0, first)):
        bench.clock.now_s = now_s
        for trial in bench.trials(batch):
            bench.study.tell(trial)
    result = bench.drive()
    assert (result.ended_s, result.rejected) == ((3.0, 7.0), 5)


def test_a_config_that_is_measured_again_ended_when_it_did_first() -> None:
    """Its second trial replaces the first, and the curve of the best so far has the first one's moment."""
    bench = Bench({16: 30.0, 32: 25.0})
    bench.times = {"c0002": replace(measured(3766.0, count=3), low_ns=103.0)}
    for now_s in (3.0, 7.0, 11.0):
        bench.clock.now_s = now_s
        for batch in asyncio.run(bench.study.ask(1)):
            bench.asked.append(batch)
            for trial in bench.trials(batch):
                bench.study.tell(trial)
    assert bench.asked[-1].id == "c0002-again2"
    assert bench.drive().ended_s == (3.0, 7.0)


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


def test_on_a_busy_device_tied_configs_meet_again_in_fresh_processes() -> None:
    """And those that were clearly slower do not: their ratio is that of the first meeting."""
    bench = Bench({16: 100.0, 32: 100.0, 64: 110.0}, meetings=3)
    bench.spread = 0.2
    result = bench.drive()
    assert [batch.process for batch in bench.finals] == ["warm", "fresh", "fresh"]
    assert len({(batch.id, batch.repetition) for batch in bench.finals}) == 3
    assert len({case.id for batch in bench.finals for case in batch.cases}) == 4 + 3 + 3
    met = [[case.config["tile"] for case in batch.cases] for batch in bench.finals]
    assert met == [[16, 32, 64, 16], [16, 32, 16], [16, 32, 16]]
    assert [final.tied for final in result.finals] == [True, True, False]
    assert [final.ratio for final in result.finals] == pytest.approx([1.0, 1.0, 1.1])
    rounds = [len(final.measurement.samples_ns) for final in result.finals if final.measurement]
    assert rounds == [36, 36, 12]


def test_on_a_busy_device_a_small_difference_needs_several_meetings() -> None:
    """One that is 2.5 % slower in one meeting may be faster in the next; after three it is out."""
    bench = Bench({16: 100.0, 32: 102.5, 64: 110.0})
    bench.spread = 0.2
    result = bench.drive()
    assert [len(batch.cases) for batch in bench.finals] == [3 + 1, 2 + 1, 2 + 1]
    assert [final.tied for final in result.finals] == [True, False, False]
    bench = Bench({16: 100.0, 32: 102.5, 64: 110.0})
    assert [final.tied for final in bench.drive().finals] == [True, False]


def test_meetings_end_when_one_config_is_left() -> None:
    """On a busy device that may be after the first."""
    bench = Bench({16: 100.0, 32: 110.0})
    bench.spread = 0.2
    bench.drive()
    assert len(bench.finals) == 1


def test_processes_of_different_speed_are_joined() -> None:
    """A config that was wrong in the second meeting has no place, and the others keep all their rounds."""
    bench = Bench({16: 100.0, 32: 100.0, 64: 100.0}, meetings=2)
    bench.spread = 0.2
    bench.speeds = {"finals.2": 3.0}
    bench.wrong_in = {("finals.2", 64)}
    result = bench.drive()
    assert [final.config["tile"] for final in result.finals] == [16, 32]
    assert [final.ratio for final in result.finals] == pytest.approx([1.0, 1.0])
    assert result.control is not None
    assert not result.control.is_wide
    assert result.count(Outcome.MISMATCH) == 1


def test_a_meeting_in_which_the_device_was_slow_does_not_count() -> None:
    """What was faster while other work slowed everything is not the winner."""
    bench = Bench({16: 100.0, 32: 102.0}, meetings=2)
    bench.spread = 0.05
    bench.speeds = {"finals.2": 1.5}
    bench.speeds_of = {("finals.2", 32): 0.9}
    result = bench.drive()
    assert len(bench.finals) == 2
    assert [final.config["tile"] for final in result.finals] == [16, 32]
    assert [final.ratio for final in result.finals] == pytest.approx([1.0, 1.02])


def test_a_config_that_was_screened_while_the_device_was_slow_may_win() -> None:
    """On a busy device all that took less than twice the time of the fastest one meet it."""
    bench = Bench({16: 100.0, 32: 95.0, 64: 250.0})
    bench.spread = 0.05
    bench.speeds = {"c0002": 1.9}
    result = bench.drive()
    assert [final.config["tile"] for final in result.finals] == [32, 16]
    assert result.busy == ("other work disturbed the screening",)


DISTURBED = Measurement(
    median_ns=3766.0,
    low_ns=103.0,
    high_ns=3889.0,
    confidence=0.95,
    samples_ns=(103.0, 3766.0, 3889.0),
)


@pytest.mark.parametrize("abandoned", [True, False])
def test_a_time_that_decides_nothing_is_measured_again(abandoned: bool) -> None:
    """Whatever is recorded of it: its interval was wider than its distance from the best time."""
    bench = Bench({16: 30.0, 32: 25.0})
    bench.times = {"c0002": msgspec.structs.replace(DISTURBED, abandoned=abandoned)}
    result = bench.drive()
    again = next(batch for batch in bench.asked if batch.id == "c0002-again2")
    assert (again.known, again.alike) == ("ignored", False)
    assert result.best is not None
    assert result.best.config["tile"] == 32
    assert result.unmet == ()


def test_a_known_time_is_measured_again_if_it_is_too_wide_or_else_used() -> None:
    """Also where nothing is faster, so that it would decide alone."""
    for low_ns, expected in ((3000.0, ["c0001"]), (103.0, ["c0001", "c0001-again2"])):
        bench = Bench({16: 25.0})
        bench.times = {"c0001": replace(DISTURBED, low_ns=low_ns, abandoned=True)}
        bench.drive()
        assert [batch.id for batch in bench.asked] == expected


def test_a_clear_time_is_not_measured_again() -> None:
    """However early abandoned, or noisy, it is: it is further from the best time than it is wide."""
    bench = Bench({16: 25.0, 32: 60.0, 64: 60.0})
    far = msgspec.structs.replace(DISTURBED, low_ns=2000.0)
    bench.times = {
        "c0002": msgspec.structs.replace(measured(60.0, count=3), abandoned=True),
        "c0003": far,
    }
    bench.drive()
    assert [batch.id for batch in bench.asked] == ["c0001", "c0002", "c0003"]


def test_a_time_that_never_decides_lets_its_config_meet_the_others() -> None:
    """All configs of its binary have the new times; where the finals have no room, the result names it."""
    for finalists, expected in ((16, ()), (1, ("run.c0002-again3",))):
        bench = Bench({16: 25.0, 32: 60.0, 64: 60.0}, finalists=finalists)
        bench.binaries = {32: "same", 64: "same"}
        bench.times = dict.fromkeys(("c0002", "c0003"), DISTURBED)
        bench.times |= {
            f"c0002-again{n}": msgspec.structs.replace(DISTURBED, low_ns=90.0 + n) for n in (2, 3)
        }
        result = bench.drive()
        assert [batch.id for batch in bench.asked[3:5]] == ["c0002-again2", "c0002-again3"]
        assert {t.measurement.low_ns for t in result.trials[1:] if t.measurement} == {93.0}
        assert result.unmet == expected
        assert len(result.finals) == (2 if finalists > 1 else 0)


def test_slow_configs_meet_in_smaller_numbers() -> None:
    """A round of many slow members would take too long; at least five meet."""
    bench = Bench(dict.fromkeys(range(16, 26), 1e9))
    bench.drive()
    assert bench.final is not None
    assert len(bench.final.cases) == 5 + 1


def test_no_memory_beside_the_others_says_nothing_about_a_config() -> None:
    """It ran well alone, so it does not win, and keeps its outcome."""
    bench = Bench({16: 100.0, 32: 101.0, 64: 102.0})
    bench.wrong_in = {("finals", 32)}
    bench.wrong_outcome = Outcome.OUT_OF_MEMORY
    result = bench.drive()
    assert result.count(Outcome.PASSED) == 3
    assert [final.config["tile"] for final in result.finals] == [16, 64]


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


HELD = ("finals", "finals-held2", "finals-held3")


def test_finals_that_contradict_the_screening_are_held_again_after_a_pause() -> None:
    """What other work disturbed does not count, and the result says what it was."""
    bench = Bench({16: 100.0, 32: 101.0}, pause_s=7.0)
    bench.speeds = {"finals": 10.0}
    bench.speeds_of = {("finals", 16): 1.5}
    result = bench.drive()
    assert [(batch.id, batch.process) for batch in bench.finals] == [
        ("finals", "warm"),
        ("finals-held2", "fresh"),
    ]
    assert len({batch.repetition for batch in bench.finals}) == 2
    assert bench.pauses_s == [7.0]
    assert result.best is not None
    assert result.best.config["tile"] == 16
    assert [final.ratio for final in result.finals] == pytest.approx([1.0, 1.01])
    assert not result.disturbed
    (why,) = result.disturbances
    assert why == "the finals took at least 9.8 x as long as the screening of the same configs"


@pytest.mark.parametrize("factor", [10.0, 2.7])
def test_where_that_does_not_help_the_study_is_disturbed(factor: float, tmp_path: Path) -> None:
    """It names no order, only the last finals' leader, which give no recorded trial its time."""
    bench = Bench({16: 100.0, 32: 101.0})
    bench.speeds = dict.fromkeys(HELD, factor)
    bench.speeds_of = {("finals-held3", 16): 1.1}
    result = bench.drive()
    assert [batch.id for batch in bench.finals] == list(HELD)
    assert result.leader is not None
    assert result.leader.config["tile"] == 32
    assert len(bench.pauses_s) == 2
    assert (result.best, result.finals, result.control, result.unmet) == (None, (), None, ())
    assert result.disturbed
    assert len(result.disturbances) == 3
    assert result.exit_status == 3
    with open_store(tmp_path) as store:
        store.record_all(bench.told)
        assert find_deciding(store, bench.told) == {}


@pytest.mark.parametrize(
    "times",
    [
        {("finals", 16): 10.0},
        {("finals", 16): 1.3, ("finals", 32): 1.3, ("finals", 64): 1.3},
        {("finals", 16): 0.7, ("finals", 32): 0.7, ("finals", 64): 0.7},
    ],
)
def test_other_differences_are_no_contradiction(times: dict[tuple[str, int], float]) -> None:
    """Caches and clocks change times a little, and one config alone may have been disturbed before."""
    bench = Bench(dict.fromkeys((16, 32, 64), 100.0))
    bench.speeds_of = times
    result = bench.drive()
    assert [batch.id for batch in bench.finals] == ["finals"]
    assert (result.disturbed, result.disturbances, result.busy) == (False, (), ())


def test_rounds_in_which_the_device_was_slow_are_no_contradiction() -> None:
    """They do not count when configs are compared, either."""
    bench = Bench({16: 100.0, 32: 101.0})
    slow = [10.0] * 20 + [1.0] * 10
    for case, time_ns in (("f01", 100.0), ("f02", 101.0), ("f00", 100.0)):
        samples_ns = tuple(time_ns * factor for factor in slow)
        bench.times[case] = replace(measured(10 * time_ns), samples_ns=samples_ns)
    result = bench.drive()
    assert result.disturbances == ()
    assert (
        result.busy[-1]
        == "other work disturbed 67 % of the rounds of the finals: they do not count"
    )


def test_a_screening_that_was_disturbed_is_repeated() -> None:
    """Also of configs that had lost in it, one timing per binary; then finals are held again, at once."""
    bench = Bench({16: 100.0, 32: 101.0, 64: 50.0, 128: 50.0})
    bench.binaries = {16: "a", 32: "b", 64: "same", 128: "same"}
    bench.speeds = {"c0001": 3.0, "c0002": 3.0, "c0003": 100.0, "c0004": 100.0}
    result = bench.drive()
    again = [batch.id for batch in bench.asked if batch.known == "ignored"]
    assert again == ["c0001-again2", "c0002-again2", "c0004-again2"]
    assert result.best is not None
    assert result.best.config["tile"] in (64, 128)
    assert {one.measurement.median_ns for one in result.trials if one.measurement} == {50, 100, 101}
    assert [batch.id for batch in bench.finals] == ["finals"]
    assert bench.pauses_s == []
    (why,) = result.disturbances
    assert why.startswith("the finals took at most 0.3")
    assert not result.disturbed


@pytest.mark.parametrize(
    ("third", "expected"), [(101.0, [("finals", 0), ("finals-held2", 0)]), (300.0, [("finals", 0)])]
)
def test_after_that_finals_are_held_again_if_others_meet(
    third: float, expected: list[tuple[str, int]]
) -> None:
    """A later run, which knows only the new times, plans and knows the same finals."""
    bench = Bench({16: 100.0, 32: 101.0, 64: third})
    bench.speeds = {"c0001": 3.0, "c0002": 3.0, "c0003": 100.0}
    result = bench.drive()
    assert [(batch.id, batch.repetition) for batch in bench.finals] == expected
    assert not result.disturbed
    assert len(result.finals) == len(expected) + 1
    assert len(result.disturbances) == 1


@pytest.mark.parametrize(("budget_s", "expected"), [(2.0, ["finals"]), (3.5, list(HELD[:2]))])
def test_what_has_no_time_to_meet_is_no_reason_to_hold_finals_again(
    budget_s: float, expected: list[str]
) -> None:
    """After a screening that was disturbed; what has time now is one, because more of the new times fit."""
    bench = Bench({tile: 30e6 + tile for tile in range(16, 24)}, budget_s=budget_s)
    bench.speeds = {f"c{number:04d}": 3.0 for number in range(1, 9)}
    result = bench.drive()
    assert [batch.id for batch in bench.finals] == expected
    assert len(bench.finals[0].cases) == 5 + 1
    assert not result.disturbed


def test_disturbed_finals_that_are_known_are_held_again_at_once() -> None:
    """As often as those of this run are."""
    bench = Bench({16: 100.0, 32: 101.0}, holdings=1)
    bench.speeds = {"finals": 10.0}
    bench.reused = {"finals"}
    result = bench.drive()
    assert [batch.id for batch in bench.finals] == list(HELD[:2])
    assert bench.pauses_s == []
    assert result.best is not None
    bench = Bench({16: 100.0, 32: 101.0})
    bench.speeds = {"finals": 0.1}
    bench.reused = {"finals"}
    assert bench.drive().best is not None
    assert [batch.id for batch in bench.asked] == ["c0001", "c0002", *HELD[:2]]


def test_a_study_that_is_stopped_before_finals_are_held_again_is_disturbed() -> None:
    """Without a budget for a pause it is, too."""
    bench = Bench({16: 100.0, 32: 101.0})
    bench.speeds = {"finals": 10.0}
    while not bench.pauses_s:
        for batch in asyncio.run(bench.study.ask(3)):
            for trial in bench.trials(batch):
                lost = replace(trial, outcome=Outcome.NOT_RUN, measurement=None)
                bench.study.tell(lost if "held" in batch.id else trial)
    stopped = bench.study.result("run", "interrupted", board(0))
    assert (stopped.disturbed, stopped.best) == (True, None)
    short = Bench({16: 100.0, 32: 101.0}, budget_s=9.0)
    short.speeds = {"finals": 10.0}
    assert short.drive().disturbed
    assert short.pauses_s == []


def test_only_finals_are_held_of_what_is_recorded() -> None:
    """Always anew; a config without a time, or with one that decides nothing, is left as it is."""
    bench = Bench(
        {16: 100.0, 32: 101.0, 64: 0.0, 128: 300.0}, finals_only=True, draws=(Draw(seed=1),)
    )
    bench.wrong_outcome = Outcome.NOT_RUN
    bench.times = {"c0004": DISTURBED}
    result = bench.drive()
    checks = [batch for batch in bench.asked if "seed" in batch.id]
    assert {batch.known for batch in checks} == {"used"}  # these were perhaps never made
    screened = [batch for batch in bench.asked if batch not in (*bench.finals, *checks)]
    assert {batch.known for batch in screened} == {"required"}
    assert [batch.known for batch in bench.finals] == ["ignored"]
    assert not any("again" in batch.id for batch in bench.asked)
    assert not bench.study.is_cut_short
    assert result.best is not None
    assert result.best.config["tile"] == 16
    bench = Bench({16: 300.0, 32: 301.0}, finals_only=True)
    bench.speeds = dict.fromkeys(HELD, 0.1)
    assert bench.drive().disturbed
    assert len(bench.finals) == 1


def test_recorded_trials_have_the_times_of_their_finals(tmp_path: Path) -> None:
    """Those that the result shows: of all meetings, also for a config whose binary met as another one."""
    bench = Bench({16: 100.0, 32: 100.0, 64: 101.0, 128: 900.0}, meetings=3)
    bench.binaries = {16: "same", 32: "same", 64: "other", 128: "third"}
    bench.spread = 0.2
    bench.speeds = {"finals": 1.01}
    result = bench.drive()
    with open_store(tmp_path) as store:
        store.record_all(bench.told)
        found = find_deciding(store, bench.told)
    assert len(bench.finals) == 3
    expected = {one.id: result.measurement_of(one) for one in result.trials[:3]}
    assert found == expected
    assert result.trials[1].measurement != expected["run.c0002"] == expected["run.c0001"]
    assert list_trials(result).deciding == expected


@pytest.mark.parametrize(("screens", "expected"), [(False, 90.0), (True, 100.0)])
def test_later_finals_count_for_a_trial_that_they_knew(
    screens: bool, expected: float, tmp_path: Path
) -> None:
    """Not those of a run that measured its config anew."""
    bench = Bench({16: 100.0, 32: 101.0})
    bench.drive()
    first = [replace(one, keys=Keys(run=RunKey(str(one.config["tile"])))) for one in bench.told]
    later = [
        replace(
            one,
            id=f"later.{one.case}",
            run="later",
            started_at=9.0,
            measurement=measured(0.9 * float(100 if one.config["tile"] == 16 else 101)),
        )
        for one in first
        if screens or one.batch == FINALS
    ]
    with open_store(tmp_path) as store:
        store.record_all([*first, *later])
        found = find_deciding(store, first)
    assert found["run.c0001"].median_ns == pytest.approx(expected)


def test_the_control_reports_itself() -> None:
    """The A/A control's ratio and verdict are part of the result."""
    result = Bench({16: 100.0, 32: 101.0}).drive()
    assert result.control is not None
    expected = 1.0
    assert result.control.ratio == pytest.approx(expected)
    assert not result.control.false_alarm


@pytest.mark.parametrize(("factor", "expected"), [(1.004, False), (1.02, True), (0.98, True)])
def test_a_control_is_an_alarm_if_it_differs_by_more_than_a_tie(
    factor: float, expected: bool
) -> None:
    """Equal binaries that differ by less change no verdict: configs that differ as little are tied."""
    first = Bench({16: 100.0, 32: 101.0})
    first.drive()
    assert first.final is not None
    bench = Bench({16: 100.0, 32: 101.0})
    (control,) = (case.id for case in first.final.cases if case.control)
    bench.times[control] = measured(100.0 * factor)
    result = bench.drive()
    found = result.control
    assert found is not None
    assert found.low > 1.0 or found.high < 1.0
    assert found.false_alarm == expected
    assert result.least == pytest.approx(max(1.005, factor, 1 / factor) - 1)


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


def test_finals_are_part_of_the_budget() -> None:
    """The screening leaves a fifth to them, at most 12 s, and they take only fitting rounds and meetings."""
    for budget_s, before_s, expected in ((10.0, 8.0, 2.0), (600.0, 588.0, 12.0)):
        bench = Bench({16: 1e6, 32: 1e6, 64: 1e6}, budget_s=budget_s)
        bench.spread = 0.2
        asked = asyncio.run(bench.study.ask(1))
        bench.clock.now_s = before_s - 0.1
        asked += asyncio.run(bench.study.ask(1))
        bench.clock.now_s = before_s
        assert not asyncio.run(bench.study.ask(1))
        assert bench.study.budgets.screening_s == pytest.approx(budget_s - expected)
        for trial in (one for batch in asked for one in bench.trials(batch)):
            bench.study.tell(trial)
        (meeting,) = asyncio.run(bench.study.ask(1))
        assert meeting.rounds == 1e9 / (2 * 3e6) // 1
        for trial in bench.trials(meeting):
            bench.study.tell(trial)
        bench.clock.now_s = budget_s - 0.123
        (meeting,) = asyncio.run(bench.study.ask(1))
        assert meeting.rounds == 0.123e9 / (2 * 3e6) // 1
        for trial in bench.trials(meeting):
            bench.study.tell(trial)
        bench.clock.now_s = budget_s
        assert not asyncio.run(bench.study.ask(1))
        assert bench.study.done()


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


# ---- silicon ----------------------------------------------------------------------------------


def board(number: int, silicon: str = "red") -> Device:
    """A device."""
    return Device(name=f"board:{number}", kind="board", identity=silicon)


def test_each_silicon_has_its_own_ranking() -> None:
    """Every config is screened, and may win, on each of both; each has finals of its own."""
    bench = Bench({16: 100.0, 32: 101.0}, (board(0), board(1, "blue"), board(2)))
    red = bench.drive()
    (blue,) = red.others
    for result, names in ((red, {"board:0", "board:2"}), (blue, {"board:1"})):
        assert [trial.config["tile"] for trial in result.trials] == [16, 32]
        assert {trial.device for trial in result.trials} <= names
        assert result.best is not None
        assert len(result.finals) == 2
    assert (red.silicon, blue.silicon) == ("red", "blue")
    assert [batch.devices for batch in bench.finals] == [("board:0", "board:2"), ("board:1",)]
    assert red.exit_status == 0
    lost = msgspec.structs.replace(blue, best=None)
    assert msgspec.structs.replace(red, others=(lost,)).exit_status == 1


def test_a_throttled_device_of_the_same_kind_is_kept_out() -> None:
    """What it has timed is timed again elsewhere, and the result says by how much it differs."""
    boards = tuple(map(board, range(3)))
    latencies = dict(zip(range(1, 13), (float(n) for n in range(100, 112)), strict=True))
    bench = Bench(latencies, boards)
    bench.slower["board:0"] = 1.08
    result = bench.drive()
    (kept_out,) = result.kept_out
    assert (kept_out.device, kept_out.base) == ("board:0", "board:1")
    assert kept_out.ratio == pytest.approx(1.08)
    assert kept_out.low < kept_out.ratio < kept_out.high
    assert {trial.device for trial in result.trials} == {"board:1", "board:2"}
    assert result.best is not None
    assert result.best.config["tile"] == 1
    assert bench.final is not None
    assert bench.final.devices == ("board:1", "board:2")
    compared = [b.cases[0].config for b in bench.asked if b.id.startswith("device")]
    assert compared == [compared[0]] * 6


def test_a_study_that_is_stopped_ranks_no_times_of_a_device_that_is_kept_out() -> None:
    """What only that has run counts as not run."""
    bench = Bench({n: 100.0 + n for n in range(8)}, (board(0), board(1)))
    bench.slower["board:1"] = 1.08
    while not any("again" in batch.id for batch in bench.asked):
        batches = asyncio.run(bench.study.ask(3))
        bench.asked += batches
        for trial in (one for b in batches if "again" not in b.id for one in bench.trials(b)):
            bench.study.tell(trial)
    result = bench.study.result("run", "interrupted", board(0))
    found = {trial.device: trial.outcome for trial in result.trials}
    assert found == {"board:0": Outcome.PASSED, "board:1": Outcome.NOT_RUN}
    assert result.best is not None
    assert result.best.device == "board:0"


@pytest.mark.parametrize("slower", [1.0, 1.02])
def test_devices_that_may_be_equal_share_the_work(slower: float) -> None:
    """Each config is screened once, and each device has timed the one that compares them."""
    bench = Bench({n: 100.0 + n for n in range(8)}, (board(0), board(1)))
    bench.slower["board:1"] = slower
    result = bench.drive()
    assert result.kept_out == ()
    assert [b.devices for b in bench.asked if b.cases[0].control] == [("board:0",), ("board:1",)]
    assert {trial.device for trial in result.trials} == {"board:0", "board:1"}
    assert not any("again" in batch.id for batch in bench.asked)


def test_a_device_that_joins_is_compared_before_its_times_count() -> None:
    """With the devices of its kind; one of a kind without a contest has no place in the study."""
    bench = Bench({n: 100.0 + n for n in range(8)}, (board(0),))
    joined = (board(1), board(2, "blue"))
    bench.study.hear(HostJoined(host="late", at=0.0, devices=joined))
    bench.devices = (board(0), board(1))
    bench.turns = itertools.cycle(["board:0", "board:1"])
    bench.slower["board:1"] = 1.08
    result = bench.drive()
    assert [(one.device, one.base) for one in result.kept_out] == [("board:1", "board:0")]
    assert {trial.device for trial in result.trials} == {"board:0"}
    assert [*bench.study.contests[0].alike.slots] == ["board:0", "board:1"]


def test_a_device_that_takes_the_place_of_a_lost_one_is_compared_with_it() -> None:
    """Also if that has run nothing since: what both have measured is no order."""
    bench = Bench({1: 100.0, 2: 100.0}, (board(0),))
    contest = bench.study.contests[0]
    for number, name in enumerate(("board:0", "board:1")):
        if number:
            contest.join(board(1))
        bench.devices, bench.turns = (board(number),), itertools.cycle([name])
        for trial in bench.trials(contest.screen(number, {"tile": number + 1})):
            contest.tell(trial)
    assert [batch.devices for batch in contest.compare_devices()] == [("board:0",), ("board:1",)]
    assert [trial.device for trial in contest.rank()] == ["board:0"]


def test_a_device_on_which_the_compared_kernel_is_wrong_is_kept_out() -> None:
    """It says so; nothing that it has run counts."""
    bench = Bench({n: 100.0 + n for n in range(8)}, (board(0), board(1)))
    bench.slower["board:1"] = -1.0
    result = bench.drive()
    assert [one.message for one in result.kept_out] == ["mismatch: wrong"]
    assert {trial.device for trial in result.trials} == {"board:0"}
    assert result.count(Outcome.PASSED) == 8


def test_a_device_that_alone_runs_something_is_compared_with_none() -> None:
    """The others were never had."""
    bench = Bench({16: 100.0, 32: 101.0}, (board(0), board(1)))
    bench.turns = itertools.cycle(["board:1"])
    result = bench.drive()
    assert result.kept_out == ()
    assert not any(batch.id.startswith("device") for batch in bench.asked)


# ---- further checks ---------------------------------------------------------------------------


def test_what_is_wrong_on_another_draw_never_wins() -> None:
    """Nor what has the same binary; the next is checked in its place, and each config once per draw."""
    draws = (Draw(seed=1), Draw(edges="zeros"))
    bench = Bench({16: 100.0, 32: 100.0, 64: 150.0, 128: 900.0}, draws=draws)
    bench.binaries = {16: "same", 32: "same"}
    bench.wrong = {(16, draws[1])}
    result = bench.drive()
    assert result.best is not None
    assert result.best.config["tile"] == 64
    found = {trial.config["tile"]: (trial.outcome, trial.message) for trial in result.trials}
    said = (Outcome.MISMATCH, "with edge values (zeros): wrong")
    assert found[16] == found[32] == said
    checks = [b.cases[0] for b in bench.asked if b.cases[0].control and b not in bench.finals]
    assert [case.config["tile"] for case in checks] == [16, 16, 64, 64]
    assert all(case.timing is None for case in checks)


@pytest.mark.parametrize(("finals_only", "known"), [(False, "used"), (True, "required")])
def test_a_config_is_timed_only_once_its_sanitized_build_is_right(
    finals_only: bool, known: str
) -> None:
    """That build is never timed, and a config failing in it runs no further; finals only record both."""
    sanitize = "cpu:native,sanitize=1"
    bench = Bench({16: 100.0, 32: 150.0}, sanitized=sanitize, finals_only=finals_only)
    bench.wrong_in = {("c0001-sanitized", 16)}
    bench.wrong_outcome = Outcome.RUNTIME_ERROR
    result = bench.drive()
    asked = [
        (batch.id, one.target, one.timing is None) for batch in bench.asked for one in batch.cases
    ]
    assert {batch.known for batch in bench.asked} == {known}
    sanitized = [(f"c000{n}-sanitized", sanitize, True) for n in (1, 2)]
    assert asked == [*sanitized, ("c0002", "cpu", False)]
    assert [(t.outcome, t.message) for t in result.trials] == [
        (Outcome.RUNTIME_ERROR, "sanitized: wrong"),
        (Outcome.PASSED, ""),
    ]
    assert (result.best, result.target) == (result.trials[1], "cpu")


def test_where_all_are_wrong_on_another_draw_nothing_wins() -> None:
    """However right they are on the usual inputs."""
    draw = Draw(seed=1)
    bench = Bench({16: 100.0, 32: 101.0}, draws=(draw,))
    bench.wrong = {(16, draw), (32, draw)}
    assert bench.drive().best is None
    assert bench.final is None


def test_what_is_wrong_in_the_finals_does_not_win() -> None:
    """Although it was right, and the fastest, when it was screened."""
    bench = Bench({16: 100.0, 32: 101.0})
    bench.wrong_in = {("finals", 16)}
    result = bench.drive()
    assert result.best is not None
    assert result.best.config["tile"] == 32
    assert result.trials[0].message == "in the finals: wrong"


def test_what_nobody_has_checked_yet_does_not_win() -> None:
    """A study that is stopped before its draws were run names no winner."""
    bench = Bench({16: 100.0}, draws=(Draw(seed=1),))
    (screening,) = asyncio.run(bench.study.ask(1))
    for trial in bench.trials(screening):
        bench.study.tell(trial)
    (check,) = asyncio.run(bench.study.ask(1))
    device = Device(name="cpu:0", kind="cpu", identity="x")
    assert bench.study.result("run", "interrupted", device).best is None
    for trial in bench.trials(check):
        bench.study.tell(trial)
    assert bench.study.result("run", "done", device).best is not None


@pytest.mark.parametrize(
    ("asked", "own", "expected"),
    [
        ({}, None, None),
        ({}, Tolerance(rtol=1, atol=2), Tolerance(rtol=1, atol=2)),
        ({"rtol": 0.1}, None, Tolerance(rtol=0.1, atol=0.1)),
        ({"atol": 0.0}, None, Tolerance(rtol=0.0, atol=0.0)),
        (
            {"rtol": 0.1},
            Tolerance(rtol=1, atol=2, is_elementwise=True),
            Tolerance(rtol=0.1, atol=2, is_elementwise=True),
        ),
        ({"rtol": 0.1, "atol": 0.2}, Tolerance(rtol=1, atol=2), Tolerance(rtol=0.1, atol=0.2)),
    ],
)
def test_a_tolerance_that_is_asked_for_takes_the_place_of_the_kernels(
    asked: dict[str, float], own: Tolerance | None, expected: Tolerance | None
) -> None:
    """Each of rtol and atol for itself; where the kernel has none, one that is given is both."""
    space = OpenSpace(
        kernel="gemm", arguments={}, size=1, flops=0.0, configs=[{"tile": 1}], tolerance=own
    )
    study = Study(TuneRequest(**asked), space, StillClock())  # type: ignore[arg-type]
    (batch,) = asyncio.run(study.ask(1))
    assert batch.cases[0].check.tolerance == expected

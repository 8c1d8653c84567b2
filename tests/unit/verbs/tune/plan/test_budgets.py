"""What ends a screening early, and how long a study says that it still takes."""

import asyncio
from collections.abc import Sequence

import pytest
from tests.unit.verbs.tune.plan.strategies.test_studies import TILES, Attentive, open_tiles
from tests.unit.verbs.tune.plan.test_space import GEMM, PlainAuthor
from tests.unit.verbs.tune.plan.test_study import Bench, StillClock

from tileyard.base.errors import UsageError
from tileyard.base.events import CaseStarted, DeviceLeased, DeviceReleased, StudyAdvanced
from tileyard.base.model import Device, Trial
from tileyard.testing.stores import make_trial
from tileyard.verbs.tune.options import TuneRequest
from tileyard.verbs.tune.plan.budgets import Budgets
from tileyard.verbs.tune.plan.space import open_space
from tileyard.verbs.tune.plan.strategies.base import Points
from tileyard.verbs.tune.plan.study import Study
from tileyard.workers.protocol import Space

SPENT = ("budget", "the device budget of 10 s was spent")


class Hopeful(Attentive):
    """Expects a gain by a script, one figure for each config that has ended."""

    gains: Sequence[float] = ()

    @property
    def expected_gain(self) -> float | None:
        """The next figure, the last one for ever; anything may come before the first."""
        return [float("inf"), *self.gains][min(len(self.heard), len(self.gains))]


def hopeful(gains: Sequence[float], **request: object) -> tuple[Bench, list[StudyAdvanced]]:
    """A study whose strategy expects these gains, and what it reports; a config takes a second."""
    space, _ = open_tiles()
    space.strategy = Hopeful(Points({"tile": TILES}))
    space.strategy.gains = gains
    bench = Bench({tile: 100.0 + tile for tile in TILES})
    made = TuneRequest(**request)  # type: ignore[arg-type]  # fields of the request
    bench.study = Study(made, space, bench.clock, sleep=bench.sleep)
    told: list[StudyAdvanced] = []
    bench.study.watch = told.append
    return bench, told


def screen(bench: Bench, count: int) -> list[Trial]:
    """Screen some configs, one a second."""
    ended: list[Trial] = []
    for _ in range(count):
        for batch in asyncio.run(bench.study.ask(1)):
            bench.clock.now_s += 1.0
            for trial in bench.trials(batch):
                bench.study.tell(trial)
                ended.append(trial)
    return ended


def test_devices_are_paid_for_while_they_are_held() -> None:
    """All together; one that a queue lends from its first case on; until they are given back."""
    clock = StillClock()
    budgets = Budgets(TuneRequest(device_budget_s=10.0), clock)
    script = (
        (1.0, DeviceLeased(device="cpu:0", at=0.0, lease=7)),
        (2.0, DeviceLeased(device="q:0", at=0.0, lease=0)),
        (3.0, CaseStarted(case="c1", device="cpu:0", at=0.0)),
        (4.0, CaseStarted(case="c2", device="q:0", at=0.0)),
        (5.0, DeviceReleased(device="cpu:0", at=0.0)),
        (6.0, CaseStarted(case="c3", device="q:0", at=0.0)),
    )
    for clock.now_s, event in script:
        budgets.hear(event)
    clock.now_s = 7.0
    assert budgets.held_s == 4.0 + 3.0
    assert budgets.left_s == 3.0
    assert budgets.over == ("done", "")
    clock.now_s = 8.0  # a fifth of the budget is for the finals
    assert budgets.over == SPENT
    budgets.hear(DeviceReleased(device="q:0", at=0.0))
    budgets.hear(DeviceReleased(device="cpu:0", at=0.0))
    clock.now_s = 100.0
    assert budgets.held_s == 8.0


def test_the_first_reason_stays() -> None:
    """What happens later, as in the finals, did not end the screening."""
    clock = StillClock()
    budgets = Budgets(TuneRequest(budget_s=10.0, until_gain=0.02), clock)
    budgets.expect(0.019)
    assert budgets.over == ("gain", "expected gain below 2 %")
    budgets.expect(0.5)
    clock.now_s = 11.0
    assert budgets.over[0] == "gain"


@pytest.mark.parametrize(("closed_s", "reason"), [(4.0, "done"), (9.0, "budget")])
def test_what_finals_spend_ended_no_screening(closed_s: float, reason: str) -> None:
    """Once it is over its reason stays, or the lack of one."""
    clock = StillClock()
    budgets = Budgets(TuneRequest(budget_s=10.0, until_gain=0.02), clock)
    clock.now_s = closed_s
    budgets.close()
    clock.now_s = 11.0
    budgets.expect(0.0)
    assert budgets.over[0] == reason


def test_a_study_ends_once_little_gain_is_expected() -> None:
    """Also if more was expected again afterwards; the finals are held, and the result says why."""
    bench, told = hopeful([0.5, 0.1, 0.009, 0.5], until_gain=0.01)
    assert len(screen(bench, 3)) == 3
    assert [one.expected_gain for one in told] == [None, 0.5, 0.1]
    bench.drive()
    assert bench.study.reason == "gain"
    result = bench.study.result("run", bench.study.reason, Device(name="x", kind="x", identity="x"))
    assert [trial.config["tile"] for trial in result.trials] == [1, 2, 3]
    assert result.stopped == "expected gain below 1 %"
    assert bench.final is not None
    assert (
        bench.study.result("run", "interrupted", Device(name="x", kind="x", identity="x")).stopped
        == ""
    )


def test_a_study_that_has_tried_all_was_not_ended_early() -> None:
    """Whatever it expected at last."""
    bench, _ = hopeful([0.5] * 7 + [0.0], until_gain=0.01)
    bench.drive()
    assert bench.study.reason == "done"


@pytest.mark.parametrize(
    ("request_", "gains", "expected_s"),
    [
        ({}, [0.5], 4.0),
        ({"budget_s": 5.0}, [0.5], 0.0),
        ({"budget_s": 10.0}, [0.5], 4.0),
        ({"budget_s": 6.0}, [0.5], 0.8),
        ({"device_budget_s": 2.6}, [0.5], 0.16),
        ({"device_budget_s": 3.0}, [0.5], 0.8),
        ({"until_gain": 0.256}, [0.5], 1.0),
        ({"until_gain": 0.01}, [0.5], 4.0),
    ],
)
def test_the_time_left_is_that_of_the_bound_that_comes_first(
    request_: dict[str, float], gains: list[float], expected_s: float
) -> None:
    """After four of eight configs of a second each, half of the time with the device held; to start the
    finals takes half a second.
    """
    bench, told = hopeful(gains, **request_)
    bench.study.hear(DeviceLeased(device="cpu:0", at=0.0, lease=1))
    screen(bench, 2)
    bench.study.hear(DeviceReleased(device="cpu:0", at=0.0))
    screen(bench, 2)
    assert told[-1].left_s == pytest.approx(expected_s + 0.5, abs=1e-3)


def test_the_time_left_includes_finals() -> None:
    """As many rounds as they are planned for, within the budget."""
    for budget_s, expected_s in ((None, 4.0 + 2.4 + 0.5), (9.5, 3.6 + 1.9)):
        bench, told = hopeful([0.5], budget_s=budget_s)
        bench.latencies_ns = {tile: 1e6 if tile < 5 else 1e9 for tile in TILES}
        screen(bench, 4)
        assert told[-1].left_s == pytest.approx(expected_s)


def test_finals_are_as_far_as_their_meetings() -> None:
    """On a busy device there are eight if all are needed; each is expected to take as long as those before.
    What takes longer than planned is no time that is known.
    """
    bench, told = hopeful([0.5])
    bench.latencies_ns = dict.fromkeys(TILES, 100.0)
    bench.spread = 0.2
    screen(bench, len(TILES))
    for number, expected_s in enumerate((7 * 2.0, 6 * 2.0), start=1):
        (meeting,) = asyncio.run(bench.study.ask(1))
        bench.clock.now_s += 2.0
        for trial in bench.trials(meeting):
            bench.study.tell(trial)
        assert told[-1].left_s == pytest.approx(expected_s), number
    calm, _ = hopeful([0.5])
    screen(calm, len(TILES))
    assert asyncio.run(calm.study.ask(1))
    calm.clock.now_s += 60.0
    assert calm.study.left_s is None


def test_what_where_rejects_is_reported() -> None:
    """With the study's progress."""
    author = PlainAuthor(GEMM, space=Space(), limit=1)
    space, _ = open_tiles(author)
    bench = Bench(dict.fromkeys(TILES, 100.0))
    bench.study = Study(TuneRequest(), space, bench.clock, sleep=bench.sleep)
    told: list[StudyAdvanced] = []
    bench.study.watch = told.append
    screen(bench, 2)
    assert told[-1].rejected == {"`where`": space.rejected}
    assert told[-1].expected_gain is None


def test_a_gain_needs_a_strategy_that_expects_one() -> None:
    """The usual one does, also in a space that it could try as a whole; others are refused."""
    author = PlainAuthor(GEMM, space=Space(axes={"bm": TILES, "bn": TILES}))
    space = asyncio.run(open_space(author, TuneRequest(until_gain=0.01)))
    assert space.learns
    with pytest.raises(UsageError, match="the strategy grid does not know what gain to expect"):
        asyncio.run(open_space(author, TuneRequest(until_gain=0.01, strategy="grid")))


def test_known_trials_have_no_pace() -> None:
    """They took no time now, so they do not tell how long others take."""
    clock = StillClock()
    budgets = Budgets(TuneRequest(), clock)
    for clock.now_s in (1.0, 2.0):
        budgets.take(make_trial("t", reused=True))
    assert budgets.forecast_s(5, 0.0) is None
    for clock.now_s in (3.0, 5.0):
        budgets.take(make_trial("t"))
    assert budgets.forecast_s(5, 1.0) == 5 * 2.0 + 1.0


def test_nothing_is_said_of_a_gain_that_is_unknown() -> None:
    """How many configs are tried until it is small is not known then."""
    clock = StillClock()
    budgets = Budgets(TuneRequest(until_gain=0.01), clock)
    for clock.now_s in (1.0, 2.0):
        budgets.take(make_trial("t"))
    assert budgets.forecast_s(5, 1.0) is None
    budgets.expect(0.01 * 2.5**3)
    assert budgets.forecast_s(5, 1.0) == pytest.approx(2 * 1.5 + 1.0)
    assert budgets.forecast_s(2, 1.0) == 2 + 1.0

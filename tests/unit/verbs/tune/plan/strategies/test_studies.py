"""Studies ask a strategy for configs when they have room, and tell it what comes of them."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.verbs.tune.plan.test_space import GEMM, PlainAuthor
from tests.unit.verbs.tune.plan.test_study import Bench, StillClock

from tileyard.base.errors import UsageError
from tileyard.base.model import Device, Keys, Outcome, Trial
from tileyard.store.trials import TrialStore
from tileyard.testing.stores import make_trial
from tileyard.verbs.tune.options import TuneRequest
from tileyard.verbs.tune.plan.space import OpenSpace, open_space
from tileyard.verbs.tune.plan.starting import list_recorded, tell_recorded
from tileyard.verbs.tune.plan.strategies.base import Config, Points
from tileyard.verbs.tune.plan.strategies.in_order import InOrder
from tileyard.verbs.tune.plan.study import Study
from tileyard.workers.protocol import Space

TILES = tuple(range(1, 9))


class Attentive(InOrder):
    """Goes by the order of the space, and notes what it hears."""

    learns = True

    def __init__(self, points: Points) -> None:
        super().__init__(points, range(points.size))
        self.limits: list[int] = []
        self.heard: list[Trial] = []
        self.rejected: list[Config] = []

    def ask(self, limit: int) -> Sequence[Config]:
        """As the order has it."""
        self.limits.append(limit)
        return super().ask(limit)

    def tell(self, trial: Trial) -> None:
        """Note it."""
        self.heard.append(trial)

    def reject(self, config: Config) -> None:
        """Note it."""
        self.rejected.append(config)


def open_tiles(author: PlainAuthor | None = None, wanted: int = 100) -> tuple[OpenSpace, Attentive]:
    """A space of tiles, of which an author may reject some, and its strategy."""
    points = Points({"tile": TILES, "bm": (1,), "bn": (1, 2)} if author else {"tile": TILES})
    strategy = Attentive(points)
    space = OpenSpace(
        kernel="k",
        arguments={},
        size=points.size,
        flops=0.0,
        wanted=wanted,
        asks=author,
        points=points,
        strategy=strategy,
    )
    return space, strategy


def test_a_strategy_learns_each_result_before_it_is_asked_again() -> None:
    """It is asked for what there is room for, and hears of failures as well; of finals and checks it
    hears nothing.
    """
    space, strategy = open_tiles()
    bench = Bench({tile: 100.0 + tile if tile != 3 else -1.0 for tile in TILES}, draws=())
    bench.study = Study(TuneRequest(), space, bench.clock, sleep=bench.sleep)
    asked = asyncio.run(bench.study.ask(3))
    assert strategy.limits == [3]
    for trial in (one for batch in reversed(asked) for one in bench.trials(batch)):
        bench.study.tell(trial)
    asyncio.run(space.settle())
    heard = [(trial.config["tile"], trial.outcome) for trial in strategy.heard]
    assert heard == [(3, Outcome.MISMATCH), (2, Outcome.PASSED), (1, Outcome.PASSED)]
    result = bench.drive()
    asyncio.run(space.settle())
    assert [trial.config["tile"] for trial in strategy.heard] == [3, 2, 1, *TILES[3:]]
    assert result.best is not None
    assert result.best.config == {"tile": 1}
    assert len(result.trials) == len(TILES)


def test_a_study_ends_with_the_trials_that_are_wanted() -> None:
    """No more are asked for, although the strategy has some left."""
    space, strategy = open_tiles(wanted=4)
    bench = Bench({tile: 100.0 + tile for tile in TILES})
    bench.study = Study(TuneRequest(), space, bench.clock, sleep=bench.sleep)
    assert len(bench.drive().trials) == 4
    assert not strategy.is_exhausted
    assert not bench.study.is_cut_short


def test_what_where_rejects_is_told_and_replaced() -> None:
    """Others are drawn at once, each time twice as many, so that the author has few questions to answer."""
    author = PlainAuthor(GEMM, space=Space(), limit=1)
    space, strategy = open_tiles(author)
    asyncio.run(space.draw(3))
    asyncio.run(space.settle())
    assert [config["bn"] for config in space.configs] == [1] * 5
    assert [config["bn"] for config in strategy.rejected] == [2] * 4
    assert strategy.limits == [3, 6]
    assert author.checks == 2


def test_a_failed_sanitized_build_is_a_result() -> None:
    """Under the name of its config; one that is right is followed by the result."""
    space, strategy = open_tiles()
    bench = Bench(dict.fromkeys(TILES, 100.0))
    request = TuneRequest(sanitized="cpu:sanitize")
    bench.study = Study(request, space, bench.clock, sleep=bench.sleep)
    bench.wrong_in = {("c0002-sanitized", 2)}
    bench.drive()
    asyncio.run(space.settle())
    heard = {trial.config["tile"]: trial.outcome for trial in strategy.heard}
    assert heard == {**dict.fromkeys(TILES, Outcome.PASSED), 2: Outcome.MISMATCH}
    assert len(strategy.heard) == len(TILES)


def test_recorded_trials_are_told_at_the_beginning(tmp_path: Path) -> None:
    """The latest last: those of the kernel's points on such devices, and none of finals, faults or other
    arguments.
    """
    space, strategy = open_tiles()
    usual = {"kernel": "k", "arguments": {}, "silicon": "x"}
    fields = (
        {"config": {"tile": 1}, "started_at": 2.0},
        {"config": {"tile": 2}, "started_at": 1.0},
        {"config": {"tile": 3}, "outcome": Outcome.COMPILE_ERROR, "silicon": ""},
        {"config": {"tile": 4}, "outcome": Outcome.INFRA_ERROR},
        {"config": {"tile": 5}, "arguments": {"M": 1}},
        {"config": {"tile": 6}, "silicon": "other"},
        {"config": {"tile": 7}, "batch": "finals"},
        {"config": {"tile": 8}, "control": True},
        {"config": {"tile": 9}},
        {"config": {"tile": 1}, "target": "cuda"},
    )
    device = Device(name="cpu:0", kind="cpu", identity="x")
    with TrialStore.open(tmp_path) as store:
        store.record_all([make_trial(f"t{n}", **(usual | one)) for n, one in enumerate(fields)])
        tell_recorded(list_recorded(store, "k", "cpu"), [device], space)
    asyncio.run(space.settle())
    assert [trial.id for trial in strategy.heard] == ["t1", "t2", "t0"]
    assert all(trial.reused for trial in strategy.heard)
    assert strategy.heard[0].keys == Keys()


def test_an_unknown_strategy_is_refused_before_anything_is_tried() -> None:
    """As part of the request."""
    author = PlainAuthor(GEMM, space=Space(axes={"bm": (1,), "bn": (1,)}))
    with pytest.raises(UsageError, match="no strategy 'best'"):
        asyncio.run(open_space(author, TuneRequest(strategy="best")))


def test_the_order_of_the_space_can_be_asked_for() -> None:
    """Also where not all of it is tried."""
    author = PlainAuthor(GEMM, space=Space(axes={"bm": TILES, "bn": TILES}))
    space = asyncio.run(open_space(author, TuneRequest(strategy="grid", trials=3)))
    assert [(config["bm"], config["bn"]) for config in space.configs] == [(1, 1), (1, 2), (1, 3)]


class Slow(Attentive):
    """Answers once it may, and says when it is asked."""

    def __init__(self, points: Points) -> None:
        super().__init__(points)
        self.log: list[str] = []
        self.may_answer = threading.Event()
        self.is_asked: Callable[[], object] = lambda: None

    def ask(self, limit: int) -> Sequence[Config]:
        """As the order has it."""
        self.log.append(f"ask {limit}")
        self.is_asked()
        self.may_answer.wait()
        return super().ask(limit)

    def tell(self, trial: Trial) -> None:
        """Note it."""
        self.log.append(trial.id)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=4))
def test_what_ends_during_a_computation_counts_in_the_next(ended: list[tuple[int, int]]) -> None:
    """The engine goes on meanwhile. Each result is learnt once, in order, and never in the middle of an
    answer; so proposals depend on the results before the question, and not on how long an answer takes.
    """
    space, _ = open_tiles()
    strategy = space.strategy = Slow(Points({"tile": TILES}))
    expected: list[str] = []

    async def search() -> None:
        asked = asyncio.Event()
        loop = asyncio.get_running_loop()
        strategy.is_asked = lambda: loop.call_soon_threadsafe(asked.set)
        meanwhile: list[str] = []
        for number, (before, during) in enumerate(ended):
            asked.clear()
            strategy.may_answer.clear()
            known = [f"b{number}.{one}" for one in range(before)]
            for name in known:
                space.tell(make_trial(name, config={"tile": 1}))
            drawing = asyncio.create_task(space.draw(number + 1))
            await asked.wait()
            expected.extend((*meanwhile, *known, "ask 1"))
            meanwhile = [f"d{number}.{one}" for one in range(during)]
            for name in meanwhile:
                space.tell(make_trial(name, config={"tile": 1}))
            strategy.may_answer.set()
            await drawing
        await space.settle()
        expected.extend(meanwhile)

    asyncio.run(search())
    assert strategy.log == expected
    assert [config["tile"] for config in space.configs] == list(TILES[: len(ended)])


def test_a_study_that_is_stopped_does_not_wait_for_its_strategy() -> None:
    """It ends, and its loop as well, while the strategy still computes."""
    space, _ = open_tiles()
    strategy = space.strategy = Slow(Points({"tile": TILES}))

    async def stop() -> None:
        asked = asyncio.Event()
        loop = asyncio.get_running_loop()
        strategy.is_asked = lambda: loop.call_soon_threadsafe(asked.set)
        drawing = asyncio.create_task(space.draw(1))
        await asked.wait()
        drawing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await drawing

    asyncio.run(stop())
    assert not strategy.may_answer.is_set()
    assert space.configs == []
    strategy.may_answer.set()


@pytest.mark.parametrize("method", ["ask", "tell"])
def test_an_error_of_a_strategy_ends_the_study(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With what it raised."""
    space, strategy = open_tiles()
    study = Study(TuneRequest(), space, StillClock())

    def fail(_: object) -> None:
        raise ArithmeticError("no model fits")

    monkeypatch.setattr(strategy, method, fail)
    space.tell(make_trial("t", config={"tile": 1}))
    with pytest.raises(ArithmeticError, match="no model fits"):
        asyncio.run(study.ask(1))

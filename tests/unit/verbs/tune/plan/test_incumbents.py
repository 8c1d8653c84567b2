"""What a kernel runs with today stays, unless another config is clearly faster."""

import asyncio
import random
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace
from tests.unit.verbs.tune.plan.test_space import GEMM, PlainAuthor
from tests.unit.verbs.tune.plan.test_study import Bench

from tileyard.base.errors import UsageError
from tileyard.base.model import Batch, Draw, Measurement, Outcome, Trial, Value
from tileyard.measure.statistics import median_interval
from tileyard.verbs.tune.options import TuneRequest
from tileyard.verbs.tune.plan.space import OpenSpace, open_space
from tileyard.verbs.tune.plan.starting import begin_with_incumbents
from tileyard.verbs.tune.plan.strategies.base import Points
from tileyard.verbs.tune.result import StudyResult
from tileyard.workers.protocol import Space

OUTCOMES = 100


class Noisy(Bench):
    """Scripted medians, with samples of 1 % noise, and one tile as the default."""

    def __init__(self, latencies_ns: dict[int, float], seed: int, default: int) -> None:
        super().__init__(latencies_ns, incumbents=(("default", {"tile": default}),))
        self.random = random.Random(seed)

    def trials(self, batch: Batch) -> Iterator[Trial]:
        """One trial per case, with random samples."""
        for trial in super().trials(batch):
            if trial.measurement is None:
                yield trial
                continue
            median_ns = trial.measurement.median_ns
            samples = [median_ns * self.random.lognormvariate(0, 0.01) for _ in range(60)]
            own = median_interval(samples, 0.95)
            measured = Measurement(
                median_ns=own.median,
                low_ns=own.low,
                high_ns=own.high,
                confidence=0.95,
                samples_ns=tuple(samples),
            )
            yield replace(trial, measurement=measured)


def draw_times(number: int, best: float) -> dict[int, float]:
    """Times of several tiles, all slower than ``best``, and one of the best as the default's."""
    draw = random.Random(number)
    times = {tile: best * draw.uniform(1.03, 3.0) for tile in range(1, draw.randint(3, 12))}
    times[draw.choice([*times])] = best
    return times


def find_fastest(times: Mapping[int, float]) -> int:
    """The tile with the shortest time."""
    return min(times, key=lambda tile: times[tile])


def test_a_default_that_is_the_best_wins() -> None:
    """In every one of a hundred studies with noise."""
    for number in range(OUTCOMES):
        times = draw_times(number, 100.0)
        result = Noisy(times, number, find_fastest(times)).drive()
        assert result.best is not None
        assert result.best.config == {"tile": find_fastest(times)}, number
        (one,) = result.incumbents
        assert one.config == result.best.config
        assert one.problem == ""


def test_a_config_that_ties_with_the_default_does_not_replace_it() -> None:
    """Equal times, with noise, in every one of a hundred studies, whatever order configs come in."""
    for number in range(OUTCOMES):
        times = draw_times(number, 100.0)
        default = find_fastest(times)
        times = {tile + 100: took for tile, took in times.items()} | {1: 100.0, 200: 100.0}
        result = Noisy(times, number, default + 100).drive()
        assert result.best is not None
        assert result.best.config == {"tile": default + 100}, number


def test_a_config_that_is_clearly_faster_replaces_it() -> None:
    """By 3 %, in finals in which the default takes part, or in a meeting of its own."""
    for slower, count in ((1.03, 0), (2.0, 1)):
        bench = Noisy({1: 100.0 * slower, 2: 100.0, 3: 180.0}, 7, 1)
        result = bench.drive()
        assert result.best is not None
        assert result.best.config == {"tile": 2}
        (one,) = result.incumbents
        assert one.final is not None
        assert one.final.low < slower < one.final.high or slower == pytest.approx(
            one.final.ratio, rel=0.01
        )
        assert one.final.low > 1.0
        assert sum(batch.id.startswith("meeting") for batch in bench.asked) == count
        assert not result.unmet


def test_an_incumbent_that_the_screening_found_slow_wins_the_meeting_it_deserves() -> None:
    """Its time decides beside the winner's, not alone."""
    bench = Noisy({1: 100.0, 2: 100.0, 3: 180.0}, 7, 1)
    bench.speeds["c0001"] = 2.0
    result = bench.drive()
    assert result.best is not None
    assert result.best.config == {"tile": 1}
    assert result.finals[0].config == {"tile": 1}


def test_what_is_wrong_beside_the_best_says_so_and_cannot_win() -> None:
    """Of an incumbent that meets the winner alone, and of the winner that it meets."""
    for wrong in (1, 2):
        bench = Noisy({1: 200.0, 2: 100.0, 3: 180.0}, 7, 1)
        bench.wrong_in = {("meeting-c0001", wrong)}
        result = bench.drive()
        found = {trial.config["tile"]: trial for trial in result.trials}
        assert found[wrong].outcome is Outcome.MISMATCH
        assert found[wrong].message.startswith("beside the best: ")
        assert result.best is not None
        assert result.best.config != {"tile": wrong}


def test_a_default_that_is_wrong_says_why() -> None:
    """And another config wins without it."""
    result = Noisy({1: -1.0, 2: 100.0}, 7, 1).drive()
    assert result.best is not None
    assert result.best.config == {"tile": 2}
    (one,) = result.incumbents
    assert (one.final, one.problem) == (None, "mismatch: wrong")


def test_a_default_with_the_binary_of_another_config_wins_by_its_own_name() -> None:
    """One of equal binaries meets the others: the incumbent."""
    bench = Noisy({1: 100.0, 2: 100.0, 3: 101.0}, 7, 2)
    bench.binaries = {1: "same", 2: "same", 3: "other"}
    result = bench.drive()
    assert result.best is not None
    assert result.best.config == {"tile": 2}


BOTH: tuple[tuple[str, dict[str, Value]], ...] = (("default", {"tile": 1}), ("in use", {"tile": 2}))


def test_incumbents_of_one_binary_are_checked_once() -> None:
    """What one of them passes holds for the other."""
    bench = Bench({1: 100.0, 2: 100.0, 3: 150.0}, incumbents=BOTH, draws=(Draw(seed=1),))
    bench.binaries = {1: "same", 2: "same", 3: "other"}
    result = bench.drive()
    assert result.best is not None
    assert result.best.config == {"tile": 1}
    assert sum(batch.id.endswith("-seed-1") for batch in bench.asked) == 1


def test_of_two_incumbents_that_are_as_fast_as_the_winner_the_first_one_wins() -> None:
    """Whichever the screening found faster."""
    bench = Bench({1: 100.0, 2: 100.0, 3: 100.0}, incumbents=BOTH)
    bench.speeds = {"c0001": 3.0, "c0002": 2.0}
    result = bench.drive()
    assert sum(batch.id.startswith("meeting") for batch in bench.asked) == 2
    assert result.best is not None
    assert result.best.config == {"tile": 1}


def test_a_slow_default_is_never_abandoned() -> None:
    """All others are, above the bound of what is known."""
    bench = Noisy({1: 500.0, 2: 100.0, 3: 300.0}, 7, 3)
    result: StudyResult = bench.drive()
    bounds = {
        case.config["tile"]: case.abandon_above_ns
        for batch in bench.asked
        for case in batch.cases
        if batch.id.startswith("c")
    }
    assert bounds[3] == 0.0
    assert result.incumbents[0].final is not None


def opened(defaults: dict[str, Value], **request: object) -> OpenSpace:
    """The space of a kernel with two parameters, of these defaults."""
    author = PlainAuthor(
        replace(GEMM, defaults={**GEMM.defaults, **defaults}),
        space=Space(axes={"bm": (16, 32, 64), "bn": (16, 32)}, flops=1.0),
        limit=64 * 16,
    )
    return asyncio.run(open_space(author, TuneRequest(**request)))  # type: ignore[arg-type]


def test_the_default_is_the_point_of_the_functions_defaults() -> None:
    """None without one for each parameter, or with one that the space does not have."""
    assert opened({"bm": 32, "bn": 16}).default == {"bm": 32, "bn": 16}
    assert opened({"bm": 32}).default is None
    assert opened({"bm": 128, "bn": 16}).default is None
    pinned = opened({"bm": 128, "bn": 16}, overrides={"bm": (64,)})
    assert pinned.default == {"bm": 64, "bn": 16}


def test_incumbents_come_first_and_once() -> None:
    """What the strategy proposes again is no second trial; equal ones share a trial."""
    space = opened({}, trials=4)
    same, other = {"bm": 64, "bn": 16}, {"bm": 16, "bn": 32}
    asyncio.run(space.begin_with([("default", same), ("in use", dict(same)), ("x", other)]))
    assert space.incumbents == (("default and in use", same), ("x", other))
    assert space.configs[:2] == [same, other]
    asyncio.run(space.draw(4))
    assert len(space.configs) == 4
    assert space.configs.count(same) == 1
    refused = {"bm": 64, "bn": 32}
    asyncio.run(space.begin_with([("default", refused)]))
    assert space.incumbents == ()
    assert refused not in space.configs


def test_a_default_that_a_bundle_lacks_is_refused(tmp_path: Path) -> None:
    """Nothing is built there; one that it holds is the incumbent."""
    configs: list[dict[str, Value]] = [{"tile": 1}, {"tile": 2}]
    place = SimpleNamespace(settings=SimpleNamespace(home=tmp_path))

    def begin(tile: int) -> OpenSpace:
        points = Points({}, configs)
        space = OpenSpace(kernel="k", arguments={}, size=2, flops=0.0, wanted=2, points=points)
        request = TuneRequest(keeps_default=True, default={"tile": tile})
        start = SimpleNamespace(request=request, target="cpu")
        asyncio.run(begin_with_incumbents(cast(Any, start), cast(Any, place), (), space))
        return space

    assert begin(2).incumbents == (("default", {"tile": 2}),)
    with pytest.raises(UsageError, match="none of the configs in the bundle: tile=3"):
        begin(3)

"""Timing one kernel: decided by its times alone, shown with times that are scripted."""

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Protocol

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tileyard.base.model import Measurement, TimingPolicy
from tileyard.measure.sampling import BestSoFar, launches_per_sample, measure
from tileyard.targets.base import Launch

POLICY = TimingPolicy(
    min_samples=12,
    max_samples=100,
    warmup_ns=1_000,
    max_ns=1_000_000,
    min_sample_ns=10,
    group="g",
)


class Scripted(Launch, Protocol):
    """A launch with scripted times that keeps what was asked of it."""

    asked: list[tuple[int, int]]


Script = Callable[[Iterator[float]], Scripted]


def jitter(center_ns: float, share: float, seed: int = 0) -> Iterator[float]:
    """Endless times, evenly spread about ``center_ns``."""
    random = np.random.default_rng(seed)
    while True:
        yield center_ns * (1.0 + share * float(random.uniform(-1, 1)))


def test_quiet_launch_takes_the_fewest_samples(script: Script) -> None:
    """A median that is known after the first dozen samples is not sampled further."""
    expected = Measurement(
        median_ns=100.0,
        low_ns=100.0,
        high_ns=100.0,
        confidence=0.95,
        samples_ns=(100.0,) * 12,
    )

    assert measure(script(itertools.repeat(100.0)), POLICY) == expected


def test_noisy_launch_is_sampled_until_the_interval_is_narrow(script: Script) -> None:
    """More noise takes more samples; the interval then has the width asked for."""
    found = measure(script(jitter(100.0, 0.03)), POLICY)

    assert 12 < len(found.samples_ns) < 100
    assert (found.high_ns - found.low_ns) / found.median_ns <= POLICY.relative_width
    assert found.low_ns <= found.median_ns <= found.high_ns


def test_sampling_ends_at_the_most_samples(script: Script) -> None:
    """Noise that no sampling overcomes ends the measurement, not the other way round."""
    found = measure(script(jitter(100.0, 0.9)), POLICY)
    expected = 100

    assert len(found.samples_ns) == expected


def test_sampling_ends_when_its_time_is_spent(script: Script) -> None:
    """A slow and noisy launch costs its budget, and no more than the sample that fills it."""
    found = measure(script(jitter(50_000.0, 0.5)), POLICY)

    assert 12 <= len(found.samples_ns) < 30
    assert sum(found.samples_ns) < POLICY.max_ns + 2 * 75_000.0


def test_slow_launch_still_gets_the_fewest_samples(script: Script) -> None:
    """The budget never cuts below the fewest samples, or there would be no interval."""
    found = measure(script(itertools.repeat(1e6)), POLICY)
    expected = 12

    assert len(found.samples_ns) == expected


def test_too_few_samples_for_the_confidence_are_not_enough(script: Script) -> None:
    """A policy that allows two samples still goes on until the interval means something."""
    policy = msgspec.structs.replace(POLICY, min_samples=2)

    found = measure(script(itertools.repeat(100.0)), policy)

    assert len(found.samples_ns) >= 6


@given(time_ns=st.floats(0.01, 1e6), wanted_ns=st.integers(1, 10**6))
@settings(deadline=None, max_examples=60)
def test_sample_lasts_long_enough_and_not_much_longer(time_ns: float, wanted_ns: int) -> None:
    """Launches of a sample together reach the length asked for; a long launch stands alone."""
    policy = msgspec.structs.replace(POLICY, min_sample_ns=wanted_ns)

    launches = launches_per_sample(Steady(time_ns), policy)

    assert launches * time_ns >= wanted_ns or launches == 1_000_000
    assert launches == 1 or (launches - 1) * time_ns <= 1.3 * wanted_ns


class Steady:
    """A launch that always takes the same time."""

    def __init__(self, time_ns: float) -> None:
        self._time_ns = time_ns

    def run(self) -> None:
        """Nothing to launch."""

    def sample_ns(self, samples: int, launches: int) -> list[float]:
        """The same time for every sample."""
        return [self._time_ns] * samples

    def read(self) -> list[np.ndarray[tuple[int, ...], np.dtype[np.generic]]]:
        """No outputs."""
        return []

    def reset(self) -> None:
        """Nothing to reset."""


def test_clock_too_coarse_for_a_launch_ends_the_estimate() -> None:
    """Times of zero cannot ask for endless launches."""
    expected = 1_000_000

    assert launches_per_sample(Steady(0.0), POLICY) == expected


def test_cold_start_is_no_sample(script: Script) -> None:
    """Times that fall while caches and clocks warm up are left out."""
    falling = [240.0 - 10.0 * i for i in range(14)]
    launch = script(itertools.chain(falling, itertools.repeat(100.0)))
    expected = (100.0,) * 12

    found = measure(launch, POLICY)

    assert found.samples_ns == expected
    assert found.steady


def test_warm_up_lasts_as_long_as_the_policy_says(script: Script) -> None:
    """A launch that is steady from the start is warmed up all the same."""
    launch = script(itertools.repeat(100.0))
    expected = POLICY.warmup_ns

    measure(launch, POLICY)

    warming = list(itertools.takewhile(lambda asked: asked[0] == 1, launch.asked))
    assert sum(samples * launches * 100.0 for samples, launches in warming) == expected


def test_endless_fall_is_measured_and_told(script: Script) -> None:
    """Warming up ends after five times its budget; what never settles is marked as not steady."""
    launch = script(1e5 * 0.98**i for i in itertools.count())

    found = measure(launch, msgspec.structs.replace(POLICY, warmup_ns=400_000))

    assert 5.5e4 < found.samples_ns[0] < 6.5e4
    assert not found.steady


def test_launches_are_counted_again_once_warm(script: Script) -> None:
    """A sample lasts long enough by the warm time, not by the cold one."""
    launch = script(itertools.chain([1000.0], itertools.repeat(1.0)))
    policy = msgspec.structs.replace(POLICY, min_sample_ns=100, warmup_ns=2_000)

    measure(launch, policy)

    assert launch.asked[-1][1] >= 100


@pytest.mark.parametrize(("time_ns", "expected"), [(200.0, 3), (151.0, 3), (149.0, 6), (101.0, 6)])
def test_clearly_slower_launch_is_abandoned(script: Script, time_ns: float, expected: int) -> None:
    """Three samples show a hopeless launch, six one that is slower at the confidence asked for."""
    best = BestSoFar(high_ns=100.0)

    found = measure(script(itertools.repeat(time_ns)), POLICY, best)

    assert found.abandoned
    assert len(found.samples_ns) == expected
    assert best.high_ns == 100.0


def test_times_that_differ_more_than_they_are_slower_abandon_nothing(script: Script) -> None:
    """Other work made two of the first three samples slow: sampling goes on, and finds the usual time."""
    quiet = script(itertools.repeat(25.0))
    measure(quiet, POLICY)
    warm = next(number for number, (samples, _) in enumerate(quiet.asked) if samples > 1)
    times = [*[25.0] * warm, 3766.0, 103.0, 3889.0]
    found = measure(
        script(itertools.chain(times, itertools.repeat(25.0))), POLICY, BestSoFar(high_ns=30.0)
    )
    assert found.samples_ns[:3] == (3766.0, 103.0, 3889.0)
    assert (found.abandoned, found.median_ns) == (False, 25.0)


def test_launch_that_may_be_as_fast_is_not_abandoned(script: Script) -> None:
    """While the interval reaches down to the best one, sampling goes on."""
    times = itertools.cycle([98.0, 120.0])

    found = measure(script(times), POLICY, BestSoFar(high_ns=100.0))

    assert not found.abandoned


def test_measuring_lowers_the_best(script: Script) -> None:
    """The next launch of the group is held against the fastest so far."""
    best = BestSoFar()

    measure(script(itertools.repeat(100.0)), POLICY, best)
    measure(script(itertools.repeat(90.0)), POLICY, best)
    measure(script(itertools.repeat(95.0)), POLICY, best)

    assert best.high_ns == 90.0


def test_launch_without_a_group_is_held_against_nothing(script: Script) -> None:
    """Kernels that are not comparable neither end nor bound each other's sampling."""
    best = BestSoFar(high_ns=1.0)
    policy = msgspec.structs.replace(POLICY, group="")

    found = measure(script(itertools.repeat(100.0)), policy, best)

    assert not found.abandoned
    assert best.high_ns == 1.0


def test_unknown_bound_lowers_nothing() -> None:
    """Zero stands for a best that is not known."""
    best = BestSoFar()

    best.lower(0.0)

    assert best.high_ns == math.inf


def test_measurement_can_be_stored(script: Script) -> None:
    """Times that come as NumPy numbers end as plain ones."""
    times = (np.float64(100.0) for _ in itertools.count())
    expected = measure(script(itertools.repeat(100.0)), POLICY)

    found = measure(script(times), POLICY)

    assert msgspec.json.decode(msgspec.json.encode(found), type=Measurement) == expected


def test_winner_is_the_same_in_any_order(script: Script) -> None:
    """Early abandonment never costs the fastest of a group its place."""
    centers = [100.0, 104.0, 97.0, 150.0, 96.0, 99.0]
    expected = {96.0}

    winners = set()
    for order in itertools.islice(itertools.permutations(centers), 0, None, 60):
        best = BestSoFar()
        found = {c: measure(script(jitter(c, 0.003)), POLICY, best) for c in order}
        winners.add(min(found, key=lambda c: found[c].median_ns))

    assert winners == expected


def test_launches_are_counted_where_that_is_asked_for(script: Script) -> None:
    """So many warm up and so many are timed singly, whatever their times; clear losers are given up."""
    counted = msgspec.structs.replace(POLICY, warmup_launches=5, launches=40)
    launch = script(jitter(100.0, 0.5))
    assert len(measure(launch, counted).samples_ns) == 40
    assert launch.asked[0] == (1, 5)
    assert all(launches == 1 for _, launches in launch.asked[1:])
    beaten = measure(script(itertools.repeat(100.0)), counted, BestSoFar(high_ns=10.0))
    assert (beaten.abandoned, len(beaten.samples_ns)) == (True, 3)

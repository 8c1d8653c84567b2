"""Timing in turn: what drifts with the machine cancels, what is left is judged against a control."""

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, repeat

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tileyard.measure.paired import (
    FEWEST_ROUNDS,
    MIN_EFFECT,
    Ranking,
    compare_pair,
    interleave,
    rank,
)
from tileyard.targets.base import Launch


class Machine:
    """One machine that all launches share: its speed drifts with every nanosecond it works."""

    def __init__(self, drift_per_ns: float = 0.0, noise: float = 0.0, seed: int = 0) -> None:
        self._drift_per_ns = drift_per_ns
        self._noise = noise
        self._random = np.random.default_rng(seed)
        self._elapsed_ns = 0.0
        self._wander = 0.0
        self.order: list[str] = []

    def work(self, name: str, time_ns: float, launches: int) -> float:
        """Do ``launches`` launches of ``time_ns`` each; how long one took as the clock saw it."""
        self.order.append(name)
        self._wander += self._noise / 4 * float(self._random.standard_normal())
        busy_ns = time_ns * launches
        middle_ns = self._elapsed_ns + busy_ns / 2
        self._elapsed_ns += busy_ns
        disturbance = self._noise * float(self._random.exponential())
        return time_ns * (1.0 + self._drift_per_ns * middle_ns + self._wander + disturbance)


class Member:
    """A launch on a machine."""

    def __init__(self, machine: Machine, name: str, time_ns: float) -> None:
        self._machine = machine
        self._name = name
        self._time_ns = time_ns

    def run(self) -> None:
        """Nothing to launch."""

    def sample_ns(self, samples: int, launches: int) -> list[float]:
        """As long as the machine takes."""
        return [self._machine.work(self._name, self._time_ns, launches) for _ in range(samples)]

    def read(self) -> list[NDArray[np.generic]]:
        """No outputs."""
        return []

    def reset(self) -> None:
        """Nothing to reset."""


def one_after_another(members: Sequence[Member], rounds: int) -> list[list[float]]:
    """What a benchmark does that does not interleave."""
    return [member.sample_ns(rounds, 1) for member in members]


def test_every_round_is_an_order_and_its_reverse() -> None:
    """All members are timed twice a round, and no order is favoured."""
    machine = Machine()
    members = [Member(machine, name, 10.0) for name in "abc"]

    interleave(members, 40, [1, 1, 1])

    rounds = [machine.order[i : i + 6] for i in range(3, len(machine.order), 6)]
    assert len(rounds) == 40
    assert all(r == r[::-1] and sorted(r[:3]) == ["a", "b", "c"] for r in rounds)
    assert {r[0] for r in rounds} == {"a", "b", "c"}


def test_orders_follow_from_the_seed() -> None:
    """The same seed times in the same order, another one in another."""

    def orders(seed: int) -> list[str]:
        machine = Machine()
        interleave([Member(machine, name, 10.0) for name in "abcd"], 10, [1] * 4, seed=seed)
        return machine.order

    expected = orders(1)

    assert orders(1) == expected
    assert orders(2) != expected


def test_members_have_their_own_number_of_launches() -> None:
    """A short kernel is launched more often, and its time is still that of one launch."""
    machine = Machine()
    expected = [[10.0, 10.0], [1000.0, 1000.0]]

    found = interleave(
        [Member(machine, "short", 10.0), Member(machine, "long", 1000.0)], 2, [100, 1]
    )

    assert found == expected


@given(
    times=st.lists(st.floats(10.0, 1000.0), min_size=2, max_size=5),
    drift=st.floats(0.0, 1e-4),
    rounds=st.integers(1, 8),
)
@settings(deadline=None, max_examples=60)
def test_linear_drift_cancels_exactly(times: list[float], drift: float, rounds: int) -> None:
    """However fast the machine slows down, every round gives the members' true ratios."""
    machine = Machine(drift_per_ns=drift)
    members = [Member(machine, str(i), time_ns) for i, time_ns in enumerate(times)]

    found = np.array(interleave(members, rounds, [1] * len(times)))

    expected = np.array(times) / times[0]
    assert np.allclose((found / found[0]).T, expected, rtol=1e-9)


def test_sequential_timing_takes_drift_for_a_difference() -> None:
    """What interleaving cancels makes equal members differ by several per cent otherwise."""
    machine = Machine(drift_per_ns=1e-5)
    members = [Member(machine, name, 100.0) for name in "ab"]

    first, second = one_after_another(members, 20)

    assert compare_pair(first, second, 0.95).low > math.log1p(0.01)


def batches(interleaved: bool) -> Iterator[tuple[list[float], list[float]]]:
    """Times of one binary entered twice on many machines that drift, wander and are disturbed."""
    for seed in range(400):
        machine = Machine(drift_per_ns=2e-6, noise=0.02, seed=seed)
        members = [Member(machine, name, 100.0) for name in "abc"]
        if interleaved:
            first, _, second = interleave(members, 20, [1, 1, 1], seed=seed)
        else:
            first, _, second = one_after_another(members, 20)
        yield first, second


@pytest.mark.slow
def test_control_raises_false_alarms_as_rarely_as_it_promises() -> None:
    """At 0.95, twenty rounds give 4.1 % by the binomial distribution, whatever the machine does."""
    alarms = [compare_pair(*batch, 0.95).excludes_tie for batch in batches(interleaved=True)]
    expected = 1.0 - compare_pair([1.0] * 20, [1.0] * 20, 0.95).coverage

    assert expected == pytest.approx(0.0414, abs=1e-3)
    assert abs(np.mean(alarms) - expected) <= 0.03
    assert any(alarms)


def test_control_shows_when_timing_is_not_interleaved() -> None:
    """Timed one after the other, the same machines raise an alarm most of the time."""
    alarms = [compare_pair(*batch, 0.95).excludes_tie for batch in batches(interleaved=False)]

    assert np.mean(alarms) > 0.5


@given(
    base=st.lists(st.floats(1.0, 1e6), min_size=6, max_size=30),
    factor=st.floats(0.1, 10.0),
)
@settings(deadline=None, max_examples=60)
def test_ratio_of_pairs_is_found_whatever_the_rounds_do(base: list[float], factor: float) -> None:
    """Rounds may differ as much as they like: only head against base within a round counts."""
    found = compare_pair(base, [time_ns * factor for time_ns in base], 0.95)

    assert found.ratio == pytest.approx(factor)
    assert found.low == pytest.approx(found.high, abs=1e-9)
    assert min(FEWEST_ROUNDS, len(base)) <= found.rounds <= len(base)


def test_single_disturbed_rounds_do_not_move_the_ratio() -> None:
    """A few rounds in which the machine was busy elsewhere leave the interval where it was."""
    head = [110.0] * 17 + [900.0, 5000.0, 1.0]

    found = compare_pair([100.0] * 20, head, 0.95)

    assert found.low == found.high == pytest.approx(math.log(1.1))


def test_rounds_in_which_one_was_disturbed_do_not_count() -> None:
    """Also if they are most of the rounds, and disturb one member more than the other, or slow both."""
    base = [100.0, 100.0, 120.0, 150.0] * 10
    head = [101.0, 180.0, 118.0, 101.0] * 10
    expected = 10

    found = compare_pair(base, head, 0.95)

    assert found.rounds == expected
    assert found.ratio == pytest.approx(1.01)


def test_all_rounds_count_if_too_few_were_undisturbed() -> None:
    """An interval needs more rounds than are left."""
    found = compare_pair([100.0] * 10, [100.0] * 7 + [200.0] * 3, 0.95)

    assert found.rounds == 10


ROUNDS = [100.0, 101.0, 99.0, 100.5, 99.5, 100.2, 99.8, 100.1, 99.9, 100.0]


def times(factor: float, shift: int = 0) -> list[float]:
    """Ten rounds of a member that takes ``factor`` times as long, with noise of its own."""
    return [factor * time_ns for time_ns in ROUNDS[shift:] + ROUNDS[:shift]]


def test_clear_winner_is_named() -> None:
    """The member that beats all others beyond threshold and noise stands alone."""
    found = rank([times(1.2, 1), times(1.0, 3), times(1.1, 5)], 0.95)
    expected = (1, (1,), (1, 2, 0))

    assert (found.fastest, found.tied, found.order) == expected
    assert [round(r.ratio, 1) for r in found.ratios] == [1.2, 1.0, 1.1]


def test_tied_members_are_named() -> None:
    """The fastest wins, and the member that cannot be distinguished from it is named as tied."""
    found = rank([times(1.001, 1), times(1.2, 2), times(1.0, 3)], 0.95)
    expected = (2, (0, 2), (2, 0, 1))

    assert (found.fastest, found.tied, found.order) == expected


def test_of_equal_members_the_first_wins() -> None:
    """The order of the members decides, which the caller chooses."""
    assert rank([times(1.0), times(1.0)], 0.95).fastest == 0


def test_only_those_that_met_in_all_rounds_can_win() -> None:
    """A member that did not meet again is compared in the rounds that it had."""
    found = rank([times(0.99)[:8], times(1.0), times(1.1)], 0.95)
    expected = (1, (1, 0, 2))

    assert (found.fastest, found.order) == expected
    assert found.ratios[0].ratio == pytest.approx(0.99)


def test_fastest_is_found_across_rounds_of_different_speed() -> None:
    """Each member is held against its own round: no member gains by where the machine was fast."""
    steady, disturbed = [1.02, 10.2, 102.0], [1.0, 11.0, 100.0]

    assert rank([steady, disturbed], 0.95).fastest == 1


def test_effect_below_the_smallest_that_counts_is_a_tie() -> None:
    """Without any noise, half a per cent is still no reason to call one config better."""
    flat = [100.0] * 10

    for effect, expected in ((0.9 * MIN_EFFECT, (0, 1)), (1.1 * MIN_EFFECT, (1,))):
        slower = [100.0 * (1 + effect)] * 10
        assert rank([slower, flat], 0.95).tied == expected


def test_control_reports_a_false_alarm() -> None:
    """The second entry of a binary took less time than the first, and is no member."""
    leader = times(1.0, 1)
    found = rank([leader, times(1.2, 2)], 0.95, control=(leader, times(0.9, 3)))

    assert found.order == (0, 1)
    assert found.control is not None
    assert found.control.excludes_tie


def test_noisy_control_makes_ties() -> None:
    """Where a binary differs from itself by three per cent, two per cent decide nothing."""
    leader, rival = times(1.0, 0), times(1.02, 0)
    noisy = [t * (1.03 if i % 2 else 0.97) for i, t in enumerate(leader)]

    assert rank([rival, leader], 0.95).tied == (1,)
    assert rank([rival, leader], 0.95, control=(leader, noisy)).tied == (0, 1)


def test_false_alarm_widens_the_threshold() -> None:
    """A difference as small as the one a binary shows against itself is a tie."""
    leader, rival = [100.0] * 10, [102.0] * 10

    assert rank([rival, leader], 0.95).tied == (1,)
    assert rank([rival, leader], 0.95, control=(leader, [103.0] * 10)).tied == (0, 1)


@given(
    factors=st.lists(st.sampled_from([1.0, 1.002, 1.05, 1.5]), min_size=2, max_size=5),
    scale=st.floats(0.01, 100.0),
)
@settings(deadline=None, max_examples=60)
def test_ranking_does_not_depend_on_the_unit(factors: list[float], scale: float) -> None:
    """A faster clock or another unit of time names the same winner and the same ties."""

    def ranking(unit: float) -> Ranking:
        return rank([times(f * unit, i) for i, f in enumerate(factors)], 0.95)

    expected = ranking(1.0)
    found = ranking(scale)

    assert (found.fastest, found.tied, found.order) == (
        expected.fastest,
        expected.tied,
        expected.order,
    )


def test_fewer_rounds_than_an_interval_needs_make_a_tie_likelier() -> None:
    """With three rounds the interval is their whole range, and says how little that is worth."""
    found = compare_pair([1.0, 1.0, 1.0], [1.0, 2.0, 3.0], 0.95)
    expected = (0.0, math.log(3.0), 0.75)

    assert (found.low, found.high, found.coverage) == pytest.approx(expected)


def test_interleaving_ends_when_its_time_is_spent(
    script: Callable[[Iterator[float]], Launch],
) -> None:
    """Rounds stop at the time given, but not before there are enough for an interval."""
    expected = 10
    assert len(interleave([script(repeat(1e6))], 50, [1], max_ns=20e6)[0]) == expected
    assert len(interleave([script(repeat(1e6))], 50, [1], max_ns=1.0)[0]) == FEWEST_ROUNDS


@pytest.mark.parametrize(("slow", "expected"), [(0, 10), (3, 13), (9, 19)])
def test_interleaving_ends_when_enough_rounds_were_calm(
    slow: int, expected: int, script: Callable[[Iterator[float]], Launch]
) -> None:
    """Each slow round takes another one. One sample warms up, each round takes two."""
    rounds = [10.0, 10.0] + [20.0] * slow + [10.0] * 60
    samples = (time for time in rounds for _ in range(2))
    launch = script(chain([10.0], samples))
    assert len(interleave([launch], 50, [1], calm=10)[0]) == expected


def test_rounds_that_were_nearly_all_disturbed_show_nothing() -> None:
    """Other work hit equal members in different rounds: they are tied, whatever the ratio is."""
    first = [100.0 if number % 8 == 0 else 200.0 for number in range(96)]
    second = [100.0 if number % 8 == 4 else 240.0 for number in range(96)]
    found = compare_pair(first, second, 0.95)
    assert found.is_disturbed
    assert found.low > math.log1p(0.1)
    assert rank([first, second], 0.95).tied == (0, 1)
    assert not compare_pair([100.0] * 8, [100.0] * 5 + [150.0] * 3, 0.95).is_disturbed

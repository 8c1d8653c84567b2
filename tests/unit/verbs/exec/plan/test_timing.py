"""How long functions of a script's are timed."""

import pytest

from tileyard.measure import sampling
from tileyard.measure.sampling import BestSoFar, CalledLaunch
from tileyard.verbs.exec.plan.tilelang_timing import name_timer, time_call


class Clock:
    """A clock that a function puts forward."""

    def __init__(self) -> None:
        self.now_ns = 0

    def perf_counter_ns(self) -> int:
        """The time."""
        return self.now_ns


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock that timers read."""
    clock = Clock()
    monkeypatch.setattr(sampling, "time", clock)
    return clock


class Slow:
    """A function that takes so long, and counts its calls."""

    def __init__(self, clock: Clock, ns: int) -> None:
        self.calls = 0
        self._clock = clock
        self._ns = ns

    def __call__(self) -> None:
        """Let time pass."""
        self.calls += 1
        self._clock.now_ns += self._ns


def test_a_slow_function_is_called_once(clock: Clock) -> None:
    """What takes longer than the whole budget is not called a second time."""
    slow = Slow(clock, 3_000_000_000)
    expected = [3e9]
    assert time_call(slow, 100.0) == expected
    assert slow.calls == 1


def test_one_slow_call_makes_no_function_lose(clock: Clock) -> None:
    """Other work may have disturbed it: the usual time counts."""
    calls = 0

    def disturbed() -> None:
        nonlocal calls
        calls += 1
        clock.now_ns += 4_000_000 if calls == 1 else 25_000

    best = BestSoFar(high_ns=30_000)
    assert set(time_call(disturbed, 100.0, best)) == {25_000}
    assert best.high_ns == 25_000


def test_a_function_that_is_too_slow_to_repeat_is_told() -> None:
    """A single sample that the budget asked for is not."""
    expected = ["do_bench of one call", "do_bench", "do_bench"]
    assert [name_timer(samples) for samples in ([3000.0], [6.0], [300.0, 300.0])] == expected


def test_a_budget_for_a_gpu_is_cut(clock: Clock) -> None:
    """However long it is asked to measure, it measures for some tenths of a second."""
    slow = Slow(clock, 10_000_000)
    expected = 10e6
    times = time_call(slow, 60_000.0)
    assert set(times) == {expected}
    assert len(times) >= 2
    assert clock.now_ns < 1e9


def test_a_sample_of_several_calls_is_their_mean(clock: Clock) -> None:
    """A sample is nanoseconds for one call."""
    expected = [500.0, 500.0]
    assert CalledLaunch(Slow(clock, 500)).sample_ns(2, 10) == expected

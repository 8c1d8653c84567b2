"""Limits that do not run while a process is stopped."""

import math

import pytest

from tileyard.base.clock import NAP_S, Countdown


class Hands:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.at = 100.0

    def __call__(self) -> float:
        """What it shows."""
        return self.at


def test_a_countdown_runs_down_to_nothing() -> None:
    """Short gaps count in full, and the next look is due after a nap, or when it is over."""
    hands = Hands()
    countdown = Countdown(0.75, hands)
    assert countdown.wait_s() == NAP_S
    hands.at += 0.5
    assert countdown.left_s() == pytest.approx(0.25)
    assert countdown.wait_s() == pytest.approx(0.25)
    hands.at += 0.5
    assert countdown.left_s() == 0.0


def test_a_pause_counts_as_one_nap() -> None:
    """A gap longer than a nap means that the process was stopped: no more than a nap of it counts."""
    hands = Hands()
    countdown = Countdown(2.0, hands)
    hands.at += 3600.0
    expected = 2.0 - NAP_S
    assert countdown.left_s() == expected


def test_waits_for_a_core_do_not_count() -> None:
    """But a quarter of the time does in any case: four times the limit is the most that it takes."""
    hands, waits = Hands(), iter((0.1, 0.4))
    countdown = Countdown(1.0, hands, lambda: next(waits))
    for left_s in (0.7, 0.6):
        hands.at += 0.4
        assert countdown.left_s() == pytest.approx(left_s)


def test_no_limit_is_never_over() -> None:
    """Without a limit there is always time left, and still a next look."""
    hands = Hands()
    countdown = Countdown(None, hands)
    hands.at += 0.25
    assert countdown.left_s() == math.inf
    assert countdown.wait_s() == NAP_S

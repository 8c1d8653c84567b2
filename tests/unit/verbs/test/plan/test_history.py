"""The history of a suite: which cases make its tail, and which have moved."""

import pytest

from tileyard.store.base import CaseTimes
from tileyard.verbs.test.plan.history import Quantile, summarize_history

DATE = 100.0


def runs(name: str, *before_s: float, after_s: tuple[float, ...] = ()) -> CaseTimes:
    """Runs of a case ``testcase/name``."""
    testcase = name.rpartition("/")[0]
    return CaseTimes(case=name, testcase=testcase, before_s=before_s, after_s=after_s)


def test_the_tail_is_named() -> None:
    """The longest cases and testcases with their share of one run of all."""
    times = [
        runs("a/x", 60.0, 62.0, 61.0),
        runs("b/x", 20.0),
        runs("b/y", 19.0),
        runs("dir/c.py/x", 0.5, after_s=(0.5,)),
    ]
    history = summarize_history(times, DATE, longest=2)
    total_s = 61.0 + 20.0 + 19.0 + 0.5
    expected = (4, 7, pytest.approx(total_s))
    assert (history.cases, history.runs, history.total_s) == expected
    assert [(one.case, one.seconds) for one in history.longest] == [("a/x", 61.0), ("b/x", 20.0)]
    assert [(one.case, one.seconds) for one in history.longest_testcases] == [
        ("a", 61.0),
        ("b", 39.0),
    ]
    assert history.longest[0].share == pytest.approx(61.0 / total_s)
    assert Quantile(share=0.5, seconds=19.5) in history.quantiles


def test_a_clear_change_of_the_median_is_told() -> None:
    """Cases that became slower or faster, the one that costs or saves most in front."""
    times = [
        runs("t/slower", 10.0, 10.1, 9.9, after_s=(15.0, 15.2, 14.9)),
        runs("t/faster", 100.0, 100.0, 99.0, after_s=(50.0, 51.0, 50.0)),
    ]
    history = summarize_history(times, DATE)
    expected = [("t/faster", pytest.approx(0.5)), ("t/slower", pytest.approx(1.5))]
    assert [(one.case, one.ratio) for one in history.moved] == expected
    assert history.compared == len(expected)


@pytest.mark.parametrize(
    ("before", "after", "compared"),
    [
        ((10.0, 10.0), (20.0, 20.0, 20.0), 0),
        ((10.0, 10.0, 10.0), (20.0, 20.0), 0),
        ((10.0, 10.0, 10.0), (11.0, 11.0, 11.0), 1),
        ((10.0, 5.0, 40.0, 41.0), (30.0, 31.0, 32.0), 1),
        ((30.0, 31.0, 32.0), (10.0, 9.0, 40.0, 41.0, 8.0), 1),
    ],
)
def test_noise_is_no_change(
    before: tuple[float, ...], after: tuple[float, ...], compared: int
) -> None:
    """Too few runs, a small factor, or medians within each other's spread."""
    expected: tuple[object, ...] = ()
    history = summarize_history([runs("t/a", *before, after_s=after)], DATE)
    assert history.moved == expected
    assert history.compared == compared


def test_no_history_is_empty() -> None:
    """Nothing ran: nothing to tell."""
    history = summarize_history([], DATE)
    expected = (0, 0, (), ())
    assert (history.cases, history.total_s, history.quantiles, history.longest) == expected

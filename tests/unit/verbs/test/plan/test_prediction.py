"""Predictions: a shard, a budget and a plan of an imported history, beside what is usual instead."""

import pytest

from tileyard.base.errors import UsageError
from tileyard.verbs.test.plan.budget import IN_SHARD, Bounds, Narrowed, narrow
from tileyard.verbs.test.plan.durations import expect_imported
from tileyard.verbs.test.plan.imports import ImportedTime
from tileyard.verbs.test.plan.pieces import Costs, Shard
from tileyard.verbs.test.plan.plan import predict
from tileyard.verbs.test.result.result import Expected


def make_expected(*seconds: float, case_s: float = 0.0) -> tuple[Expected, ...]:
    """Testcases ``t0``, ``t1``, ... that took so long."""
    times = [ImportedTime(testcase=f"t{i}", seconds=time) for i, time in enumerate(seconds)]
    return expect_imported(times, case_s)


def take(expected: tuple[Expected, ...], number: int, count: int, **fields: float) -> Narrowed:
    """One of so many shards; ``fields`` are further bounds."""
    bounds = Bounds(shard=Shard(number=number, count=count), **fields)  # type: ignore[arg-type]
    return narrow(expected, [one.testcase for one in expected], bounds)


def test_shards_of_a_history_part_it() -> None:
    """What one job leaves out for another shard, exactly one other job runs."""
    whole = make_expected(*(float(i + 1) for i in range(20)))
    parts = [take(whole, n, 3) for n in (1, 2, 3)]
    expected = sorted(one.case for one in whole)
    assert sorted(one.case for part in parts for one in part.expected) == expected
    assert all(len(part.expected) + len(part.left_out) == len(whole) for part in parts)
    assert all(left.reason.startswith(IN_SHARD) for left in parts[0].left_out)
    assert {part.shards_s for part in parts} == {
        tuple(sum(one.seconds for one in part.expected) for part in parts)
    }


def test_a_budget_is_for_the_shard() -> None:
    """The cases of other shards use none of it."""
    whole = make_expected(*[10.0] * 40)
    found = take(whole, 1, 4, budget_s=50.0, slots=1)
    expected = 5
    assert len(found.expected) == expected
    assert len(found.left_out) == len(whole) - expected


def test_an_empty_shard_is_refused() -> None:
    """A job that would run nothing says so."""
    expected = "has no case"
    with pytest.raises(UsageError, match=expected):
        take(make_expected(1.0), 1, 2)


def test_a_prediction_tells_of_the_floor() -> None:
    """Start-up counts in the plan, not in what no split could beat."""
    whole = make_expected(100.0, 20.0, case_s=10.0)
    found = predict(whole, 4, costs=Costs(startup_s=1.0))
    expected = (12, 2, 30.0, {"history": 12})
    assert (found.cases, found.testcases, found.floor_s, found.sources) == expected
    assert found.plan.predicted_s > found.floor_s
    assert [way.pieces for way in found.instead] == [2, 2, 2]


def test_nothing_is_predicted_for_no_case() -> None:
    """An empty selection is refused, never green."""
    expected = "no case is selected"
    with pytest.raises(UsageError, match=expected):
        predict((), 4)

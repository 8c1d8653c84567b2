"""Shards: every case in exactly one, of the same expected time, and the same ones tomorrow."""

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tileyard.base.errors import UsageError
from tileyard.verbs.test.plan.pieces import Shard, assign_shards, parse_shard, take_shard
from tileyard.verbs.test.result.result import Expected

cases = st.dictionaries(
    st.tuples(st.sampled_from("abcdefgh"), st.integers(0, 99)),
    st.one_of(st.just(0.0), st.floats(1e-3, 1e4)),
    min_size=1,
    max_size=60,
).map(
    lambda times: [
        Expected(case=f"{testcase}/{number}", testcase=testcase, seconds=seconds)
        for (testcase, number), seconds in times.items()
    ]
)


def numbers_of(expected: list[Expected], count: int) -> dict[str, int]:
    """The shard of each case."""
    numbers = assign_shards(expected, count)
    return {one.case: number for one, number in zip(expected, numbers, strict=True)}


@pytest.mark.slow
@settings(deadline=None)
@given(cases, st.integers(1, 70))
def test_every_case_is_in_exactly_one_shard(content: list[Expected], count: int) -> None:
    """For any number of shards, also where some of them have no case."""
    found: list[str] = []
    for number in range(1, count + 1):
        with contextlib.suppress(UsageError):  # has no case
            found += [one.case for one in take_shard(content, Shard(number=number, count=count))]
    expected = sorted(one.case for one in content)
    assert sorted(found) == expected


@pytest.mark.slow
@settings(deadline=None)
@given(cases, st.integers(1, 20))
def test_a_shard_takes_no_longer_than_the_mean_and_one_case(
    content: list[Expected], count: int
) -> None:
    """That is what cutting a line can promise."""
    numbers = assign_shards(content, count)
    mean_s = sum(one.seconds for one in content) / count
    longest_s = max(one.seconds for one in content)
    expected_s = mean_s + longest_s + 1e-6
    for number in range(1, count + 1):
        own = [one.seconds for one, n in zip(content, numbers, strict=True) if n == number]
        assert sum(own) <= expected_s


@pytest.mark.slow
@settings(deadline=None)
@given(st.permutations(range(30)), st.integers(1, 9))
def test_the_order_of_the_suite_says_nothing(order: list[int], count: int) -> None:
    """The same cases in another order are in the same shards."""
    content = [
        Expected(case=f"t{i % 7}/{i}", testcase=f"t{i % 7}", seconds=i % 5 + 0.25)
        for i in range(30)
    ]
    expected = numbers_of(content, count)
    assert numbers_of([content[i] for i in order], count) == expected


@pytest.mark.slow
@settings(deadline=None)
@given(st.integers(0, 499), st.floats(0.0, 2.0), st.integers(2, 16))
def test_a_changed_duration_moves_few_cases(place: int, factor: float, count: int) -> None:
    """At most as many for each cut as fit into what was added or taken away, and one."""
    content = [
        Expected(case=f"t{i % 50}/{i}", testcase=f"t{i % 50}", seconds=2.0) for i in range(500)
    ]
    changed = list(content)
    changed[place] = Expected(
        case=content[place].case, testcase=content[place].testcase, seconds=2.0 * factor
    )
    before, after = numbers_of(content, count), numbers_of(changed, count)
    expected = 2 * (count - 1)
    assert sum(before[case] != after[case] for case in before) <= expected


def test_an_added_case_moves_few_others() -> None:
    """A new case in the middle of 500 moves no more than two for each cut."""
    content = [
        Expected(case=f"t{i % 50}/{i}", testcase=f"t{i % 50}", seconds=2.0) for i in range(500)
    ]
    added = Expected(case="t7/new", testcase="t7", seconds=2.0)
    before, after = numbers_of(content, 8), numbers_of([added, *content], 8)
    expected = 2 * 7
    assert sum(before[case] != after[case] for case in before) <= expected


def test_testcases_stay_together() -> None:
    """Only cuts part them, so that few shards start, and build, the same testcase."""
    content = [
        Expected(case=f"t{i % 50}/{i}", testcase=f"t{i % 50}", seconds=2.0) for i in range(500)
    ]
    pairs = {
        (one.testcase, number)
        for one, number in zip(content, assign_shards(content, 8), strict=True)
    }
    expected = 50 + 7
    assert len(pairs) <= expected


def test_cases_that_take_no_time_are_shared_by_number() -> None:
    """Where nothing is known to take any time, shards have equally many cases."""
    content = [Expected(case=f"t/{i}", testcase="t", seconds=0.0) for i in range(8)]
    expected = [1, 1, 2, 2, 3, 3, 4, 4]
    assert sorted(assign_shards(content, 4)) == expected


def test_shards_are_written_as_fractions() -> None:
    """The second of eight."""
    expected = Shard(number=2, count=8)
    assert parse_shard("2/8") == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("9/8", "there is no shard 9 of 8"),
        ("0/8", "there is no shard 0 of 8"),
        ("1/0", "there is no shard 1 of 0"),
        ("2", "'2' is not a shard such as 2/8"),
        ("-1/8", "is not a shard"),
        ("a/b", "is not a shard"),
    ],
)
def test_other_shards_are_refused(text: str, expected: str) -> None:
    """What is not a part of a whole is named."""
    with pytest.raises(UsageError, match=expected):
        parse_shard(text)


def test_an_empty_shard_is_refused() -> None:
    """A job with nothing to run is never green by accident."""
    expected = "has no case: there are 1 in all"
    content = [Expected(case="t/0", testcase="t", seconds=1.0)]
    with pytest.raises(UsageError, match=expected):
        take_shard(content, Shard(number=1, count=2))


def test_names_that_are_alike_lie_apart() -> None:
    """What is wrong with the expected times of one family meets several shards."""
    content = [
        Expected(case=f"{family}{i}/0", testcase=f"{family}{i}", seconds=1.0)
        for family in ("sum", "sort", "scan", "softmax")
        for i in range(10)
    ]
    numbers = numbers_of(content, 4)
    expected = 1
    for family in ("sum", "sort", "scan", "softmax"):
        assert len({n for case, n in numbers.items() if case.startswith(family)}) > expected

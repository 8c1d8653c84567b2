"""Predictions and histories for people."""

import io
from collections.abc import Sequence

import pytest
from msgspec.structs import replace
from rich.console import Console

from tileyard.store.base import CaseTimes
from tileyard.verbs.test.plan.history import summarize_history
from tileyard.verbs.test.plan.outlook import Bounds, narrow
from tileyard.verbs.test.plan.plan import predict
from tileyard.verbs.test.plan.shards import Shard
from tileyard.verbs.test.result.records import Expected, LeftOut
from tileyard.verbs.test.view.history import print_history
from tileyard.verbs.test.view.plan import LISTED, print_prediction


def shown(expected: Sequence[Expected], **fields: object) -> list[str]:
    """The lines of a prediction on two slots with these other ``fields``."""
    file = io.StringIO()
    prediction = replace(predict(expected, 2), **fields)
    print_prediction(Console(file=file, width=160), prediction)
    return file.getvalue().splitlines()


def make_expected(count: int) -> tuple[Expected, ...]:
    """Testcases of one case, ten minutes each."""
    return tuple(Expected(case=f"t{i}/a", testcase=f"t{i}", seconds=600.0) for i in range(count))


def test_bounds_prediction_and_reason_are_shown() -> None:
    """With what is usual instead."""
    lines = shown(make_expected(3))
    expected = [
        "3 cases of 3 testcases, 30 min 0 s of work on 2 slots (expected times: 3 from earlier runs)",
        "lower bound of any split, max(longest case, total/slots): 15 min 0 s",
        "lower bound of these pieces, max(longest piece, total/slots): 15 min 0 s;"
        " predicted 20 min 0 s, 33.3 % more",
        "why: pieces end unevenly: the last one ends 5 min later than if the work could be"
        " spread evenly",
    ]
    assert [line for line in lines if line in expected] == expected
    assert sum("longest first" in line for line in lines) == 3
    assert any(
        line.split() == ["whole", "testcases,", "by", "name", "3", "20", "min", "0", "s", "1.333"]
        for line in lines
    )


def test_what_is_left_out_is_listed_with_reasons() -> None:
    """A line per kind of reason; cases that another shard runs are counted only."""
    left = [LeftOut(case=f"x/{i}", reason=f"not wanted: {i}") for i in range(LISTED + 3)]
    left.append(LeftOut(case="y/0", reason="another shard than 1/2 runs it"))
    lines = shown(make_expected(1), left_out=tuple(left))
    expected = [
        f"left out: {LISTED + 4} cases",
        f"  {LISTED + 3}  not wanted ({LISTED + 3} reasons): x/0, x/1, x/2, x/3, x/4, ...",
        "--json lists all",
    ]
    assert [line for line in lines if line in expected] == expected
    assert not any("y/0" in line for line in lines)


def test_shards_are_compared_with_their_mean() -> None:
    """So that an uneven division is seen."""
    shard = Shard(number=1, count=2)
    found = narrow(make_expected(6), ["f"] * 6, Bounds(shard=shard))
    expected = "shard 1/2: 30 min 0 s of 60 min 0 s; the longest shard has no more than the mean"
    assert expected in shown(found.expected, shard=shard, shards_s=found.shards_s)


def test_an_estimate_is_no_history() -> None:
    """What nothing is known of is said to be so."""
    cases = (
        Expected(case="t/a", testcase="t", seconds=1.0, source="family"),
        Expected(case="t/b", testcase="t", seconds=1.0, source="default"),
    )
    expected = "1 estimated from their family, 1 of which nothing is known"
    assert expected in shown(cases)[0]


def test_names_of_others_cannot_drive_the_terminal() -> None:
    """Control characters in names are not passed on."""
    cases = (Expected(case="t\x1b[31m/a", testcase="t\x1b[31m", seconds=9.0),)
    left = (LeftOut(case="\x1b[31m", reason="\x1b[0m"),)
    expected = "\x1b"
    assert expected not in "\n".join(shown(cases, left_out=left))


@pytest.mark.parametrize("tail", [False, True])
def test_the_tail_is_shown_when_asked_for(*, tail: bool) -> None:
    """Quantiles always; the longest cases and what has moved with --tail."""
    times = [
        CaseTimes(
            case="sum/a",
            testcase="sum",
            before_s=(60.0, 60.0, 60.0),
            after_s=(90.0, 90.0, 90.0),
        )
    ]
    file = io.StringIO()
    print_history(Console(file=file, width=160), summarize_history(times, 3.0), tail=tail)
    text = file.getvalue()
    expected = "1 case in 6 finished runs; one run of each takes 75 s in all"
    assert expected in text
    assert "99 % 75 s" in text
    for word in ("longest cases", "longest testcases", "moved since", "1.50", "3 / 3", "100.0 %"):
        assert (word in text) is tail


def test_a_quiet_week_is_told() -> None:
    """Nothing moved is said with how many cases that rests on."""
    file = io.StringIO()
    print_history(Console(file=file, width=160), summarize_history([], 0.0), tail=True)
    expected = "of 0 cases that can be compared"
    assert expected in file.getvalue()

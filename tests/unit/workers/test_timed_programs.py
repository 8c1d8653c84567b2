"""Runs of programs that are compared: in which order, until when, and which number counts."""

import re
from pathlib import Path

import pytest

from tileyard.base.errors import UsageError
from tileyard.base.model import (
    Better,
    BuildKey,
    Case,
    CommandWork,
    GoldenKey,
    Measure,
    Step,
    TimingPolicy,
)
from tileyard.processes.steps import StepEnd
from tileyard.workers.protocol import CommandRun, Golden, RunEntry
from tileyard.workers.timed_programs import MOST_S, Member, Ran, Runs, draw_orders, is_enough

PRINTED = Measure(of="printed", pattern=r"cycles: (\S+)", unit="cycles")


def runs(measure: Measure | None = PRINTED) -> Runs:
    """Those of a program with this measure."""
    step = Step(argv=("true",))
    golden = Golden(key=GoldenKey(""), inputs=(), outputs=())
    entry = RunEntry(case="a", build=BuildKey(""), golden=golden, specs=(), scalars=(), log="log")
    return Runs(
        member=Member(
            case=Case(id="a", work=CommandWork(run=step, measure=measure)),
            entry=entry,
            command=CommandRun(name="a", run=step, folder=""),
            log=Path("log"),
        )
    )


def take(one: Runs, *lines: str, ran_ns: int = 9_000_000, cpu_ns: int = 4_000_000) -> None:
    """A run that printed these lines."""
    heard = one.hear()
    for line in lines:
        assert heard is not None
        heard.line(line)
    one.take(Ran(StepEnd(seconds=1.0, ran_ns=ran_ns, cpu_ns=cpu_ns), "flagged"), heard)


def test_the_last_number_that_was_printed_counts() -> None:
    """Its run's time is kept beside it."""
    one = runs()
    take(one, "cycles: 5", "cycles: 12", "done")
    found = one.summarize(TimingPolicy())
    assert (found.printed, found.samples_ns, one.message) == ((12.0,), (9e6,), "flagged")


@pytest.mark.parametrize("text", ["0", "-3", "nan", "inf", "1,000", ""])
def test_what_has_no_ratio_is_refused(text: str) -> None:
    """By what was printed."""
    with pytest.raises(UsageError, match=re.escape(f"printed {text!r} as its measure")):
        take(runs(Measure(of="printed", pattern="cycles: (.*)")), f"cycles: {text}")
    with pytest.raises(UsageError, match="printed no line like its measure"):
        take(runs(), "nothing")


def test_each_time_is_the_one_that_was_asked_for() -> None:
    """And nothing is read of what such a program prints."""
    for of, expected in (("cpu_time", 4e6), ("wall_time", 9e6)):
        one = runs(Measure(of=of))  # type: ignore[arg-type]  # both are
        take(one)
        assert one.hear() is None
        assert one.summarize(TimingPolicy()).samples_ns == (expected,)


def test_a_round_goes_there_and_back() -> None:
    """So that what drifts meets all members alike; another batch has other orders."""
    orders = list(draw_orders(3, 20, "a/1"))
    assert len(orders) == 20
    for order in orders:
        assert sorted(order[:3]) == [0, 1, 2]
        assert order[3:] == order[2::-1]
    assert len(set(orders)) > 1
    assert orders != list(draw_orders(3, 20, "a/2"))


@pytest.mark.parametrize(
    ("numbers", "better", "expected"),
    [
        ((10.0, 12.0, 10.05, 15.0), "lower", True),
        ((10.0, 12.0, 10.2, 15.0), "lower", False),
        ((10.0, 10.0, 12.0, 15.0), "higher", False),
        ((14.9, 10.0, 12.0, 15.0), "higher", True),
        ((10.0, 10.0, 10.1), "lower", False),
    ],
)
def test_a_best_run_counts_once_another_one_confirms_it(
    numbers: tuple[float, ...], better: Better, expected: bool
) -> None:
    """Whichever is the better one; of few runs two may agree by chance."""
    one = runs(Measure(of="printed", pattern="(.*)", unit="s", better=better))
    for number in numbers:
        take(one, str(number))
    assert one.is_confirmed is expected
    assert is_enough([one, one], 0.0) is expected


def test_numbers_that_do_not_vary_need_one_round() -> None:
    """Times and numbers that do are taken until the time is over, or one member has failed."""
    exact, noisy, timed = runs(), runs(), runs(None)
    for number in ("5", "5"):
        take(exact, f"cycles: {number}")
    for number in ("5", "6"):
        take(noisy, f"cycles: {number}")
    take(timed)
    assert is_enough([exact, exact], 0.0)
    assert not is_enough([exact, noisy], 0.0)
    assert not is_enough([timed], 0.0)
    assert is_enough([timed], MOST_S)
    timed.answered = True
    assert is_enough([timed, noisy], 0.0)

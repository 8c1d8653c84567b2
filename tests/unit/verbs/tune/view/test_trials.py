"""Recorded trials for people: what each was a trial of."""

import io
from pathlib import Path

import msgspec
from rich.console import Console

from tileyard.base.model import Measurement, Outcome, Trial
from tileyard.verbs.tune.view.trials import print_trial, print_trials


def make_trial(case: str, testcase: str = "", attempt: int = 1) -> Trial:
    """A trial of the kernel ``gemm`` that passed."""
    return Trial(
        id=f"r.{attempt}",
        run="r",
        case=case,
        attempt=attempt,
        testcase=testcase,
        batch="b",
        kernel="gemm",
        arguments={"case": "wide"},
        config={} if testcase else {"tile": 8},
        target="cpu",
        outcome=Outcome.PASSED,
    )


def test_a_suites_case_is_named_by_its_id_and_a_studys_by_its_kernel() -> None:
    """A further attempt shows its number; ids of a study's cases tell nothing that its config does not."""
    file = io.StringIO()
    found = [make_trial("rows/wide", "rows", 2), make_trial("c1")]
    print_trials(Console(file=file, width=160), found)
    expected = (
        "trial case config",
        "r.2 rows/wide, attempt 2",
        "r.1 gemm ",
        "the same in all rows: ",
    )
    lines = [" ".join(line.split()) for line in file.getvalue().splitlines()]
    assert len(lines) == len(expected)
    assert all(map(str.startswith, lines, expected))


def test_a_program_is_listed_with_the_time_that_it_ran() -> None:
    """As a kernel is with its latency."""
    file = io.StringIO()
    program = msgspec.structs.replace(make_trial("rows/wide", "rows"), kernel="", run_s=0.0125)
    print_trials(Console(file=file, width=160), [program])
    assert " 12.5 ms " in file.getvalue()


def test_what_wins_nothing_says_so() -> None:
    """The control of the finals as such, all else by its batch."""
    file = io.StringIO()
    found = [
        msgspec.structs.replace(make_trial("c1"), control=True, batch=batch)
        for batch in ("finals-2", "c0001-seed-2")
    ]
    print_trials(Console(file=file, width=160), found)
    assert "tile=8 (A/A control)" in file.getvalue()
    assert "tile=8 (c0001-seed-2)" in file.getvalue()


def test_the_time_of_the_finals_counts_and_that_of_the_screening_is_named(tmp_path: Path) -> None:
    """In the list and for one trial; a member of the finals says what it is."""
    times = [
        Measurement(median_ns=ns, low_ns=ns, high_ns=ns, confidence=0.95, samples_ns=(ns,))
        for ns in (200.0, 100.0)
    ]
    one = msgspec.structs.replace(make_trial("c1"), measurement=times[0])
    member = msgspec.structs.replace(one, id="r.2", batch="s1/finals", measurement=times[1])
    file = io.StringIO()
    console = Console(file=file, width=160)
    print_trials(console, [one, member], {one.id: times[1]})
    assert " 100 ns (finals)\n" in file.getvalue()
    assert "tile=8 (in the finals)" in file.getvalue()
    assert "200 ns" not in file.getvalue()
    print_trial(console, one, tmp_path, source=False, deciding=times[1])
    told = dict(line.strip().split("  ", 1) for line in file.getvalue().splitlines()[-3:])
    assert told["latency"].endswith("1 sample (finals)")
    assert told["in the screening"].startswith("200 ns")


def test_one_trial_is_told_with_its_case(tmp_path: Path) -> None:
    """Where it is one of a suite. One that was never built has no sources to show."""
    file = io.StringIO()
    one = make_trial("rows/wide", "rows", 2)
    print_trial(Console(file=file, width=160), one, tmp_path, source=True)
    told = dict(line.split(maxsplit=1) for line in file.getvalue().splitlines()[1:])
    assert told["case"] == "rows/wide, attempt 2"
    assert "kernel" not in told

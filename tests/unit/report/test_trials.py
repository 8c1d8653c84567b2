"""Recorded trials for people: what each was a trial of."""

import io
from pathlib import Path

from rich.console import Console

from tileyard.model import Outcome, Trial
from tileyard.report.trials import print_trial, print_trials


def make_trial(case: str, kernel: str) -> Trial:
    """A trial that passed."""
    return Trial(
        id=f"r.{case[-1]}",
        run="r",
        case=case,
        batch="b",
        kernel=kernel,
        arguments={"case": "wide"},
        config={"tile": 8} if "/" not in case else {},
        target="cpu",
        outcome=Outcome.PASSED,
    )


def test_a_suites_case_is_named_by_its_id_and_a_studys_by_its_kernel() -> None:
    """A further attempt shows its number; ids of a study's cases tell nothing that its config does not."""
    file = io.StringIO()
    found = [make_trial("rows/wide~2", "rows"), make_trial("c1", "gemm")]
    print_trials(Console(file=file, width=160), found)
    heading, *lines = [line.split()[:2] for line in file.getvalue().splitlines()]
    assert heading == ["trial", "case"]
    assert lines == [["r.2", "rows/wide~2"], ["r.1", "gemm"]]


def test_one_trial_is_told_with_its_case(tmp_path: Path) -> None:
    """Where it is one of a suite."""
    file = io.StringIO()
    print_trial(
        Console(file=file, width=160), make_trial("rows/wide~2", "rows"), tmp_path, source=False
    )
    told = dict(line.split(maxsplit=1) for line in file.getvalue().splitlines()[1:])
    assert told["case"] == "rows/wide~2"
    assert "kernel" not in told

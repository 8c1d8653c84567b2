"""Compares the outputs of a case of programs with the result of its golden step."""

from collections.abc import Sequence
from pathlib import Path

from tileyard.base.errors import OutputFileError
from tileyard.base.model import Outcome, OutputCheck
from tileyard.measure.compare import compare_file
from tileyard.workers.protocol import Judged


def compare_outputs(work: Path, golden: Path | None, checks: Sequence[OutputCheck]) -> Judged:
    """The verdict: the first wrong output decides. No ``golden``: the golden step's result in ``work``."""
    for check in checks:
        try:
            mismatch = compare_file(check, work, golden or work)
        except OutputFileError as error:
            return Judged(outcome=Outcome.MISMATCH, message=str(error))
        if mismatch is not None:
            message = mismatch.describe()
            return Judged(outcome=Outcome.MISMATCH, message=message, mismatch=mismatch)
    return Judged(outcome=Outcome.PASSED)

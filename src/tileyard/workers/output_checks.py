"""Compares what a case of programs has put out with what its golden step made."""

from collections.abc import Sequence
from pathlib import Path

from tileyard.errors import OutputFileError
from tileyard.measure.compare import compare_file
from tileyard.model import Outcome, OutputCheck
from tileyard.workers.protocol import Judged


def compare_outputs(work: Path, golden: Path | None, checks: Sequence[OutputCheck]) -> Judged:
    """The first output that is wrong decides. Without ``golden`` what it made is in ``work``."""
    for check in checks:
        try:
            mismatch = compare_file(check, work, golden or work)
        except OutputFileError as error:
            return Judged(outcome=Outcome.MISMATCH, message=str(error))
        if mismatch is not None:
            message = mismatch.describe()
            return Judged(outcome=Outcome.MISMATCH, message=message, mismatch=mismatch)
    return Judged(outcome=Outcome.PASSED)

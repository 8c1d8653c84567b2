"""Checks the outputs of kernels that ran, and compares those of programs with the result of a golden step."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from tileyard.base.errors import OutputFileError
from tileyard.base.model import CheckPolicy, Mismatch, Outcome, OutputCheck
from tileyard.ir.dtypes import name_of
from tileyard.measure.compare import (
    compare,
    compare_file,
    compare_runs,
    default_tolerance,
    describe_closest,
)
from tileyard.targets.base import Array
from tileyard.workers.protocol import Judged


class Output(NamedTuple):
    """A written parameter: its content, what was expected, and the dtype of its precision, if any."""

    name: str
    got: Array
    want: Array
    precision: str = ""


def compare_outputs(outputs: Iterable[Output], check: CheckPolicy) -> tuple[Mismatch | None, str]:
    """The first mismatch and its message; for correct outputs, the message that the check requests."""
    closest = []
    for name, got, want, precision in outputs:
        allowed = check.tolerance or (default_tolerance(precision) if precision else None)
        mismatch = compare(name, got, want, allowed)
        if mismatch is not None:
            return mismatch, mismatch.describe() + _explain_nan(mismatch)
        if check.closest:
            closest.append(describe_closest(name, got, want, allowed))
    return None, "\n".join(closest)


def find_unsteady(outputs: Iterable[Output], check: CheckPolicy) -> tuple[Mismatch | None, str]:
    """The first output that a run with other memory changed, and a line; ``want``: the run before."""
    for name, got, want, precision in outputs:
        allowed = check.tolerance or default_tolerance(precision or name_of(want.dtype))
        changed = compare_runs(name, got, want, allowed)
        if changed is not None:
            element = f"{name}[{', '.join(map(str, changed.index))}]"
            return changed, (
                f"{changed.wrong} of {changed.total} elements of {name} depend on what {name} held before"
                f" the run: they are not written, or read before they are (the first: {element} is"
                f" {changed.want}, and {changed.got} after other content)"
            )
    return None, ""


def _explain_nan(mismatch: Mismatch) -> str:
    """Explain a NaN with what the kernel's author cannot know: outputs are poisoned before it runs."""
    if mismatch.got != "nan" or mismatch.want == "nan":
        return ""
    return " (what a kernel does not write is nan)"


def compare_output_files(work: Path, golden: Path | None, checks: Sequence[OutputCheck]) -> Judged:
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

"""Comparing a file of raw elements that a program wrote with the one that it should have written."""

import math
from pathlib import Path

import numpy as np

from tileyard.errors import OutputFileError
from tileyard.ir.dtypes import find_dtype
from tileyard.measure.compare import Manner, compare
from tileyard.model import Mismatch, OutputCheck
from tileyard.targets.base import Array


def compare_file(check: OutputCheck, work: Path, golden: Path) -> Mismatch | None:
    """None where ``check.file`` in ``work`` is what ``check.golden`` in ``golden`` says it should be.

    The index of a mismatch is that of the worst element in the whole output, and its counts are those
    of the valid region. Raises OutputFileError where one of the files is not there or has not the
    size of its shape, and InvalidProgramError for a dtype that does not exist.
    """
    want = _read(golden / check.golden, check, "golden file")
    got = _read(work / check.file, check, "output")
    manner = Manner(is_elementwise=check.is_elementwise, nan=check.nan)
    return compare(check.file, got, want, check.tolerance, manner)


def _read(path: Path, check: OutputCheck, what: str) -> Array:
    """The valid region of a file. A golden file is told from an output: it is another one's fault."""
    dtype = find_dtype(check.dtype).numpy
    shape = "x".join(str(size) for size in check.shape) or "one element"
    expected = math.prod(check.shape) * dtype.itemsize
    try:
        found = path.stat().st_size
        if not path.is_file() or found != expected:
            kind = f"has {found:,} bytes" if path.is_file() else "is no file"
            raise OutputFileError(
                f"{what} {path.name} {kind}, {expected:,} were expected ({shape} {check.dtype})"
            )
        whole = np.fromfile(path, dtype=dtype).reshape(check.shape)
    except OSError as error:
        raise OutputFileError(
            f"{what} {path.name} cannot be read ({error.strerror}); "
            f"{expected:,} bytes were expected ({shape} {check.dtype})"
        ) from error
    region = tuple(slice(size) for size in check.valid_shape)
    return np.ascontiguousarray(whole[region])

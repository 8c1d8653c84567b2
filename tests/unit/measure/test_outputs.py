"""Binary outputs against golden files: sizes, valid regions, tolerances, NaN."""

import math
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from tileyard.base.errors import OutputFileError
from tileyard.base.model import Mismatch, NanPolicy, OutputCheck, Tolerance
from tileyard.measure.compare import compare_file
from tileyard.targets.base import Array


def check_arrays(folder: Path, got: Array, want: Array, check: OutputCheck) -> Mismatch | None:
    """Write both, and compare the files."""
    (folder / "golden").mkdir(exist_ok=True)
    got.tofile(folder / "out.bin")
    want.tofile(folder / "golden" / "want.bin")
    return compare_file(check, folder, folder / "golden")


def check_of(shape: tuple[int, ...], dtype: str, tolerance: Tolerance | None = None) -> OutputCheck:
    """A comparison of ``out.bin`` with ``want.bin``."""
    return OutputCheck(
        file="out.bin", golden="want.bin", dtype=dtype, shape=shape, tolerance=tolerance
    )


@pytest.mark.parametrize(
    ("excess", "is_right"), [(0.0, True), (0.2, True), (0.31, False)], ids=["same", "near", "off"]
)
def test_the_absolute_tolerance_is_meant_as_it_stands(
    tmp_path: Path, excess: float, is_right: bool
) -> None:
    """An element may be off by ``atol + rtol * |want|``, however large the others are."""
    want = np.array([1.0, 1e6], dtype=np.float64)
    check = check_of((2,), "float64", Tolerance(rtol=0.1, atol=0.2))
    found = check_arrays(tmp_path, want + np.array([excess, 0.0]), want, check)
    assert (found is None) == is_right


def test_the_worst_element_is_named(tmp_path: Path) -> None:
    """Of several wrong elements the one that is furthest off is told, with its place in the output."""
    want = np.zeros((2, 3), dtype=np.float32)
    got = want.copy()
    got[0, 1], got[1, 2] = 1.0, -4.0
    check = check_of((2, 3), "float32")
    expected = Mismatch(output="out.bin", index=(1, 2), got="-4", want="0", wrong=2, total=6)
    assert check_arrays(tmp_path, got, want, check) == expected


def test_what_lies_outside_of_the_valid_region_is_not_compared(tmp_path: Path) -> None:
    """Only the leading part of each dimension counts, and a dimension that is not named does whole."""
    want = np.zeros((4, 4), dtype=np.int32)
    got = want.copy()
    got[3, :], got[:, 3] = 9, 9
    check = OutputCheck(
        file="out.bin", golden="want.bin", dtype="int32", shape=(4, 4), valid_shape=(3, 3)
    )
    assert check_arrays(tmp_path, got, want, check) is None
    got[2, 1] = 7
    expected = Mismatch(output="out.bin", index=(2, 1), got="7", want="0", wrong=1, total=9)
    assert check_arrays(tmp_path, got, want, check) == expected


@pytest.mark.parametrize(
    ("nan", "wrong"), [("equal", {1, 3}), ("forbid", {0, 1, 3}), ("ignore", {1})]
)
def test_nan_is_treated_as_the_check_says(tmp_path: Path, nan: NanPolicy, wrong: set[int]) -> None:
    """NaN equals NaN, or is never right in an output, or what should be NaN is not looked at."""
    got = np.array([math.nan, math.nan, 1.0, 1.0], dtype=np.float32)
    want = np.array([math.nan, 1.0, 1.0, math.nan], dtype=np.float32)
    check = OutputCheck(file="out.bin", golden="want.bin", dtype="float32", shape=(4,), nan=nan)
    found = check_arrays(tmp_path, got, want, check)
    assert found is not None
    assert (found.wrong, found.index[0] in wrong) == (len(wrong), True)


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_narrow_floats_are_read(tmp_path: Path, dtype: str) -> None:
    """Types that NumPy itself does not have are compared by their values."""
    want = np.array([0.5, 1.0, 2.0], dtype=getattr(ml_dtypes, dtype))
    got = want.copy()
    got[2] = 4.0
    expected = Mismatch(output="out.bin", index=(2,), got="4", want="2", wrong=1, total=3)
    assert check_arrays(tmp_path, got, want, check_of((3,), dtype)) == expected
    assert check_arrays(tmp_path, want, want, check_of((3,), dtype)) is None


def test_sizes_that_do_not_fit_are_told_in_one_line(tmp_path: Path) -> None:
    """A file of another size, or none at all, names what was found and what was expected."""
    want = np.zeros((2, 512), dtype=np.float32)
    check = check_of((2, 512), "float32")
    with pytest.raises(OutputFileError) as wrong:
        check_arrays(tmp_path, want[:1], want, check)
    expected = "output out.bin has 2,048 bytes, 4,096 were expected (2x512 float32)"
    assert str(wrong.value) == expected
    with pytest.raises(OutputFileError, match=r"out\.bin has 8,192 bytes, 4,096 were expected"):
        check_arrays(tmp_path, np.concatenate([want, want]), want, check)
    (tmp_path / "out.bin").unlink()
    with pytest.raises(OutputFileError, match=r"output out\.bin cannot be read .*4,096 bytes"):
        compare_file(check, tmp_path, tmp_path / "golden")
    with pytest.raises(OutputFileError, match=r"golden file want\.bin cannot be read"):
        compare_file(check, tmp_path, tmp_path)


def test_integers_must_be_equal_whatever_the_tolerance(tmp_path: Path) -> None:
    """A tolerance says nothing about integers."""
    want = np.array([1, 2], dtype=np.int8)
    found = check_arrays(
        tmp_path, want + 1, want, check_of((2,), "int8", Tolerance(rtol=9, atol=9))
    )
    assert found is not None
    assert found.wrong == 2

"""Compares outputs, arrays or files of raw elements, with expected ones, within their dtype's tolerance."""

import itertools
import math
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from tileyard.base.errors import BindError, OutputFileError
from tileyard.base.model import Mismatch, NanPolicy, OutputCheck, Tolerance
from tileyard.ir.dtypes import find_dtype, limits_of, name_of
from tileyard.targets.base import Array

Doubles = NDArray[np.float64]
# Small enough that a chunk's temporaries stay in a core's cache.
CHUNK = 1 << 15
FEW = 0.01
"""The share of the nonzero elements that are left out, the largest ones."""
NOTABLE = 2.0
"""The factor by which that must change the rms; otherwise all elements count."""
LONELY = 32
"""So few nonzero elements among that many zeros do not set the allowance of the zeros."""
_FAR = 8.0
_FLUSHED = 2.4e-38
TOLERANCES = {
    "float64": Tolerance(rtol=1e-10, atol=1e-10),
    "float32": Tolerance(rtol=1e-4, atol=1e-4),
    "float16": Tolerance(rtol=5e-3, atol=5e-3),
    "tfloat32": Tolerance(rtol=5e-3, atol=5e-3),  # as many mantissa bits as float16
    "bfloat16": Tolerance(rtol=3e-2, atol=3e-2),
    "float8_e4m3fn": Tolerance(rtol=1.5e-1, atol=1e-1),
    "float8_e5m2": Tolerance(rtol=3e-1, atol=2e-1),
}
"""Default tolerances by the dtype of the kernel's output; integers and booleans must be equal. Narrow types
may be off by about ten roundings (float8: two), wide ones by reordered sums of ten thousand terms. One of
1,024 terms left out shows as 3e-2 of the output's rms, to which ``atol`` is relative.
"""
_SURE = 1 - 1e-6
_LEAST_FLOOR = 1e-30
_Places = NDArray[np.intp]


_LOWEST, _BINADES = -1100, 2200


class Floor(NamedTuple):
    """The least allowance of an element, and of one expected to be zero, without ``left_out`` huge ones."""

    usual: float
    of_zeros: float
    left_out: int = 0


def find_floor(allowed: Tolerance, want: Array, got: Array) -> Floor:
    """The floor for these expected elements, a flat array. NaN and infinities do not count."""
    if allowed.is_elementwise or allowed.atol == 0:
        return Floor(allowed.atol, allowed.atol)
    with np.errstate(all="ignore"):
        rms = _find_even_rms(want)
        if rms is not None:
            return Floor(allowed.atol * rms, allowed.atol * rms)
        binades = _Binades(want)
    whole = allowed.atol * binades.rms(_BINADES)
    kept = min(binades.find_few(), binades.find_gap(0.1 / allowed.atol))
    usual, left_out = allowed.atol * binades.rms(kept), binades.count_above(kept)
    if usual * NOTABLE > whole:
        usual, left_out = whole, 0
    of_zeros = usual
    if binades.nonzero < LONELY and binades.nonzero <= FEW * binades.finite:
        of_zeros, left_out = 0.0, binades.nonzero
    least = min(whole, _least_of(got))
    return Floor(max(usual, least), max(of_zeros, least), left_out)


def _find_even_rms(values: Array) -> float | None:
    """The root mean square if no few elements can have set it; None if a closer look is needed."""
    total, most = 0.0, 0.0
    for chunk in _doubles(values):
        total += float(np.einsum("i,i->", chunk, chunk))
        most = max(most, float(chunk.max()), -float(chunk.min()))
    rms = math.sqrt(total / values.size) if values.size and math.isfinite(total) else 0.0
    # Leaving out 1 % halves the rms only if one of them is 8.6 times the rms.
    if rms == 0.0 or not most <= _FAR * rms:
        return None
    small = sum(int(np.count_nonzero(np.abs(chunk) < rms / 4)) for chunk in _doubles(values))
    return rms if 2 * small < values.size else None


class _Binades:
    """The finite nonzero elements by power of two: position ``p`` has those below ``2 ** (p - 1100)``."""

    def __init__(self, values: Array) -> None:
        self.counts = np.zeros(_BINADES, np.int64)
        self._squares = np.zeros(_BINADES)
        self.finite = 0
        for chunk in _doubles(values):
            finite = chunk[np.isfinite(chunk)]
            self.finite += finite.size
            fractions, exponents = np.frexp(finite[finite != 0])
            places = exponents - _LOWEST
            self.counts += np.bincount(places, minlength=_BINADES)
            self._squares += np.bincount(places, fractions * fractions, minlength=_BINADES)
        self.nonzero = int(self.counts.sum())
        self._below = np.cumsum(self.counts)

    def count_above(self, kept: int) -> int:
        """The number of elements at this position or above."""
        return int(self.counts[kept:].sum())

    def rms(self, kept: int) -> float:
        """The root mean square of the elements below this position and of the zeros; 0 if there is none."""
        (used,) = np.nonzero(self.counts[:kept])
        count = self.finite - self.count_above(kept)
        if not used.size or not count:
            return 0.0
        scaled = self._squares[used] * 4.0 ** (used - used[-1]).astype(np.float64)
        return math.ldexp(math.sqrt(float(scaled.sum()) / count), int(used[-1]) + _LOWEST)

    def find_few(self) -> int:
        """The lowest position with at most so few elements at it or above."""
        above = self.nonzero - self._below
        return int(np.argmax(above <= FEW * self.nonzero)) + 1

    def find_gap(self, factor: float) -> int:
        """The lowest position with half of the elements below it, and then none within ``factor``,
        or the highest. With fewer below, the others must be farther.
        """
        (used,) = np.nonzero(self.counts)
        for low, high in itertools.pairwise(used):
            below = int(self._below[low])
            bits = max(4.0, math.log2(factor), 20.0 / below)
            if 2 * below >= self.nonzero and high - low - 1 >= bits:
                return int(low) + 1
        return _BINADES


def _least_of(got: Array) -> float:
    """The error of a value that is rounded to a subnormal, or flushed to zero as on GPUs."""
    name = name_of(got.dtype)
    return max(_FLUSHED, 2.0 * float(limits_of(name)[2])) if find_dtype(name).is_float else 0.0


def _doubles(values: Array) -> Iterator[Doubles]:
    for start in range(0, values.size, CHUNK):
        yield values[start : start + CHUNK].astype(np.float64)


def default_tolerance(dtype: str) -> Tolerance:
    """This dtype's tolerance, zero for integers and booleans. Raises InvalidProgramError for unknown
    ones.
    """
    find_dtype(dtype)
    return TOLERANCES.get(dtype, Tolerance(rtol=0.0, atol=0.0))


def compare(
    name: str,
    got: Array,
    want: Array,
    tolerance: Tolerance | None,
    nan: NanPolicy = "equal",
) -> Mismatch | None:
    """None if ``got`` is right within ``tolerance`` (None: its dtype's), else the Mismatch. Compared in
    float64; NaN equals NaN unless ``nan`` says otherwise, an infinity itself; the rms is of finite elements
    without a few huge ones. Without floats, elements must be equal. Raises BindError if shapes differ.
    """
    if got.shape != want.shape:
        raise BindError(f"{name} has shape {got.shape}, its reference {want.shape}")
    allowed = tolerance or default_tolerance(name_of(got.dtype))
    found = _find_wrong(got, want, allowed, nan)
    if found.wrong <= allowed.share * got.size:
        return None
    return _describe(name, got, want, found, found.worst)


def compare_runs(name: str, again: Array, before: Array, allowed: Tolerance) -> Mismatch | None:
    """None if a run made what the one ``before`` did, within twice the usual error; else the Mismatch."""
    bits = f"u{before.itemsize}"
    if np.array_equal(again.reshape(-1).view(bits), before.reshape(-1).view(bits)):
        return None
    found = _find_wrong(again, before, _double(allowed), "equal")
    if found.wrong <= allowed.share * again.size:
        return None
    return _describe(name, again, before, found, found.first)


def find_changed(again: Array, before: Array, allowed: Tolerance) -> NDArray[np.bool_]:
    """Which elements, flat, differ from those of the run ``before`` by more than twice the usual error."""
    if np.array_equal(again, before):
        return np.zeros(again.size, np.bool_)
    expected = Expected(before, name_of(before.dtype), _double(allowed))
    return expected.find_wrong(np.arange(again.size), again.reshape(-1))


class Expected:
    """An expected output: says which elements of a kernel's, or of a part of it, ``compare`` takes as
    wrong. ``dtype`` is the kernel's. That ``share`` of the elements may be wrong.
    """

    def __init__(self, want: Array, dtype: str, tolerance: Tolerance | None) -> None:
        self._want = want.reshape(-1)
        self._allowed = tolerance or default_tolerance(dtype)
        self._is_close = _is_float(want) or find_dtype(dtype).is_float
        own = np.zeros(0, find_dtype(dtype).numpy)
        self._floor = find_floor(self._allowed, self._want, own) if self._is_close else None
        self.share = self._allowed.share

    def find_wrong(self, places: NDArray[np.int64], got: Array) -> NDArray[np.bool_]:
        """Which of the elements at these flat positions are wrong with the values ``got``."""
        want = self._want[places]
        if self._floor is None:
            differs: NDArray[np.bool_] = got != want
            return differs
        wrong = np.zeros(got.size, np.bool_)
        with np.errstate(all="ignore"):
            g, w = got.astype(np.float64), want.astype(np.float64)
            wrong[_find_beyond(g, w, _allow(self._allowed.rtol, self._floor, w), "equal")] = True
        return wrong

    def values(self, places: NDArray[np.int64]) -> Doubles:
        """The expected values of the elements at these flat positions."""
        return self._want[places].astype(np.float64)


def _double(allowed: Tolerance) -> Tolerance:
    return msgspec.structs.replace(allowed, rtol=2 * allowed.rtol, atol=2 * allowed.atol)


class _Found(NamedTuple):
    """The positions of the worst and the first wrong element, and the numbers of wrong and of huge ones."""

    worst: int = 0
    first: int = 0
    wrong: int = 0
    left_out: int = 0


def _find_wrong(got: Array, want: Array, allowed: Tolerance, nan: NanPolicy) -> _Found:
    is_close = _is_float(got) or _is_float(want)
    got, want = got.reshape(-1), want.reshape(-1)
    return _compare_closely(got, want, allowed, nan) if is_close else _compare_exactly(got, want)


def _describe(name: str, got: Array, want: Array, found: _Found, place: int) -> Mismatch:
    index = tuple(int(i) for i in np.unravel_index(place, got.shape))
    return Mismatch(
        output=name,
        index=index,
        got=_text(got[index]),
        want=_text(want[index]),
        wrong=found.wrong,
        total=got.size,
        left_out=found.left_out,
    )


def compare_file(check: OutputCheck, work: Path, golden: Path) -> Mismatch | None:
    """None if ``check.file`` in ``work`` matches ``check.golden`` in ``golden``, else the Mismatch:
    its index in the whole output, its counts in the valid region. Raises OutputFileError for a
    missing file or wrong size, and InvalidProgramError for an unknown dtype.
    """
    want = _read(golden / check.golden, check, "golden file")
    got = _read(work / check.file, check, "output")
    tolerance = check.tolerance or default_tolerance(name_of(got.dtype))
    if check.is_elementwise:
        tolerance = msgspec.structs.replace(tolerance, is_elementwise=True)
    return compare(check.file, got, want, tolerance, check.nan)


def describe_closest(name: str, got: Array, want: Array, tolerance: Tolerance | None) -> str:
    """One line about an output that ``compare`` accepts: the element that uses most of its allowance."""
    place, used = 0, 0.0
    if _is_float(got) or _is_float(want):
        allowed = tolerance or default_tolerance(name_of(got.dtype))
        place, used = _find_closest(got.reshape(-1), want.reshape(-1), allowed)
    if not used:
        return f"{name}: each of {got.size} elements is what was expected"
    index = tuple(int(i) for i in np.unravel_index(place, got.shape))
    where = ", ".join(str(i) for i in index)
    return (
        f"{name}: of {got.size} elements the worst, [{where}], is {_text(got[index])}, expected"
        f" {_text(want[index])}: {100 * used:.2g} % of what is allowed"
    )


def _find_closest(got: Array, want: Array, allowed: Tolerance) -> tuple[int, float]:
    """The index of the element that uses the largest share of its allowance, and the share."""
    place, used = 0, 0.0
    with np.errstate(all="ignore"):
        floor = find_floor(allowed, want, got)
        for start in range(0, got.size, CHUNK):
            g = got[start : start + CHUNK].astype(np.float64)
            w = want[start : start + CHUNK].astype(np.float64)
            shares = np.abs(g - w) / _allow(allowed.rtol, floor, w)
            shares[~np.isfinite(shares)] = (
                0.0  # equal infinities, NaN, and zeros that allow nothing
            )
            at = int(np.argmax(shares))
            if shares[at] > used:
                place, used = start + at, float(shares[at])
    return place, used


def _compare_exactly(got: Array, want: Array) -> _Found:
    unequal = np.flatnonzero(got != want)
    if not unequal.size:
        return _Found()
    distance = np.abs(got[unequal].astype(np.float64) - want[unequal].astype(np.float64))
    return _Found(int(unequal[np.argmax(distance)]), int(unequal[0]), unequal.size)


def _compare_closely(got: Array, want: Array, allowed: Tolerance, nan: NanPolicy) -> _Found:
    worst, first, most, wrong = 0, -1, -math.inf, 0
    with np.errstate(all="ignore"):
        is_narrow = all(_is_float(array) and array.itemsize <= 4 for array in (got, want))
        floor: Floor | None = None  # computed only if something differs
        for start in range(0, got.size, CHUNK):
            g_own, w_own = got[start : start + CHUNK], want[start : start + CHUNK]
            if np.array_equal(g_own, w_own):
                continue
            if floor is None:
                floor = find_floor(allowed, want, got)
            if is_narrow and _is_surely_fine(g_own, w_own, allowed.rtol, floor.of_zeros):
                continue
            g, w = g_own.astype(np.float64), w_own.astype(np.float64)
            allowance = _allow(allowed.rtol, floor, w)
            at = _find_beyond(g, w, allowance, nan)
            if not at.size:
                continue
            beyond = np.abs(g[at] - w[at]) - allowance[at]
            beyond[~np.isfinite(beyond)] = np.inf
            furthest = int(np.argmax(beyond))
            wrong += at.size
            first = start + int(at[0]) if first < 0 else first
            if beyond[furthest] > most:
                worst, most = start + int(at[furthest]), float(beyond[furthest])
    return _Found(worst, first, wrong, 0 if floor is None else floor.left_out)


def _allow(rtol: float, floor: Floor, want: Doubles) -> Doubles:
    """The largest error that is allowed, by element."""
    if floor.usual == floor.of_zeros:
        return rtol * np.abs(want) + floor.usual
    return rtol * np.abs(want) + np.where(want == 0, floor.of_zeros, floor.usual)


def _is_surely_fine(got: Array, want: Array, rtol: float, floor: float) -> bool:
    """Whether all elements are within their allowance by float32; False if undecided. Each of its
    four roundings has an error of at most 6e-8, unless a value is subnormal.
    """
    if floor < _LEAST_FLOOR:
        return False
    g, w = got.astype(np.float32, copy=False), want.astype(np.float32, copy=False)
    difference = np.abs(g - w)
    allowance = np.abs(w) * np.float32(rtol * _SURE) + np.float32(floor * _SURE)
    return bool(((difference <= allowance) & (difference < np.inf)).all())


def _find_beyond(got: Doubles, want: Doubles, allowance: Doubles, nan: NanPolicy) -> _Places:
    """The places of elements that are beyond their allowance, and not the same infinities, or NaN."""
    difference = np.abs(got - want)
    # False for NaN; an infinite difference is never within a (then infinite) allowance.
    fine = (difference <= allowance) & (difference < np.inf)
    if fine.all():
        return np.zeros(0, np.intp)
    at = np.flatnonzero(~fine & ~np.isnan(want) if nan == "ignore" else ~fine)
    same = got[at] == want[at]
    if nan == "equal":
        same |= np.isnan(got[at]) & np.isnan(want[at])
    left: _Places = at[~same]
    return left


def _is_float(array: Array) -> bool:
    return find_dtype(name_of(array.dtype)).is_float


def _text(value: np.generic) -> str:
    number = value.item()
    return f"{float(number):.6g}" if _is_float(np.asarray(value)) else str(number)


def _read(path: Path, check: OutputCheck, what: str) -> Array:
    """The valid region of a file. Errors tell golden files from outputs: the fault differs."""
    dtype = find_dtype(check.dtype).numpy
    shape = "x".join(str(size) for size in check.shape) or "one element"
    expected = math.prod(check.shape) * dtype.itemsize
    try:
        found = path.stat().st_size
        if not path.is_file() or found != expected:
            kind = f"has {found:,} bytes" if path.is_file() else "is not a file"
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

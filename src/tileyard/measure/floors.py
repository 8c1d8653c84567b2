"""Finds the part of an allowance that follows the usual size of the expected elements. A sum loses
accuracy in proportion to its terms: small elements may be off by a share of the rms, of which a few
huge elements are no part.
"""

import itertools
import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tileyard.base.model import Tolerance
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

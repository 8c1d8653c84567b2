"""Whether the reference is the kernel's value times a number, or plus one: everywhere, or in each row or
column. What a number is in terms of the kernel's sizes.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tileyard.look.history import Flat
from tileyard.look.quick_run import Expects

MOST_COMPARED = 1 << 22
"""Elements that are compared."""
LEAST = 4
"""Elements that a row or column has at least."""
_NEAR = 1e-3
"""Relative difference up to which a round or named number is tried in the place of a fitted one."""

Doubles = NDArray[np.float64]
Kind = Literal["mul", "add"]


@dataclass(frozen=True, kw_only=True)
class Compared:
    """The elements of an output at flat ``places`` that a kernel has written: the values ``got``, and what is
    ``expected``.
    """

    shape: tuple[int, ...]
    places: Flat
    got: Doubles
    expected: Expects

    def describe(self, sizes: Mapping[str, float]) -> str:
        """How the reference follows from the kernel's values, as a sentence; empty if it does not in one of
        these ways. It is true of all elements that are compared, within their tolerance.
        """
        if not np.isfinite(self.got).all() or not np.isfinite(self._want).all():
            return ""
        for word, labels in self._groupings():
            kinds: tuple[Kind, ...] = ("mul", "add")
            for kind in kinds:
                numbers = self._fit(kind, labels)
                if numbers is None:
                    continue
                if not word:
                    numbers = self._round(kind, numbers, sizes)
                if self._is_right(kind, numbers[labels]):
                    return self._sentence(kind, word, numbers, sizes)
        return ""

    @property
    def _want(self) -> Doubles:
        return self.expected.values(self.places)

    def _groupings(self) -> Iterator[tuple[str, Flat]]:
        """All elements together, by row, and by column: the word for a group, and the group of each."""
        yield "", np.zeros(self.places.size, np.int64)
        if len(self.shape) > 1:
            yield "row", self.places // self.shape[-1]
            yield "column", self.places % self.shape[-1]

    def _fit(self, kind: Kind, labels: Flat) -> Doubles | None:
        """The number of each group that fits best; None if the groups have too few elements, or only equal
        ones, whose reference would follow in any way.
        """
        got, want = self.got, self._want
        count = np.bincount(labels).astype(np.float64)
        if not count.size or (count[count > 0] < LEAST).any():
            return None
        count = np.maximum(count, 1)
        squares = np.bincount(labels, got * got)
        mean = np.bincount(labels, got) / count
        if not (squares / count - mean * mean > 1e-9 * squares / count).any():
            return None
        if kind == "add":
            fitted: Doubles = np.bincount(labels, want - got) / count
            return fitted
        products = np.bincount(labels, got * want)
        return np.divide(products, squares, out=np.ones_like(products), where=squares > 0)

    def _round(self, kind: Kind, numbers: Doubles, sizes: Mapping[str, float]) -> Doubles:
        """A round or named number if all is right with that, too."""
        (fitted,) = numbers.tolist()
        near = [fitted] if fitted == 0 else [float(round(fitted)), 1 / max(round(1 / fitted), 1)]
        near += list(name_numbers(sizes).values())
        near += [float(f"{fitted:.3g}")]
        for one in near:
            if abs(one - fitted) <= _NEAR * abs(fitted):
                rounded = np.array([one])
                if self._is_right(kind, np.broadcast_to(rounded, self.got.shape)):
                    return rounded
        return numbers

    def _is_right(self, kind: Kind, numbers: Doubles) -> bool:
        changed = self.got * numbers if kind == "mul" else self.got + numbers
        return not self.expected.find_wrong(self.places, changed).any()

    def _sentence(self, kind: Kind, word: str, numbers: Doubles, sizes: Mapping[str, float]) -> str:
        checked = f"checked in {_share(self.places.size, math.prod(self.shape))}"
        if not word:
            (number,) = numbers.tolist()
            what, subject = _amount(kind, number)
            names = list_names(subject, sizes)
            more = f"; {subject:.6g} is {' and '.join(names)}" if names else ""
            return f"the reference is {what} everywhere ({checked}){more}"
        used = np.unique(next(labels for one, labels in self._groupings() if one == word))
        low, high = (int(used[at(numbers[used])]) for at in (np.argmin, np.argmax))
        ends = " and ".join(
            f"{numbers[at]:.6g} in {word} {self._name(word, at)}" for at in (low, high)
        )
        how = "times a number" if kind == "mul" else "plus a number"
        return (
            f"in each {word} the reference is the kernel's value {how}, between {ends} ({checked})"
        )

    def _name(self, word: str, at: int) -> str:
        if word == "column" or len(self.shape) == 2:
            return str(at)
        return ", ".join(str(int(one)) for one in np.unravel_index(at, self.shape[:-1]))


def name_numbers(sizes: Mapping[str, float]) -> dict[str, float]:
    """Numbers that kernels often need, in terms of their sizes."""
    found = {"log2(e)": math.log2(math.e), "ln(2)": math.log(2)}
    for name, size in sizes.items():
        if size > 1:
            root = math.sqrt(size)
            found |= {name: size, f"1/{name}": 1 / size, f"sqrt({name})": root}
            found |= {
                f"1/sqrt({name})": 1 / root,
                f"log2(e)/sqrt({name})": math.log2(math.e) / root,
            }
    return found


def list_names(number: float, sizes: Mapping[str, float], within: float = 1e-6) -> list[str]:
    """What a number is, in all ways that are known."""
    return [
        name
        for name, value in name_numbers(sizes).items()
        if abs(value - number) <= within * abs(number)
    ]


def _amount(kind: Kind, number: float) -> tuple[str, float]:
    """The amount in words, and the number in it."""
    if kind == "add":
        return f"{abs(number):.6g} {'more' if number > 0 else 'less'} than the kernel's value", abs(
            number
        )
    parts = round(1 / number) if number else 0
    if parts > 1 and math.isclose(1 / number, parts, rel_tol=1e-9):
        return f"1/{parts} of the kernel's value", float(parts)
    return f"{number:.6g} times the kernel's value", number


def _share(count: int, total: int) -> str:
    return f"all {total:,} elements" if count == total else f"{count:,} of {total:,} elements"

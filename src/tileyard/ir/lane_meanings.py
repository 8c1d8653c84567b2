"""The meanings of ``meanings.py`` for arrays, one element per lane; bits may differ only in a NaN."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tileyard.base.errors import KernelFault
from tileyard.ir.dtypes import find_dtype
from tileyard.ir.meanings import MEANINGS
from tileyard.ir.nodes import AtomicKind

Array = NDArray[Any]
Meaning = Callable[..., Any]
"""Maps arguments of one dtype, arrays of one length or NumPy scalars, to an array."""


def meaning_of_lanes(name: str) -> Meaning:
    """The scalar operation ``name`` for many lanes. It raises KernelFault if a lane has a fault."""
    return _OF_ARRAYS.get(name) or _each(MEANINGS[name])


def _each(meaning: Callable[..., Any]) -> Meaning:
    """``meaning`` applied to one element after another."""

    def every(*args: Array) -> Array:
        columns = np.broadcast_arrays(*args)
        found = [meaning(*row) for row in zip(*columns, strict=True)]
        return np.array(found, np.asarray(found[0]).dtype)

    return every


def _wide(function: Callable[..., Any]) -> Meaning:
    """``function`` on float64 numbers, its result rounded to the arguments' dtype."""

    def meaning(*args: Array) -> Array:
        wide: Array = function(*[arg.astype(np.float64) for arg in args])
        return wide.astype(args[0].dtype)

    return meaning


def _divided(function: Callable[[Array, Array], Any]) -> Meaning:
    def meaning(left: Array, right: Array) -> Any:  # noqa: ANN401 (an array)
        if not np.all(right):
            raise KernelFault("an integer is divided by zero")
        return function(left, right)

    return meaning


def _shifted(function: Callable[[Array, Array], Any]) -> Meaning:
    def meaning(left: Array, count: Array) -> Any:  # noqa: ANN401 (an array)
        bits = left.dtype.itemsize * 8
        if not np.all((count >= 0) & (count < bits)):
            raise KernelFault(f"an integer of {bits} bits is shifted by another count")
        return function(left, count)

    return meaning


def _truncdiv(left: Array, right: Array) -> Any:  # noqa: ANN401 (an array)
    down = left // right
    is_cut = (down * right != left) & ((left < 0) != (right < 0))
    return down + is_cut.astype(down.dtype)


_OF_ARRAYS: dict[str, Meaning] = {
    **{
        name: MEANINGS[name]
        for name in (
            *("add", "sub", "mul", "div", "neg", "abs", "eq", "ne", "lt", "le", "gt", "ge", "not"),
            *("bitand", "bitor", "bitxor", "bitnot", "nextafter", "isnan", "isinf", "isfinite"),
        )
    },
    "min": lambda a, b: np.where((b < a) | (a != a), b, a),
    "max": lambda a, b: np.where((b > a) | (a != a), b, a),
    "floordiv": _divided(np.floor_divide),
    "floormod": _divided(np.remainder),
    "truncdiv": _divided(_truncdiv),
    "truncmod": _divided(lambda a, b: a - b * _truncdiv(a, b)),
    "shl": _shifted(np.left_shift),
    "shr": _shifted(np.right_shift),
    "exp": _wide(np.exp),
    "exp2": _wide(np.exp2),
    "log": _wide(np.log),
    "log2": _wide(np.log2),
    "log10": _wide(np.log10),
    "log1p": _wide(np.log1p),
    "sqrt": _wide(np.sqrt),
    "rsqrt": _wide(lambda x: 1.0 / np.sqrt(x)),
    "tanh": _wide(np.tanh),
    "sin": _wide(np.sin),
    "cos": _wide(np.cos),
    "tan": _wide(np.tan),
    "sigmoid": _wide(lambda x: 1.0 / (1.0 + np.exp(-x))),
    "fmod": _wide(np.fmod),
    "copysign": _wide(np.copysign),
    "floor": _wide(np.floor),
    "ceil": _wide(np.ceil),
    "round": _wide(np.rint),
    "trunc": _wide(np.trunc),
}
"""Functions that NumPy computes for arrays as for scalars, which it doesn't for powers."""


def reinterpret(values: Array, dtype: str) -> Array:
    """The bits of each element read as a number of ``dtype``."""
    return np.ascontiguousarray(values).view(find_dtype(dtype).numpy)


# ---- atomic updates -------------------------------------------------------------------------------

UPDATES: dict[AtomicKind, str] = {
    "add": "add",
    "max": "max",
    "min": "min",
    "and": "bitand",
    "or": "bitor",
    "xor": "bitxor",
}
"""The scalar operations of atomic updates; an exchange has none."""

_STEPS: dict[AtomicKind, "np.ufunc"] = {
    "add": np.add,
    "max": np.maximum,
    "min": np.minimum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}


def commutes(kind: AtomicKind, dtype: "np.dtype[Any]") -> bool:
    """Whether updates of one kind have the same result in every order."""
    return kind in _STEPS and dtype.kind in "iub"


def update(content: Array, elements: Array, values: Array, kind: AtomicKind) -> None:
    """Update ``content[elements]``, one lane after another if several have the same element."""
    if commutes(kind, content.dtype) or (kind == "add" and content.dtype.kind == "f"):
        _STEPS[kind].at(content, elements, values)  # one after the other, each step rounded
        return
    for turn in _turns(elements):
        at = elements[turn]
        new = values[turn]
        if kind != "exchange":
            new = meaning_of_lanes(UPDATES[kind])(content[at], new)
        content[at] = new


def _turns(elements: Array) -> list[Array]:
    """Positions in ``elements``, in groups without repetitions: first occurrences, second ones, and so on."""
    if np.all(elements[1:] > elements[:-1]):
        return [np.arange(len(elements))]
    order = np.argsort(elements, kind="stable")
    is_new = np.ones(len(order), np.bool_)
    is_new[1:] = elements[order[1:]] != elements[order[:-1]]
    starts = np.flatnonzero(is_new)
    rank = np.arange(len(order)) - np.repeat(starts, np.diff(np.append(starts, len(order))))
    if not rank.any():
        return [np.arange(len(order))]
    by_rank = np.argsort(rank, kind="stable")
    return np.split(order[by_rank], np.flatnonzero(np.diff(rank[by_rank])) + 1)

"""The tile operations in NumPy, and how memory handles reads and writes out of range."""

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, assert_never

import numpy as np
from numpy.typing import NDArray

from tileyard.base.errors import KernelFault, OutOfBoundsFault
from tileyard.ir.clocks import Places
from tileyard.ir.dtypes import TENSOR_FLOAT, find_dtype, is_float, name_of, sparse_group
from tileyard.ir.meanings import MEANINGS, convert, convert_one, cut_tensor_float
from tileyard.ir.nodes import (
    AnyTileOperation,
    Atomic,
    Copy,
    Fill,
    Gemm,
    Product,
    Reduce,
    ReduceKind,
    SparseGemm,
)
from tileyard.ir.specs import Evaluator

Array = NDArray[np.generic]


@dataclass(frozen=True, kw_only=True, slots=True)
class Box:
    """A region whose bounds are numbers."""

    buffer: str
    starts: tuple[int, ...]
    extents: tuple[int, ...]


class Memory:
    """A run's arrays. Out of range global ones read 0 and ignore writes; tile-local ones are KernelFaults."""

    def __init__(
        self, parameters: dict[str, Array], tensor_floats: frozenset[str] = frozenset()
    ) -> None:
        self.parameters = parameters
        self.tensor_floats = tensor_floats
        self.tiles: dict[str, Array] = {}

    def array(self, buffer: str) -> Array:
        """The content of a buffer."""
        return self.parameters[buffer] if buffer in self.parameters else self.tiles[buffer]

    def dtype(self, buffer: str) -> str:
        """The scalar type of a buffer."""
        is_cut = buffer in self.tensor_floats
        return TENSOR_FLOAT if is_cut else name_of(self.array(buffer).dtype)

    def load(self, buffer: str, indices: tuple[int, ...]) -> np.generic:
        """One element."""
        array = self.array(buffer)
        if not self.is_inside(buffer, indices):
            return array.dtype.type(0)
        element: np.generic = array[indices]
        if buffer in self.tensor_floats:
            (element,) = cut_tensor_float(np.asarray([element]))
        return element

    def store(self, buffer: str, indices: tuple[int, ...], value: np.generic) -> None:
        """Write one element of the buffer, which must exist."""
        self.array(buffer)[indices] = value

    def is_inside(self, buffer: str, indices: tuple[int, ...]) -> bool:
        """Whether a buffer has an element at ``indices``. Raises KernelFault if a tile does not."""
        shape = self.array(buffer).shape
        inside = all(0 <= i < size for i, size in zip(indices, shape, strict=True))
        if not inside and buffer in self.tiles:
            raise OutOfBoundsFault(f"{buffer}{list(indices)} is outside its shape {shape}")
        return inside

    def overlap(self, box: Box) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
        """The part of ``box`` inside its array: slices of the array, and of the box."""
        outer, inner = [], []
        shape = self.array(box.buffer).shape
        for start, extent, size in zip(box.starts, box.extents, shape, strict=True):
            low, high = max(start, 0), min(start + extent, size)
            high = max(high, low)
            outer.append(slice(low, high))
            inner.append(slice(low - start, high - start))
            if box.buffer in self.tiles and (high - low) != extent:
                bounds = ", ".join(
                    f"{s} : +{e}" for s, e in zip(box.starts, box.extents, strict=True)
                )
                raise OutOfBoundsFault(f"{box.buffer}[{bounds}] is outside its shape {shape}")
        return tuple(outer), tuple(inner)

    def read(self, box: Box) -> Array:
        """The content of a box, 0 outside a global array."""
        array = self.array(box.buffer)
        outer, inner = self.overlap(box)
        content = np.zeros(box.extents, array.dtype)
        content[inner] = array[outer]
        return cut_tensor_float(content) if box.buffer in self.tensor_floats else content

    def write(self, box: Box, content: Array) -> None:
        """Write the content of a box; what is outside a global array is dropped."""
        outer, inner = self.overlap(box)
        self.array(box.buffer)[outer] = content[inner]


_ATOMICS = {
    "add": "add",
    "max": "max",
    "min": "min",
    "and": "bitand",
    "or": "bitor",
    "xor": "bitxor",
}
"""The scalar operations of atomic updates; an exchange has none."""


class Watched(Memory):
    """Memory that passes each access to ``noted``, with the elements, before it takes place."""

    def __init__(self, memory: Memory, noted: Callable[[str, Places, Array | None], None]) -> None:
        super().__init__(memory.parameters, memory.tensor_floats)
        self.tiles = memory.tiles
        self.noted = noted

    def load(self, buffer: str, indices: tuple[int, ...]) -> np.generic:
        """One element."""
        if self.is_inside(buffer, indices):
            self.noted(buffer, indices, None)
        return super().load(buffer, indices)

    def store(self, buffer: str, indices: tuple[int, ...], value: np.generic) -> None:
        """Write one element."""
        self.noted(buffer, indices, np.asarray(value))
        super().store(buffer, indices, value)

    def read(self, box: Box) -> Array:
        """The content of a box."""
        self.noted(box.buffer, self.overlap(box)[0], None)
        return super().read(box)

    def write(self, box: Box, content: Array) -> None:
        """Give a box its content."""
        outer, inner = self.overlap(box)
        self.noted(box.buffer, outer, content[inner])
        super().write(box, content)


def atomic(memory: Memory, stmt: Atomic, evaluator: Evaluator) -> np.generic:
    """Update one element, nothing outside an array; returns its old content. An exchange that binds
    no variable only writes, and returns the new content.
    """
    indices = evaluator.indices(stmt.indices)
    if not memory.is_inside(stmt.buffer, indices):
        return memory.load(stmt.buffer, indices)
    value: np.generic = evaluator.value(stmt.value)
    if stmt.kind == "exchange" and stmt.var is None:
        memory.store(stmt.buffer, indices, value)
        return value
    old = memory.load(stmt.buffer, indices)
    if stmt.kind != "exchange":
        value = MEANINGS[_ATOMICS[stmt.kind]](old, value)
    memory.store(stmt.buffer, indices, value)
    return old


def perform(
    memory: Memory, stmt: AnyTileOperation, boxes: tuple[Box, ...], numbers: tuple[np.generic, ...]
) -> None:
    """Carry out an operation. ``boxes`` are its regions, ``numbers`` the values of its expressions, both in
    order.
    """
    match stmt:
        case Copy():
            _copy(memory, *boxes)
        case Fill():
            _fill(memory, boxes[0], numbers[0])
        case Gemm() | SparseGemm():
            _multiply(memory, stmt, boxes)
        case Reduce():
            _reduce(memory, stmt, *boxes)
        case _:
            assert_never(stmt)


def _copy(memory: Memory, src: Box, dst: Box) -> None:
    """``dst = cast(src)``, ignoring extents of 1."""
    content = memory.read(src)
    if _without_ones(src.extents) != _without_ones(dst.extents):
        raise KernelFault(f"a box of {src.extents} is copied to one of {dst.extents}")
    memory.write(dst, convert(content, memory.dtype(dst.buffer)).reshape(dst.extents))


def _without_ones(extents: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(extent for extent in extents if extent != 1)


def _fill(memory: Memory, dst: Box, value: np.generic) -> None:
    """Set every element to ``value``, converted."""
    dtype = memory.array(dst.buffer).dtype
    converted = convert_one(value, memory.dtype(dst.buffer))
    memory.write(dst, np.full(dst.extents, converted, dtype))


_ADDED = ("float16", "float32", "float64")
"""Types to which NumPy itself rounds a sum."""


def _multiply(memory: Memory, stmt: Product, boxes: tuple[Box, ...]) -> None:
    """``c += a @ b``: one rounding to ``c``'s dtype per step along the part of k in ``a``, in order."""
    *rest, into = boxes
    a, *middle, b = (memory.read(box).reshape(box.extents[-2:]) for box in rest)
    dtype = name_of(memory.array(into.buffer).dtype)
    wide = "float64" if is_float(dtype) else dtype  # products are exact in it
    empty = np.zeros(into.extents, memory.array(into.buffer).dtype)
    total = (empty if stmt.clear else memory.read(into)).reshape(into.extents[-2:])
    left = convert(a.T if stmt.transpose_a else a, wide)
    right = convert(b.T if stmt.transpose_b else b, wide)
    rows: Array = np.arange(left.shape[1])
    if isinstance(stmt, SparseGemm):
        e = middle[0].T if stmt.transpose_e else middle[0]
        rows = _find_rows(e, sparse_group(memory.dtype(boxes[0].buffer)))
    for k in range(left.shape[1]):
        product = left[:, k, None] * right[rows[..., k]]
        if dtype in _ADDED:  # the same, without intermediate arrays
            np.add(total, product, out=total, dtype=wide, casting="same_kind")
        else:
            total = convert(convert(total, wide) + product, dtype)
    memory.write(into, total.reshape(into.extents))


def _find_rows(e: Array, group: int) -> Array:
    """The row of ``b`` by which each element of a sparse ``a`` is multiplied."""
    chunks = e.astype(np.int64)[..., None] >> np.arange(0, 8 * e.itemsize, 4)
    chunks = chunks.reshape(len(e), -1, 1)
    places = chunks >> 1 & 1 if group == 2 else chunks >> np.array([0, 2]) & 3
    first = group * np.arange(chunks.shape[1])
    return (places + first[:, None]).reshape(len(e), -1)


def _reduce(memory: Memory, stmt: Reduce, src: Box, dst: Box) -> None:
    """Fold along the axis in order, in the destination's dtype."""
    dtype = name_of(memory.array(dst.buffer).dtype)
    content = np.moveaxis(convert(memory.read(src), dtype), stmt.axis, 0)
    if stmt.clear:
        total = np.full(content.shape[1:], identity(stmt.kind, dtype), content.dtype)
    else:
        total = memory.read(dst).reshape(content.shape[1:])
    for part in content:
        total = _STEPS[stmt.kind](total, part).astype(content.dtype)
    memory.write(dst, total.reshape(dst.extents))


def identity(kind: ReduceKind, dtype: str) -> Any:  # noqa: ANN401 (a NumPy scalar)
    """The start value of a reduction of ``kind``."""
    numpy = find_dtype(dtype).numpy
    match kind:
        case "sum" | "abssum" | "absmax" | "bitor" | "bitxor":
            return numpy.type(0)
        case "bitand":
            return np.bitwise_not(numpy.type(0))
        case "max" | "min":
            sign = -1 if kind == "max" else 1
            if is_float(dtype):
                return numpy.type(sign * np.inf)
            least, greatest = find_dtype(dtype).range
            return numpy.type(least if kind == "max" else greatest)


_STEPS: dict[ReduceKind, Callable[[Any, Any], Any]] = {
    "sum": operator.add,
    "abssum": lambda total, part: total + np.abs(part),
    "max": lambda total, part: np.where((part > total) | (total != total), part, total),
    "min": lambda total, part: np.where((part < total) | (total != total), part, total),
    "absmax": lambda total, part: _STEPS["max"](total, np.abs(part)),
    "bitand": operator.and_,
    "bitor": operator.or_,
    "bitxor": operator.xor,
}
"""One step of each reduction; of a number and NaN, ``max`` and ``min`` return the number."""

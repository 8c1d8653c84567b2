"""Swizzles of shared tiles: they permute the 16-byte chunks of each row, to spread a column over all banks.
Eight rows of ``span`` bytes are in sequence, and row ``i`` has chunk ``c`` at ``c ^ i``, or at ``c ^ (i >>
1)`` and ``c ^ (i >> 2)`` for spans of 64 and 32 bytes, as TMA's and wgmma's descriptors support. Source:
CUDA Driver API, "CUtensorMapSwizzle"; PTX ISA, "Asynchronous Warpgroup Level Matrix Shared Memory Layout".
"""

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tileyard.ir.dtypes import find_dtype
from tileyard.ir.lane_values import Frame, LaneEvaluator
from tileyard.ir.nodes import Buffer, Const, Expr, Layout, Load, Op, Var
from tileyard.ir.syntax import ZERO, layout_indices

Integers = NDArray[np.int64]

SPANS = (128, 64, 32)
"""Bytes of a row within which its chunks are permuted."""

CHUNK = 16
"""Bytes that stay together."""

GROUP = 8
"""Rows after which a swizzle repeats."""

_LARGEST = 4
"""Largest size of an element in bytes."""

MATRIX = 2
"""Dimensions of a matrix: the last ones of a tile, after its versions."""


def constant_shape(buffer: Buffer) -> tuple[int, ...]:
    """The shape of a tile, empty if it is not constant."""
    found = tuple(int(part.value) for part in buffer.shape if isinstance(part, Const))
    return found if len(found) == len(buffer.shape) else ()


def possible_spans(buffer: Buffer) -> tuple[int, ...]:
    """The spans into which a tile's rows can be divided, largest first. None for elements of 8
    bytes, for whose products TileLang has its own layouts.
    """
    shape, size = constant_shape(buffer), find_dtype(buffer.dtype).bits // 8
    if len(shape) < MATRIX or shape[-2] % GROUP or size > _LARGEST:
        return ()
    row = shape[-1] * size
    return tuple(span for span in SPANS if row % span == 0)


def make_swizzle(buffer: Buffer, span: int) -> Layout:
    """A tile's layout with a swizzle of ``possible_spans``, by TileLang's own expressions, which it
    compares.
    """
    shape = constant_shape(buffer)
    *leading, row, column = (Var(name, "int32") for name in layout_indices(len(shape))[:-1])
    rows, columns = shape[-2:]
    size = find_dtype(buffer.dtype).bits // 8
    block, chunk = span // size, CHUNK // size
    place = _times(_modulo(row, rows, GROUP), block)
    width, bit = block // 2, GROUP // 2
    while width >= chunk:
        bits = (_Bit(column, columns, width), _Bit(row, rows, bit))
        left, right = sorted(bits, key=_Bit.order, reverse=True)  # in the order of TVM's simplifier
        swapped = _op("floormod", _op("add", left.expr(), right.expr()), 2)
        place = _op("add", place, _times(swapped, width))
        width, bit = width // 2, bit // 2
    place = _op("add", place, _modulo(column, columns, chunk))
    across = ZERO if columns == block else _quotient(column, block)
    down = ZERO if rows == GROUP else _quotient(row, GROUP)
    return Layout(place=(*leading, across, down, place))


class _Bit(NamedTuple):
    """The bit ``weight`` of an index below ``extent``."""

    at: Expr
    extent: int
    weight: int

    def expr(self) -> Expr:
        """Its value, without operations that change nothing."""
        return _quotient(_modulo(self.at, self.extent, 2 * self.weight), self.weight)

    def order(self) -> tuple[int, bool]:
        """The order of two bits in a sum: it begins with the larger one."""
        return self.weight, self.extent <= 2 * self.weight


def _op(name: str, left: Expr, right: Expr | int) -> Expr:
    other = Const(right, "int32") if isinstance(right, int) else right
    return Op(name, (left, other), "int32")


def _times(expr: Expr, factor: int) -> Expr:
    return expr if factor == 1 else _op("mul", expr, factor)


def _quotient(expr: Expr, by: int) -> Expr:
    return expr if by == 1 else _op("floordiv", expr, by)


def _modulo(expr: Expr, extent: int, by: int) -> Expr:
    """``expr``, which is below ``extent``, modulo ``by``."""
    return expr if extent <= by else _op("floormod", expr, by)


# ---- addresses ------------------------------------------------------------------------------------


def swizzled_addresses(buffer: Buffer, span: int, at: Sequence[Integers]) -> Integers:
    """The addresses in bytes of elements at ``at``, with a swizzle of ``span`` bytes, 0 for rows. Indices
    outside begin again at the other end: of variables that are not known only differences count.
    """
    shape, size = constant_shape(buffer), find_dtype(buffer.dtype).bits // 8
    at = [index % extent for index, extent in zip(at, shape, strict=True)]
    if not span:
        return np.asarray(np.ravel_multi_index(tuple(at), shape), np.int64) * size
    *leading, row, column = at
    rows, columns = shape[-2:]
    across, byte = np.divmod(column * size, span)
    swapped = byte ^ (row % GROUP * span // SPANS[0] * CHUNK)
    tile = np.ravel_multi_index(tuple(leading), shape[:-2]) if leading else 0
    return np.asarray(
        tile * rows * columns * size + (across * rows + row) * span + swapped, np.int64
    )


def laid_out_addresses(buffer: Buffer, layout: Layout) -> Integers:
    """The addresses of all elements in row-major order, in the smallest box of a layout's coordinates."""
    shape = constant_shape(buffer)
    corners = np.indices(shape, np.int32).reshape(len(shape), -1)
    frame = Frame(
        np.arange(corners.shape[1]), dict(zip(layout_indices(len(shape)), corners, strict=False))
    )
    evaluator = LaneEvaluator(_load_nothing, {})
    values = [evaluator.value(part, frame) for part in layout.place]
    places = [np.broadcast_to(one, corners.shape[1:]).astype(np.int64) for one in values]
    extents = [int(part.max()) + 1 for part in places]
    size = find_dtype(buffer.dtype).bits // 8
    return np.asarray(np.ravel_multi_index(places, extents), np.int64) * size


@cache
def is_known_swizzle(buffer: Buffer) -> bool:
    """Whether a tile has its elements in rows, or in a swizzle that a TMA descriptor supports."""
    if buffer.layout is None:
        return True
    found, at = laid_out_addresses(buffer, buffer.layout), _all_indices(buffer)
    spans = (0, *possible_spans(buffer))
    return any(np.array_equal(found, swizzled_addresses(buffer, span, at)) for span in spans)


@cache
def count_together(buffer: Buffer) -> int:
    """Bytes of a row that a tile's layout keeps together and aligned, at each multiple: at most 16."""
    size = find_dtype(buffer.dtype).bits // 8
    if buffer.layout is None or size >= CHUNK:
        return CHUNK
    row = constant_shape(buffer)[-1]
    found = laid_out_addresses(buffer, buffer.layout).reshape(-1, row)
    count = CHUNK // size
    while count > 1:
        parts = found[:, : row - row % count].reshape(-1, count)
        wanted = parts[:, :1] + np.arange(count) * size
        if np.array_equal(parts, wanted) and not np.any(parts[:, 0] % (count * size)):
            break
        count //= 2
    return count * size


def _all_indices(buffer: Buffer) -> list[Integers]:
    shape = constant_shape(buffer)
    return list(np.indices(shape, np.int64).reshape(len(shape), -1))


def _load_nothing(_: Load, __: Frame) -> int:
    raise AssertionError("a layout reads no buffer")

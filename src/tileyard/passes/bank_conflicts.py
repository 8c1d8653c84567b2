"""Finds the elements of shared tiles that a warp's threads touch at once, and counts those in one bank.

There are 32 banks of 4 bytes; different words of one are served one after another. A warp is served 128
bytes at a time: 16 bytes each for 8 threads, 8 for 16, up to 4 for 32. Source: CUDA C++ Programming Guide,
"Shared Memory" of compute capabilities 5.x and later.

A copy by rows takes up to 16 bytes per thread, a product 8 rows of 16 bytes (``ldmatrix``, and core matrices
of wgmma), a parallel loop its iterations in order, as many per thread as are adjacent. Fragments of products
are held two elements per thread, four threads per row. Accesses of other loops, and positions that depend on
data, are not counted.
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tileyard.base.errors import KernelFault
from tileyard.ir.dtypes import find_dtype
from tileyard.ir.lane_conflicts import Frame, LaneEvaluator
from tileyard.ir.nodes import (
    Atomic,
    Buffer,
    Const,
    Copy,
    Expr,
    For,
    Layout,
    Load,
    Op,
    Product,
    Program,
    Region,
    Stmt,
    Store,
    Var,
    While,
)
from tileyard.ir.syntax import ZERO, layout_indices
from tileyard.ir.walk import bodies, expressions, regions, walk, walk_expr
from tileyard.passes.storage import Storage

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


WARP, BANKS, WORD = 32, 32, 4


@dataclass(frozen=True, kw_only=True)
class Access:
    """A warp's simultaneous access to a tile in statement ``number``: ``width`` bytes from each of the
    indices ``at``. ``how`` says it in words, as in "read by a product"; ``depth`` counts loops around it.
    """

    number: int
    buffer: str
    how: str
    at: tuple[Integers, ...]
    width: int
    depth: int


def count_ways(addresses: Integers, width: int) -> int:
    """The most words of one bank that are served at once; 1 without conflicts. ``addresses`` are in bytes."""
    lanes = WARP * WORD // max(width, WORD)
    begins = (addresses // WORD).tolist()
    most = 1
    for first in range(0, len(begins), lanes):
        parts = range(max(width // WORD, 1))
        words = {begin + part for begin in begins[first : first + lanes] for part in parts}
        most = max(most, *Counter(word % BANKS for word in words).values())
    return most


def count_in_layout(buffer: Buffer, access: Access) -> int:
    """The ways of an access to a tile with a layout. What this does not keep together is taken one part after
    another, and the worst part counts.
    """
    if buffer.layout is None:
        raise ValueError(f"{buffer.name} has no layout")
    shape, size = constant_shape(buffer), find_dtype(buffer.dtype).bits // 8
    places = laid_out_addresses(buffer, buffer.layout).reshape(shape)
    width = min(access.width, count_together(buffer))
    *outer, column = (at % extent for at, extent in zip(access.at, shape, strict=True))
    return max(
        count_ways(places[(*outer, (column + first) % shape[-1])], width)
        for first in range(0, access.width // size, width // size)
    )


def find_accesses(storage: Storage) -> tuple[Access, ...]:
    """The accesses to tiles in shared memory, in the order of the Program."""
    finder = _Finder(storage)
    finder.visit(storage.program.body, 0)
    return tuple(finder.found)


class _Finder:
    def __init__(self, storage: Storage) -> None:
        self._buffers = storage.buffers
        self._of_products = _fragments_of_products(storage.program, self._buffers)
        self._number = -1
        self.found: list[Access] = []

    def visit(self, body: tuple[Stmt, ...], depth: int) -> None:
        """Note the accesses of statements. Nests of parallel loops are handled as a whole."""
        for stmt in body:
            self._number += 1
            match stmt:
                case Copy():
                    self._copy(stmt, depth)
                case _ if isinstance(stmt, Product):
                    self._product(stmt, depth)
                case For(kind="parallel"):
                    self._nest(stmt, depth)
                    continue
                case _:
                    pass
            for inner in bodies(stmt):
                self.visit(inner, depth + isinstance(stmt, For | While))

    def _add(self, buffer: str, how: str, at: tuple[Integers, ...], width: int, depth: int) -> None:
        self.found.append(
            Access(number=self._number, buffer=buffer, how=how, at=at, width=width, depth=depth)
        )

    def _is_shared(self, name: str) -> bool:
        return self._buffers[name].scope == "shared"

    def _copy(self, copy: Copy, depth: int) -> None:
        for region, other, word in ((copy.src, copy.dst, "read"), (copy.dst, copy.src, "written")):
            extents = _constants(region.extents)
            if not self._is_shared(region.buffer) or not extents:
                continue
            size = self._size(region.buffer)
            is_matrix = other.buffer in self._of_products and len(extents) >= MATRIX
            if is_matrix and extents[-2] % GROUP == 0 and extents[-1] % GROUP == 0:
                lane = np.arange(WARP)
                at = _in_matrix(len(extents), lane // 4, lane % 4 * 2)
                self._add(
                    region.buffer, f"{word} as a product has it in registers", at, 2 * size, depth
                )
                continue
            count = math.gcd(extents[-1], CHUNK // size)
            lanes = np.arange(min(WARP, math.prod(extents) // count))
            rows = np.unravel_index(lanes * count, extents)
            at = tuple(np.asarray(index, np.int64) for index in rows)
            self._add(region.buffer, f"{word} by a copy", at, count * size, depth)

    def _product(self, product: Product, depth: int) -> None:
        for region in (product.a, product.b):
            rank = len(region.extents)
            if self._is_shared(region.buffer) and rank >= MATRIX:
                at = _in_matrix(rank, np.arange(GROUP), np.zeros(GROUP, np.int64))
                self._add(region.buffer, "read by a product", at, CHUNK, depth)

    def _nest(self, loop: For, depth: int) -> None:
        """Note the accesses of a parallel loop's iterations, which a block's threads take in order."""
        first, loops = self._number, [loop]
        while len(loops[-1].body) == 1 and isinstance(inner := loops[-1].body[0], For):
            if inner.kind != "parallel":
                break
            loops.append(inner)
        extents = _constants(tuple(one.extent for one in loops))
        accesses = [
            (number, *access)
            for number, stmt in enumerate(walk((loop,)), first)
            for access in _elements(stmt)
        ]
        self._number += sum(1 for _ in walk(loop.body))
        if not extents:
            return
        names = [one.var.name for one in loops]
        count = self._count_in_row([(name, at) for _, name, at, _ in accesses], names[-1], extents)
        lanes = np.arange(min(WARP, math.prod(extents) // count)) * count
        values = dict(zip(names, np.unravel_index(lanes, extents), strict=True))
        for number, name, indices, word in accesses:
            at = _evaluate(indices, values, len(lanes)) if self._is_shared(name) else None
            if at is not None:
                width = count * self._size(name)
                self.found.append(
                    Access(
                        number=number,
                        buffer=name,
                        how=f"{word} by a parallel loop",
                        at=at,
                        width=width,
                        depth=depth,
                    )
                )

    def _count_in_row(
        self,
        accesses: list[tuple[str, tuple[Expr, ...]]],
        innermost: str,
        extents: tuple[int, ...],
    ) -> int:
        """The iterations that a thread takes at once: all their elements adjacent, at most 16 bytes."""
        moved = [(n, at) for n, at in accesses if self._buffers[n].scope in ("shared", "global")]
        size = max((self._size(name) for name, _ in moved), default=CHUNK)
        count = math.gcd(extents[-1], CHUNK // size)
        for _, indices in moved:
            at = _evaluate(indices, {innermost: np.arange(count)}, count)
            steps = [np.diff(index) for index in at] if at is not None else [np.full(count - 1, 2)]
            is_row = all((step == 0).all() for step in steps[:-1]) and (steps[-1] == 1).all()
            if not is_row and any(step.any() for step in steps):
                return 1
        return count

    def _size(self, name: str) -> int:
        return find_dtype(self._buffers[name].dtype).bits // 8


def _fragments_of_products(program: Program, buffers: dict[str, Buffer]) -> set[str]:
    """The fragments that are a matrix of a product, or are copied by element from or to such a fragment."""

    def is_fragment(name: str) -> bool:
        return buffers[name].scope == "fragment"

    links: list[tuple[str, str]] = []
    found: set[str] = set()
    for stmt in walk(program.body):
        match stmt:
            case _ if isinstance(stmt, Product):
                found |= {one.buffer for one in regions(stmt) if is_fragment(one.buffer)}
            case Copy(src=Region(buffer=src), dst=Region(buffer=dst)):
                links.append((src, dst))
            case Store(buffer=dst, indices=indices):
                loads = (part for part in walk_expr(stmt.value) if isinstance(part, Load))
                links += [(load.buffer, dst) for load in loads if load.indices == indices]
            case _:
                pass
    links = [pair for pair in links if all(map(is_fragment, pair))]
    is_new = True
    while is_new:
        more = {name for pair in links if found & {*pair} for name in pair}
        is_new = not more <= found
        found |= more
    return found


def _elements(stmt: Stmt) -> Iterator[tuple[str, tuple[Expr, ...], str]]:
    for expr in expressions(stmt):
        for part in walk_expr(expr):
            if isinstance(part, Load):
                yield part.buffer, part.indices, "read"
    if isinstance(stmt, Store | Atomic):
        yield stmt.buffer, stmt.indices, "written" if isinstance(stmt, Store) else "updated"


def _constants(exprs: tuple[Expr, ...]) -> tuple[int, ...]:
    """The values of ``exprs``, empty if one of them is not constant or is 0."""
    found = tuple(int(expr.value) for expr in exprs if isinstance(expr, Const) and expr.value)
    return found if len(found) == len(exprs) else ()


def _in_matrix(rank: int, rows: Integers, columns: Integers) -> tuple[Integers, ...]:
    return (*(np.zeros_like(rows) for _ in range(rank - MATRIX)), rows, columns)


def _evaluate(
    indices: tuple[Expr, ...], values: dict[str, Integers], count: int
) -> tuple[Integers, ...] | None:
    """Indices for ``count`` values of variables, with 0 for other variables; None if they depend on data."""
    known: dict[str, object] = {}
    for index in indices:
        for part in walk_expr(index):
            if isinstance(part, Load):
                return None
            if isinstance(part, Var):
                numpy = find_dtype(part.dtype).numpy
                known[part.name] = (
                    values[part.name].astype(numpy) if part.name in values else numpy.type(0)
                )

    def load(_: Load, __: Frame) -> int:
        raise AssertionError("no index depends on data here")

    evaluator, frame = LaneEvaluator(load, {}), Frame(np.arange(count), known)
    try:
        found = [evaluator.value(index, frame) for index in indices]
    except KernelFault:
        return None
    return tuple(np.broadcast_to(one, (count,)).astype(np.int64) for one in found)

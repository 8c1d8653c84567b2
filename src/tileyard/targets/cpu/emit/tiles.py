"""Lays out tile-local buffers in the memory of a thread, or in that of all threads: in rows, or as
the micro-kernel reads them if only whole copies and fills write them and only gemms read them.
"""

import functools
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from tileyard.base.errors import UnsupportedError
from tileyard.ir.nodes import Buffer, Const, Expr, Fill, For, Load, Op, Region, Stmt
from tileyard.ir.walk import bodies, buffer_effects, read_regions, walk, walk_expr, written_region
from tileyard.targets.cpu.emit.scalars import C_BYTES, SCALARS
from tileyard.targets.cpu.emit.units import WORD, Packing, Unit
from tileyard.targets.cpu.machine import Machine

LINE = 64
"""Bytes of a cache line."""
Split = tuple[tuple[int, int], ...]
"""Panels of rows: ``(height, count)`` pairs, the taller ones first."""
ZERO = Const(0, "int32")
_ACCUMULATORS = 16
"""Most accumulators of a micro-kernel: with more, one call's end overlaps less with the next one's start."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Shape:
    """The register block of a micro-kernel: ``rows`` x ``vectors`` accumulators of ``lanes``. A step reads
    one element of each row and column; with a ``unit``, a word of them.
    """

    scalar: str
    lanes: int
    vectors: int
    rows: int
    unit: Unit | None = None

    @property
    def columns(self) -> int:
        """Number of elements of ``c`` in one row of the block."""
        return self.lanes * self.vectors

    @property
    def vector(self) -> str:
        """The C type of one accumulator."""
        return f"ty_{self.scalar}x{self.lanes}"

    @property
    def fold(self) -> int:
        """Elements along k in one step."""
        return self.unit.fold if self.unit else 1

    @property
    def operand(self) -> str:
        """The C type of what one step reads of a row or column."""
        return WORD if self.unit else self.scalar

    @property
    def words(self) -> str:
        """The C type of a vector of the right operand."""
        return f"ty_{self.operand}x{self.lanes}"

    @property
    def chunk(self) -> int:
        """Steps of a row of ``a``: half a cache line; with whole ones a step's rows share an L1 bank."""
        return LINE // 2 // C_BYTES[self.scalar]


def register_shape(machine: Machine, scalar: str, columns: int, unit: Unit | None = None) -> Shape:
    """The block that keeps the multipliers busy, for tiles with this many columns. Accumulators are chains
    of dependent additions, so at least eight are needed; two registers are left for ``b`` and ``a``.
    """
    lanes = machine.vector_bytes // C_BYTES[scalar]
    vectors = 1 if columns <= lanes else 2
    rows = min(machine.registers - vectors - 2, _ACCUMULATORS) // vectors
    return Shape(scalar=scalar, lanes=lanes, vectors=vectors, rows=rows, unit=unit)


def split_rows(rows: int, most: int) -> Split:
    """``rows`` in as few panels as possible, their heights at most ``most`` and 1 apart."""
    panels = -(-rows // most)
    height, taller = divmod(rows, panels)
    if not taller:
        return ((height, panels),)
    return ((height + 1, taller), (height, panels - taller))


@dataclass(frozen=True, kw_only=True, slots=True)
class Rows:
    """Row-major; ``stride`` elements from one row of the last two dimensions to the next."""

    stride: int


@dataclass(frozen=True, kw_only=True, slots=True)
class RowPanels:
    """The left operand of a gemm: panels of rows, each with the chunks of its rows in turn."""

    split: Split
    chunk: int
    packing: Packing | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ColumnPanels:
    """The right operand of a gemm: panels of ``columns``, each with one row after another. If
    ``transposed``, the buffer is (n, k): its rows are the panels' columns. Packed rows are rows of words.
    """

    columns: int
    transposed: bool
    packing: Packing | None = None

    @property
    def fold(self) -> int:
        """Number of rows that are one row of words."""
        return self.packing.fold if self.packing else 1

    def distance(self, depth: int, scalar: str) -> int:
        """Elements from one panel to the next, of ``depth`` rows, with elements of a C type."""
        steps = -(-depth // self.fold)
        return panel_elements(steps, self.columns, C_BYTES[scalar] * self.fold) * self.fold


Layout = Rows | RowPanels | ColumnPanels


@dataclass(frozen=True, kw_only=True, slots=True)
class Tile:
    """A tile-local buffer. ``scalar`` is the C type of its elements; ``offset`` is in bytes. If it
    ``is_shared``, it is in the memory of all threads, with ``slots`` contents; if it
    ``is_variable``, a small C array. If it ``is_narrow``, its rows hold narrow floats in their own type.
    ``view_of`` names the tile whose memory it shares.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    layout: Layout
    offset: int = 0
    slots: int = 1
    is_shared: bool = False
    is_variable: bool = False
    is_narrow: bool = False
    view_of: str = ""

    @property
    def is_memory(self) -> bool:
        """Whether narrow floats are in their own type, as in arrays."""
        return self.is_narrow or self.packing is not None

    @property
    def scalar(self) -> str:
        """The C type of an element."""
        return SCALARS[self.dtype].memory if self.is_memory else SCALARS[self.dtype].tile

    @property
    def packing(self) -> Packing | None:
        """How elements are packed for a unit."""
        return None if isinstance(self.layout, Rows) else self.layout.packing

    @property
    def matrix(self) -> tuple[int, int]:
        """The last two dimensions; a vector is one row."""
        return (self.shape[-2] if len(self.shape) > 1 else 1), (self.shape or (1,))[-1]

    @property
    def matrices(self) -> int:
        """Number of matrices in the leading dimensions."""
        return math.prod(self.shape[:-2])

    @property
    def matrix_elements(self) -> int:
        """Number of elements from one matrix to the next, padding included, and its flag's line, if any."""
        return self.content_elements + (LINE // C_BYTES[self.scalar] if self.is_flagged else 0)

    @property
    def is_flagged(self) -> bool:
        """Whether a flag follows each matrix: whether it holds what its unit does not compute."""
        return self.packing is not None and self.packing.is_checked

    @property
    def content_elements(self) -> int:
        """Number of elements of one matrix, padding included."""
        rows, columns = self.matrix
        match self.layout:
            case Rows(stride=stride):
                return rows * stride
            case RowPanels(chunk=chunk):
                return rows * (-(-columns // chunk) * chunk)
            case ColumnPanels(columns=width, transposed=transposed) as layout:
                n, k = (rows, columns) if transposed else (columns, rows)
                return -(-n // width) * layout.distance(k, self.scalar)

    @property
    def bytes(self) -> int:
        """Size in bytes."""
        return self.slots * self.matrices * self.matrix_elements * C_BYTES[self.scalar]


def panel_elements(depth: int, columns: int, size: int) -> int:
    """Elements from one panel to the next: a line more if a multiple of 1 KiB, as cache sets compete."""
    content = depth * columns
    return content + (LINE // size if content * size % 1024 == 0 else 0)


def row_stride(columns: int, rank: int, scalar: str, lanes: int) -> int:
    """Number of elements from one row to the next, a multiple of ``lanes``, never a multiple of 1 KiB."""
    if rank < 2:
        return columns
    stride = -(-columns // lanes) * lanes
    size = C_BYTES[scalar]
    return stride + (LINE // size if stride * size % 1024 == 0 else 0)


def constant_shape(buffer: Buffer) -> tuple[int, ...]:
    """The shape of a tile-local buffer. Raises UnsupportedError if it is not constant."""
    shape = tuple(int(extent.value) for extent in buffer.shape if isinstance(extent, Const))
    if len(shape) < len(buffer.shape):
        raise UnsupportedError(
            f"{buffer.name} has a size that is not constant",
            operation="allocation",
            buffer=buffer.name,
        )
    return shape


# ---- statements -----------------------------------------------------------------------------------


def numbered(body: Iterable[Stmt], number: int) -> Iterator[tuple[int, Stmt]]:
    """The statements of a body with their pre-order numbers, the first being ``number``."""
    for stmt in body:
        yield number, stmt
        number += count_statements(stmt)


def count_statements(*body: Stmt) -> int:
    """Number of these statements, nested ones included."""
    return sum(1 for _ in walk(body))


def find_bodies(body: tuple[Stmt, ...]) -> Iterator[tuple[Stmt, ...]]:
    """``body`` and all bodies inside it, except those of parallel loops."""
    yield body
    for stmt in body:
        if not is_parallel(stmt):
            for inner in bodies(stmt):
                yield from find_bodies(inner)


def is_parallel(stmt: Stmt) -> bool:
    """Whether a statement is a parallel loop, which is written as a whole."""
    return isinstance(stmt, For) and stmt.kind == "parallel"


def touched(*body: Stmt) -> frozenset[str]:
    """The buffers that statements read or write, nested ones included."""
    effects = buffer_effects(body)
    return effects.read | effects.written


def tiles_of(stmt: Stmt) -> set[str]:
    """The buffers of which ``stmt`` uses regions, not elements."""
    regions = [*read_regions(stmt), written_region(stmt)]
    return {region.buffer for region in regions if region is not None}


def is_zero_fill(stmt: Fill) -> bool:
    """Whether a fill writes zeros, which are not negative."""
    return isinstance(stmt.value, Const) and str(float(stmt.value.value)) == "0.0"


# ---- regions --------------------------------------------------------------------------------------


def is_whole(region: Region, shape: tuple[int, ...]) -> bool:
    """Whether ``region`` is all of the last two dimensions of a tile, at one index of the others."""
    inner = max(len(shape) - 2, 0)
    pairs = zip(region.extents[inner:], shape[inner:], strict=True)
    return (
        all(find_number(extent) == 1 for extent in region.extents[:inner])
        and all(map(is_zero, region.starts[inner:]))
        and all(find_number(extent) == size for extent, size in pairs)
    )


def covers(region: Region, shape: tuple[Expr, ...]) -> bool:
    """Whether ``region`` is all of a buffer of this shape."""
    pairs = zip(region.extents, shape, strict=True)
    return all(map(is_zero, region.starts)) and all(is_same(*pair) for pair in pairs)


def extent_of(region: Region, dimension: int) -> int:
    """A constant extent of a region. Raises UnsupportedError if it is not constant."""
    extent = find_number(region.extents[dimension])
    if extent is None:
        raise UnsupportedError(
            f"a region of {region.buffer} has an extent that is not constant",
            operation="region",
            buffer=region.buffer,
        )
    return extent


def pair_dimensions(src: Region, dst: Region, axis: int | None = None) -> dict[int, int] | None:
    """For dimensions of ``dst`` longer than 1 those of ``src``, but ``axis``, as long; None for no match."""
    left, right = [i for i in long_dimensions(src) if i != axis], long_dimensions(dst)
    pairs = dict(zip(right, left, strict=False))
    is_match = len(left) == len(right) and all(
        is_same(src.extents[i], dst.extents[j]) for j, i in pairs.items()
    )
    return pairs if is_match else None


def find_extents(region: Region) -> list[int] | None:
    """The extents of a region; None if one is not constant."""
    found = [find_number(extent) for extent in region.extents]
    numbers = [extent for extent in found if extent is not None]
    return numbers if len(numbers) == len(found) else None


def long_dimensions(region: Region) -> list[int]:
    """The dimensions of a region that are not of extent 1."""
    return [i for i, extent in enumerate(region.extents) if find_number(extent) != 1]


def moved(region: Region, by: Mapping[int, Expr]) -> tuple[Expr, ...]:
    """The indices in its buffer of the element at offsets ``by``, by dimension, from a region's first."""
    return tuple(add(start, by[d]) if d in by else start for d, start in enumerate(region.starts))


def ends(region: Region) -> tuple[tuple[Expr, ...], tuple[Expr, ...]]:
    """The first and the last index of a region in each dimension."""
    lasts = (
        add(start, add(extent, Const(-1, extent.dtype)))
        for start, extent in zip(region.starts, region.extents, strict=True)
    )
    return region.starts, tuple(lasts)


# ---- indices --------------------------------------------------------------------------------------


def find_number(expr: Expr) -> int | None:
    """The integer value of an expression; None if it is not a constant."""
    return int(expr.value) if isinstance(expr, Const) else None


def is_zero(expr: Expr) -> bool:
    """Whether an index is certainly 0."""
    return find_number(expr) == 0


def is_same(a: Expr, b: Expr) -> bool:
    """Whether two extents are the same, whatever their integer types."""
    if isinstance(a, Const) and isinstance(b, Const):
        return a.value == b.value
    return a == b


def constant(number: int) -> Const:
    """An integer as an expression."""
    return Const(number, "int32")


def add(*terms: Expr) -> Expr:
    """The sum of indices, without zeros."""
    return functools.reduce(_add, terms)


def _add(left: Expr, right: Expr) -> Expr:
    if is_zero(left) or is_zero(right):
        return right if is_zero(left) else left
    if isinstance(left, Const) and isinstance(right, Const):
        return Const(int(left.value) + int(right.value), left.dtype)
    return Op("add", (left, right), "int64" if "int64" in (left.dtype, right.dtype) else "int32")


def times(var: Expr, factor: int) -> Expr:
    """A multiple of a counter."""
    if factor == 1 or var == ZERO:
        return var
    return Op("mul", (var, constant(factor)), var.dtype)


def reads(*exprs: Expr) -> Iterator[Load]:
    """All elements that expressions read, those in indices included."""
    return (part for expr in exprs for part in walk_expr(expr) if isinstance(part, Load))

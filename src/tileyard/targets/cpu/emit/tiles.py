"""Lays out tile-local buffers in the memory of a thread, or in that of all threads: in rows, or as
the micro-kernel reads them if only whole copies and fills write them and only gemms read them.
"""

import math
from dataclasses import dataclass

from tileyard.base.errors import UnsupportedError
from tileyard.ir.nodes import Buffer, Const
from tileyard.targets.cpu.emit.scalars import C_BYTES, SCALARS
from tileyard.targets.cpu.machine import Machine

LINE = 64
"""Bytes of a cache line."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Shape:
    """The register block of a micro-kernel: ``rows`` x ``vectors`` accumulators of ``lanes``."""

    scalar: str
    lanes: int
    vectors: int
    rows: int

    @property
    def columns(self) -> int:
        """Number of elements of ``c`` in one row of the block."""
        return self.lanes * self.vectors

    @property
    def vector(self) -> str:
        """The C type of one accumulator."""
        return f"ty_{self.scalar}x{self.lanes}"

    @property
    def chunk(self) -> int:
        """Elements of a row of ``a``: half a cache line; with whole ones a step's rows share an L1 bank."""
        return LINE // 2 // C_BYTES[self.scalar]


def register_shape(machine: Machine, scalar: str, columns: int) -> Shape:
    """The block that keeps the multipliers busy, for tiles with this many columns. Accumulators are chains
    of dependent additions, so at least ten are needed; two registers are left for ``b`` and ``a``.
    """
    lanes = machine.vector_bytes // C_BYTES[scalar]
    vectors = 1 if columns <= lanes else 2
    rows = min((machine.registers - vectors - 2) // vectors, 12)
    return Shape(scalar=scalar, lanes=lanes, vectors=vectors, rows=rows)


Split = tuple[tuple[int, int], ...]
"""Panels of rows: ``(height, count)`` pairs, the taller ones first."""


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


@dataclass(frozen=True, kw_only=True, slots=True)
class ColumnPanels:
    """The right operand of a gemm: panels of ``columns``, each with one row after another. If
    ``transposed``, the buffer is (n, k): its rows are the panels' columns.
    """

    columns: int
    transposed: bool


Layout = Rows | RowPanels | ColumnPanels


@dataclass(frozen=True, kw_only=True, slots=True)
class Tile:
    """A tile-local buffer. ``scalar`` is the C type of its elements; ``offset`` is in bytes. If it
    ``is_shared``, it is in the memory of all threads, with ``slots`` contents; if it
    ``is_variable``, a small C array. ``view_of`` names the tile whose memory it shares.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    layout: Layout
    offset: int = 0
    slots: int = 1
    is_shared: bool = False
    is_variable: bool = False
    view_of: str = ""

    @property
    def scalar(self) -> str:
        """The C type of an element."""
        return SCALARS[self.dtype].tile

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
        """Number of elements from one matrix to the next, padding included."""
        rows, columns = self.matrix
        match self.layout:
            case Rows(stride=stride):
                return rows * stride
            case RowPanels(chunk=chunk):
                return rows * (-(-columns // chunk) * chunk)
            case ColumnPanels(columns=width, transposed=transposed):
                n, k = (rows, columns) if transposed else (columns, rows)
                return -(-n // width) * panel_elements(k, width, C_BYTES[self.scalar])

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

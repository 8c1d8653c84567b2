"""Counts what a launch of a Program does, in amounts that mean the same for all kernels.

A block in the middle of the grid counts for all, and an iteration in the middle of a loop for all of it.
"""

from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from math import prod
from typing import Final

from tileyard.base.errors import KernelFault
from tileyard.ir.dtypes import find_dtype, is_float
from tileyard.ir.nodes import (
    Atomic,
    Cast,
    Copy,
    Expr,
    For,
    If,
    Let,
    Load,
    Op,
    Product,
    Program,
    Reduce,
    Region,
    Stmt,
    Store,
    TileOperation,
)
from tileyard.ir.specs import evaluate_size, tensors
from tileyard.ir.walk import bodies, expressions, regions, walk_expr

LINE_BYTES: Final = 64
"""Bytes that memory is read and written by."""
CHEAP: Final = frozenset(
    {"add", "sub", "mul", "neg", "abs", "min", "max", "select", "and", "or", "not"}
    | {"eq", "ne", "lt", "le", "gt", "ge", "bitand", "bitor", "bitxor", "shl", "shr"}
)
"""Operations that a processor does at once on many elements; others are ``functions``."""


def count_work(program: Program, numbers: Mapping[str, int]) -> dict[str, float]:
    """The work of a launch with these dimensions and scalars, by name, without amounts of 0. What depends on
    data counts once.

    Of each block are ``threads``, ``stages`` of its deepest pipeline, and ``shared_tile_bytes`` and
    ``private_tile_bytes`` of its tiles, of all ``blocks`` together the others. ``products`` of matrices do
    ``product_flops``, on elements of their ``left`` and ``right`` operands and ``sums``. Loops over elements
    do ``operations``, ``functions`` and ``conversions`` of dtypes. ``steps`` are tile operations, loops over
    elements and iterations of other loops; ``rows`` are the innermost loops over elements. ``read_bytes`` and
    ``written_bytes`` are of global memory, in ``lines`` of 64 bytes, also where a cache has them.
    ``accesses`` are to elements of tiles; ``strided`` ones, anywhere, skip elements.
    """
    return _Counter(program, numbers).count()


class _Counter:
    def __init__(self, program: Program, numbers: Mapping[str, int]) -> None:
        self._program = program
        self._values = dict(numbers)
        self._sums: defaultdict[str, float] = defaultdict(float)
        self._lane: For | None = None
        buffers = (*(tensor.buffer for tensor in tensors(program)), *program.buffers)
        self._buffers = {buffer.name: buffer for buffer in buffers}
        self._shapes = {
            name: tuple(self._number(extent) for extent in buffer.shape)
            for name, buffer in self._buffers.items()
        }
        self._strides = {name: _list_strides(shape) for name, shape in self._shapes.items()}

    def count(self) -> dict[str, float]:
        program, sums = self._program, self._sums
        sums["threads"] = prod(program.threads)
        for buffer in program.buffers:
            if not buffer.view_of and buffer.scope in ("shared", "fragment", "local"):
                kind = "shared_tile_bytes" if buffer.scope == "shared" else "private_tile_bytes"
                sums[kind] += self._bytes_of(buffer.name) * prod(self._shapes[buffer.name])
        extents = [self._number(axis.extent) for axis in program.grid]
        for axis, extent in zip(program.grid, extents, strict=True):
            self._values[axis.var.name] = extent // 2
        sums["blocks"] = prod(extents)
        self._count(program.body, float(sums["blocks"]))
        return {name: float(amount) for name, amount in sums.items() if amount}

    def _count(self, body: tuple[Stmt, ...], times: float) -> None:
        for stmt in body:
            match stmt:
                case Let():
                    if not is_float(stmt.var.dtype):
                        with suppress(KernelFault, KeyError):
                            self._values[stmt.var.name] = evaluate_size(stmt.value, self._values)
                case For():
                    self._count_loop(stmt, times)
                case If():
                    self._count_branches(stmt, times)
                case TileOperation():
                    self._count_tile(stmt, times)
                case Store() | Atomic():
                    self._count_element(stmt, times)
                case _:
                    for inner in bodies(stmt):
                        self._count(inner, times)

    def _count_loop(self, loop: For, times: float) -> None:
        extent = max(self._number(loop.extent), 0)
        self._values[loop.var.name] = self._number(loop.start) + extent // 2
        self._sums["stages"] = max(self._sums["stages"], loop.stages)
        outer = self._lane
        is_lane = loop.kind in ("parallel", "vectorized")
        if is_lane:
            self._sums["steps"] += times if outer is None else 0
            self._lane = loop
            if not any(isinstance(inner, For) and inner.kind == loop.kind for inner in loop.body):
                self._sums["rows"] += times
        elif outer is None:
            self._sums["steps"] += times * extent
        self._count(loop.body, times * extent)
        self._lane = outer

    def _count_branches(self, branch: If, times: float) -> None:
        try:
            taken = bool(evaluate_size(branch.cond, self._values))
        except (KernelFault, KeyError):
            self._count(branch.then, times / 2)
            self._count(branch.orelse, times / 2)
        else:
            self._count(branch.then if taken else branch.orelse, times)

    def _count_tile(self, stmt: TileOperation, times: float) -> None:
        sums = self._sums
        sums["steps"] += times
        *read, written = regions(stmt)
        for region in (*read, written):
            extents = [self._number(extent) for extent in region.extents]
            self._count_region(region, extents, times, is_written=region is written)
        if isinstance(stmt, Product):
            inner = stmt.a.extents[-2 if stmt.transpose_a else -1]
            m, n, k = (self._number(one) for one in (*stmt.c.extents[-2:], inner))
            sums["products"] += times
            sums["product_flops"] += times * 2 * m * n * k
            sums["left"] += times * m * k
            sums["right"] += times * k * n
            sums["sums"] += times * m * n
        elif isinstance(stmt, Reduce):
            sums["operations"] += times * prod(map(self._number, stmt.src.extents))
        elif isinstance(stmt, Copy):
            dtypes = {self._buffers[region.buffer].dtype for region in (stmt.src, stmt.dst)}
            if len(dtypes) > 1:
                sums["conversions"] += times * prod(map(self._number, stmt.dst.extents))

    def _count_region(
        self, region: Region, extents: list[int], times: float, *, is_written: bool
    ) -> None:
        rows = times * prod(extents[:-1])
        row = extents[-1] if extents else 1
        self._sums["rows"] += rows if is_written else 0
        self._count_access(region.buffer, rows * row, rows, is_written=is_written)

    def _count_element(self, stmt: Store | Atomic, times: float) -> None:
        sums = self._sums
        parts = [part for expr in expressions(stmt) for part in walk_expr(expr)]
        indices = {id(part) for index in stmt.indices for part in walk_expr(index)}
        for part in parts:
            if isinstance(part, Load):
                indices |= {id(inner) for index in part.indices for inner in walk_expr(index)}
        for part in parts:
            match part:
                case Load():
                    self._count_lanes(part.buffer, part.indices, times, is_written=False)
                case Op() if id(part) not in indices:
                    sums["operations" if part.name in CHEAP else "functions"] += times
                case Cast() if id(part) not in indices:
                    sums["conversions"] += times
                case _:
                    pass
        self._count_lanes(stmt.buffer, stmt.indices, times, is_written=True)

    def _count_lanes(
        self, buffer: str, indices: tuple[Expr, ...], times: float, *, is_written: bool
    ) -> None:
        stride, extent = self._find_stride(buffer, indices)
        rows = times if abs(stride) > 1 else times / max(extent, 1)
        if abs(stride) > 1:
            self._sums["strided"] += times
        self._count_access(buffer, times if stride else rows, rows, is_written=is_written)

    def _count_access(self, name: str, elements: float, rows: float, *, is_written: bool) -> None:
        sums = self._sums
        if self._buffers[name].scope != "global":
            sums["accesses"] += elements
            return
        amount = elements * self._bytes_of(name)
        sums["written_bytes" if is_written else "read_bytes"] += amount
        sums["lines"] += max(rows, amount / LINE_BYTES)

    def _find_stride(self, buffer: str, indices: tuple[Expr, ...]) -> tuple[float, int]:
        """Elements from one iteration of the innermost loop over elements to the next, and its extent."""
        if self._lane is None:
            return 0.0, 1
        name, extent = self._lane.var.name, self._number(self._lane.extent)
        if extent < 2:
            return 0.0, 1
        before = self._values[name]
        places = []
        for at in (before - extent // 2, before - extent // 2 + extent - 1):
            self._values[name] = at
            try:
                found = [evaluate_size(index, self._values) for index in indices]
            except (KernelFault, KeyError):
                return float(extent), extent
            finally:
                self._values[name] = before
            places.append(sum(a * b for a, b in zip(found, self._strides[buffer], strict=True)))
        return (places[1] - places[0]) / (extent - 1), extent

    def _bytes_of(self, name: str) -> float:
        return find_dtype(self._buffers[name].dtype).bits / 8

    def _number(self, expr: Expr) -> int:
        try:
            return evaluate_size(expr, self._values)
        except (KernelFault, KeyError):
            return 1


def _list_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides = [1]
    for extent in reversed(shape[1:]):
        strides.append(strides[-1] * extent)
    return tuple(reversed(strides))

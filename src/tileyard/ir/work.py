"""Counts what a launch of a Program does, in amounts that mean the same for all kernels.

A block in the middle of the grid counts for all, and an iteration in the middle of a loop for all of it.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from math import gcd, prod
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
    Var,
)
from tileyard.ir.specs import evaluate_size, tensors
from tileyard.ir.walk import bodies, expressions, regions, replace_parts, walk_expr

Walk = list[tuple[float, int]]
"""Of each loop around an access the elements from one iteration to the next, and the iterations."""

LINE_BYTES: Final = 64
"""Bytes that memory is read and written by."""
WAY_BYTES: Final = 4096
"""Lines whose addresses differ by a multiple of it share places of the first cache."""
WAYS: Final = 8
"""Number of these places."""
LANES_AT_ONCE: Final = 16
"""Elements that a vector has."""
LANES: Final = frozenset({"parallel", "vectorized"})
"""Kinds of loops over elements."""
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
    ``written_bytes`` are of global memory, each time; blocks move them in ``lines`` of 64 bytes, each once.
    ``accesses`` are to elements, anywhere: ``strided`` ones skip elements, ``guarded`` ones may be outside of
    a global buffer, and the lines of ``evicted`` ones, which share places of a cache, have been lost since
    the last access. Lines, strided and evicted accesses count twice if they are written.
    """
    return _Counter(program, numbers).count()


class _Counter:
    def __init__(self, program: Program, numbers: Mapping[str, int]) -> None:
        self._program = program
        self._values = dict(numbers)
        self._next = dict(numbers)
        """The same values in the next block."""
        self._last = dict(numbers)
        """The same values in the last iteration of the last block."""
        self._lets: dict[str, Expr] = {}
        """The values of variables, as expressions of the grid, loops and numbers alone."""
        self._sums: defaultdict[str, float] = defaultdict(float)
        self._loops: list[For] = []
        """The loops that surround a statement, the innermost last."""
        self._moved: set[object] = set()
        """Accesses whose lines are counted."""
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
            self._values[axis.var.name] = self._next[axis.var.name] = extent // 2
            self._last[axis.var.name] = extent - 1
        if program.grid:
            self._next[program.grid[0].var.name] += 1
        sums["blocks"] = prod(extents)
        self._count(program.body, float(sums["blocks"]))
        return {name: float(amount) for name, amount in sums.items() if amount}

    def _count(self, body: tuple[Stmt, ...], times: float) -> None:
        for stmt in body:
            match stmt:
                case Let():
                    if not is_float(stmt.var.dtype):
                        self._lets[stmt.var.name] = self._inline(stmt.value)
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
        start = self._number(loop.start)
        self._values[loop.var.name] = self._next[loop.var.name] = start + extent // 2
        self._last[loop.var.name] = start + extent - 1
        self._sums["stages"] = max(self._sums["stages"], loop.stages)
        is_inside = any(outer.kind in LANES for outer in self._loops)
        if loop.kind in LANES:
            self._sums["steps"] += 0 if is_inside else times
            if not any(isinstance(inner, For) and inner.kind == loop.kind for inner in loop.body):
                self._sums["rows"] += times
        elif not is_inside:
            self._sums["steps"] += times * extent
        self._loops.append(loop)
        self._count(loop.body, times * extent)
        self._loops.pop()

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
            *rows, row = map(self._number, stmt.src.extents)
            sums["operations"] += times * prod(rows) * _fill(row)
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
        starts = [self._inline(start) for start in region.starts]
        box = [*zip(map(float, self._strides[region.buffer]), extents, strict=True)][::-1]
        walk = [*box, *self._find_walk(region.buffer, starts)]
        self._count_access(region.buffer, rows * row, is_written=is_written)
        self._count_lines(region.buffer, starts, walk, rows * row, is_written=is_written)

    def _count_element(self, stmt: Store | Atomic, times: float) -> None:
        sums = self._sums
        parts = [part for expr in expressions(stmt) for part in walk_expr(expr)]
        indices = {id(part) for index in stmt.indices for part in walk_expr(index)}
        for part in parts:
            if isinstance(part, Load):
                indices |= {id(inner) for index in part.indices for inner in walk_expr(index)}
        lanes = [self._number(loop.extent) for loop in self._loops if loop.kind in LANES]
        filled = times * _fill(lanes[-1]) / lanes[-1] if lanes and lanes[-1] else times
        for part in parts:
            match part:
                case Load():
                    self._count_lanes(part.buffer, part.indices, times, is_written=False)
                case Op() if id(part) not in indices:
                    sums["operations" if part.name in CHEAP else "functions"] += filled
                case Cast() if id(part) not in indices:
                    sums["conversions"] += filled
                case _:
                    pass
        self._count_lanes(stmt.buffer, stmt.indices, times, is_written=True)

    def _count_lanes(
        self, buffer: str, at: tuple[Expr, ...], times: float, *, is_written: bool
    ) -> None:
        indices = [self._inline(index) for index in at]
        walk = self._find_walk(buffer, indices)
        is_inside = any(loop.kind in LANES for loop in self._loops)
        stride, extent = walk[0] if walk and is_inside else (0.0, 1)
        if abs(stride) > 1:
            self._sums["strided"] += times * (2 if is_written else 1)
        if self._is_outside(buffer, indices):
            self._sums["guarded"] += times
        elements = times if stride else times / max(extent, 1)
        self._count_access(buffer, elements, is_written=is_written)
        self._count_lines(buffer, indices, walk, times, is_written=is_written)
        self._count_evicted(buffer, walk[: self._depth], times, is_written=is_written)

    def _count_access(self, name: str, elements: float, *, is_written: bool) -> None:
        self._sums["accesses"] += elements
        if self._buffers[name].scope == "global":
            amount = elements * self._bytes_of(name)
            self._sums["written_bytes" if is_written else "read_bytes"] += amount

    def _count_lines(
        self, name: str, start: Sequence[Expr], walk: Walk, times: float, *, is_written: bool
    ) -> None:
        """Count each line that a block moves once: what is written is read and written back."""
        if self._buffers[name].scope != "global":
            return
        places = self._find_places(name, start)
        key = (name, places, tuple(walk), is_written)
        if places and key in self._moved:
            return
        self._moved.add(key)
        size = self._bytes_of(name)
        parts, reach = _find_parts(walk, size)
        shift = abs(places[1] - places[0]) * size if places else 0.0
        # What is left of a line is the next block's, if that goes on there.
        lines = parts * (shift if 0 < shift < LINE_BYTES else max(LINE_BYTES, reach)) / LINE_BYTES
        blocks = times / _count_accesses(walk)
        self._sums["lines"] += blocks * lines * (2 if is_written else 1)

    def _count_evicted(self, name: str, walk: Walk, times: float, *, is_written: bool) -> None:
        """Count the accesses whose lines were there before, but had to give way to others of the walk."""
        size = self._bytes_of(name)
        step, extent = (round(abs(walk[0][0]) * size), walk[0][1]) if walk else (0, 1)
        if step <= LINE_BYTES:
            return
        room = WAYS * WAY_BYTES / max(gcd(step, WAY_BYTES), LINE_BYTES)
        parts, reach = _find_parts(walk, size)
        first = parts * max(1.0, reach / LINE_BYTES) / _count_accesses(walk)
        again = max(0.0, 1 - room / max(extent, 1)) * max(0.0, 1 - first)
        self._sums["evicted"] += times * again * (2 if is_written else 1)

    def _is_outside(self, name: str, indices: Sequence[Expr]) -> bool:
        """Whether the last block accesses what is outside of a buffer."""
        try:
            found = [evaluate_size(index, self._last) for index in indices]
        except (KernelFault, KeyError):
            return False
        return any(at >= extent for at, extent in zip(found, self._shapes[name], strict=True))

    def _find_places(self, name: str, start: Sequence[Expr]) -> tuple[int, int] | None:
        """The element that this block accesses, and the one that the next block does."""
        places = []
        for values in (self._values, self._next):
            try:
                found = [evaluate_size(index, values) for index in start]
            except (KernelFault, KeyError):
                return None
            places.append(sum(a * b for a, b in zip(found, self._strides[name], strict=True)))
        return places[0], places[1]

    @property
    def _depth(self) -> int:
        """Number of loops from the outermost one over elements inwards."""
        for at, loop in enumerate(self._loops):
            if loop.kind in LANES:
                return len(self._loops) - at
        return 0

    def _find_walk(self, buffer: str, indices: Sequence[Expr]) -> Walk:
        """Elements from one iteration to the next, and iterations, of each loop of the nest, the innermost
        one over elements first. What depends on data is scattered.
        """
        loops = self._loops[::-1]
        loops.sort(key=lambda loop: loop.kind not in LANES)
        extents = [self._number(loop.extent) for loop in loops]
        return [
            (self._find_stride(loop, extent, buffer, indices) if extent > 1 else 0.0, extent)
            for loop, extent in zip(loops, extents, strict=True)
        ]

    def _find_stride(self, loop: For, extent: int, buffer: str, indices: Sequence[Expr]) -> float:
        name = loop.var.name
        before = self._values[name]
        places = []
        for at in (before - extent // 2, before - extent // 2 + extent - 1):
            self._values[name] = at
            try:
                found = [evaluate_size(index, self._values) for index in indices]
            except (KernelFault, KeyError):
                return float(LINE_BYTES)
            finally:
                self._values[name] = before
            places.append(sum(a * b for a, b in zip(found, self._strides[buffer], strict=True)))
        return (places[1] - places[0]) / (extent - 1)

    def _inline(self, expr: Expr) -> Expr:
        return replace_parts(
            expr, lambda part: self._lets.get(part.name) if isinstance(part, Var) else None
        )

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


def _count_accesses(walk: Walk) -> int:
    return max(1, prod(extent for _, extent in walk))


def _find_parts(walk: Walk, size: float) -> tuple[float, float]:
    """The contiguous parts that a walk touches: their number, and the bytes of each."""
    steps: defaultdict[float, int] = defaultdict(int)
    for stride, extent in walk:
        steps[abs(stride) * size] += extent - 1
    parts, reach = 1.0, size
    for step, more in sorted(steps.items()):
        if step <= max(reach, LINE_BYTES):
            reach += step * more
        else:
            parts *= more + 1
    return parts, reach


def _fill(row: int) -> int:
    """The lanes of vectors for the elements of a row: those left over by half vectors are done one by one."""
    left = row % (LANES_AT_ONCE // 2)
    return row - left + left * LANES_AT_ONCE

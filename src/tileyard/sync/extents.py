"""Measures a kernel at given sizes: its loops' trip counts, grid, tiles, and a run's approximate cost."""

import math
from collections.abc import Iterator, Mapping

from tileyard.base.errors import BindError, KernelFault
from tileyard.base.model import SourceLine
from tileyard.ir.lanes import is_spread
from tileyard.ir.nodes import (
    Buffer,
    Const,
    Expr,
    For,
    InitBarrier,
    Issue,
    Let,
    Load,
    Program,
    Region,
    Roles,
    Stmt,
    Store,
    Synchronization,
    Var,
    WaitBarrier,
)
from tileyard.ir.specs import evaluate_size
from tileyard.ir.walk import (
    bodies,
    expressions,
    has_order,
    read_regions,
    walk,
    walk_expr,
    written_region,
)
from tileyard.sync.shapes import Loop, Measured

_MOST_STAGES = 8
"""Most versions of a pipelined tile: a tile with more holds all data, and is not a pipeline."""

_LANES = 1000
"""Approximate number of elements of a tile that cost as much as a statement."""

_MOST_PLACES = 8

Numbers = Mapping[str, int]


def measure(
    program: Program,
    lines: Mapping[int, SourceLine],
    numbers: Numbers,
    *,
    is_planned: bool = False,
) -> Measured:
    """Measures ``program`` with these dimensions and scalar parameters; ``lines`` are its statements'.
    Iterations of a pipelined loop overlap if they do in the text, or if the Program ``is_planned``.
    """
    return _Measuring(program, lines, numbers, overlaps=is_planned or has_order(program)).run()


class _Measuring:
    def __init__(
        self,
        program: Program,
        lines: Mapping[int, SourceLine],
        numbers: Numbers,
        *,
        overlaps: bool,
    ) -> None:
        self._program = program
        self._overlaps = overlaps
        self._numbers = {id(stmt): number for number, stmt in enumerate(walk(program.body))}
        self._lines = lines
        self._given = dict(numbers)
        self._buffers = {buffer.name: buffer for buffer in program.buffers}
        self._values = {
            stmt.var.name: stmt.value for stmt in walk(program.body) if isinstance(stmt, Let)
        }
        self._loops: list[Loop] = []

    def run(self) -> Measured:
        grid = tuple(_evaluate(axis.extent, [self._given]) or 0 for axis in self._program.grid)
        names = [axis.var.name for axis in self._program.grid]
        corners = [
            {**self._given, **dict(zip(names, place, strict=True))}
            for place in dict.fromkeys([(0,) * len(grid), tuple(max(one - 1, 0) for one in grid)])
        ]
        work = self._body(self._program.body, corners)
        tiles = tuple(
            tuple(_evaluate(extent, [self._given]) or 0 for extent in buffer.shape)
            for buffer in self._program.buffers
            if buffer.scope != "global"
        )
        blocks = math.prod(min(extent, 3) for extent in grid)
        return Measured(loops=tuple(self._loops), grid=grid, tiles=tiles, cost=work * blocks)

    def _body(self, body: tuple[Stmt, ...], places: list[dict[str, int]]) -> float:
        """The work of ``body`` in one of ``places``, which hold the values of the variables known there."""
        work = 0.0
        for stmt in body:
            if isinstance(stmt, Let):
                for place in places:
                    value = _evaluate(stmt.value, [place])
                    place.pop(stmt.var.name, None)
                    if value is not None:
                        place[stmt.var.name] = value
            work += self._stmt(stmt, places)
        return work

    def _stmt(self, stmt: Stmt, places: list[dict[str, int]]) -> float:
        match stmt:
            case For():
                return self._loop(stmt, places)
            case Roles() | Issue():
                return sum(self._body(body, [*map(dict, places)]) for body in bodies(stmt))
            case _:
                inner = [self._body(body, [*map(dict, places)]) for body in bodies(stmt)]
                return 1 + max(inner, default=self._elements(stmt, places) / _LANES)

    def _loop(self, loop: For, places: list[dict[str, int]]) -> float:
        trips = _evaluate(loop.extent, places)
        if not is_spread(loop) and is_waiting(loop):
            line = self._lines.get(self._numbers[id(loop)])
            where = 0 if line is None else line.line
            copy = sum(known.line == where for known in self._loops)
            stages = self._stages(loop) if self._overlaps else 0
            self._loops.append(Loop(line=where, copy=copy, trips=trips, stages=stages))
        count = max(trips or 0, 0)
        inside = []
        for place in places:
            first = _evaluate(loop.start, [place]) or 0
            inside += [{**place, loop.var.name: first}, {**place, loop.var.name: first + count - 1}]
        work = self._body(loop.body, inside[:_MOST_PLACES])
        return 1 + work * (1 + count / _LANES if is_spread(loop) else count)

    def _elements(self, stmt: Stmt, places: list[dict[str, int]]) -> float:
        written = written_region(stmt)
        regions = (*read_regions(stmt), *((written,) if written else ()))
        sizes = [[_evaluate(extent, places) or 1 for extent in one.extents] for one in regions]
        return float(sum(map(math.prod, sizes)))

    def _stages(self, loop: For) -> int:
        """Most iterations in flight at once, as far as the kernel's text shows it."""
        found = [loop.stages, 1]
        for buffer, first in _first_indices(loop.body):
            held = self._buffers.get(buffer)
            is_row = held is not None and held.scope in ("shared", "barrier")
            is_counted = any(isinstance(part, Load) for part in walk_expr(first))
            if held is not None and is_row and (is_counted or loop.var.name in self._names(first)):
                found.append(self._versions(held))
        return max(one for one in found if one <= _MOST_STAGES)

    def _versions(self, buffer: Buffer) -> int:
        if buffer.scope != "barrier" and len(buffer.shape) < 2:
            return 1
        return _evaluate(buffer.shape[0], [self._given]) or 1

    def _names(self, expr: Expr) -> set[str]:
        names: set[str] = set()
        left = [expr]
        while left:
            found = {part.name for part in walk_expr(left.pop()) if isinstance(part, Var)} - names
            names |= found
            left += [self._values[name] for name in found if name in self._values]
        return names


def is_waiting(loop: For) -> bool:
    """Whether iterations of ``loop`` can overlap or wait."""
    return loop.kind == "pipelined" or any(
        isinstance(stmt, Synchronization | Issue) and not isinstance(stmt, InitBarrier)
        for stmt in walk(loop.body)
    )


def _first_indices(body: tuple[Stmt, ...]) -> Iterator[tuple[str, Expr]]:
    """The first index of each access in ``body``, of regions only if of extent 1 there, and of barriers."""
    for stmt in walk(body):
        written = written_region(stmt)
        for region in (*read_regions(stmt), *((written,) if written else ())):
            if isinstance(region, Region) and region.extents[0] == Const(
                1, region.extents[0].dtype
            ):
                yield region.buffer, region.starts[0]
        if isinstance(stmt, Store):
            yield stmt.buffer, stmt.indices[0]
        if isinstance(stmt, WaitBarrier):
            yield stmt.barrier.buffer, stmt.barrier.indices[0]
        for expr in expressions(stmt):
            for part in walk_expr(expr):
                if isinstance(part, Load):
                    yield part.buffer, part.indices[0]


def _evaluate(expr: Expr, places: list[dict[str, int]]) -> int | None:
    """The largest value of ``expr`` in ``places``; None if it depends on anything else."""
    try:
        return max((evaluate_size(expr, place) for place in places), default=None)
    except (KernelFault, BindError, KeyError):
        return None

"""Several grids in one Program, which run one after the other: each is generated as a Program of its own."""

from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from tileyard.ir.effects import buffer_effects
from tileyard.ir.nodes import Atomic, Axis, Const, Expr, For, Let, Load, Program, Stmt, Var
from tileyard.ir.specs import scalar_params
from tileyard.ir.walk import walk, walk_expr


@dataclass(frozen=True, kw_only=True, slots=True)
class Grid:
    """One grid: ``program`` has its axes, its body and the tiles of it.

    ``parts`` are the statements of the body with the pre-order number that the first of each part has
    in the whole Program.
    """

    program: Program
    parts: tuple[tuple[tuple[Stmt, ...], int], ...]


def split_grids(program: Program) -> tuple[Grid, ...]:
    """The grids of ``program`` in their order; what stands between them is a grid of one block.

    A Program whose blocks share tiles with what stands elsewhere, or need values that are computed from
    arrays before them, stays as it is.
    """
    whole = (Grid(program=program, parts=((program.body, 0),)),)
    if program.grid or not any(_is_grid(stmt) for stmt in program.body):
        return whole
    splitter = _Splitter(program)
    for stmt, number in _numbered(program.body):
        if not splitter.take(stmt, number):
            return whole
    grids = splitter.grids()
    return grids if _have_own_tiles(program, grids) else whole


def _is_grid(stmt: Stmt) -> bool:
    return isinstance(stmt, For) and stmt.kind == "blocks"


def _numbered(body: tuple[Stmt, ...]) -> Iterator[tuple[Stmt, int]]:
    number = 0
    for stmt in body:
        yield stmt, number
        number += sum(1 for _ in walk((stmt,)))


class _Splitter:
    """Collects grids. ``_bound`` are values that are the same in all blocks, and stand before each."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._known = {*program.dims, *scalar_params(program)}
        self._bound: list[tuple[tuple[Stmt, ...], int]] = []
        self._found: list[tuple[tuple[Axis, ...], list[tuple[tuple[Stmt, ...], int]]]] = []
        self._is_open = False

    def take(self, stmt: Stmt, number: int) -> bool:
        """Put ``stmt`` where it belongs; False where what follows cannot do without its result."""
        if isinstance(stmt, Let):
            if any(isinstance(part, Load) for part in walk_expr(stmt.value)):
                return False
            self._bound.append(((stmt,), number))
            self._is_open = False
            return True
        if isinstance(stmt, Atomic) and stmt.var is not None:
            return False
        axes, body = self._axes(stmt)
        if axes:
            part = (body, number + len(axes))
            self._found.append((axes, [*self._bound, part]))
            self._is_open = False
        elif self._is_open:
            self._found[-1][1].append(((stmt,), number))
        else:
            self._found.append(((), [*self._bound, ((stmt,), number)]))
            self._is_open = True
        return True

    def _axes(self, stmt: Stmt) -> tuple[tuple[Axis, ...], tuple[Stmt, ...]]:
        """The axes of a grid whose size is known before it runs, and the body of its blocks."""
        axes: list[Axis] = []
        body: tuple[Stmt, ...] = (stmt,)
        while len(body) == 1 and isinstance(body[0], For) and body[0].kind == "blocks":
            loop = body[0]
            starts_at_0 = isinstance(loop.start, Const) and loop.start.value == 0
            if not starts_at_0 or not self._is_known(loop.extent):
                return (), ()
            axes.append(Axis(loop.var, loop.extent))
            body = loop.body
        return tuple(axes), body

    def _is_known(self, extent: Expr) -> bool:
        parts = tuple(walk_expr(extent))
        return all(
            part in self._known if isinstance(part, Var) else not isinstance(part, Load)
            for part in parts
        )

    def grids(self) -> tuple[Grid, ...]:
        """All that was found."""
        return tuple(self._grid(axes, parts) for axes, parts in self._found)

    def _grid(self, axes: tuple[Axis, ...], parts: list[tuple[tuple[Stmt, ...], int]]) -> Grid:
        body = tuple(stmt for part, _ in parts for stmt in part)
        owners = _owners(self._program)
        used = {owners.get(name, name) for name in _used(body)}
        program = msgspec.structs.replace(
            self._program,
            grid=axes,
            body=body,
            buffers=tuple(
                buffer
                for buffer in self._program.buffers
                if buffer.scope == "global" or owners[buffer.name] in used
            ),
        )
        return Grid(program=program, parts=tuple(parts))


def _owners(program: Program) -> dict[str, str]:
    """For each tile, whose memory it is."""
    return {b.name: b.view_of or b.name for b in program.buffers if b.scope != "global"}


def _used(body: tuple[Stmt, ...]) -> set[str]:
    effects = buffer_effects(body)
    return set(effects.read | effects.written)


def _have_own_tiles(program: Program, grids: tuple[Grid, ...]) -> bool:
    """Whether no tile is used in two grids."""
    owners = _owners(program)
    seen: set[str] = set()
    for grid in grids:
        used = {owners[name] for name in _used(grid.program.body) if name in owners}
        if used & seen:
            return False
        seen |= used
    return True

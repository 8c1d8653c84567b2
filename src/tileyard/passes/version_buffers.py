"""Gives the tiles of planned loops as many versions as iterations are under way between their first and their last use.

A tile grows a leading dimension, in its layout, too. In the loop the version is ``k % versions``.
"""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from tileyard.ir.nodes import (
    Atomic,
    Buffer,
    Const,
    Expr,
    For,
    Issue,
    Layout,
    Load,
    Op,
    Program,
    Reduce,
    Region,
    Stmt,
    Store,
    Var,
    WaitGroup,
)
from tileyard.ir.rewrite import Copies, Names, rewrite, with_expressions
from tileyard.ir.syntax import ONE, layout_indices
from tileyard.ir.walk import buffer_effects, replace_parts, walk
from tileyard.passes.base import Passed
from tileyard.passes.plan_pipeline import scheduled


@dataclass(frozen=True)
class VersionBuffers:
    """Versions of what asynchronous copies fill, as the schedules of the loops need them."""

    name: str = "version-buffers"

    def run(self, program: Program) -> Passed:
        """Give tiles their versions."""
        versions: dict[str, int] = {}
        for stmt in walk(program.body):
            for tile, count in _count_versions(stmt).items():
                versions[tile] = max(versions.get(tile, 1), count)
        versions = {tile: count for tile, count in versions.items() if count > 1}
        copies = Copies(Names(program))

        def change(stmt: Stmt) -> tuple[Stmt, ...]:
            if not isinstance(stmt, For) or not scheduled(stmt):
                return (stmt,)
            inside = _Versioned(stmt.var, versions)
            return (msgspec.structs.replace(stmt, body=copies.change(stmt.body, inside.statement)),)

        done = rewrite(program, change, copies)
        buffers = tuple(_grown(b, versions.get(b.name, 1)) for b in program.buffers)
        grown = msgspec.structs.replace(done.program, buffers=buffers)
        return Passed(program=grown, origins=done.origins)


def _count_versions(loop: Stmt) -> dict[str, int]:
    """How many versions a planned loop needs of each tile that its asynchronous copies fill."""
    found = {}
    rows = scheduled(loop)
    for row in rows:
        issues = (inner for inner in walk((row.stmt,)) if isinstance(inner, Issue))
        for tile in buffer_effects(issues).written:
            uses = (
                other.stage - row.stage + (other.place > row.place)
                for other in rows
                if _uses(other.stmt, tile)
            )
            found[tile] = max(1, *uses)
    return found


def _uses(stmt: Stmt, tile: str) -> bool:
    """Whether a tile cannot be filled anew before ``stmt``; the wait ends the copies to it."""
    effects = buffer_effects((stmt,))
    return isinstance(stmt, WaitGroup) or tile in effects.read | effects.written


class _Versioned:
    """Statements inside a loop over ``var`` with the version of each tile that has several."""

    def __init__(self, var: Var, versions: Mapping[str, int]) -> None:
        self._at: dict[str, Expr] = {
            tile: Op("floormod", (var, Const(count, var.dtype)), var.dtype)
            for tile, count in versions.items()
        }

    def statement(self, stmt: Stmt) -> Stmt:
        """``stmt`` with the versions in its own fields."""
        new = with_expressions(stmt, self._expr, self._region)
        match new:
            case Store(buffer=buffer) | Atomic(buffer=buffer) if buffer in self._at:
                return msgspec.structs.replace(new, indices=(self._at[buffer], *new.indices))
            case Reduce(src=src) if src.buffer in self._at:
                return msgspec.structs.replace(new, axis=new.axis + 1)
            case _:
                return new

    def _region(self, region: Region) -> Region:
        if region.buffer not in self._at:
            return region
        starts = (self._at[region.buffer], *region.starts)
        return Region(region.buffer, starts, (ONE, *region.extents))

    def _expr(self, expr: Expr) -> Expr:
        def known(part: Expr) -> Expr | None:
            if not isinstance(part, Load) or part.buffer not in self._at:
                return None
            indices = (self._at[part.buffer], *map(self._expr, part.indices))
            return Load(part.buffer, indices, part.dtype)

        return replace_parts(expr, known)


def _grown(buffer: Buffer, versions: int) -> Buffer:
    """``buffer`` with a leading dimension of versions."""
    if versions == 1:
        return buffer
    layout = None if buffer.layout is None else _grown_layout(buffer.layout, len(buffer.shape))
    shape = (Const(versions, "int32"), *buffer.shape)
    return msgspec.structs.replace(buffer, shape=shape, layout=layout)


def _grown_layout(layout: Layout, rank: int) -> Layout:
    """A layout with the versions one after the other: each has its elements where the one tile had them."""
    names = layout_indices(rank + 1)
    later: dict[Expr, Expr] = {
        Var(old, "int32"): Var(new, "int32") for old, new in itertools.pairwise(names[:-1])
    }
    place = tuple(replace_parts(part, later.get) for part in layout.place)
    return msgspec.structs.replace(layout, place=(Var(names[0], "int32"), *place))

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
    Let,
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
from tileyard.ir.syntax import ONE, ZERO, layout_indices
from tileyard.ir.walk import bodies, buffer_effects, replace_parts, walk
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
        ranks = {b.name: len(b.shape) for b in program.buffers if b.name in versions}
        copies = Copies(Names(program))

        def in_loops(stmt: Stmt) -> tuple[Stmt, ...]:
            if not isinstance(stmt, For) or not scheduled(stmt):
                return (stmt,)
            at: dict[str, Expr] = {
                tile: Op("floormod", (stmt.var, Const(count, stmt.var.dtype)), stmt.var.dtype)
                for tile, count in versions.items()
            }
            body = copies.change(stmt.body, _Versioned(at, ranks).statement)
            return (msgspec.structs.replace(stmt, body=body),)

        outside = _Versioned(dict.fromkeys(versions, ZERO), ranks)
        inner = rewrite(program, in_loops, copies)
        done = rewrite(inner.program, lambda stmt: (outside.statement(stmt),))
        buffers = tuple(_grown(b, versions.get(b.name, 1)) for b in program.buffers)
        return Passed(
            program=msgspec.structs.replace(done.program, buffers=buffers),
            origins=tuple(inner.origins[origin] for origin in done.origins),
        )


def _count_versions(loop: Stmt) -> dict[str, int]:
    """How many versions a planned loop needs of each tile that its asynchronous copies fill."""
    found = {}
    rows = scheduled(loop)
    lets = tuple(s for inner in bodies(loop) for s in inner if isinstance(s, Let)) if rows else ()
    for row in rows:
        issues = (inner for inner in walk((row.stmt,)) if isinstance(inner, Issue))
        for tile in buffer_effects(issues).written:
            uses = [
                other.stage - row.stage + (other.place > row.place)
                for other in rows
                if _uses((other.stmt,), tile)
            ]
            if _uses(lets, tile):  # they come after the wait: nothing ahead needs them
                uses.append(max(other.stage for other in rows) - row.stage + 1)
            found[tile] = max(1, *uses)
    return found


def _uses(stmts: tuple[Stmt, ...], tile: str) -> bool:
    """Whether a tile cannot be filled anew before these; the wait ends the copies to it."""
    effects = buffer_effects(stmts)
    is_wait = any(isinstance(stmt, WaitGroup) for stmt in stmts)
    return is_wait or tile in effects.read | effects.written


class _Versioned:
    """Statements with the versions ``at`` which they use tiles that have several. What has a version, having more indices
    than the tile's ``ranks``, keeps it.
    """

    def __init__(self, at: Mapping[str, Expr], ranks: Mapping[str, int]) -> None:
        self._at, self._ranks = at, ranks

    def statement(self, stmt: Stmt) -> Stmt:
        """``stmt`` with the versions in its own fields."""
        new = with_expressions(stmt, self._expr, self._region)
        match new:
            case Store() | Atomic():
                return msgspec.structs.replace(new, indices=self._with(new.buffer, new.indices))
            case Reduce(src=src, axis=axis):
                was = stmt.src.starts if isinstance(stmt, Reduce) else src.starts
                return msgspec.structs.replace(new, axis=axis + len(src.starts) - len(was))
            case _:
                return new

    def _with(self, buffer: str, indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        is_new = len(indices) == self._ranks.get(buffer)
        return (self._at[buffer], *indices) if is_new else indices

    def _region(self, region: Region) -> Region:
        starts = self._with(region.buffer, region.starts)
        added = (ONE,) * (len(starts) - len(region.starts))
        return Region(region.buffer, starts, (*added, *region.extents))

    def _expr(self, expr: Expr) -> Expr:
        def known(part: Expr) -> Expr | None:
            if not isinstance(part, Load) or part.buffer not in self._at:
                return None
            indices = tuple(map(self._expr, part.indices))
            return Load(part.buffer, self._with(part.buffer, indices), part.dtype)

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

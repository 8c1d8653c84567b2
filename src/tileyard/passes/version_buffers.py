"""Gives the tiles of planned loops as many versions as iterations are under way between their first and their last use.

A tile grows a leading dimension, in its layout, too. In the loop the version is ``k % versions``.
"""

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import msgspec

from tileyard.ir.nodes import (
    Buffer,
    Const,
    Expr,
    For,
    Issue,
    Layout,
    Let,
    Op,
    Program,
    Stmt,
    Var,
    WaitGroup,
)
from tileyard.ir.rewrite import Copies, Names, rewrite
from tileyard.ir.syntax import ZERO, layout_indices
from tileyard.ir.walk import bodies, buffer_effects, replace_parts, walk
from tileyard.passes.accesses import with_indices
from tileyard.passes.base import Passed
from tileyard.passes.schedules import is_for_roles, scheduled, tiles_of


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
            body = copies.change(stmt.body, _versioned(at, ranks))
            return (msgspec.structs.replace(stmt, body=body),)

        outside = _versioned(dict.fromkeys(versions, ZERO), ranks)
        inner = rewrite(program, in_loops, copies)
        done = rewrite(inner.program, lambda stmt: (outside(stmt),))
        buffers = tuple(_grown(b, versions.get(b.name, 1)) for b in program.buffers)
        return Passed(
            program=msgspec.structs.replace(done.program, buffers=buffers),
            origins=tuple(inner.origins[origin] for origin in done.origins),
        )


def _count_versions(loop: Stmt) -> dict[str, int]:
    """How many versions a planned loop needs of each tile that its asynchronous copies fill."""
    found = {}
    rows = scheduled(loop)
    if is_for_roles(loop):  # barriers hold the producer back until a version is empty
        depth = max(row.stage for row in rows) + 1
        return dict.fromkeys(tiles_of(loop), depth)
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


def _versioned(at: Mapping[str, Expr], ranks: Mapping[str, int]) -> Callable[[Stmt], Stmt]:
    """Gives statements the versions ``at`` which they use tiles that have several. What has a version, having more indices
    than the tile's ``ranks``, keeps it.
    """

    def indices(buffer: str, old: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return (at[buffer], *old) if len(old) == ranks.get(buffer) else old

    return lambda stmt: with_indices(stmt, indices)


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

"""Gives tiles of planned loops a version for each iteration under way from filling to their last use. It is
a leading dimension, in layouts, too, with ``k % versions`` in loops that need versions, elsewhere 0.
"""

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import msgspec

from tileyard.ir.nodes import Buffer, Const, Expr, For, Issue, Layout, Op, Program, Stmt, Var
from tileyard.ir.rewrite import Copies, Names, rewrite
from tileyard.ir.syntax import ZERO, layout_indices
from tileyard.ir.walk import buffer_effects, replace_parts, walk
from tileyard.passes.base import Passed
from tileyard.passes.schedules import (
    buffers_in,
    find_waiting,
    is_for_roles,
    scheduled,
    tiles_of,
    with_lets,
)
from tileyard.passes.storage import with_indices


@dataclass(frozen=True)
class VersionBuffers:
    """Versions of the tiles that the schedules of the loops require, whatever fills them."""

    name: str = "version-buffers"

    def run(self, program: Program) -> Passed:
        """Give tiles their versions."""
        versions: dict[str, int] = {}
        shared = frozenset(buffer.name for buffer in program.buffers if buffer.scope == "shared")
        for stmt in walk(program.body):
            for tile, count in _count_versions(stmt, shared).items():
                versions[tile] = max(versions.get(tile, 1), count)
        versions = {tile: count for tile, count in versions.items() if count > 1}
        ranks = {b.name: len(b.shape) for b in program.buffers if b.name in versions}
        copies = Copies(Names(program))

        def in_loops(stmt: Stmt) -> tuple[Stmt, ...]:
            if not isinstance(stmt, For) or not scheduled(stmt):
                return (stmt,)
            own = _count_versions(stmt, shared)  # other loops need versions of the other tiles
            at: dict[str, Expr] = {
                tile: Op("floormod", (stmt.var, Const(count, stmt.var.dtype)), stmt.var.dtype)
                for tile, count in versions.items()
                if own.get(tile, 1) > 1
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


def _count_versions(loop: Stmt, tiles: frozenset[str]) -> dict[str, int]:
    found = dict[str, int]()
    rows = scheduled(loop)
    if is_for_roles(loop):  # barriers hold the producer back until a version is empty
        depth = max(row.stage for row in rows) + 1
        return dict.fromkeys(tiles_of(loop), depth)
    if not isinstance(loop, For) or not rows:
        return found
    waiting = find_waiting(loop)
    bodies = {id(row.stmt): with_lets(loop.body, row.stmt) for row in rows}
    for row in rows:
        is_issued = any(isinstance(stmt, Issue) for stmt in walk((row.stmt,)))
        for tile in buffer_effects((row.stmt,)).written & tiles:
            uses = [
                other.stage - row.stage + (other.place > row.place)
                for other in rows
                if tile in buffers_in(bodies[id(other.stmt)])
            ]
            # A copy is in flight up to the wait for it, even if the tile is unused.
            waits = [waiting.lag, waiting.first - row.stage] if is_issued else []
            found[tile] = max([found.get(tile, 1), *uses, *waits])
    return found


def _versioned(at: Mapping[str, Expr], ranks: Mapping[str, int]) -> Callable[[Stmt], Stmt]:
    """Gives tiles with several versions the version ``at`` unless their indices exceed ``ranks``."""

    def indices(buffer: str, old: tuple[Expr, ...]) -> tuple[Expr, ...]:
        is_open = buffer in at and len(old) == ranks[buffer]
        return (at[buffer], *old) if is_open else old

    return lambda stmt: with_indices(stmt, indices)


def _grown(buffer: Buffer, versions: int) -> Buffer:
    if versions == 1:
        return buffer
    layout = None if buffer.layout is None else _grown_layout(buffer.layout, len(buffer.shape))
    shape = (Const(versions, "int32"), *buffer.shape)
    return msgspec.structs.replace(buffer, shape=shape, layout=layout)


def _grown_layout(layout: Layout, rank: int) -> Layout:
    """A layout with the versions one after another: each has its elements where the single tile had them."""
    names = layout_indices(rank + 1)
    later: dict[Expr, Expr] = {
        Var(old, "int32"): Var(new, "int32") for old, new in itertools.pairwise(names[:-1])
    }
    place = tuple(replace_parts(part, later.get) for part in layout.place)
    return msgspec.structs.replace(layout, place=(Var(names[0], "int32"), *place))

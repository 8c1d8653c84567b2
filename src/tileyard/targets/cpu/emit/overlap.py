"""Overlaps the consecutive blocks of a thread: one loop over rows writes the results of the block before,
computes slow functions of this one, and reads the rows of the next. By itself a pass that writes waits for
memory, which is idle while another one computes.
"""

from collections.abc import Sequence
from dataclasses import replace

from tileyard.ir.nodes import Axis, Copy, Expr, Let, Load, Op, Stmt, Store
from tileyard.ir.walk import buffer_effects, walk_expr
from tileyard.targets.cpu.emit.context import Context
from tileyard.targets.cpu.emit.exprs import can_fail
from tileyard.targets.cpu.emit.following import find_repeat
from tileyard.targets.cpu.emit.loops import Fold, Step, replace_in
from tileyard.targets.cpu.emit.nests import Pass, find_pass, is_by_element
from tileyard.targets.cpu.emit.tiles import reads, touched
from tileyard.targets.cpu.emit.vectors import AT_ONCE

WIDE = 64
"""Least bytes of vectors for which this pays: shorter ones compute for longer than memory takes."""


def find_overlap(ctx: Context, body: tuple[Stmt, ...]) -> dict[int, tuple[str, Pass]]:
    """What to write for the first, second and last pass of a block, which runs ``body``, by the ids of the
    passes' first statements: a condition in C, and a pass. The last pass of the block before, the second one
    and the first one of the next block run in place of the second one. Empty if blocks do not overlap.
    """
    grid, repeats, rest = ctx.program.grid, dict(ctx.repeats), body
    if not grid or ctx.plan.keeping.group or ctx.machine.vector_bytes < WIDE:
        return {}
    parts: list[tuple[tuple[Stmt, ...], Pass | None]] = []
    while rest and all(found for _, found in parts[:2]):
        element = find_repeat(ctx, rest)
        if element is not None and isinstance(rest[0], Copy):
            ctx.repeats[rest[0].dst.buffer] = element
            rest = rest[1:]
            continue
        found = find_pass(ctx, rest)
        parts.append((found.statements if found else rest[:1], found))
        for name in buffer_effects(parts[-1][0]).written:
            ctx.repeats.pop(name, None)
        rest = rest[len(parts[-1][0]) :]
    ctx.repeats = repeats
    first, second, last = (parts[i][1] for i in (0, 1, -1)) if len(parts) > 2 else (None,) * 3
    between = tuple(stmt for part, _ in parts[2:-1] for stmt in part)
    if not first or not second or not last or not _may_move(ctx, (first, second, last), between):
        return {}
    before, after = (
        tuple(
            Axis(ctx.variable(x.var.name, x.var.dtype, ctx.ranges.of(x.var)), x.extent)
            for x in grid
        )
        for _ in range(2)
    )
    late, early = _moved(ctx, last, second, before), _moved(ctx, first, second, after)
    nest = replace(second.nest, steps=(*late, *second.nest.steps, *early))
    if not is_by_element(ctx, nest):
        return {}
    joined = replace(second, nest=nest, late=len(late), others=(before, after))
    guarded = (("if (block == first)", first), ("", joined), ("if (block + 1 == last)", last))
    return {id(found.statements[0]): (head, found) for head, found in guarded}


def _moved(ctx: Context, found: Pass, to: Pass, axes: Sequence[Axis]) -> list[Step]:
    """The steps of a pass in another block, in the loops of the pass ``to``, that write arrays, or folds."""
    known: dict[Expr, Expr] = dict(zip(found.nest.variables, to.nest.variables, strict=True))
    known |= {mine.var: axis.var for mine, axis in zip(ctx.program.grid, axes, strict=True)}
    steps = []
    for step in found.nest.steps:
        moved = replace_in(step, known.get)
        if isinstance(step, Store) and step.buffer in ctx.plan.tiles:
            known[Load(step.buffer, step.indices, ctx.dtype(step.buffer))] = moved.value
        else:
            steps.append(moved)
    return steps


def _may_move(ctx: Context, passes: tuple[Pass, Pass, Pass], between: Sequence[Stmt]) -> bool:
    """Whether the first pass may run, also twice, before what follows the second one in the block before, and
    slow functions in the second one are worth it. ``between`` are the statements before the last one.
    """
    first, second, last = passes
    tiles, written = ctx.plan.tiles, buffer_effects(ctx.program.body).written
    folded, results = ({step.buffer for step in found.nest.steps} for found in (first, last))
    read, read_last = map(_read, (first, last))
    moved = (*first.nest.steps, *last.nest.steps)
    parts = (part for step in second.nest.steps for part in walk_expr(step.value))
    used = touched(*(stmt for found in passes for stmt in found.statements))
    return (
        any(isinstance(part, Op) and part.name in ("exp", "exp2") for part in parts)
        and all(found.nest.sizes == second.nest.sizes and not found.tests for found in passes)
        and second.nest.columns % AT_ONCE == 0
        and all(isinstance(step, Fold) and step.clear for step in first.nest.steps)
        and all(isinstance(step, Store) for step in last.nest.steps)
        and not read & tiles.keys()
        and not (read | read_last - tiles.keys()) & written
        and folded <= tiles.keys() - touched(*between, *last.statements)
        and results - tiles.keys() <= ctx.large.keys() - touched(*between, *second.statements)
        and not any(isinstance(stmt, Let) for stmt in between)
        and not any(can_fail(ctx, part) for step in moved for part in (*step.indices, step.value))
        and not any(_is_of_block(ctx, name) for name in used)
    )


def _read(found: Pass) -> set[str]:
    parts = (part for step in found.nest.steps for part in reads(*step.indices, step.value))
    return {load.buffer for load in parts}


def _is_of_block(ctx: Context, name: str) -> bool:
    """Whether what a buffer holds may be lost where a block ends, or has other names, or other places."""
    is_lost = name in ctx.plan.tiles and ctx.plan.tiles[name].is_variable
    is_elsewhere = ctx.is_aliased(name) or name in ctx.plan.keeping.tiles
    return is_lost or is_elsewhere or name in ctx.lazy

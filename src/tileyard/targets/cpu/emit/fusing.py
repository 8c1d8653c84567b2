"""Which adjacent statements are done in one pass over their rows.

Copies, parallel loops and reductions over the same rows, of which none needs more than the same
element of what another one writes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from tileyard.ir.nodes import Expr, For, Load, Op, Stmt, Store
from tileyard.ir.walk import replace_parts, walk_expr
from tileyard.targets.cpu.emit.context import Bound, Context
from tileyard.targets.cpu.emit.exprs import value
from tileyard.targets.cpu.emit.groups import is_along
from tileyard.targets.cpu.emit.nests import (
    FLOATS,
    Fold,
    Nest,
    Step,
    as_nest,
    innermost,
    loads,
    renamed,
)
from tileyard.targets.cpu.emit.parallel import interior_tests, moves, open_bounds
from tileyard.targets.cpu.emit.row_rules import ROW_FUNCTIONS, has_gain
from tileyard.targets.cpu.emit.tiles import Rows

_MOST = 8
"""Statements of one pass: more values than that have no place in registers."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Pass:
    """Some statements as one nest. ``tests`` must hold before it, or else they are done one by one."""

    statements: tuple[Stmt, ...]
    nest: Nest
    tests: dict[Bound, str] = field(default_factory=dict)


def find_pass(ctx: Context, body: Sequence[Stmt]) -> Pass | None:
    """The longest pass that ``body`` begins with; None where that is no gain."""
    found: Pass | None = None
    nest = Nest(sizes=(), variables=(), steps=())
    touched: list[set[str]] = []
    standing, reads_tile = set(ctx.repeats), False
    for i, stmt in enumerate(body[:_MOST]):
        here = as_nest(ctx, stmt)
        if here is None or (nest.sizes and nest.sizes != here.sizes):
            break
        if not nest.sizes:
            stems = [*("i" for _ in here.sizes[1:]), "j"]
            counters = map(ctx.counter, stems, here.sizes)
            nest = Nest(sizes=here.sizes, variables=tuple(counters), steps=())
        reads_tile |= any(load.buffer in standing for step in here.steps for load in loads(step))
        steps = _repeated(ctx, renamed(here, nest.variables), standing)
        touched.append(_storages(ctx, here.steps) | _storages(ctx, steps))
        nest = replace(nest, steps=(*nest.steps, *steps))
        longer = _checked(ctx, tuple(body[: i + 1]), nest)
        if longer is None or (longer.tests and reads_tile):
            break
        if _is_connected(touched):
            found = longer
    if found is None or not (reads_tile or _has_gain(ctx, found)):
        return None
    return found


def _has_gain(ctx: Context, found: Pass) -> bool:
    """Whether a pass is better than its statements one by one."""
    if len(found.statements) > 1:
        return True
    (stmt,) = found.statements
    loop = innermost(found.nest.loop())
    with ctx.assuming(ctx.assumed | set(found.tests)):
        stores = [step for step in found.nest.steps if isinstance(step, Store)]
        return isinstance(stmt, For) and any(has_gain(ctx, store, loop) for store in stores)


def _repeated(ctx: Context, steps: tuple[Step, ...], standing: set[str]) -> tuple[Step, ...]:
    """The steps with what stands for elements of tiles; a tile that is written stands for itself."""

    def known(expr: Expr) -> Expr | None:
        if not isinstance(expr, Load) or expr.buffer not in standing:
            return None
        return ctx.repeats[expr.buffer](tuple(replace_parts(at, known) for at in expr.indices))

    found: list[Step] = []
    for step in steps:
        if isinstance(step, Store):
            indices = tuple(replace_parts(at, known) for at in step.indices)
            found.append(Store(step.buffer, indices, replace_parts(step.value, known)))
            standing.discard(step.buffer)
        else:
            found.append(replace(step, source=replace_parts(step.source, known)))
    return tuple(found)


# ---- what is legal --------------------------------------------------------------------------------


def _storages(ctx: Context, steps: tuple[Step, ...]) -> set[str]:
    """The storage that steps touch."""
    names = {name for step in steps for name in (step.buffer, *(x.buffer for x in loads(step)))}
    return set(map(ctx.storage, names))


def _is_connected(touched: Sequence[set[str]]) -> bool:
    """Whether each statement has something to do with the others."""
    first, *others = map(set, touched)
    while joined := [other for other in others if other & first]:
        first = first.union(*joined)
        others = [other for other in others if not other & first]
    return not others


def _checked(ctx: Context, statements: tuple[Stmt, ...], nest: Nest) -> Pass | None:
    """The statements as a pass, if what it writes is what they write one after the other."""
    if not all(_is_covered(ctx, step) for step in nest.steps) or not _is_by_element(ctx, nest):
        return None
    loop = nest.loop()
    tests = interior_tests(ctx, loop, open_bounds(ctx, loop))
    with ctx.assuming(ctx.assumed | set(tests)):
        for step in nest.steps:
            places = [(step.buffer, step.indices), *((x.buffer, x.indices) for x in loads(step))]
            if any(ctx.open_bounds(*place) for place in places):
                return None
            if isinstance(step, Store) and _can_fail(ctx, step.value):
                return None
    return Pass(statements=statements, nest=nest, tests=tests)


def _can_fail(ctx: Context, expr: Expr) -> bool:
    """Whether the value of ``expr`` is checked for what has no meaning."""
    before = len(ctx.faults)
    fails = "&fault" in value(ctx, expr)
    del ctx.faults[before:]
    return fails


def _is_covered(ctx: Context, step: Step) -> bool:
    """Whether a step is done by vectors of floats."""
    for name in (step.buffer, *(load.buffer for load in loads(step))):
        tile = ctx.plan.tiles.get(name)
        if tile is not None and not isinstance(tile.layout, Rows):
            return False
    if ctx.dtype(step.buffer) not in FLOATS:
        return False
    if isinstance(step, Fold):
        return step.source.dtype in FLOATS
    parts = tuple(walk_expr(step.value))
    return not any(isinstance(part, Op) and part.name in ROW_FUNCTIONS for part in parts)


def _is_by_element(ctx: Context, nest: Nest) -> bool:
    """Whether no element of the nest touches what another one writes, except for the folds."""
    folded = [ctx.storage(step.buffer) for step in nest.steps if isinstance(step, Fold)]
    stored = {
        ctx.storage(step.buffer): (step.buffer, step.indices)
        for step in nest.steps
        if isinstance(step, Store)
    }
    if len(set(folded)) < len(folded) or stored.keys() & set(folded):
        return False
    for step in nest.steps:
        places = [(x.buffer, x.indices) for x in loads(step)]
        if isinstance(step, Store):
            places.append((step.buffer, step.indices))
            if not is_along(step.indices, nest.along) or not _is_apart(step.indices, nest):
                return False
        for buffer, indices in places:
            storage = ctx.storage(buffer)
            if storage in folded or stored.get(storage, (buffer, indices)) != (buffer, indices):
                return False
    return True


def _is_apart(indices: tuple[Expr, ...], nest: Nest) -> bool:
    """Whether different values of the variables certainly give different indices."""
    alone = set()
    for at in indices:
        inside = [var for var in nest.variables if var in walk_expr(at)]
        if len(inside) == 1 and moves((at,), inside[0]):
            alone.add(inside[0])
    return alone == set(nest.variables)

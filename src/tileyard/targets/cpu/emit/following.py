"""Uses what follows a pass: tiles that need not be written, tiles that need not be filled, rows to prefetch.
A tile that nothing reads is not written to memory; of one that only repeats an array's rows the array is
read. Rows of the next block are prefetched, because processors prefetch only within a page.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from tileyard.ir.dtypes import find_dtype
from tileyard.ir.nodes import (
    Cast,
    Const,
    Copy,
    Expr,
    Fill,
    For,
    Load,
    Op,
    Region,
    Roles,
    Stmt,
    Store,
    Var,
)
from tileyard.ir.walk import bodies, buffer_effects, own_effects, replace_parts, walk, walk_expr
from tileyard.targets.cpu.emit.context import Context
from tileyard.targets.cpu.emit.copies import Boxes, match_boxes
from tileyard.targets.cpu.emit.exprs import can_fail, place
from tileyard.targets.cpu.emit.loops import is_along
from tileyard.targets.cpu.emit.nests import Nest, Pass, as_nest, find_pass, loads
from tileyard.targets.cpu.emit.tiles import (
    LINE,
    ZERO,
    add,
    covers,
    ends,
    find_bodies,
    is_parallel,
    reads,
    touched,
)
from tileyard.targets.cpu.emit.vectors import AT_ONCE

# ---- tiles that nothing reads ---------------------------------------------------------------------


def find_unwritten(
    ctx: Context, found: Pass, rest: Sequence[Stmt], *, is_outermost: bool
) -> frozenset[str]:
    """The tiles that a pass writes only for itself; ``rest`` are the statements after it in the same body."""
    stored = {step.buffer for step in found.nest.steps if isinstance(step, Store)}
    return frozenset(
        name
        for name in stored & ctx.plan.tiles.keys()
        if not ctx.is_aliased(name)
        and (
            (is_outermost and not touching(rest, name))
            or (not touching(rest, name) and is_fresh(ctx, name))
            or name in _only_here(ctx, found)
        )
    )


def _only_here(ctx: Context, found: Pass) -> Iterator[str]:
    """The tiles that a pass writes before it reads them, and that nothing else touches."""
    seen: set[str] = set()
    for step in found.nest.steps:
        seen.update(load.buffer for load in loads(step))
        name = step.buffer
        is_first = isinstance(step, Store) and name not in seen
        if is_first and touching(ctx.program.body, name) == touching(found.statements, name):
            yield name
        seen.add(name)


def touching(body: Sequence[Stmt], buffer: str) -> int:
    """Number of statements, nested ones included, that touch a buffer themselves."""
    return sum(buffer in one.read | one.written for one in map(own_effects, walk(tuple(body))))


def is_fresh(ctx: Context, tile: str) -> bool:
    """Whether each body that reads a tile writes all of it first, so that no content outlives a body."""
    body = ctx.program.body
    has_roles = any(isinstance(stmt, Roles) for stmt in walk(body))
    return not has_roles and all(_begins_anew(ctx, each, tile) for each in find_bodies(body))


def _begins_anew(ctx: Context, body: tuple[Stmt, ...], tile: str) -> bool:
    """Whether no statement of a body reads what another body, or an earlier run of this one, wrote:
    all of the tile is written first, and again after each nested body that touches it.
    """
    is_written = False
    for stmt in body:
        if tile not in touched(stmt):
            continue
        is_read = tile in own_effects(stmt).read
        if bodies(stmt) and not is_parallel(stmt):
            if is_read:
                return False
            is_written = False
        elif not is_written:
            if not isinstance(stmt, Copy | Fill) or is_read or not is_whole_tile(ctx, stmt.dst):
                return False
            is_written = True
    return True


def is_whole_tile(ctx: Context, region: Region) -> bool:
    """Whether a region is all of a tile."""
    return region.buffer in ctx.plan.tiles and covers(region, ctx.shape(region.buffer))


# ---- tiles that only repeat rows ------------------------------------------------------------------


_MOST = 64 << 10
"""Most bytes of rows that are read again, or prefetched: they must stay in a cache until they are read."""


def find_repeat(ctx: Context, body: Sequence[Stmt]) -> Callable[[tuple[Expr, ...]], Expr] | None:
    """The source of each element of the tile that ``body`` first fills; None if it must be filled.
    It holds until a pass rewrites all of the tile, or up to the end of the kernel.
    """
    stmt = body[0]
    if not isinstance(stmt, Copy) or not _repeats(ctx, stmt):
        return None
    nest, tile = as_nest(ctx, stmt), stmt.dst.buffer
    if nest is None or nest.elements * find_dtype(ctx.dtype(stmt.src.buffer)).bits > 8 * _MOST:
        return None
    element = _element(ctx, match_boxes(stmt.src, stmt.dst))
    ctx.repeats[tile] = element
    try:
        for i, later in enumerate(body[1:], 1):
            effects = buffer_effects((later,))
            if tile not in effects.read | effects.written:
                continue
            there = find_pass(ctx, body[i : i + 1])
            if there is None:
                return None
            if tile in effects.written:
                is_anew = there.nest.elements == nest.elements and any(
                    isinstance(step, Store) and step.buffer == tile for step in there.nest.steps
                )
                return element if is_anew else None
    finally:
        del ctx.repeats[tile]
    is_last = touching(ctx.program.body, tile) == touching(body, tile)
    return element if is_last or is_fresh(ctx, tile) else None


def _repeats(ctx: Context, stmt: Copy) -> bool:
    """Whether a copy fills a tile with elements, unchanged, of an array never written, or of such a tile."""
    src, dst = stmt.src, stmt.dst
    written = buffer_effects(ctx.program.body).written
    read = {src.buffer} - ctx.repeats.keys()
    read |= {load.buffer for load in reads(*src.starts)}
    is_in_panels = ctx.in_panels(dst.buffer) is not None
    is_kept = dst.buffer in ctx.arrays or is_in_panels or dst.buffer in ctx.lazy
    if is_kept or any(n not in ctx.arrays or n in written or ctx.is_aliased(n) for n in read):
        return False
    a, b = ctx.dtype(src.buffer), ctx.dtype(dst.buffer)
    is_same = a == b or (b == "float32" and a in ("float16", "bfloat16"))
    is_inside = not any(ctx.open_bounds(src.buffer, corner) for corner in ends(src))
    return (
        is_same
        and is_inside
        and not ctx.is_aliased(dst.buffer)
        and src.buffer != dst.buffer
        and is_whole_tile(ctx, dst)
    )


def _element(ctx: Context, boxes: Boxes) -> Callable[[tuple[Expr, ...]], Expr]:
    source, target = boxes.src.buffer, boxes.dst.buffer
    a, b = ctx.dtype(source), ctx.dtype(target)
    before = ctx.repeats.get(source)

    def element(indices: tuple[Expr, ...]) -> Expr:
        at = boxes.source_indices(indices)
        load = before(at) if before is not None else Load(source, at, a)
        return load if a == b else Cast(load, b)

    return element


# ---- rows that come next --------------------------------------------------------------------------


_SLOW = frozenset({"exp", "exp2", "div", "sqrt", "rsqrt", "log", "log2", "tanh", "erf", "sigmoid"})
_MANY = 10
"""Cost of such a function, in sums."""


_AHEAD = 8 << 10
"""Number of bytes that a pass prefetches ahead, into the first cache, if it reads the next block's rows."""


@dataclass(kw_only=True, slots=True)
class Row:
    """Rows of an array that a nest reads, others for the next ``turn``. ``source`` is their
    elements, ``bytes`` one row's size, ``done`` the bytes prefetched already.
    """

    nest: Nest
    source: Load
    turn: Var
    bytes: int
    done: int = 0


def rows_read(ctx: Context, stmt: Stmt, turn: Var | None) -> list[Row]:
    """The rows of arrays that a statement reads and that change with ``turn``."""
    nest = as_nest(ctx, stmt)
    if nest is None or turn is None:
        return []
    found: dict[Load, Row] = {}
    for source in (load for step in nest.steps for load in loads(step)):
        size = nest.columns * find_dtype(source.dtype).bits // 8
        if (
            source.buffer in ctx.arrays
            and is_along(source.indices, nest.along)
            and nest.elements // nest.columns * size <= _MOST
            and any(turn in walk_expr(at) for at in source.indices)
        ):
            found[source] = Row(nest=nest, source=source, turn=turn, bytes=size)
    return list(found.values())


def next_turn(ctx: Context, loops: Sequence[For]) -> Var | None:
    """The variable that counts runs of a body: the innermost loop's, or the one of a thread's next block."""
    if loops:
        return loops[-1].var
    if ctx.plan.keeping.group:
        return None
    axes = [axis for axis in ctx.program.grid if axis.extent != Const(1, axis.extent.dtype)]
    return axes[0].var if axes else None


_LONG = 10
"""From this number of sums for each byte of rows on, they take longer than to read them."""


def find_share(ctx: Context, found: Pass, rest: Sequence[Stmt], rows: Sequence[Row]) -> float:
    """The share of a pass, from 0 to 1, in prefetching ``rows`` by all passes up to the end of the body, by
    their estimated times. Passes that write past the caches wait for their writes, so others prefetch
    for them if they take long.
    """
    if found.late:
        return 1.0
    others, writers = _weight(found), 0
    while rest:
        there = None if isinstance(rest[0], Copy) else find_pass(ctx, rest)
        if there is not None and any(step.buffer in ctx.large for step in there.nest.steps):
            writers += _weight(there)
        elif there is not None:
            others += _weight(there)
        rest = rest[1 if there is None else len(there.statements) :]
    left = sum((row.bytes - row.done) * row.nest.elements // row.nest.columns for row in rows)
    return _weight(found) / (others if others > _LONG * left else others + writers)


def _weight(found: Pass) -> int:
    """The estimated time of a pass, which decides its share of the prefetches."""
    parts = [part for step in found.nest.steps for part in walk_expr(step.value)]
    functions = sum(isinstance(part, Op) and part.name in _SLOW for part in parts)
    return found.nest.elements * (len(parts) + _MANY * functions)


def declare_ahead(ctx: Context, found: Pass, rows: Sequence[Row], share: float) -> list[str]:
    """Declare where a share of the rest of ``rows`` begins; returns the lines that prefetch it
    along a pass. Adds the share to the rows' ``done``.
    """
    nest = found.nest
    lines: list[str] = []
    for row in rows:
        if row.nest.sizes[:-1] != nest.sizes[:-1]:
            continue
        known: dict[Expr, Expr] = dict(zip(row.nest.variables, nest.variables, strict=True))
        known[row.nest.along] = ZERO
        known[row.turn] = add(row.turn, Const(1, row.turn.dtype))
        indices = tuple(replace_parts(at, known.get) for at in row.source.indices)
        if any(can_fail(ctx, at) for at in indices):  # there may be no next turn
            continue
        first = row.done
        row.done = first + round((row.bytes - first) * share / LINE) * LINE
        step = (row.done - first) * AT_ONCE / nest.columns
        if not step:
            continue
        name, start = ctx.names.fresh("ahead"), first + (_AHEAD if found.late else 0)
        place_ = place(ctx, row.source.buffer, indices)
        ctx.out.line(f"const char *{name} = (const char *)&{place_} + {start};")
        rate = Fraction(row.done - first, nest.columns)
        offset = f"(int64_t){nest.along.name} * {rate.numerator} / {rate.denominator}"
        lines += [
            f"__builtin_prefetch({name} + {offset} + {line * LINE}, 0, {3 if found.late else 2});"
            for line in range(math.ceil(step / LINE))
        ]
    return lines

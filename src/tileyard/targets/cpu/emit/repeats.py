"""Tiles that only repeat rows of an array: what reads them reads the array, and they are not filled."""

from collections.abc import Callable, Sequence

from tileyard.ir.dtypes import find_dtype
from tileyard.ir.effects import buffer_effects
from tileyard.ir.nodes import Cast, Copy, Expr, Load, Stmt, Store
from tileyard.ir.walk import walk_expr
from tileyard.targets.cpu.emit.context import Context, ends
from tileyard.targets.cpu.emit.copies import Boxes, match_boxes
from tileyard.targets.cpu.emit.fusing import find_pass
from tileyard.targets.cpu.emit.liveness import is_fresh, is_whole_tile, touching
from tileyard.targets.cpu.emit.nests import as_nest

_MOST = 64 << 10
"""Bytes that are read again instead: they must still be in a cache."""


def find_repeat(ctx: Context, body: Sequence[Stmt]) -> Callable[[tuple[Expr, ...]], Expr] | None:
    """What an element is of the tile that the first statement of ``body`` fills; None where it is needed.

    It holds until a pass writes all of the tile anew, or else up to the end of the kernel.
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
    """Whether all of a tile becomes elements of an array as they are, and nothing writes that array.

    The array's elements may be those of a tile that is not filled either.
    """
    src, dst = stmt.src, stmt.dst
    written = buffer_effects(ctx.program.body).written
    read = {src.buffer} - ctx.repeats.keys()
    for start in src.starts:
        read |= {part.buffer for part in walk_expr(start) if isinstance(part, Load)}
    if ctx.rows_of(dst.buffer) is None or dst.buffer in ctx.lazy:
        return False
    if any(name not in ctx.arrays or name in written or ctx.is_aliased(name) for name in read):
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

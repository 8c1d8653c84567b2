"""Writes loops in C over a region, in the order of its buffer in memory."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

from tileyard.ir.nodes import Const, Expr, Region, Var
from tileyard.targets.cpu.emit.context import Context
from tileyard.targets.cpu.emit.exprs import index, index_side, place
from tileyard.targets.cpu.emit.parts import ZERO, add, constant, times
from tileyard.targets.cpu.emit.scalars import C_BYTES
from tileyard.targets.cpu.emit.tiles import ColumnPanels, RowPanels, Rows, Tile, panel_elements


@dataclass(frozen=True, kw_only=True, slots=True)
class Segment:
    """Elements along the last dimension of a region. ``coordinates`` are the first one's, relative to the
    region, ``address`` its address; ``step`` is the distance in elements from one to the next.
    """

    coordinates: tuple[Expr, ...]
    count: Expr
    address: str
    step: int = 1


def segments(ctx: Context, region: Region) -> Iterator[Segment]:
    """Opens loops in C and yields the segment that their body handles, perhaps several times. A
    region of a buffer kept for gemms must be whole.
    """
    tile = ctx.plan.tiles.get(region.buffer)
    if tile is None or isinstance(tile.layout, Rows):
        return _in_rows(ctx, region)
    match tile.layout:
        case RowPanels() as layout:
            return _in_row_panels(ctx, region, tile, layout)
        case ColumnPanels(transposed=False) as layout:
            return _in_column_panels(ctx, region, tile, layout)
        case ColumnPanels() as layout:
            return _in_lanes(ctx, region, tile, layout)


def loop(ctx: Context, var: Expr, extent: Expr) -> str:
    """The head of a loop of ``var`` from 0 to ``extent`` - 1; empty if ``var`` is always 0."""
    if not isinstance(var, Var):
        return ""
    kind = "int64_t" if var.dtype == "int64" else "int32_t"
    return f"for ({kind} {var.name} = 0; {var.name} < {index_side(ctx, extent)}; ++{var.name})"


def counter(ctx: Context, stem: str, extent: Expr | int) -> Expr:
    """A variable for a loop of ``extent`` iterations; the constant 0 for one iteration."""
    if isinstance(extent, Const):
        extent = int(extent.value)
    return ZERO if extent == 1 else ctx.counter(stem, extent)


def matrix_start(ctx: Context, tile: Tile, region: Region) -> Expr:
    """Number of elements of ``tile`` before the matrix ``region``."""
    start: Expr = ZERO
    for at, extent in zip(region.starts[:-2], tile.shape[:-2], strict=True):
        start = add(times(start, extent), at)
    return times(start, tile.matrix_elements)


def element_indices(region: Region, segment: Segment, var: Expr) -> tuple[Expr, ...]:
    """The indices in the buffer of element number ``var`` of a segment of ``region``."""
    pairs = zip(region.starts, segment.coordinates, strict=True)
    at = [add(start, coordinate) for start, coordinate in pairs]
    return (*at[:-1], add(at[-1], var)) if at else ()


def _in_rows(ctx: Context, region: Region) -> Iterator[Segment]:
    coordinates: list[Expr] = []
    with ExitStack() as stack:
        for extent in region.extents[:-1]:
            var = counter(ctx, "i", extent)
            coordinates.append(var)
            if isinstance(var, Var):
                stack.enter_context(ctx.out.block(loop(ctx, var, extent)))
        coordinates += [ZERO] * min(len(region.extents), 1)
        at = tuple(add(start, i) for start, i in zip(region.starts, coordinates, strict=True))
        count = region.extents[-1] if region.extents else constant(1)
        address = f"&{place(ctx, region.buffer, at)}"
        yield Segment(coordinates=tuple(coordinates), count=count, address=address)


def _leading(region: Region) -> tuple[Expr, ...]:
    return (ZERO,) * (len(region.extents) - 2)


def _in_row_panels(
    ctx: Context, region: Region, tile: Tile, layout: RowPanels
) -> Iterator[Segment]:
    columns, chunk = tile.matrix[1], layout.chunk
    padded = -(-columns // chunk) * chunk
    base = matrix_start(ctx, tile, region)
    first = 0
    for height, count in layout.split:
        panel, row = counter(ctx, "panel", count), counter(ctx, "row", height)
        i = add(times(panel, height), constant(first), row)
        with ctx.out.block(loop(ctx, panel, constant(count))):
            for start, number, width in pieces(columns, chunk):
                piece = counter(ctx, "chunk", number)
                with (
                    ctx.out.block(loop(ctx, piece, constant(number))),
                    ctx.out.block(loop(ctx, row, constant(height))),
                ):
                    offset = add(
                        base,
                        constant(first * padded + start * height),
                        times(panel, height * padded),
                        times(piece, chunk * height),
                        times(row, chunk),
                    )
                    yield Segment(
                        coordinates=(
                            *_leading(region),
                            i,
                            add(times(piece, chunk), constant(start)),
                        ),
                        count=constant(width),
                        address=f"&{ctx.names[tile.name]}[{index(ctx, offset)}]",
                    )
        first += height * count


def pieces(columns: int, width: int) -> list[tuple[int, int, int]]:
    """Whole pieces and the rest: the first column, number and width of each group of pieces."""
    whole, rest = divmod(columns, width)
    found = [(0, whole, width)] if whole else []
    return [*found, (whole * width, 1, rest)] if rest else found


def _in_column_panels(
    ctx: Context, region: Region, tile: Tile, layout: ColumnPanels
) -> Iterator[Segment]:
    depth, columns = tile.matrix
    width = layout.columns
    base, distance = _begin_panels(ctx, region, tile, layout)
    row = counter(ctx, "row", depth)
    with ctx.out.block(loop(ctx, row, constant(depth))):
        for start, panels, count in pieces(columns, width):
            panel = counter(ctx, "panel", panels)
            first = add(base, constant(start // width * distance))
            offset = add(first, times(row, width), times(panel, distance))
            with ctx.out.block(loop(ctx, panel, constant(panels))):
                column = add(times(panel, width), constant(start))
                yield Segment(
                    coordinates=(*_leading(region), row, column),
                    count=constant(count),
                    address=f"&{ctx.names[tile.name]}[{index(ctx, offset)}]",
                )


def _in_lanes(ctx: Context, region: Region, tile: Tile, layout: ColumnPanels) -> Iterator[Segment]:
    lanes, depth = tile.matrix
    width = layout.columns
    base, distance = _begin_panels(ctx, region, tile, layout)
    for start, panels, count in pieces(lanes, width):
        panel, lane = counter(ctx, "panel", panels), counter(ctx, "lane", count)
        first = add(base, constant(start // width * distance))
        offset = add(first, times(panel, distance), lane)
        with (
            ctx.out.block(loop(ctx, panel, constant(panels))),
            ctx.out.block(loop(ctx, lane, constant(count))),
        ):
            i = add(times(panel, width), constant(start), lane)
            yield Segment(
                coordinates=(*_leading(region), i, ZERO),
                count=constant(depth),
                address=f"&{ctx.names[tile.name]}[{index(ctx, offset)}]",
                step=width,
            )


def _begin_panels(
    ctx: Context, region: Region, tile: Tile, layout: ColumnPanels
) -> tuple[Expr, int]:
    """The start of the first panel, and the elements from one to the next. Zeroes the last one
    unless it is full: its rest is multiplied, too.
    """
    columns, depth = tile.matrix if layout.transposed else tile.matrix[::-1]
    base = matrix_start(ctx, tile, region)
    distance = panel_elements(depth, layout.columns, C_BYTES[tile.scalar])
    if columns % layout.columns:
        start = add(base, constant(columns // layout.columns * distance))
        size = distance * C_BYTES[tile.scalar]
        ctx.out.line(f"memset(&{ctx.names[tile.name]}[{index(ctx, start)}], 0, {size});")
    return base, distance

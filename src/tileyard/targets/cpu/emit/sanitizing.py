"""Writes the checks of a sanitized build: blocks find tiles poisoned, and read only what they have written.
Behind a thread's tiles is their shadow: for each byte one that says whether the block wrote it.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from tileyard.ir.dtypes import is_float
from tileyard.ir.nodes import AnyTileOperation, Buffer, Region
from tileyard.ir.walk import read_regions, written_region
from tileyard.targets.cpu.emit.context import Context
from tileyard.targets.cpu.emit.copies import inside_tests
from tileyard.targets.cpu.emit.exprs import index_term, note_written, require_written
from tileyard.targets.cpu.emit.loops import segments

NAN, ODD, TRUE = "0xff", "0xa5", "0x01"
"""The bytes of poison in floats, in integers (in 32 bits: -1515870811), and in bool."""


def begin_block(ctx: Context, buffers: tuple[Buffer, ...]) -> None:
    """Poison all tiles, and note that nothing is written: a tile's last write is its allocation at
    first. Its number is -1 minus that of its buffer among the whole Program's ``buffers``.
    """
    shadow = ctx.plan.scratch_bytes
    ctx.out.line(f"memset(scratch + {shadow}, 0, {shadow});")
    for number, name in enumerate(buffer.name for buffer in buffers):
        tile = ctx.plan.tiles.get(name)
        if tile is None or tile.view_of:
            continue
        byte = NAN if is_float(tile.dtype) else TRUE if tile.dtype == "bool" else ODD
        ctx.out.line(f"memset({ctx.names[name]}, {byte}, {tile.bytes});")
        ctx.last_writes[name] = ctx.names.fresh(f"{ctx.names[name]}_last")
        ctx.statement = -1 - number
        ctx.out.line(f"int32_t {ctx.last_writes[name]} = {ctx.fault(f'{name} is allocated')};")


@contextmanager
def noting(ctx: Context, stmt: AnyTileOperation) -> Iterator[None]:
    """Around a tile operation: check what it reads, and note what it writes."""
    for region in read_regions(stmt):
        for address, count in _rows(ctx, region):
            ctx.out.line(f"{require_written(ctx, region.buffer, address, count)};")
    yield
    written = written_region(stmt)
    if written is not None:
        for address, count in _rows(ctx, written):
            note_written(ctx, written.buffer, address, count)


def _rows(ctx: Context, region: Region) -> Iterator[tuple[str, str]]:
    """Write loops over a tile region's rows, yielding each one's address and length; none for an array."""
    if region.buffer in ctx.arrays:
        return
    inside_tests(ctx, region)
    for segment in segments(ctx, region):
        yield segment.address, index_term(ctx, segment.count)

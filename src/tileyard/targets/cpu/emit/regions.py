"""What regions of tiles are, seen by themselves."""

from tileyard.errors import UnsupportedError
from tileyard.ir.effects import read_regions, written_region
from tileyard.ir.nodes import Const, Copy, Region, Stmt


def is_whole(region: Region, shape: tuple[int, ...]) -> bool:
    """Whether ``region`` is all of the last two dimensions of a tile, at one place of the others."""
    inner = max(len(shape) - 2, 0)
    if any(extent != Const(1, extent.dtype) for extent in region.extents[:inner]):
        return False
    pairs = zip(region.starts[inner:], region.extents[inner:], shape[inner:], strict=True)
    return all(
        start == Const(0, start.dtype) and extent == Const(size, extent.dtype)
        for start, extent, size in pairs
    )


def extent_of(region: Region, dimension: int) -> int:
    """A constant extent of a region. Raises UnsupportedError for another."""
    extent = region.extents[dimension]
    if not isinstance(extent, Const):
        raise UnsupportedError(
            f"a region of {region.buffer} has an extent that is not constant",
            operation="region",
            buffer=region.buffer,
        )
    return int(extent.value)


def has_rows(stmt: Copy) -> bool:
    """Whether a row of the destination is contiguous in the source too."""
    src, dst = stmt.src.extents[-1], stmt.dst.extents[-1]
    return src == dst or (
        isinstance(src, Const) and isinstance(dst, Const) and src.value == dst.value
    )


def tiles_of(stmt: Stmt) -> set[str]:
    """The buffers of which ``stmt`` takes regions, not elements."""
    regions = [*read_regions(stmt), written_region(stmt)]
    return {region.buffer for region in regions if region is not None}

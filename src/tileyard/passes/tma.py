"""What the tensor memory accelerator can copy from an array to a tile in shared memory. Source: PTX
ISA, "Tensors" and "cp.async.bulk.tensor"; CUDA driver API, ``cuTensorMapEncodeTiled``.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from tileyard.ir.dtypes import find_dtype
from tileyard.ir.nodes import Buffer, Const, Copy, Expr
from tileyard.passes.divisors import find_divisor
from tileyard.passes.swizzles import is_known_swizzle


@dataclass(frozen=True, kw_only=True)
class TmaLimits:
    """TMA's limits: alignment in bytes of addresses, strides and rows; box elements by dimension;
    dimensions.
    """

    aligned_bytes: int = 16
    box: int = 256
    rank: int = 5


LIMITS = TmaLimits()


def why_not_tma(copy: Copy, src: Buffer, dst: Buffer, lets: Mapping[str, Expr]) -> str:
    """Why it cannot do ``copy``; empty if it can. ``lets`` are the values of variables by name."""
    if src.dtype != dst.dtype:
        return f"it converts {src.dtype} to {dst.dtype}"
    if src.dtype == "bool":
        return "TMA has no elements of type bool"
    if len(src.shape) > LIMITS.rank:
        return f"TMA takes arrays of {LIMITS.rank} dimensions at most, and {src.name} has {len(src.shape)}"
    bits, aligned = find_dtype(src.dtype).bits, LIMITS.aligned_bytes * 8
    if src.strides and src.strides[-1] != Const(1, src.strides[-1].dtype):
        return f"the elements of a row of {src.name} are not one after the other"
    if any(stride * bits % aligned for stride in _strides(src, lets)):
        return f"TMA needs strides of 16 bytes, and those of {src.name} are not known to be"
    if copy.src.extents[-1] != _last_extent(copy):
        return f"a row of the tile is not one of {src.name}"
    row = find_divisor(copy.src.extents[-1], lets)
    if row * bits % aligned:
        return f"TMA copies rows of 16 bytes, and {row} elements of {src.dtype} are none"
    if not is_known_swizzle(dst):
        return f"TMA knows rows and its own swizzles, and {dst.name} has another layout"
    is_one_row = all(extent == Const(1, extent.dtype) for extent in copy.src.extents[:-1])
    if is_one_row and find_divisor(copy.src.starts[-1], lets) * bits % aligned:
        return (
            "TMA copies one row from a multiple of 16 bytes, "
            f"and this one of {src.name} may begin elsewhere"
        )
    for extent in copy.src.extents:
        if not isinstance(extent, Const) or int(extent.value) > LIMITS.box:
            return f"a side of the box has more than {LIMITS.box} elements"
    return ""


def _strides(src: Buffer, lets: Mapping[str, Expr]) -> list[int]:
    """For each dimension but the last a number that divides its stride in elements."""
    if src.strides:
        return [find_divisor(stride, lets) or 1 for stride in src.strides[:-1]]
    found, product = list[int](), 1
    for extent in reversed(src.shape[1:]):
        product *= find_divisor(extent, lets)
        found.append(product)
    return found


def _last_extent(copy: Copy) -> Expr | None:
    return copy.dst.extents[-1] if copy.dst.extents else None

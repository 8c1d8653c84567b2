"""What ``cp.async`` can copy: from global to shared memory, without conversion, 4, 8 or 16 bytes at
once. Source: PTX ISA, "Data Movement and Conversion Instructions: cp.async".
"""

import math
from collections.abc import Mapping

from tileyard.ir.dtypes import find_dtype
from tileyard.ir.nodes import Buffer, Const, Copy, Expr
from tileyard.passes.divisors import find_divisor
from tileyard.passes.swizzles import count_together

SIZES = (16, 8, 4)
"""Numbers of bytes that it moves at once. Source and destination are aligned to this number."""


def why_not_cp_async(copy: Copy, src: Buffer, dst: Buffer, lets: Mapping[str, Expr]) -> str:
    """Why ``cp.async`` cannot copy from an array to a shared tile; empty if it can. ``lets`` are by name."""
    if src.dtype != dst.dtype:
        return f"it converts {src.dtype} to {dst.dtype}"
    size = find_dtype(src.dtype).bits // 8
    count = _count_contiguous(copy, src, dst, lets)
    together = count_together(dst)
    if together < min(SIZES):
        return f"cp.async moves 4, 8 or 16 bytes, and the layout of {dst.name} leaves {together} together"
    if any(count * size % each == 0 for each in SIZES):
        return ""
    return (
        f"cp.async moves 4, 8 or 16 aligned bytes, and {src.name} has {count * size} in a row here"
    )


def _count_contiguous(copy: Copy, src: Buffer, dst: Buffer, lets: Mapping[str, Expr]) -> int:
    """The number of elements that are certainly contiguous, and begin at a multiple of this number."""
    if src.strides and src.strides[-1] != Const(1, src.strides[-1].dtype):
        return 1
    if not copy.dst.extents or copy.src.extents[-1] != copy.dst.extents[-1]:
        return 1
    outer = src.strides[-2:-1] if src.strides else src.shape[-1:] if len(src.shape) > 1 else ()
    parts = [copy.dst.extents[-1], dst.shape[-1], copy.src.starts[-1], *outer]
    return math.gcd(*(find_divisor(part, lets) for part in parts))

"""Determines what the units of an architecture can copy from an array to a tile in shared memory.

Sources: PTX ISA, "Data Movement and Conversion Instructions: cp.async", "Tensors" and "cp.async.bulk.tensor";
CUDA driver API, ``cuTensorMapEncodeTiled``.
"""

import math
from collections.abc import Mapping

from tileyard.ir.dtypes import find_dtype
from tileyard.ir.nodes import Buffer, Cast, Const, Copy, Expr, Op, Var
from tileyard.passes.swizzles import count_together, is_known_swizzle

SIZES = (16, 8, 4)
"""Numbers of bytes that ``cp.async`` moves at once. Source and destination are aligned to this number."""

TMA_BYTES, TMA_BOX, TMA_RANK = 16, 256, 5
"""Bytes to which TMA aligns addresses, strides and rows; largest side of its boxes; largest rank."""


def why_not_cp_async(copy: Copy, src: Buffer, dst: Buffer, lets: Mapping[str, Expr]) -> str:
    """Why ``cp.async`` cannot do ``copy``, without conversion and 4, 8 or 16 bytes at once; empty if it can.

    ``lets`` are the values of variables by name.
    """
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
    """The number of elements that are certain to be contiguous, and to begin at a multiple of this number."""
    if src.strides and src.strides[-1] != Const(1, src.strides[-1].dtype):
        return 1
    if not copy.dst.extents or copy.src.extents[-1] != copy.dst.extents[-1]:
        return 1
    outer = src.strides[-2:-1] if src.strides else src.shape[-1:] if len(src.shape) > 1 else ()
    parts = [copy.dst.extents[-1], dst.shape[-1], copy.src.starts[-1], *outer]
    return math.gcd(*(_find_divisor(part, lets) for part in parts))


def why_not_tma(copy: Copy, src: Buffer, dst: Buffer, lets: Mapping[str, Expr]) -> str:
    """Why the tensor memory accelerator cannot do ``copy``; empty if it can. ``lets`` are the values of
    variables by name.
    """
    if src.dtype != dst.dtype:
        return f"it converts {src.dtype} to {dst.dtype}"
    if src.dtype == "bool":
        return "TMA has no elements of type bool"
    if len(src.shape) > TMA_RANK:
        return f"TMA takes arrays of {TMA_RANK} dimensions at most, and {src.name} has {len(src.shape)}"
    bits, aligned = find_dtype(src.dtype).bits, TMA_BYTES * 8
    if src.strides and src.strides[-1] != Const(1, src.strides[-1].dtype):
        return f"the elements of a row of {src.name} are not one after the other"
    if any(stride * bits % aligned for stride in _strides(src, lets)):
        return f"TMA needs strides of 16 bytes, and those of {src.name} are not known to be"
    if copy.src.extents[-1:] != copy.dst.extents[-1:]:
        return f"a row of the tile is not one of {src.name}"
    row = _find_divisor(copy.src.extents[-1], lets)
    if row * bits % aligned:
        return f"TMA copies rows of 16 bytes, and {row} elements of {src.dtype} are none"
    if not is_known_swizzle(dst):
        return f"TMA knows rows and its own swizzles, and {dst.name} has another layout"
    is_one_row = all(extent == Const(1, extent.dtype) for extent in copy.src.extents[:-1])
    if is_one_row and _find_divisor(copy.src.starts[-1], lets) * bits % aligned:
        where = f"and this one of {src.name} may begin elsewhere"
        return f"TMA copies one row from a multiple of 16 bytes, {where}"
    for extent in copy.src.extents:
        if not isinstance(extent, Const) or int(extent.value) > TMA_BOX:
            return f"a side of the box has more than {TMA_BOX} elements"
    return ""


def _strides(src: Buffer, lets: Mapping[str, Expr]) -> list[int]:
    """For each dimension but the last a number that divides its stride in elements."""
    if src.strides:
        return [_find_divisor(stride, lets) or 1 for stride in src.strides[:-1]]
    found, product = list[int](), 1
    for extent in reversed(src.shape[1:]):
        product *= _find_divisor(extent, lets)
        found.append(product)
    return found


def _find_divisor(expr: Expr, lets: Mapping[str, Expr]) -> int:
    """A number that certainly divides ``expr``, to prove that addresses are aligned; 0 if ``expr`` is 0."""
    match expr:
        case Const(value=value):
            return abs(int(value))
        case Var(name=name) if name in lets:
            return _find_divisor(lets[name], lets)
        case Cast(value=value):
            return _find_divisor(value, lets)
        case Op(name="mul", args=(a, b)):
            return _find_divisor(a, lets) * _find_divisor(b, lets)
        case Op(name="floordiv" | "truncdiv", args=(a, Const(value=by))) if int(by) > 0:
            whole, left = divmod(_find_divisor(a, lets), int(by))
            return 1 if left else whole
        case Op(name="add" | "sub" | "min" | "max", args=(a, b)):
            return math.gcd(_find_divisor(a, lets), _find_divisor(b, lets))
        case _:
            return 1

"""What ``cp.async`` can copy: from global to shared memory, as it is, 4, 8 or 16 bytes at once.

Source: PTX ISA, "Data Movement and Conversion Instructions: cp.async".
"""

import math
from collections.abc import Mapping

from tileyard.ir.dtypes import find_dtype
from tileyard.ir.nodes import Buffer, Cast, Const, Copy, Expr, Op, Var

SIZES = (16, 8, 4)
"""Bytes that it moves at once. Source and destination are aligned to as many."""


def why_not_cp_async(copy: Copy, src: Buffer, dst: Buffer, lets: Mapping[str, Expr]) -> str:
    """Why it cannot do ``copy``, from an array to a tile in shared memory; empty where it can.

    ``lets`` are the values of variables by their names.
    """
    if src.dtype != dst.dtype:
        return f"it converts {src.dtype} to {dst.dtype}"
    size = find_dtype(src.dtype).bits // 8
    count = _count_contiguous(copy, src, dst, lets)
    if any(count * size % each == 0 for each in SIZES):
        return ""
    return (
        f"cp.async moves 4, 8 or 16 aligned bytes, and {src.name} has {count * size} in a row here"
    )


def _count_contiguous(copy: Copy, src: Buffer, dst: Buffer, lets: Mapping[str, Expr]) -> int:
    """How many elements are certain to be one after the other, and to begin where a multiple of so many does."""
    if src.strides and src.strides[-1] != Const(1, src.strides[-1].dtype):
        return 1
    if not copy.dst.extents or copy.src.extents[-1] != copy.dst.extents[-1]:
        return 1
    outer = src.strides[-2:-1] if src.strides else src.shape[-1:] if len(src.shape) > 1 else ()
    parts = [copy.dst.extents[-1], dst.shape[-1], copy.src.starts[-1], *outer]
    return math.gcd(*(_divisor(part, lets) for part in parts))


def _divisor(expr: Expr, lets: Mapping[str, Expr]) -> int:
    """A number that divides ``expr``; 0 for what is 0."""
    match expr:
        case Const(value=value):
            return abs(int(value))
        case Var(name=name) if name in lets:
            return _divisor(lets[name], lets)
        case Cast(value=value):
            return _divisor(value, lets)
        case Op(name="mul", args=(a, b)):
            return _divisor(a, lets) * _divisor(b, lets)
        case Op(name="floordiv" | "truncdiv", args=(a, Const(value=by))) if int(by) > 0:
            whole, left = divmod(_divisor(a, lets), int(by))
            return 1 if left else whole
        case Op(name="add" | "sub" | "min" | "max", args=(a, b)):
            return math.gcd(_divisor(a, lets), _divisor(b, lets))
        case _:
            return 1

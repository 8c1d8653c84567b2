"""Lowers tile operations to loops over elements, or to boxes: scans, transposes, atomics, im2col, rows."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from tileyard.frontend.scope import Scope
from tileyard.ir.nodes import (
    Atomic,
    AtomicKind,
    Const,
    Expr,
    For,
    Load,
    LoopKind,
    Op,
    Reduce,
    Region,
    Stmt,
    Store,
    Var,
)
from tileyard.ir.verify_exprs import is_one
from tileyard.ir.walk import convert

ScanKind = Literal["add", "max"]


@dataclass(frozen=True, kw_only=True)
class Window:
    """The window of a convolution, the same in both directions."""

    kernel: int
    stride: int
    dilation: int
    padding: int


# ---- operations ---------------------------------------------------------------------------------


def atomic(scope: Scope, kind: AtomicKind, source: Region | Expr, dst: Region) -> tuple[Stmt, ...]:
    """Update each element of ``dst`` with the value, or with the corresponding element of ``source``."""
    dtype = scope.named(dst.buffer).dtype
    loops = _loops(scope, dst.extents)
    if isinstance(source, Region):
        pairs = _pair(scope, f"atomic {kind}", source, dst)
        at = list(source.starts)
        for mine, other in pairs.items():
            at[other] = _add(at[other], loops[mine])
        value: Expr = Load(source.buffer, tuple(at), scope.named(source.buffer).dtype)
    else:
        value = source
    update = Atomic(dst.buffer, _move(dst.starts, loops), convert(value, dtype), kind)
    return _nest(loops, dst.extents, (update,))


def rows(
    array: Region, tile: Region, places: Sequence[tuple[Expr, Expr]]
) -> list[tuple[Region, Region]]:
    """For each place in a matrix, as many elements from there on as in a row of ``tile``, and that row."""
    extents = (Const(1, "int32"), tile.extents[1])
    return [
        (
            Region(array.buffer, place, extents),
            Region(tile.buffer, (Const(row, "int32"), ZERO), extents),
        )
        for row, place in enumerate(places)
    ]


def scan(
    scope: Scope, kind: ScanKind, regions: tuple[Region, Region], axis: int, is_reverse: bool
) -> tuple[Stmt, ...]:
    """Each element of the second region is the fold, in its dtype, of the first's up to there along
    the axis; with ``is_reverse`` from the end.
    """
    src, dst = regions
    scope.require(
        src.extents == dst.extents, "scan", "of regions of different shapes is not covered"
    )
    dtype = scope.named(dst.buffer).dtype
    extent = src.extents[axis]
    loops = _loops(scope, dst.extents)
    loops[axis] = ZERO
    step = Var(scope.names.take("step"), extent.dtype)
    last = _sub(extent, Const(1, extent.dtype))

    def at(region: Region, place: Expr) -> tuple[Expr, ...]:
        moved = [*loops]
        moved[axis] = _sub(last, place) if is_reverse else place
        return _move(region.starts, moved)

    def read(region: Region, place: Expr) -> Expr:
        buffer = region.buffer
        return convert(Load(buffer, at(region, place), scope.named(buffer).dtype), dtype)

    before = _sub(step, Const(1, step.dtype))
    total = Op(kind, (read(dst, before), read(src, step)), dtype)
    first = Store(dst.buffer, at(dst, Const(0, extent.dtype)), read(src, Const(0, extent.dtype)))
    others = For(
        step, Const(1, step.dtype), last, "serial", (Store(dst.buffer, at(dst, step), total),)
    )
    return _nest(loops, dst.extents, (first, others))


def reduce_with_nan(scope: Scope, how: Reduce) -> tuple[Stmt, ...]:
    """As a reduction to the largest or smallest, but NaN if one of the elements is NaN."""
    src, dst = how.src, how.dst
    dtype = scope.named(dst.buffer).dtype
    loops = _loops(scope, src.extents)
    before, after = loops[: how.axis], loops[how.axis + 1 :]
    middle = [ZERO] if len(dst.extents) == len(src.extents) else []
    place = _move(dst.starts, [*before, *middle, *after])
    value = convert(
        Load(src.buffer, _move(src.starts, loops), scope.named(src.buffer).dtype), dtype
    )
    if how.kind == "absmax":
        value = Op("abs", (value,), dtype)
    old = Load(dst.buffer, place, dtype)
    total: Expr = Op("min" if how.kind == "min" else "max", (old, value), dtype)
    for part in (old, value):
        total = Op("select", (Op("isnan", (part,), "bool"), part, total), dtype)
    extents = list(src.extents)
    extent = extents.pop(how.axis)
    folds = _nest([loops[how.axis]], [extent], (Store(dst.buffer, place, total),), kind="serial")
    first = Store(dst.buffer, place, Const(_STARTS[how.kind], dtype))
    return _nest([*before, *after], extents, (first, *folds) if how.clear else folds)


_STARTS = {"max": -math.inf, "min": math.inf, "absmax": 0.0}


def transpose(scope: Scope, src: Region, dst: Region) -> tuple[Stmt, ...]:
    """Swap the last two dimensions."""
    scope.require(src.buffer != dst.buffer, "transpose", "of a buffer into itself is not covered")
    turned = (*src.extents[:-2], src.extents[-1], src.extents[-2])
    scope.require(
        turned == dst.extents, "transpose", "of regions whose shapes do not match is not covered"
    )
    loops = _loops(scope, dst.extents)
    places = [*loops[:-2], loops[-1], loops[-2]]
    value = Load(src.buffer, _move(src.starts, places), scope.named(src.buffer).dtype)
    store = Store(
        dst.buffer, _move(dst.starts, loops), convert(value, scope.named(dst.buffer).dtype)
    )
    return _nest(loops, dst.extents, (store,))


def im2col(
    scope: Scope, image: Region, columns: Region, steps: tuple[Expr, Expr], window: Window
) -> tuple[Stmt, ...]:
    """Rows are places of the window in an image (n, h, w, c), columns are its elements. ``steps``
    count blocks of rows and of columns. Outside the image there are zeros.
    """
    shape = scope.named(image.buffer).shape
    scope.require(
        len(shape) == 4 and len(columns.extents) >= 2 and _is_all(image, shape),
        "im2col",
        "of something else than an image (n, h, w, c) is not covered",
    )
    height, width, channels = shape[1:]
    reach = 2 * window.padding - (window.kernel - 1) * window.dilation - 1
    out_h, out_w = (
        _add(_div(_add(size, _int(reach)), _int(window.stride)), _int(1))
        for size in (height, width)
    )
    block_m, block_k = columns.extents[-2:]
    loops = _loops(scope, columns.extents)
    row = _add(_mul(steps[0], block_m), loops[-2])
    column = _add(_mul(steps[1], block_k), loops[-1])
    pixels = _mul(out_h, out_w)
    y = _add(
        _mul(_div(_mod(row, pixels), out_w), _int(window.stride)),
        _mul(_div(column, _mul(_int(window.kernel), channels)), _int(window.dilation)),
    )
    x = _add(
        _mul(_mod(row, out_w), _int(window.stride)),
        _mul(_mod(_div(column, channels), _int(window.kernel)), _int(window.dilation)),
    )
    place = (
        _div(row, pixels),
        _sub(y, _int(window.padding)),
        _sub(x, _int(window.padding)),
        _mod(column, channels),
    )
    # Elements outside the image read as zero, like everything outside an array.
    value = Load(image.buffer, place, scope.named(image.buffer).dtype)
    dtype = scope.named(columns.buffer).dtype
    store = Store(columns.buffer, _move(columns.starts, loops), convert(value, dtype))
    return _nest(loops, columns.extents, (store,))


def any_or_all(
    scope: Scope, name: Literal["any", "all"], region: Region
) -> tuple[tuple[Stmt, ...], Load]:
    """Fold the truth of a region's elements into an element of a new buffer named after ``name``."""
    found = scope.new_buffer(name, "bool", (Const(1, "int32"),))
    dtype = scope.named(region.buffer).dtype
    loops = _loops(scope, region.extents)
    element = convert(Load(region.buffer, _move(region.starts, loops), dtype), "bool")
    old = Load(found, (ZERO,), "bool")
    step = Op("or" if name == "any" else "and", (old, element), "bool")
    first = Store(found, (ZERO,), Const(name == "all", "bool"))
    nest = _nest(loops, region.extents, (Store(found, (ZERO,), step),), kind="serial")
    return (first, *nest), old


# ---- loops --------------------------------------------------------------------------------------

ZERO = Const(0, "int32")


def _loops(scope: Scope, extents: Sequence[Expr]) -> list[Expr]:
    """A variable for each extent other than 1, else 0."""
    return [
        ZERO if is_one(extent) else Var(scope.names.take("ijkl"[i % 4]), extent.dtype)
        for i, extent in enumerate(extents)
    ]


def _nest(
    loops: Sequence[Expr],
    extents: Sequence[Expr],
    body: tuple[Stmt, ...],
    kind: LoopKind = "parallel",
) -> tuple[Stmt, ...]:
    for var, extent in zip(reversed(loops), reversed(extents), strict=True):
        if isinstance(var, Var):
            body = (For(var, Const(0, var.dtype), extent, kind, body),)
    return body


def _pair(scope: Scope, name: str, src: Region, dst: Region) -> dict[int, int]:
    """For each dimension of ``dst`` longer than 1, the corresponding dimension of ``src``."""
    left = [i for i, extent in enumerate(src.extents) if not is_one(extent)]
    right = [i for i, extent in enumerate(dst.extents) if not is_one(extent)]
    scope.require(
        [src.extents[i] for i in left] == [dst.extents[i] for i in right],
        name,
        "of regions whose shapes do not match is not covered",
    )
    return dict(zip(right, left, strict=True))


def _is_all(region: Region, shape: Sequence[Expr]) -> bool:
    return tuple(region.extents) == tuple(shape) and all(
        isinstance(start, Const) and start.value == 0 for start in region.starts
    )


# ---- arithmetic on indices ----------------------------------------------------------------------


def _int(number: int) -> Const:
    return Const(number, "int32")


def _move(starts: Sequence[Expr], by: Sequence[Expr]) -> tuple[Expr, ...]:
    return tuple(_add(start, step) for start, step in zip(starts, by, strict=True))


def _binary(
    name: str, fold: Callable[[int, int], int], neutral: int | None = None
) -> Callable[[Expr, Expr], Expr]:
    """An operation on two integers in the wider of their types, computed at once if both are known."""

    def make(left: Expr, right: Expr) -> Expr:
        dtype = "int64" if "int64" in (left.dtype, right.dtype) else left.dtype
        if isinstance(left, Const) and isinstance(right, Const):
            return Const(fold(int(left.value), int(right.value)), dtype)
        if isinstance(right, Const) and right.value == neutral:
            return convert(left, dtype)
        return Op(name, (convert(left, dtype), convert(right, dtype)), dtype)

    return make


_sub = _binary("sub", lambda a, b: a - b, 0)
_mul = _binary("mul", lambda a, b: a * b, 1)
_div = _binary("floordiv", lambda a, b: a // b, 1)
_mod = _binary("floormod", lambda a, b: a % b)
_plus = _binary("add", lambda a, b: a + b, 0)


def _add(left: Expr, right: Expr) -> Expr:
    if isinstance(left, Const) and left.value == 0:
        return right
    return _plus(left, right)

"""Describes single parts of Programs: statements, regions, and expressions that are indices."""

import functools
from collections.abc import Iterable, Iterator, Mapping

from tileyard.base.errors import UnsupportedError
from tileyard.ir.nodes import Const, Expr, For, Load, Op, Region, Stmt
from tileyard.ir.walk import bodies, buffer_effects, read_regions, walk, walk_expr, written_region

ZERO = Const(0, "int32")

# ---- statements -----------------------------------------------------------------------------------


def numbered(body: Iterable[Stmt], number: int) -> Iterator[tuple[int, Stmt]]:
    """The statements of a body with their pre-order numbers, the first being ``number``."""
    for stmt in body:
        yield number, stmt
        number += count_statements(stmt)


def count_statements(*body: Stmt) -> int:
    """Number of these statements, nested ones included."""
    return sum(1 for _ in walk(body))


def find_bodies(body: tuple[Stmt, ...]) -> Iterator[tuple[Stmt, ...]]:
    """``body`` and all bodies inside it, except those of parallel loops."""
    yield body
    for stmt in body:
        if not is_parallel(stmt):
            for inner in bodies(stmt):
                yield from find_bodies(inner)


def is_parallel(stmt: Stmt) -> bool:
    """Whether a statement is a parallel loop, which is written as a whole."""
    return isinstance(stmt, For) and stmt.kind == "parallel"


def touched(*body: Stmt) -> frozenset[str]:
    """The buffers that statements read or write, nested ones included."""
    effects = buffer_effects(body)
    return effects.read | effects.written


def tiles_of(stmt: Stmt) -> set[str]:
    """The buffers of which ``stmt`` uses regions, not elements."""
    regions = [*read_regions(stmt), written_region(stmt)]
    return {region.buffer for region in regions if region is not None}


# ---- regions --------------------------------------------------------------------------------------


def is_whole(region: Region, shape: tuple[int, ...]) -> bool:
    """Whether ``region`` is all of the last two dimensions of a tile, at one index of the others."""
    inner = max(len(shape) - 2, 0)
    pairs = zip(region.extents[inner:], shape[inner:], strict=True)
    return (
        all(find_number(extent) == 1 for extent in region.extents[:inner])
        and all(map(is_zero, region.starts[inner:]))
        and all(find_number(extent) == size for extent, size in pairs)
    )


def covers(region: Region, shape: tuple[Expr, ...]) -> bool:
    """Whether ``region`` is all of a buffer of this shape."""
    pairs = zip(region.extents, shape, strict=True)
    return all(map(is_zero, region.starts)) and all(is_same(*pair) for pair in pairs)


def extent_of(region: Region, dimension: int) -> int:
    """A constant extent of a region. Raises UnsupportedError if it is not constant."""
    extent = find_number(region.extents[dimension])
    if extent is None:
        raise UnsupportedError(
            f"a region of {region.buffer} has an extent that is not constant",
            operation="region",
            buffer=region.buffer,
        )
    return extent


def pair_dimensions(src: Region, dst: Region, axis: int | None = None) -> dict[int, int] | None:
    """For dimensions of ``dst`` longer than 1 those of ``src``, but ``axis``, as long; None for no match."""
    left, right = [i for i in long_dimensions(src) if i != axis], long_dimensions(dst)
    pairs = dict(zip(right, left, strict=False))
    is_match = len(left) == len(right) and all(
        is_same(src.extents[i], dst.extents[j]) for j, i in pairs.items()
    )
    return pairs if is_match else None


def find_extents(region: Region) -> list[int] | None:
    """The extents of a region; None if one is not constant."""
    found = [find_number(extent) for extent in region.extents]
    numbers = [extent for extent in found if extent is not None]
    return numbers if len(numbers) == len(found) else None


def long_dimensions(region: Region) -> list[int]:
    """The dimensions of a region that are not of extent 1."""
    return [i for i, extent in enumerate(region.extents) if find_number(extent) != 1]


def moved(region: Region, by: Mapping[int, Expr]) -> tuple[Expr, ...]:
    """The indices in its buffer of the element at offsets ``by``, by dimension, from a region's first."""
    return tuple(add(start, by[d]) if d in by else start for d, start in enumerate(region.starts))


def ends(region: Region) -> tuple[tuple[Expr, ...], tuple[Expr, ...]]:
    """The first and the last index of a region in each dimension."""
    lasts = (
        add(start, add(extent, Const(-1, extent.dtype)))
        for start, extent in zip(region.starts, region.extents, strict=True)
    )
    return region.starts, tuple(lasts)


# ---- indices --------------------------------------------------------------------------------------


def find_number(expr: Expr) -> int | None:
    """The integer value of an expression; None if it is not a constant."""
    return int(expr.value) if isinstance(expr, Const) else None


def is_zero(expr: Expr) -> bool:
    """Whether an index is certainly 0."""
    return find_number(expr) == 0


def is_same(a: Expr, b: Expr) -> bool:
    """Whether two extents are the same, whatever their integer types."""
    if isinstance(a, Const) and isinstance(b, Const):
        return a.value == b.value
    return a == b


def constant(number: int) -> Const:
    """An integer as an expression."""
    return Const(number, "int32")


def add(*terms: Expr) -> Expr:
    """The sum of indices, without zeros."""
    return functools.reduce(_add, terms)


def _add(left: Expr, right: Expr) -> Expr:
    if is_zero(left) or is_zero(right):
        return right if is_zero(left) else left
    if isinstance(left, Const) and isinstance(right, Const):
        return Const(int(left.value) + int(right.value), left.dtype)
    return Op("add", (left, right), "int64" if "int64" in (left.dtype, right.dtype) else "int32")


def times(var: Expr, factor: int) -> Expr:
    """A multiple of a counter."""
    if factor == 1 or var == ZERO:
        return var
    return Op("mul", (var, constant(factor)), var.dtype)


def reads(*exprs: Expr) -> Iterator[Load]:
    """All elements that expressions read, those in indices included."""
    return (part for expr in exprs for part in walk_expr(expr) if isinstance(part, Load))

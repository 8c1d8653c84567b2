"""Analyzes parallel loops: bounds that hold throughout, independent stores, accesses by rows.
Divisions of a variable by a small constant are removed by writing several elements at once.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import TypeGuard, TypeVar

import msgspec

from tileyard.ir.nodes import (
    Atomic,
    Cast,
    Const,
    Expr,
    For,
    If,
    Let,
    Load,
    Op,
    ReduceKind,
    Region,
    Store,
    Var,
)
from tileyard.ir.ranges import Interval
from tileyard.ir.walk import buffer_effects, children, expressions, replace_parts, walk, walk_expr
from tileyard.targets.cpu.emit.context import Bound, Context
from tileyard.targets.cpu.emit.exprs import can_fail, index, index_side, is_below, place, unrounded
from tileyard.targets.cpu.emit.scalars import C_BYTES, SATURATED, SCALARS
from tileyard.targets.cpu.emit.tiles import (
    ZERO,
    ColumnPanels,
    RowPanels,
    Rows,
    Tile,
    add,
    constant,
    find_number,
    is_zero,
    reads,
    times,
)

# ---- independence and bounds ----------------------------------------------------------------------


def is_independent(ctx: Context, stmt: For) -> bool:
    """Whether no iteration of an innermost parallel loop touches what another writes, as far as indices
    show: each written buffer is touched at one place only, which this loop's variable alone moves.
    """
    inner = tuple(walk(stmt.body))
    is_plain = all(isinstance(part, Store | Let | If) for part in inner)
    if stmt.kind not in ("parallel", "vectorized") or not is_plain:
        return False
    stores = [part for part in inner if isinstance(part, Store)]
    places = {store.buffer: store.indices for store in stores}
    loads = (load for part in inner for load in reads(*expressions(part)))
    uses: list[Store | Load] = [*stores, *loads]
    stored = {ctx.storage(buffer) for buffer in places}
    return all(
        places.get(one.buffer) == one.indices and moves(one.indices, stmt.var)
        for one in uses
        if ctx.storage(one.buffer) in stored
    )


def moves(indices: tuple[Expr, ...], var: Var) -> bool:
    """Whether different values of ``var`` certainly give different indices."""
    return any(_steps(expr, var) for expr in indices)


def is_along(indices: tuple[Expr, ...], var: Var) -> bool:
    """Whether these indices address contiguous elements as ``var`` counts."""
    return (
        bool(indices)
        and _steps(indices[-1], var, is_up=True)
        and not any(var in walk_expr(at) for at in indices[:-1])
    )


def _steps(expr: Expr, var: Var, *, is_up: bool = False) -> bool:
    """Whether ``expr`` changes by one per step of ``var``; with ``is_up``, only upwards."""
    if expr == var:
        return True
    match expr:
        case Op(name="add" | "sub" as name, args=(left, right)):
            if var not in walk_expr(right):
                return _steps(left, var, is_up=is_up)
            is_covered = var not in walk_expr(left) and not (is_up and name == "sub")
            return is_covered and _steps(right, var, is_up=is_up)
        case _:
            return False


def _open_bounds(ctx: Context, nest: For) -> list[tuple[Bound, bool, bool]]:
    found: list[tuple[Bound, bool, bool]] = []
    for stmt in walk((nest,)):
        if isinstance(stmt, For):
            ctx.ranges.bind_loop(stmt)
        if isinstance(stmt, Let):
            continue
        own = (stmt,) if isinstance(stmt, Atomic | Store) else ()
        for part in (*reads(*expressions(stmt)), *own):
            if part.buffer in ctx.arrays:
                found += ctx.open_bounds(part.buffer, part.indices)
    return found


def interior_tests(ctx: Context, nest: For) -> dict[Bound, str]:
    """The test for each bound of array elements that a test before the nest can establish. Also
    binds the ranges of the loops' variables.
    """
    bounds = _open_bounds(ctx, nest)
    loops = {stmt.var: stmt for stmt in walk((nest,)) if isinstance(stmt, For)}
    changing = {stmt.var for stmt in walk((nest,)) if isinstance(stmt, Atomic | Let)}
    written = {ctx.storage(buffer) for buffer in buffer_effects((nest,)).written}
    tests: dict[Bound, str] = {}
    may_skip = _may_skip(nest)
    for (at, extent), low, high in bounds:
        corners = _corners(at, loops)
        if corners is None or _depends(ctx, corners, {*loops, *changing}, written):
            continue
        if may_skip and any(can_fail(ctx, corner) for corner in corners):
            continue
        parts = []
        if low:
            parts.append(f"{index_side(ctx, corners[0])} >= 0")
        if high:
            parts.append(is_below(ctx, corners[1], extent))
        tests[at, extent] = " && ".join(parts)
    return tests


def _may_skip(nest: For) -> bool:
    """Whether a nest may run without computing all expressions in it."""
    parts = (part for stmt in walk((nest,)) for one in expressions(stmt) for part in walk_expr(one))
    return any(
        isinstance(part, Op) and part.name in ("select", "and", "or") for part in parts
    ) or any(
        isinstance(stmt, If) or (isinstance(stmt, For) and find_number(stmt.extent) is None)
        for stmt in walk((nest,))
    )


def _depends(
    ctx: Context, corners: tuple[Expr, Expr], bound: set[Var | None], written: set[str]
) -> bool:
    """Whether the corners depend on what a nest binds or writes, and so cannot be computed before it."""
    return any(
        (isinstance(part, Var) and part in bound)
        or (isinstance(part, Load) and ctx.storage(part.buffer) in written)
        for corner in corners
        for part in walk_expr(corner)
    )


def _corners(expr: Expr, loops: dict[Var, For]) -> tuple[Expr, Expr] | None:
    """The least and the greatest value of ``expr`` over the loops; None if it is not monotone."""
    if isinstance(expr, Var) and expr in loops:
        loop = loops[expr]
        return loop.start, add(loop.start, loop.extent, Const(-1, expr.dtype))
    if not any(part in loops for part in walk_expr(expr) if isinstance(part, Var)):
        return expr, expr
    if not isinstance(expr, Op) or len(expr.args) != 2:
        return None
    left, right = (_corners(arg, loops) for arg in expr.args)
    if left is None or right is None:
        return None
    match expr.name:
        case "add":
            return add(left[0], right[0]), add(left[1], right[1])
        case "sub":
            low, high = (left[0], right[1]), (left[1], right[0])
            return Op("sub", low, expr.dtype), Op("sub", high, expr.dtype)
        case "mul" | "floordiv" if isinstance(expr.args[1], Const) and expr.args[1].value > 0:
            return (
                Op(expr.name, (left[0], expr.args[1]), expr.dtype),
                Op(expr.name, (left[1], expr.args[1]), expr.dtype),
            )
        case _:
            return None


# ---- divisions of a loop's variable ---------------------------------------------------------------------


MOST = 8
"""The largest divisor that is removed; all are powers of two."""


def count_at_once(expr: Expr, stmt: For) -> int:
    """Number of elements to write at once so that no division of the variable is left."""
    divisors = {
        divisor
        for part in walk_expr(expr)
        if (divisor := _divisor(part)) and stmt.var in walk_expr(children(part)[0])
    }
    most = max(divisors, default=1)
    if not 1 < most <= MOST or any(least < 0 or most % least for least in divisors):
        return 1
    is_whole = isinstance(stmt.extent, Const) and int(stmt.extent.value) % most == 0
    return most if is_whole and MOST % most == 0 and _is_multiple(stmt.start, most) else 1


def _divisor(expr: Expr) -> int:
    """The divisor of a quotient or a remainder; 0 if it is not constant, or ``expr`` is neither."""
    match expr:
        case Op(
            name="floordiv" | "floormod" | "truncdiv" | "truncmod", args=(_, Const(value=value))
        ):
            return int(value)
        case _:
            return 0


def _is_multiple(expr: Expr, factor: int) -> bool:
    match expr:
        case Const():
            return int(expr.value) % factor == 0
        case Op(name="add" | "sub", args=(left, right)):
            return _is_multiple(left, factor) and _is_multiple(right, factor)
        case Op(name="mul", args=(left, right)):
            return _is_multiple(left, factor) or _is_multiple(right, factor)
        case _:
            return False


def _without(expr: Expr, var: Var) -> Expr | None:
    """The rest of the sum ``expr`` without ``var``; None if it is not such a sum."""
    if expr == var:
        return Const(0, expr.dtype)
    match expr:
        case Op(name="add", args=(left, right)):
            inside, other = (left, right) if var in walk_expr(left) else (right, left)
            rest = None if var in walk_expr(other) else _without(inside, var)
            return None if rest is None else add(rest, other)
        case _:
            return None


@dataclass(frozen=True, kw_only=True, slots=True)
class Together:
    """Elements that ``var``, named ``stem``, counts: ``count`` at once from ``start`` in C."""

    ctx: Context
    var: Var
    count: int
    start: str
    stem: str

    def write(self, expr: Expr, line: Callable[[Expr], str]) -> None:
        """Write the ``line`` of ``expr`` for each element of group ``e_``, whose number is ``n_``."""
        ctx, out, count, kind = self.ctx, self.ctx.out, self.count, SCALARS[self.var.dtype].value
        inside = ctx.ranges.of(self.var)
        groups = Interval(inside.low // count, inside.high // count)
        group = ctx.variable(f"{self.stem}_by_{count}", self.var.dtype, groups)
        out.line(f"const {kind} {group.name} = {self.start} / {count} + e_;")
        for rest in range(count):
            bounds: set[Bound] = set()
            resolved = replace_parts(expr, partial(self._resolve, (group, rest), bounds))
            with out.block(""), ctx.assuming(bounds):
                place = f"{ctx.names[self.var.name]} = {self.start} + n_"
                out.line(f"const {kind} n_ = {count} * e_ + {rest}, {place};")
                out.line(line(resolved))

    def _resolve(self, element: tuple[Var, int], bounds: set[Bound], expr: Expr) -> Expr | None:
        """``expr`` without divisions of the variable; None if its parts must be resolved one by
        one. ``bounds`` collects those of indices without divisions, which held with them.
        """
        if expr in self.ctx.known:
            return expr
        if isinstance(expr, Load) and not self.ctx.open_bounds(expr.buffer, expr.indices):
            resolve = partial(self._resolve, element, bounds)
            indices = tuple(replace_parts(at, resolve) for at in expr.indices)
            bounds.update(zip(indices, self.ctx.shape(expr.buffer), strict=True))
            return Load(expr.buffer, indices, expr.dtype)
        divisor = _divisor(expr)
        if divisor and isinstance(expr, Op) and self.var in walk_expr(expr.args[0]):
            return self._divide(element, expr, divisor)
        return None

    def _divide(self, element: tuple[Var, int], op: Op, divisor: int) -> Expr | None:
        """An element's quotient or remainder: its group's variable and its number in the group."""
        (group, rest), base = element, _without(op.args[0], self.var)
        if (
            base is None
            or not _is_multiple(base, divisor)
            or self.ctx.ranges.of(op.args[0]).low < 0
        ):
            return None
        if op.name.endswith("mod"):
            return Const(rest % divisor, op.dtype)
        groups = Op("mul", (group, Const(self.count // divisor, op.dtype)), op.dtype)
        whole = group if self.count == divisor else groups
        start = add(Op("floordiv", (base, op.args[1]), op.dtype), whole)
        if is_zero(base):
            start = whole
        return add(start, Const(rest // divisor, op.dtype))


# ---- rows -----------------------------------------------------------------------------------------


_FUNCTIONS = frozenset({"exp", "exp2", "exp10", "log10", "sin", "cos", "pow"})
"""Functions for which tile.h has a version for whole rows."""

ROW_FUNCTIONS = _FUNCTIONS - {"exp", "exp2"}
"""Functions for which tile.h has a version for whole rows and none for single vectors."""


class Fold(msgspec.Struct, frozen=True, kw_only=True):
    """The values of a row, folded into one element of ``buffer``."""

    buffer: str
    indices: tuple[Expr, ...]
    value: Expr
    kind: ReduceKind
    clear: bool


Step = Store | Fold
AnyStep = TypeVar("AnyStep", bound=Step)


def replace_in(step: AnyStep, known: Callable[[Expr], Expr | None]) -> AnyStep:
    """``step`` with each part replaced for which ``known`` returns a replacement."""
    indices = tuple(replace_parts(at, known) for at in step.indices)
    return msgspec.structs.replace(step, indices=indices, value=replace_parts(step.value, known))


def is_row(ctx: Context, one: Store | Load, var: Var) -> bool:
    """Whether the elements that are written or read certainly exist and are contiguous."""
    return is_along(one.indices, var) and not ctx.open_bounds(one.buffer, one.indices)


def is_narrow_row(ctx: Context, expr: Expr, var: Var) -> bool:
    """Whether ``expr`` reads contiguous numbers of a narrow array, all of which exist."""
    return isinstance(expr, Load) and bool(ctx.narrow(expr.buffer)) and is_row(ctx, expr, var)


def rounds(ctx: Context, expr: Expr) -> bool:
    """Whether the value of ``expr`` is rounded by a conversion for which rows have a step."""
    rounding = unrounded(ctx, expr)[1] if isinstance(expr, Cast | Op) else ""
    return bool(rounding) and (isinstance(expr, Cast) or not rounding.startswith("f8"))


def is_row_function(expr: Expr) -> TypeGuard[Op]:
    """Whether ``expr`` is a function that is applied to whole rows."""
    is_known = isinstance(expr, Op) and expr.name in _FUNCTIONS
    return is_known and SCALARS[expr.dtype].value == "float" and expr.dtype not in SATURATED


def has_gain(ctx: Context, store: Store, stmt: For) -> bool:
    """Whether a store converts, rounds, calls a row function or divides the loop's variable."""
    return (
        (store.buffer in ctx.large and ctx.element_type(store.buffer) == "float")
        or bool(ctx.narrow(store.buffer))
        or any(
            is_narrow_row(ctx, part, stmt.var) or rounds(ctx, part) or is_row_function(part)
            for part in walk_expr(store.value)
        )
        or count_at_once(store.value, stmt) > 1
    )


def plain_stores(stmt: For) -> list[Store] | None:
    """The stores of the body with its bindings substituted; None for other statements, or if no
    store uses a binding: its value's faults would be lost.
    """
    used = {part for one in stmt.body for expr in expressions(one) for part in walk_expr(expr)}
    bound: dict[Expr, Expr] = {}
    found: list[Store] = []
    written = {part.buffer for part in stmt.body if isinstance(part, Store)}
    for part in stmt.body:
        if isinstance(part, Let) and part.value.dtype == part.var.dtype and part.var in used:
            if any(load.buffer in written for load in reads(part.value)):
                return None
            bound[part.var] = replace_parts(part.value, bound.get)
        elif isinstance(part, Store):
            found.append(replace_in(part, bound.get))
        else:
            return None
    return found or None


@dataclass(frozen=True, kw_only=True, slots=True)
class Segment:
    """Elements along the last dimension of a region. ``coordinates`` are the first one's, relative to the
    region, ``address`` its address; ``step`` is the distance in elements from one to the next. In a panel of
    rows, they are part of its row number ``row``.
    """

    coordinates: tuple[Expr, ...]
    count: Expr
    address: str
    step: int = 1
    row: Expr = ZERO


BeginPanel = Callable[[Expr, int], None]
"""Writes what precedes a panel of rows, given its first row and its height."""


def segments(
    ctx: Context, region: Region, begin: BeginPanel = lambda *_: None
) -> Iterator[Segment]:
    """Opens loops in C and yields the segment that their body handles, perhaps several times. A
    region of a buffer kept for gemms must be whole; ``begin`` writes what precedes panels of rows.
    """
    tile = ctx.plan.tiles.get(region.buffer)
    if tile is None or isinstance(tile.layout, Rows):
        return _in_rows(ctx, region)
    match tile.layout:
        case RowPanels() as layout:
            return _in_row_panels(ctx, region, tile, layout, begin)
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
    ctx: Context, region: Region, tile: Tile, layout: RowPanels, begin: BeginPanel
) -> Iterator[Segment]:
    columns, chunk = tile.matrix[1], layout.chunk
    padded = -(-columns // chunk) * chunk
    base = matrix_start(ctx, tile, region)
    if tile.packing and columns % chunk:  # what follows k in a word, and what a flag is about
        clear_matrix(ctx, tile, base)
    first = 0
    for height, count in layout.split:
        panel, row = counter(ctx, "panel", count), counter(ctx, "row", height)
        i = add(times(panel, height), constant(first), row)
        with ctx.out.block(loop(ctx, panel, constant(count))):
            begin(add(times(panel, height), constant(first)), height)
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
                        row=row,
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
    width, fold = layout.columns, layout.fold
    base, distance = begin_panels(ctx, region, tile, layout)
    for top, words, rows in pieces(depth, fold):
        word, inside = counter(ctx, "row", words), counter(ctx, "part", rows)
        row = add(times(word, fold), constant(top), inside)
        with (
            ctx.out.block(loop(ctx, word, constant(words))),
            ctx.out.block(loop(ctx, inside, constant(rows))),
        ):
            for start, panels, count in pieces(columns, width):
                panel = counter(ctx, "panel", panels)
                first = add(base, constant(start // width * distance + top * width))
                down = add(times(word, width * fold), inside)
                offset = add(first, down, times(panel, distance))
                with ctx.out.block(loop(ctx, panel, constant(panels))):
                    column = add(times(panel, width), constant(start))
                    yield Segment(
                        coordinates=(*_leading(region), row, column),
                        count=constant(count),
                        address=f"&{ctx.names[tile.name]}[{index(ctx, offset)}]",
                        step=fold,
                    )


def _in_lanes(ctx: Context, region: Region, tile: Tile, layout: ColumnPanels) -> Iterator[Segment]:
    lanes, depth = tile.matrix
    width, fold = layout.columns, layout.fold
    base, distance = begin_panels(ctx, region, tile, layout)
    for start, panels, count in pieces(lanes, width):
        panel, lane = counter(ctx, "panel", panels), counter(ctx, "lane", count)
        first = add(base, constant(start // width * distance))
        offset = add(first, times(panel, distance), times(lane, fold))
        i = add(times(panel, width), constant(start), lane)
        with (
            ctx.out.block(loop(ctx, panel, constant(panels))),
            ctx.out.block(loop(ctx, lane, constant(count))),
        ):
            if fold == 1:
                yield Segment(
                    coordinates=(*_leading(region), i, ZERO),
                    count=constant(depth),
                    address=f"&{ctx.names[tile.name]}[{index(ctx, offset)}]",
                    step=width,
                )
                continue
            for top, words, rows in pieces(depth, fold):
                word = counter(ctx, "row", words)
                at = add(offset, times(word, width * fold), constant(top * width))
                with ctx.out.block(loop(ctx, word, constant(words))):
                    yield Segment(
                        coordinates=(*_leading(region), i, add(times(word, fold), constant(top))),
                        count=constant(rows),
                        address=f"&{ctx.names[tile.name]}[{index(ctx, at)}]",
                    )


def clear_matrix(ctx: Context, tile: Tile, start: Expr) -> None:
    """Write zeros into all of a matrix of a tile in panels."""
    size = f"{tile.content_elements} * sizeof({tile.scalar})"
    ctx.out.line(f"memset(&{ctx.names[tile.name]}[{index(ctx, start)}], 0, {size});")


def begin_panels(
    ctx: Context, region: Region, tile: Tile, layout: ColumnPanels
) -> tuple[Expr, int]:
    """The start of the first panel, and the elements from one to the next. Zeroes the last one
    unless it is full, and all if the last words are not: their rest is multiplied, too.
    """
    columns, depth = tile.matrix if layout.transposed else tile.matrix[::-1]
    base = matrix_start(ctx, tile, region)
    distance = layout.distance(depth, tile.scalar)
    if depth % layout.fold:
        clear_matrix(ctx, tile, base)
    elif columns % layout.columns:
        start = add(base, constant(columns // layout.columns * distance))
        size = distance * C_BYTES[tile.scalar]
        ctx.out.line(f"memset(&{ctx.names[tile.name]}[{index(ctx, start)}], 0, {size});")
    return base, distance

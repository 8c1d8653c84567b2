"""Writes copies and fills in C: row by row if a box is inside its arrays, otherwise element by
element. Iteration follows the destination's layout. Elements outside a global source are 0.

Zero fills of tiles that a gemm accumulates into are left to the gemm, which then need not read: a C
variable per such tile records that it counts as zero although its memory was not written.
"""

from dataclasses import dataclass

from tileyard.base.errors import UnsupportedError
from tileyard.ir.dtypes import TENSOR_FLOAT, find_dtype
from tileyard.ir.nodes import (
    Const,
    Expr,
    Fill,
    For,
    Gemm,
    If,
    Program,
    Region,
    Roles,
    Stmt,
    TileOperation,
    While,
)
from tileyard.ir.walk import bodies, own_effects, walk
from tileyard.targets.cpu.emit.context import Bound, Context
from tileyard.targets.cpu.emit.exprs import (
    condition,
    from_memory,
    guard,
    index,
    index_side,
    index_term,
    is_below,
    place,
    to_memory,
    value,
)
from tileyard.targets.cpu.emit.loops import (
    Segment,
    begin_panels,
    clear_matrix,
    counter,
    element_indices,
    loop,
    matrix_start,
    pieces,
    segments,
)
from tileyard.targets.cpu.emit.plain_statements import failure
from tileyard.targets.cpu.emit.plan import Plan
from tileyard.targets.cpu.emit.scalars import C_BYTES, SCALARS, cast
from tileyard.targets.cpu.emit.tiles import (
    LINE,
    ZERO,
    ColumnPanels,
    RowPanels,
    Tile,
    add,
    constant,
    ends,
    find_bodies,
    is_parallel,
    is_whole,
    is_zero_fill,
    moved,
    pair_dimensions,
    times,
    touched,
)

# ---- copies ---------------------------------------------------------------------------------------

_BLOCK = 64
"""Columns that are transposed at a time."""

_WIDE = 256
"""About how many columns are interleaved at a time."""

_ROWS_AHEAD = 4
"""Distance, in rows of panels, at which the source of a copy is prefetched."""

_TARGET_AHEAD = 2
"""Distance, in rows, at which the destination array of a copy is prefetched."""

_SHARE = 4
"""Number of parts of the L2 cache: a tile as large as one part is written past it."""

_EIGHT = ("f8e4m3", "f8e5m2")
"""Marks of the types that tile.h converts to packed bfloat16."""

_PAGE = 4096
"""Largest row, in bytes, for which processors do not prefetch the next row by themselves."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Boxes:
    """A copy's regions; ``pairs`` maps dimensions of ``dst`` longer than 1 to their counterparts in
    ``src``.
    """

    src: Region
    dst: Region
    pairs: dict[int, int]

    def source_indices(self, coordinates: tuple[Expr, ...]) -> tuple[Expr, ...]:
        """The indices in the source's buffer for coordinates in the destination's box."""
        return moved(self.src, {other: coordinates[mine] for mine, other in self.pairs.items()})

    @property
    def has_rows(self) -> bool:
        """Whether elements along the last dimension of ``dst`` are contiguous in ``src``."""
        last = len(self.dst.extents) - 1
        return last not in self.pairs or self.pairs[last] == len(self.src.extents) - 1

    def is_plain(self, ctx: Context) -> bool:
        """Whether memory is the same on both sides, bit by bit."""
        source, target = self.src.buffer, self.dst.buffer
        if ctx.element_type(source) != ctx.element_type(target):
            return False
        a, b = ctx.dtype(source), ctx.dtype(target)
        if a == TENSOR_FLOAT and source in ctx.arrays:
            return a == b and target in ctx.arrays
        # In tiles, narrow floats are floats already.
        return a == b or (SCALARS[a].value == "float" and b == "float32")

    def move_row(self, ctx: Context, to: str, source: str, count: str) -> None:
        """Write the move of ``count`` contiguous elements between two addresses."""
        element = ctx.element_type(self.dst.buffer)
        function = "memcpy" if self.is_plain(ctx) else self._row_function(ctx)
        if function:
            size = f"{count} * sizeof({element})" if function == "memcpy" else count
            write_row(ctx, self.dst.buffer, function, to, source, size)
            return
        with ctx.out.block(""):
            ctx.out.line(f"const {ctx.element_type(self.src.buffer)} *from_ = {source};")
            ctx.out.line(f"{element} *to_ = {to};")
            ctx.out.line("TY_INDEPENDENT")
            with ctx.out.block(f"for (int64_t e_ = 0; e_ < {count}; ++e_)"):
                ctx.out.line(f"to_[e_] = {self.convert(ctx, 'from_[e_]')};")

    def convert(self, ctx: Context, element: str) -> str:
        """The C value for an element of the destination, given an lvalue of the source."""
        source, target = self.src.buffer, self.dst.buffer
        read = from_memory(ctx, source, element)
        return to_memory(ctx, target, cast(read, ctx.dtype(source), ctx.dtype(target)))

    def _row_function(self, ctx: Context) -> str:
        """The function of tile.h that moves and converts whole rows; empty if there is none."""
        source, target = self.src.buffer, self.dst.buffer
        held, narrow = ctx.narrow(source), ctx.scalar(target).narrow
        if held in _EIGHT and ctx.narrow(target) == "bf16" and target not in ctx.arrays:
            return f"ty_row_bf16_from_{held}"
        if held and ctx.element_type(target) == "float":
            is_kept = ctx.dtype(target) in ("float32", ctx.dtype(source))
            return f"ty_row_from_{held}" if is_kept else ""
        if held or ctx.element_type(source) != "float" or not narrow:
            return ""
        if ctx.dtype(source) == ctx.dtype(target):
            return f"ty_row_pack_{narrow}"
        return f"ty_row_{'to' if ctx.is_memory(target) else 'round'}_{narrow}"


def write_row(ctx: Context, buffer: str, function: str, *arguments: str) -> None:
    """Write a call of ``function`` of tile.h, which fills a row of ``buffer``, past the caches if large."""
    if buffer in ctx.large:
        function = "ty_write" if function == "memcpy" else function.replace("ty_row", "ty_write", 1)
        arguments = (*arguments, ctx.large[buffer])
    ctx.out.line(f"{function}({', '.join(arguments)});")


def emit_copy(ctx: Context, src: Region, dst: Region) -> None:
    """Write ``dst = cast(src)``. Raises UnsupportedError."""
    boxes = match_boxes(src, dst)
    if ctx.storage(src.buffer) == ctx.storage(dst.buffer):
        raise UnsupportedError(f"copy within {src.buffer}", operation="copy")

    def by_element() -> None:
        for segment in segments(ctx, dst):
            _each_element(ctx, boxes, segment, is_inside=False)

    tests = {**inside_tests(ctx, src), **inside_tests(ctx, dst)}
    ctx.out.either(tests.values(), lambda: _emit_inside(ctx, boxes), by_element)
    _finish(ctx, dst)


def match_boxes(src: Region, dst: Region) -> Boxes:
    """The two boxes of a copy, matched. Raises UnsupportedError if their shapes differ."""
    pairs = pair_dimensions(src, dst)
    if pairs is None:
        raise UnsupportedError(
            f"boxes of {src.buffer} and {dst.buffer} have different shapes", operation="copy"
        )
    return Boxes(src=src, dst=dst, pairs=pairs)


def inside_tests(ctx: Context, region: Region) -> dict[tuple[Bound, str], str]:
    """C tests that hold if ``region`` is inside its array; none for certain bounds. A tile's region
    that may be outside is a fault, reported at once.
    """
    first, last = ends(region)
    tests = {
        (bound, "low"): f"{index_side(ctx, bound[0])} >= 0"
        for bound, is_low, _ in ctx.open_bounds(region.buffer, first)
        if is_low
    }
    tests |= {
        (bound, "high"): is_below(ctx, *bound)
        for bound, _, is_high in ctx.open_bounds(region.buffer, last)
        if is_high
    }
    if region.buffer in ctx.arrays or not tests:
        return tests
    shape = list(ctx.plan.tiles[region.buffer].shape)
    site = ctx.fault(f"a region of {region.buffer} is outside its shape {shape}")
    about = [index for (index, _), _ in tests]
    ctx.out.line(f"if (!({' && '.join(tests.values())})) {failure(ctx, site, about)}")
    return {}


def _emit_inside(ctx: Context, boxes: Boxes) -> None:
    tile = ctx.plan.tiles.get(boxes.dst.buffer)
    if tile is not None and isinstance(tile.layout, ColumnPanels) and boxes.has_rows:
        if tile.layout.transposed:
            _transpose(ctx, boxes, tile, tile.layout)
            return
        if tile.layout.fold > 1:
            _zip(ctx, boxes, tile, tile.layout)
            return
    is_packed = tile is not None and isinstance(tile.layout, RowPanels) and tile.packing is not None
    if tile is not None and is_packed and boxes.has_rows and not boxes.is_plain(ctx):
        _cut(ctx, boxes, tile)
        return
    for segment in segments(ctx, boxes.dst):
        if not boxes.has_rows or segment.step != 1:
            _each_element(ctx, boxes, segment, is_inside=True)
            continue
        source = place(ctx, boxes.src.buffer, boxes.source_indices(segment.coordinates))
        if tile is not None and boxes.src.buffer in ctx.arrays:
            _fetch_ahead(ctx, boxes, segment, tile)
        if tile is None:
            _fetch_target(ctx, boxes, segment)
        count = index_term(ctx, segment.count)
        if is_put(ctx, boxes):
            size = f"{count} * sizeof({ctx.element_type(boxes.dst.buffer)})"
            ctx.out.line(f"ty_put({segment.address}, &{source}, {size});")
        else:
            boxes.move_row(ctx, segment.address, f"&{source}", count)


def is_put(ctx: Context, boxes: Boxes) -> bool:
    """Whether a copy into a kept operand goes past the caches: it takes much of L2; gemms prefetch it."""
    buffer = boxes.dst.buffer
    kept, tile = ctx.plan.keeping.tiles.get(buffer), ctx.plan.tiles.get(buffer)
    if kept is None or tile is None or not isinstance(tile.layout, ColumnPanels):
        return False
    size = C_BYTES[tile.scalar]
    return (
        not tile.layout.transposed
        and tile.packing is None
        and boxes.is_plain(ctx)
        and tile.matrix[1] % tile.layout.columns == 0
        and tile.layout.columns * size % LINE == 0
        and _SHARE * tile.matrix_elements * size >= ctx.machine.l2_bytes
    )


def _fetch_target(ctx: Context, boxes: Boxes, segment: Segment) -> None:
    """Prefetch a later row of the destination array if its rows are apart and not written past the caches."""
    dst, count = boxes.dst.buffer, segment.count
    lies_alone = len(segment.coordinates) < 2 or segment.coordinates[-2] == ZERO
    if lies_alone or not isinstance(count, Const) or ctx.shape(dst)[-1] == count:
        return
    size = int(count.value) * find_dtype(ctx.dtype(dst)).bits // 8
    if not LINE <= size <= _PAGE:
        return
    *leading, at, column = element_indices(boxes.dst, segment, constant(0))
    address = place(ctx, dst, (*leading, add(at, constant(_TARGET_AHEAD)), column))
    flag = f"if (!{ctx.large[dst]}) " if dst in ctx.large else ""
    ctx.out.line(f"{flag}ty_fetch(&{address}, {size});")


def _fetch_ahead(ctx: Context, boxes: Boxes, segment: Segment, tile: Tile) -> None:
    """Prefetch the source of some rows later: processors do not look beyond a page."""
    match tile.layout:
        case RowPanels(split=split):
            ahead = _ROWS_AHEAD * split[0][0]
        case ColumnPanels():
            ahead = _ROWS_AHEAD
        case _:
            return
    *leading, row, column = segment.coordinates
    later = boxes.source_indices((*leading, add(row, constant(ahead)), column))
    ctx.out.line(f"__builtin_prefetch(&{place(ctx, boxes.src.buffer, later)});")


def _each_element(ctx: Context, boxes: Boxes, segment: Segment, *, is_inside: bool) -> None:
    """Move a segment one element at a time, each with a test unless ``is_inside``."""
    src, dst = boxes.src.buffer, boxes.dst.buffer
    var = counter(ctx, "e", segment.count)
    coordinates = segment.coordinates
    if coordinates:
        coordinates = (*coordinates[:-1], add(coordinates[-1], var))
    source = boxes.source_indices(coordinates)
    text = boxes.convert(ctx, place(ctx, src, source))
    inside = "" if is_inside else condition(ctx, src, source)
    if inside:
        text = f"{inside} ? {text} : 0"
    test = "" if is_inside else guard(ctx, dst, element_indices(boxes.dst, segment, var))
    step = index(ctx, times(var, segment.step))
    if loop(ctx, var, segment.count):
        ctx.out.line("TY_INDEPENDENT")
    with ctx.out.block(loop(ctx, var, segment.count)):
        ctx.out.line(f"{test}({segment.address})[{step}] = {text};")


# ---- transposition ------------------------------------------------------------------------------


def _transpose(ctx: Context, boxes: Boxes, tile: Tile, layout: ColumnPanels) -> None:
    """Fill panels whose columns are the source's rows: read a block of each row, then transpose all."""
    lanes, depth = tile.matrix
    width, fold = layout.columns, layout.fold
    distance = layout.distance(depth, tile.scalar)
    start = matrix_start(ctx, tile, boxes.dst)
    src, leading = boxes.src.buffer, (ZERO,) * (len(boxes.dst.extents) - 2)
    part = ctx.names.fresh("part")
    ctx.out.line(f"{tile.scalar} {part}[{width}][{_BLOCK}] __attribute__((aligned(64)));")
    for first, panels, used in pieces(lanes, width):
        panel, lane = counter(ctx, "panel", panels), counter(ctx, "lane", used)
        row = add(times(panel, width), constant(first), lane)
        with ctx.out.block(loop(ctx, panel, constant(panels))):
            if used < width or depth % fold:  # else nothing is turned that was not read
                ctx.out.line(f"memset({part}, 0, sizeof {part});")
            for left, blocks, count in reversed(
                pieces(depth, _BLOCK)
            ):  # the rest while it is clear
                block = counter(ctx, "piece", blocks)
                column = add(times(block, _BLOCK), constant(left))
                with ctx.out.block(loop(ctx, block, constant(blocks))):
                    with ctx.out.block(loop(ctx, lane, constant(used))):
                        source = place(ctx, src, boxes.source_indices((*leading, row, column)))
                        to = f"{part}[{index(ctx, lane)}]"
                        boxes.move_row(ctx, to, f"&{source}", str(count))
                    inside = add(times(panel, distance), times(column, width))
                    offset = add(start, constant(first // width * distance), inside)
                    to = f"&{ctx.names[tile.name]}[{index(ctx, offset)}]"
                    turn = f"ty_turn_{tile.scalar}({to}, {part}[0]"
                    if tile.packing is not None:
                        turn = f"ty_turn_float((float *){to}, (const float *){part}"
                    sizes = f"{width}, {_BLOCK // fold}, {-(-count // fold)}"
                    ctx.out.line(f"{turn}, {sizes});")


# ---- rows in chunks ------------------------------------------------------------------------------


def _cut(ctx: Context, boxes: Boxes, tile: Tile) -> None:
    """Fill panels of rows: convert all rows of a panel, then cut them into chunks, too short for vectors."""
    part, columns = ctx.names.fresh("part"), tile.matrix[1]
    leading = (ZERO,) * (len(boxes.dst.extents) - 2)

    def convert(first: Expr, height: int) -> None:
        row = counter(ctx, "row", height)
        indices = boxes.source_indices((*leading, add(first, row), ZERO))
        source = place(ctx, boxes.src.buffer, indices)
        ctx.out.line(f"{tile.scalar} {part}[{height}][{columns}] __attribute__((aligned(64)));")
        with ctx.out.block(loop(ctx, row, constant(height))):
            boxes.move_row(ctx, f"{part}[{index(ctx, row)}]", f"&{source}", str(columns))

    for segment in segments(ctx, boxes.dst, convert):
        chunk = f"&{part}[{index(ctx, segment.row)}][{index(ctx, segment.coordinates[-1])}]"
        size = f"{index_term(ctx, segment.count)} * sizeof({tile.scalar})"
        ctx.out.line(f"memcpy({segment.address}, {chunk}, {size});")


# ---- words of packed tiles ------------------------------------------------------------------------


def _zip(ctx: Context, boxes: Boxes, tile: Tile, layout: ColumnPanels) -> None:
    """Fill panels of words: read a part of as many rows as a word has elements, then interleave them."""
    depth, columns = tile.matrix
    width, fold = layout.columns, layout.fold
    base, distance = begin_panels(ctx, boxes.dst, tile, layout)
    wide = max(_WIDE // width, 1) * width
    parts = [ctx.names.fresh("part") for _ in range(fold)]
    kind = "uint16_t" if fold == 2 else "uint8_t"
    for part in parts:
        ctx.out.line(f"{tile.scalar} {part}[{wide}] __attribute__((aligned(64)));")
    for top, words, rows in pieces(depth, fold):
        word = counter(ctx, "row", words)
        for part in parts[rows:]:
            ctx.out.line(f"memset({part}, 0, sizeof {part});")
        with ctx.out.block(loop(ctx, word, constant(words))):
            for left, blocks, length in pieces(columns, wide):
                block = counter(ctx, "block", blocks)
                with ctx.out.block(loop(ctx, block, constant(blocks))):
                    column = add(times(block, wide), constant(left))
                    row = add(times(word, fold), constant(top))
                    read = _read_parts(ctx, boxes, (row, column), parts[:rows], length)
                    read += parts[rows:]
                    down = add(base, constant(top * width), times(word, width * fold))
                    down = add(down, times(block, wide // width * distance))
                    for start, panels, count in pieces(length, width):
                        panel = counter(ctx, "panel", panels)
                        first = constant((left + start) // width * distance)
                        to = index(ctx, add(down, first, times(panel, distance)))
                        at = index(ctx, add(times(panel, width), constant(start)))
                        with ctx.out.block(loop(ctx, panel, constant(panels))):
                            from_ = ", ".join(f"(const {kind} *){name} + {at}" for name in read)
                            target = f"(uint32_t *)&{ctx.names[tile.name]}[{to}]"
                            ctx.out.line(f"ty_zip_{fold}({target}, {from_}, {count});")


def _read_parts(
    ctx: Context, boxes: Boxes, at: tuple[Expr, Expr], parts: list[str], count: int
) -> list[str]:
    """The C pointers to ``count`` elements of successive rows: in the source, or converted into ``parts``."""
    found = []
    for inside, part in enumerate(parts):
        leading = (ZERO,) * (len(boxes.dst.extents) - 2)
        row = add(at[0], constant(inside))
        source = place(ctx, boxes.src.buffer, boxes.source_indices((*leading, row, at[1])))
        if boxes.is_plain(ctx):
            found.append(f"&{source}")
        else:
            boxes.move_row(ctx, part, f"&{source}", str(count))
            found.append(part)
    return found


def _finish(ctx: Context, region: Region) -> None:
    """After a packed tile was filled, note whether it holds denormals, or give its bytes the other sign."""
    tile = ctx.in_panels(region.buffer)
    if tile is None or tile.packing is None:
        return
    start = matrix_start(ctx, tile, region)
    name, size = ctx.names[tile.name], tile.content_elements
    if tile.packing.is_flipped:
        ctx.out.line(f"ty_flip_bytes(&{name}[{index(ctx, start)}], {size});")
    if not tile.is_flagged:
        return
    panels, distance, content = 1, 0, size
    if isinstance(tile.layout, ColumnPanels):
        n, k = tile.matrix if tile.layout.transposed else tile.matrix[::-1]
        panels, distance = -(-n // tile.layout.columns), tile.layout.distance(k, tile.scalar)
        content = -(-k // tile.packing.fold) * tile.packing.fold * tile.layout.columns
    flag = f"*(int32_t *)&{name}[{index(ctx, add(start, constant(size)))}]"
    panel = counter(ctx, "panel", panels)
    ctx.out.line(f"{flag} = 0;")
    with ctx.out.block(loop(ctx, panel, constant(panels))):
        at = index(ctx, add(start, times(panel, distance)))
        ctx.out.line(f"{flag} |= ty_has_small_bf16(&{name}[{at}], {content});")


# ---- clearing -------------------------------------------------------------------------------------


def lazy_tiles(program: Program, plan: Plan) -> list[str]:
    """The tiles whose clearing can wait: each is cleared as a whole, and the whole result of a gemm."""
    body = tuple(walk(program.body))
    if any(
        isinstance(stmt, Roles) for stmt in body
    ):  # which advance in turns, not in program order
        return []
    cleared = {s.dst.buffer for s in body if isinstance(s, Fill) and is_clear(s, plan)}
    results = {s.c.buffer for s in body if isinstance(s, Gemm) and is_result(s, plan)}
    aliased = {name for b in program.buffers if b.view_of for name in (b.name, b.view_of)}
    return sorted((cleared & results) - _exposed(program.body) - aliased)


def is_clear(stmt: Fill, plan: Plan) -> bool:
    """Whether ``stmt`` sets a whole tile to zero."""
    tile = plan.tiles.get(stmt.dst.buffer)
    return (
        tile is not None
        and len(tile.shape) == 2
        and is_whole(stmt.dst, tile.shape)
        and is_zero_fill(stmt)
    )


def is_result(stmt: Gemm, plan: Plan) -> bool:
    """Whether a micro-kernel writes a whole tile for ``stmt``."""
    has_kernel = plan.gemms[id(stmt)].shape is not None
    return has_kernel and is_whole(stmt.c, plan.tiles[stmt.c.buffer].shape)


def _exposed(body: tuple[Stmt, ...]) -> set[str]:
    """Tiles that are touched in a place without a ``settle`` before it."""
    found: set[str] = set()
    for stmt in (stmt for each in find_bodies(body) for stmt in each):
        if is_parallel(stmt):
            inner = walk((stmt,))
            found |= touched(*(one for one in inner if isinstance(one, TileOperation)))
        elif bodies(stmt):
            found |= own_effects(stmt).read
    return found


def settle(ctx: Context, stmt: Stmt) -> None:
    """Before ``stmt``, but not its bodies, clear the tiles that it touches and that only count as clear."""
    if isinstance(stmt, If | While) or (isinstance(stmt, For) and not is_parallel(stmt)):
        return
    if isinstance(stmt, Fill) and is_clear(stmt, ctx.plan):
        ctx.maybe_clear |= {stmt.dst.buffer} & ctx.lazy.keys()
        return
    buffers = touched(stmt)
    if isinstance(stmt, Gemm) and is_result(stmt, ctx.plan):
        buffers = frozenset({ctx.plan.gemms[id(stmt)].a.buffer, stmt.b.buffer})
        ctx.maybe_clear.discard(stmt.c.buffer)
    for buffer in sorted(buffers & ctx.maybe_clear):
        ctx.maybe_clear.discard(buffer)
        with ctx.out.block(f"if ({ctx.lazy[buffer]})"):
            ctx.out.line(f"memset({ctx.names[buffer]}, 0, {ctx.plan.tiles[buffer].bytes});")
            ctx.out.line(f"{ctx.lazy[buffer]} = 0;")


# ---- fills ----------------------------------------------------------------------------------------


def emit_fill(ctx: Context, stmt: Fill) -> None:
    """Write a fill, or record that the next gemm does it."""
    buffer = stmt.dst.buffer
    if buffer in ctx.lazy and is_clear(stmt, ctx.plan):
        ctx.out.line(f"{ctx.lazy[buffer]} = 1;")
        return
    tests = inside_tests(ctx, stmt.dst)
    if is_zero_fill(stmt) and not tests:
        _clear(ctx, stmt)
        _finish(ctx, stmt.dst)
        return
    text = cast(f"({value(ctx, stmt.value)})", stmt.value.dtype, ctx.dtype(buffer))
    ctx.out.line(f"const {ctx.element_type(buffer)} fill_ = {to_memory(ctx, buffer, text)};")
    ctx.out.either(
        tests.values(),
        lambda: _fill_rows(ctx, stmt, is_inside=True),
        lambda: _fill_rows(ctx, stmt, is_inside=False),
    )


def _clear(ctx: Context, stmt: Fill) -> None:
    tile = ctx.in_panels(stmt.dst.buffer)
    if tile is not None:
        clear_matrix(ctx, tile, matrix_start(ctx, tile, stmt.dst))
        return
    size = f"sizeof({ctx.element_type(stmt.dst.buffer)})"
    for segment in segments(ctx, stmt.dst):
        ctx.out.line(f"memset({segment.address}, 0, {index_term(ctx, segment.count)} * {size});")


def _fill_rows(ctx: Context, stmt: Fill, *, is_inside: bool) -> None:
    for segment in segments(ctx, stmt.dst):
        var = counter(ctx, "e", segment.count)
        indices = element_indices(stmt.dst, segment, var)
        test = "" if is_inside else guard(ctx, stmt.dst.buffer, indices)
        with ctx.out.block(loop(ctx, var, segment.count)):
            ctx.out.line(f"{test}({segment.address})[{index(ctx, var)}] = fill_;")

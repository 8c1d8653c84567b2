"""Writes gemms in C: blocked for the caches, around a micro-kernel for a panel of rows by one of
columns. Types and places that no micro-kernel handles get plain loops.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tileyard.base.errors import UnsupportedError
from tileyard.ir.dtypes import is_float
from tileyard.ir.nodes import Expr, Gemm, Region
from tileyard.targets.cpu.emit.context import Context
from tileyard.targets.cpu.emit.copies import emit_copy, inside_tests
from tileyard.targets.cpu.emit.exprs import (
    element,
    guard,
    index,
    load_as,
    place,
    to_memory,
)
from tileyard.targets.cpu.emit.loops import loop, matrix_start
from tileyard.targets.cpu.emit.plan import GemmPlan
from tileyard.targets.cpu.emit.scalars import C_BYTES, SCALARS, cast
from tileyard.targets.cpu.emit.tiles import (
    LINE,
    ZERO,
    ColumnPanels,
    RowPanels,
    Rows,
    Shape,
    Split,
    Tile,
    add,
    constant,
    panel_elements,
    split_rows,
)
from tileyard.targets.cpu.emit.units import WORD, Packing, Unit

# ---- micro-kernels --------------------------------------------------------------------------------


def micro_kernel(blocks: "Blocks", rows: int, vectors: int) -> str:
    """A C function named ``@``: ``c = (is_clear ? 0 : c) + a @ b`` over ``depth`` steps, in order,
    with ``rows`` x ``vectors`` accumulators; it prefetches for the next panel of rows. ``depth`` is
    a multiple of a chunk, unless the blocks' is not.
    """
    shape = blocks.shape
    operand, chunk = shape.operand, shape.chunk
    text = [
        f"TY_MICRO void @(int64_t depth, const {operand} *restrict a, const {operand} *restrict b,",
        f"    {shape.scalar} *restrict c, {_further(shape)}int is_clear, const {operand} *next_a,",
        f"    const {operand} *next_b) {{",
        "  TY_FUSED",
    ]
    names = [[f"c{i}_{v}" for v in range(vectors)] for i in range(rows)]
    text += [f"  {shape.vector} {', '.join(f'{name} = {{0}}' for name in row)};" for row in names]
    text.append("  if (!is_clear) {")
    text += [f"    {line}" for line in _result(blocks, rows, vectors, "{name} = {place};")]
    text.append("  }")
    if shape.unit and shape.unit.correction:
        text += [
            f"  c{i}_{v} += *(const {shape.vector} *)(more + {v * shape.lanes});"
            for i in range(rows)
            for v in range(vectors)
        ]
    for row in range(rows, 2 * rows):
        text.append(f"  __builtin_prefetch(c + {row * blocks.c_row}, 1);")
    per_line = LINE // C_BYTES[operand]
    text += [f"  __builtin_prefetch(next_b + {i * per_line}, 0, 2);" for i in range(blocks.lines)]
    a_step = chunk * blocks.left.stride(rows)
    advance = f"a += {a_step}, next_a += {a_step}, b += {chunk * shape.columns}"
    text.append(f"  for (; depth >= {chunk}; depth -= {chunk}, {advance}) {{")
    fetched = _fetches(blocks, rows)
    for step in range(chunk):
        text += [f"    {line}" for line in fetched.get(step, [])]
        text += [f"    {line}" for line in _step(blocks, rows, vectors, step)]
    text.append("  }")
    if blocks.plan.steps % chunk:
        step_by_step = f"--depth, a += {blocks.left.depth}, b += {shape.columns}"
        text.append(f"  for (; depth > 0; {step_by_step}) {{")
        text += [f"    {line}" for line in _step(blocks, rows, vectors, 0)]
        text.append("  }")
    text += [f"  {line}" for line in _result(blocks, rows, vectors, "{place} = {name};")]
    return "\n".join([*text, "}", ""])


def _fetches(blocks: "Blocks", rows: int) -> dict[int, list[str]]:
    """The lines of the next panel of ``a`` that are prefetched, by the step of a chunk."""
    shape, left = blocks.shape, blocks.left
    if left.depth != 1:
        return {}
    offsets = range(0, rows * left.row, left.row)
    if left.row == shape.chunk:
        offsets = range(0, rows * shape.chunk, LINE // C_BYTES[shape.operand])
    found: dict[int, list[str]] = {}
    for i, offset in enumerate(offsets):
        step = i * shape.chunk // len(offsets)
        found.setdefault(step, []).append(f"__builtin_prefetch(next_a + {offset});")
    return found


def _step(blocks: "Blocks", rows: int, vectors: int, step: int) -> list[str]:
    shape, left = blocks.shape, blocks.left
    loads = [
        f"const {shape.words} b{v} = *(const {shape.words} *)(b + "
        f"{step * shape.columns + v * shape.lanes});"
        for v in range(vectors)
    ]
    lines = ["{ " + " ".join(loads)]
    for i in range(rows):
        read = f"a[{i * left.row + step * left.depth}]"
        if shape.unit:
            read = f"const {shape.words} a{i} = ({shape.words}){{0}} + {read};"
            sums = " ".join(shape.unit.dot(f"c{i}_{v}", f"a{i}", f"b{v}") for v in range(vectors))
        else:
            read = f"const {shape.scalar} a{i} = {read};"
            sums = " ".join(f"c{i}_{v} += a{i} * b{v};" for v in range(vectors))
        lines.append(f"  {read} {sums}")
    lines[-1] += " TY_STEP; }"
    return lines


def _result(blocks: "Blocks", rows: int, vectors: int, form: str) -> list[str]:
    return [
        form.format(
            name=f"c{i}_{v}",
            place=f"*({blocks.shape.vector} *)(c + {i * blocks.c_row + v * blocks.shape.lanes})",
        )
        for i in range(rows)
        for v in range(vectors)
    ]


def _further(shape: Shape) -> str:
    """The parameter with what is added to each row of the result, if there is such a thing."""
    return f"const {shape.scalar} *more, " if shape.unit and shape.unit.correction else ""


def _plain_kernel(blocks: "Blocks", unit: Unit) -> str:
    """As ``micro_kernel`` for any number of rows, in plain C: for what the unit does not compute. ``a``
    is ``down`` from one chunk of its rows to the next.
    """
    shape, left = blocks.shape, blocks.left
    words, vector = shape.words, shape.vector
    at = f"k / {shape.chunk} * down + k % {shape.chunk} * {left.depth} + i * {left.row}"
    start = f"is_clear ? ({vector}){{0}} : *({vector} *)to"
    if unit.correction:
        start = f"({start}) + *(const {vector} *)(more + j)"
    total = unit.plain("total", "x", f"*(const {words} *)(b + k * {shape.columns} + j)")
    return f"""TY_MICRO void @(int64_t depth, const {WORD} *a, int64_t down, const {WORD} *b,
    {shape.scalar} *c, {_further(shape)}int is_clear, int64_t rows, int64_t columns) {{
  TY_FUSED
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; j += {shape.lanes}) {{
      {shape.scalar} *to = c + i * {blocks.c_row} + j;
      {vector} total = {start};
      for (int64_t k = 0; k < depth; ++k) {{
        const {words} x = ({words}){{0}} + a[{at}];
        {total}
      }}
      *({vector} *)to = total;
    }}
}}
"""


def _sums_kernel(shape: Shape, unit: Unit, dot: Callable[[str, str, str], str]) -> str:
    """A C function named ``@``: the correction of each column of a panel of ``b``; ``dot`` is a unit's."""
    dots = "\n".join(
        f"    {dot(f's{v}', 'ones', f'*(const {shape.words} *)(b + {v * shape.lanes})')}"
        for v in range(shape.vectors)
    )
    stores = "\n".join(
        f"  *({shape.vector} *)(more + {v * shape.lanes}) = s{v} * ({shape.scalar}){unit.correction};"
        for v in range(shape.vectors)
    )
    zeros = ", ".join(f"s{v} = {{0}}" for v in range(shape.vectors))
    return f"""TY_MICRO void @(int64_t depth, const {WORD} *b, {shape.scalar} *more) {{
  const {shape.words} ones = ({shape.words}){{0}} + 0x01010101u;
  {shape.vector} {zeros};
  for (; depth > 0; --depth, b += {shape.columns}) {{
{dots}
  }}
{stores}
}}
"""


# ---- loops around them ----------------------------------------------------------------------------


_MOST_LINES = 8
"""Most lines of the next panel of ``b`` that one call of a micro-kernel prefetches."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Left:
    """How the micro-kernel finds ``a``: element (i, k) of a panel is at ``i * row + k * depth``,
    and panels one row apart are ``down`` apart.
    """

    address: str
    row: int
    depth: int
    down: int
    in_panels: bool

    def stride(self, height: int) -> int:
        """The distance per step of ``k`` between chunks of a panel of this height."""
        return height if self.in_panels else self.depth


@dataclass(frozen=True, kw_only=True, slots=True)
class Blocks:
    """The loops around the micro-kernel: ``depth`` steps of k by ``panels`` panels of rows.
    ``distance`` is between panels of ``b``, ``c_row`` between rows of ``c``.
    """

    plan: GemmPlan
    shape: Shape
    left: Left
    split: Split
    depth: int
    panels: int
    distance: int
    c_row: int

    @property
    def lines(self) -> int:
        """Lines of the next panel of ``b`` that each call prefetches, so that all arrive in time."""
        content = self.depth * self.shape.columns * C_BYTES[self.shape.operand]
        return min(-(-content // LINE // self.panels), _MOST_LINES)


def emit_gemm(ctx: Context, stmt: Gemm) -> None:
    """Write ``c += op(a) @ op(b)``."""
    plan = ctx.plan.gemms[id(stmt)]
    if ctx.storage(stmt.c.buffer) in (ctx.storage(plan.a.buffer), ctx.storage(stmt.b.buffer)):
        raise UnsupportedError(f"gemm of {stmt.c.buffer} into itself", operation="gemm")
    if plan.shape is None:
        emit_plain_gemm(ctx, stmt, plan)
        return
    a, b = _staged(ctx, plan.a, plan.staged_a), _staged(ctx, stmt.b, plan.staged_b)
    inside_tests(ctx, stmt.c)
    blocks = _blocks(ctx, stmt, plan, plan.shape, _left(ctx, a, stmt.transpose_a))
    start = index(ctx, matrix_start(ctx, ctx.plan.tiles[b.buffer], b))
    operand, unit = plan.shape.operand, plan.shape.unit
    words = f"(const {operand} *)" if unit else ""
    c = stmt.c if plan.staged_c is None else _whole(plan.staged_c)
    ctx.out.line(f"const {operand} *left_ = {words}{blocks.left.address};")
    ctx.out.line(f"const {operand} *right_ = {words}&{ctx.names[b.buffer]}[{start}];")
    ctx.out.line(f"{plan.shape.scalar} *result_ = &{place(ctx, c.buffer, c.starts)};")
    if unit:
        flags = [_flag(ctx, one) for one in (a, b) if ctx.plan.tiles[one.buffer].is_flagged]
        ctx.out.line(f"const int is_plain_ = {' || '.join([f'!{unit.trust}', *flags])};")
    _emit_blocks(ctx, blocks, "1" if plan.staged_c else _clear_test(ctx, stmt))
    if plan.staged_c:
        _add_result(ctx, stmt, blocks)
    elif narrow := ctx.scalar(stmt.c.buffer).narrow:
        _round_result(ctx, blocks, narrow)
    if stmt.c.buffer in ctx.lazy:
        ctx.out.line(f"{ctx.lazy[stmt.c.buffer]} = 0;")


def _flag(ctx: Context, region: Region) -> str:
    """The C expression whether a packed operand holds what its unit does not compute."""
    tile = ctx.plan.tiles[region.buffer]
    start = add(matrix_start(ctx, tile, region), constant(tile.content_elements))
    return f"*(const int32_t *)&{ctx.names[tile.name]}[{index(ctx, start)}]"


def _whole(tile: Tile) -> Region:
    return Region(tile.name, (ZERO,) * len(tile.shape), tuple(map(constant, tile.shape)))


def _staged(ctx: Context, region: Region, tile: Tile | None) -> Region:
    """The operand as the micro-kernel reads it; writes a copy to the staging tile if there is one."""
    if tile is None:
        inside_tests(ctx, region)
        return region
    with ctx.out.block(""):
        emit_copy(ctx, region, _whole(tile))
    return _whole(tile)


def _left(ctx: Context, a: Region, transposed: bool) -> Left:
    tile = ctx.plan.tiles[a.buffer]
    match tile.layout:
        case RowPanels(chunk=chunk):
            start = index(ctx, matrix_start(ctx, tile, a))
            fold = tile.packing.fold if tile.packing else 1
            padded = -(-tile.matrix[1] // chunk) * chunk
            address = f"&{ctx.names[a.buffer]}[{start}]"
            return Left(
                address=address, row=chunk // fold, depth=1, down=padded // fold, in_panels=True
            )
        case ColumnPanels(columns=columns, packing=Packing()):
            address = f"&{ctx.names[a.buffer]}[{index(ctx, matrix_start(ctx, tile, a))}]"
            return Left(address=address, row=1, depth=columns, down=1, in_panels=False)
        case Rows(stride=stride):
            row, depth = (1, stride) if transposed else (stride, 1)
            address = f"&{place(ctx, a.buffer, a.starts)}"
            return Left(address=address, row=row, depth=depth, down=row, in_panels=False)
        case _:
            raise AssertionError(f"{a.buffer} is not kept as a left operand")


def _blocks(ctx: Context, stmt: Gemm, plan: GemmPlan, shape: Shape, left: Left) -> Blocks:
    """Sizes such that a panel of ``b`` fills half the L1 cache, and a block of ``a`` most of the L2 cache."""
    size, machine = C_BYTES[shape.operand], ctx.machine
    most = machine.l1_bytes // 2 // (shape.columns * size) // shape.chunk * shape.chunk
    parts = -(-plan.steps // max(most, shape.chunk))
    depth = -(-plan.steps // parts // shape.chunk) * shape.chunk
    split = split_rows(plan.m, shape.rows)
    height = split[0][0]
    total = sum(count for _, count in split)
    rows = machine.l2_bytes * 3 // 4 // (depth * size)
    groups = -(-total // max(rows // height, 1))
    result = plan.staged_c.name if plan.staged_c else stmt.c.buffer
    layout = ctx.plan.tiles[result].layout
    if not isinstance(layout, Rows):
        raise AssertionError(f"{result} is a result and not in rows")
    return Blocks(
        plan=plan,
        shape=shape,
        left=left,
        split=split,
        depth=depth,
        panels=-(-total // groups),
        distance=panel_elements(plan.steps, shape.columns, size),
        c_row=layout.stride,
    )


def _clear_test(ctx: Context, stmt: Gemm) -> str:
    """The C test whether the old content of ``c`` counts as zero."""
    return "1" if stmt.clear else ctx.lazy.get(stmt.c.buffer, "0")


def _emit_blocks(ctx: Context, blocks: Blocks, clear: str) -> None:
    out, plan, shape = ctx.out, blocks.plan, blocks.shape
    total = sum(count for _, count in blocks.split)
    with _range(ctx, ("k_", "depth_"), plan.steps, blocks.depth):
        first = "k_ == 0 && " if blocks.depth < plan.steps and clear != "0" else ""
        out.line(f"const int is_clear_ = {first}{clear};")
        with _range(ctx, ("top_", "panels_"), total, blocks.panels):
            out.line("const int64_t end_ = top_ + panels_;")
            full, rest = divmod(plan.n, shape.columns)
            if full:
                with out.block(f"for (int64_t j_ = 0; j_ < {full}; ++j_)"):
                    _emit_panels(ctx, blocks, shape.vectors)
            if rest:
                with out.block(""):
                    out.line(f"const int64_t j_ = {full};")
                    _emit_panels(ctx, blocks, -(-rest // shape.lanes))


@contextmanager
def _range(ctx: Context, names: tuple[str, str], whole: int, part: int) -> Iterator[None]:
    """Write a loop over ``whole`` in parts; ``names`` are the C names of a part's start and length."""
    at, length = names
    head, declared = "", f"{at} = 0, {length} = {whole}"
    if part < whole:
        head = f"for (int64_t {at} = 0; {at} < {whole}; {at} += {part})"
        rest = f"{whole} - {at}"
        size = f"{rest} < {part} ? {rest} : {part}" if whole % part else str(part)
        declared = f"{length} = {size}"
    with ctx.out.block(head):
        ctx.out.line(f"const int64_t {declared};")
        yield


def _emit_panels(ctx: Context, blocks: Blocks, vectors: int) -> None:
    """Write all panels of rows from ``top_`` to ``end_`` times the panel of columns ``j_``."""
    out, shape, left = ctx.out, blocks.shape, blocks.left
    width, unit = shape.columns, shape.unit
    out.line(
        f"const {shape.operand} *b_ = right_ + j_ * {blocks.distance} + k_ * {width},"
        f" *next_ = b_ + {blocks.distance};"
    )
    out.line("int64_t p_ = top_;")
    more = ""
    if unit and unit.correction:
        more = "more_, "
        out.line(f"{shape.scalar} more_[{width}] __attribute__((aligned({LINE})));")
        sums = _named(ctx, _sums_kernel(shape, unit, unit.dot), "sums")
        plain = _named(ctx, _sums_kernel(shape, unit, unit.plain), "plain_sums")
        out.line(f"(is_plain_ ? {plain} : {sums})(depth_, b_, more_);")
    skip = blocks.lines * (LINE // C_BYTES[shape.operand])
    first_panel = first_row = 0
    for height, count in blocks.split:
        name = _function(ctx, blocks, height, vectors)
        end = "p_ < end_"
        if first_panel + count < sum(count for _, count in blocks.split):
            end += f" && p_ < {first_panel + count}"
        with out.block(f"for (; {end}; ++p_, next_ += {skip})"):
            row = f"p_ * {height}"
            if first_panel:
                row = f"{first_row} + (p_ - {first_panel}) * {height}"
            out.line(f"const int64_t i_ = {row};")
            out.line(
                f"const {shape.operand} *a_ = left_ + i_ * {left.down} + k_ * {left.stride(height)};"
            )
            to = f"result_ + i_ * {blocks.c_row} + j_ * {width}, {more}is_clear_"
            if unit:
                plain = _named(ctx, _plain_kernel(blocks, unit), "plain")
                down, columns = shape.chunk * left.stride(height), vectors * shape.lanes
                with out.block("if (is_plain_)"):
                    out.line(f"{plain}(depth_, a_, {down}, b_, {to}, {height}, {columns});")
                    out.line("continue;")
            out.line(f"{name}(depth_, a_, b_, {to}, a_ + {height * left.down}, next_);")
        first_panel, first_row = first_panel + count, first_row + height * count


def _function(ctx: Context, blocks: Blocks, rows: int, vectors: int) -> str:
    """The C name of a micro-kernel; its function and the type of its vectors are written once."""
    shape, size = blocks.shape, C_BYTES[blocks.shape.scalar]
    attributes = f"vector_size({shape.lanes * size}), aligned({size}), may_alias"
    for scalar, vector in ((shape.scalar, shape.vector), (shape.operand, shape.words)):
        ctx.functions[f"typedef {scalar} {vector} __attribute__(({attributes}));\n"] = ""
    if shape.unit:
        types = f"{shape.vector}, {shape.words}, {shape.lanes}"
        ctx.functions[f"TY_ASK_{shape.unit.name.upper()}({types})\n"] = ""
    return _named(ctx, micro_kernel(blocks, rows, vectors), f"micro_{rows}x{vectors * shape.lanes}")


def _named(ctx: Context, text: str, stem: str) -> str:
    """The C name of a function, which is written once."""
    if text not in ctx.functions:
        ctx.functions[text] = ctx.names.fresh(stem)
    return ctx.functions[text]


def _round_result(ctx: Context, blocks: Blocks, narrow: str) -> None:
    with ctx.out.block(f"for (int64_t i_ = 0; i_ < {blocks.plan.m}; ++i_)"):
        ctx.out.line(f"float *row_ = result_ + i_ * {blocks.c_row};")
        ctx.out.line("TY_INDEPENDENT")
        with ctx.out.block(f"for (int64_t j_ = 0; j_ < {blocks.plan.n}; ++j_)"):
            ctx.out.line(f"row_[j_] = ty_round_{narrow}(row_[j_]);")


def _add_result(ctx: Context, stmt: Gemm, blocks: Blocks) -> None:
    plan, dtype = blocks.plan, ctx.dtype(stmt.c.buffer)
    scalar = ctx.scalar(stmt.c.buffer)
    i, j = ctx.counter("i", plan.m), ctx.counter("j", plan.n)
    target = place(ctx, stmt.c.buffer, _at(stmt.c, i, j))
    wide = "float64" if blocks.shape.scalar == "double" else "float32"
    read = f"result_[{i.name} * {blocks.c_row} + {j.name}]"
    part = read if is_float(dtype) else f"({scalar.value})(int32_t){read}"
    total = f"{target} + {part}"
    if not is_float(dtype):
        total = f"ty_add_{scalar.suffix}({target}, {part})"
    ctx.out.line(f"const int is_clear_ = {_clear_test(ctx, stmt)};")
    with ctx.out.block(loop(ctx, i, constant(plan.m))):
        ctx.out.line("TY_INDEPENDENT")
        with ctx.out.block(loop(ctx, j, constant(plan.n))):
            text = f"is_clear_ ? {part} : {total}"
            if is_float(dtype):
                text = cast(f"({text})", wide, dtype)
            ctx.out.line(f"{target} = {text};")


# ---- plain loops ----------------------------------------------------------------------------------


def emit_plain_gemm(ctx: Context, stmt: Gemm, plan: GemmPlan) -> None:
    """Write one step of ``k`` after another, each rounded to ``c``'s dtype."""
    dtype = ctx.dtype(stmt.c.buffer)
    wide = "float64" if is_float(dtype) else dtype
    i, j, k = ctx.counter("i", plan.m), ctx.counter("j", plan.n), ctx.counter("k", plan.k)
    at = _at(stmt.c, i, j)
    for region in (plan.a, stmt.b, stmt.c):
        if region.buffer not in ctx.arrays:
            inside_tests(ctx, region)
    target = f"{guard(ctx, stmt.c.buffer, at)}{element(ctx, stmt.c.buffer, at)}"
    a_at = _at(plan.a, *((k, i) if stmt.transpose_a else (i, k)))
    b_at = _at(stmt.b, *((j, k) if stmt.transpose_b else (k, j)))
    a, b = load_as(ctx, plan.a.buffer, a_at, wide), load_as(ctx, stmt.b.buffer, b_at, wide)
    old = load_as(ctx, stmt.c.buffer, at, wide)
    if is_float(dtype):
        total = f"{old} + {a} * {b}"
    else:
        suffix = SCALARS[dtype].suffix
        total = f"ty_add_{suffix}({old}, ty_mul_{suffix}({a}, {b}))"
    rows, columns = loop(ctx, i, constant(plan.m)), loop(ctx, j, constant(plan.n))
    steps = loop(ctx, k, constant(plan.k))
    if stmt.clear:
        with ctx.out.block(rows), ctx.out.block(columns):
            ctx.out.line(f"{target} = 0;")
    second, third = (columns, steps) if stmt.transpose_b else (steps, columns)
    with ctx.out.block(rows), ctx.out.block(second), ctx.out.block(third):
        text = to_memory(ctx, stmt.c.buffer, cast(f"({total})", wide, dtype))
        ctx.out.line(f"{target} = {text};")


def _at(region: Region, row: Expr, column: Expr) -> tuple[Expr, ...]:
    return (*region.starts[:-2], add(region.starts[-2], row), add(region.starts[-1], column))

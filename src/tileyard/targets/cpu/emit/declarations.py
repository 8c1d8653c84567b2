"""What a kernel's function declares: arrays, tiles and numbers by their names, and the place of its block."""

import math

from tileyard.ir.effects import buffer_effects
from tileyard.ir.nodes import Axis, Const, Expr, Program, Tensor, Var
from tileyard.ir.specs import scalar_params, tensors
from tileyard.targets.cpu.emit.context import Context
from tileyard.targets.cpu.emit.exprs import index, index_term
from tileyard.targets.cpu.emit.plan import CLAIM_BYTES, TAG_BYTES
from tileyard.targets.cpu.emit.scalars import SCALARS
from tileyard.targets.cpu.emit.tiles import ColumnPanels, RowPanels, Rows, Tile


def declare(ctx: Context) -> None:
    """Dimensions, scalar parameters, arrays and tiles by their names."""
    program, names = ctx.program, ctx.names
    for i, var in enumerate(numbers(program)):
        scalar = SCALARS[var.dtype]
        read = f"scalars[{i}]"
        if scalar.value in ("float", "double"):
            read = f"ty_from_bits_f64((uint64_t){read})"
        ctx.out.line(f"const {scalar.value} {names[var.name]} = ({scalar.value}){read};")
    tensors = [param for param in program.params if isinstance(param, Tensor)]
    for i, tensor in enumerate(tensors):
        name = tensor.buffer.name
        const = "const " if tensor.role == "in" else ""
        inner = "".join(f"[{index(ctx, extent)}]" for extent in tensor.buffer.shape[1:])
        star = f"(*restrict {names[name]}){inner}" if inner else f"*restrict {names[name]}"
        ctx.out.line(f"{const}{ctx.element_type(name)} {star} = buffers[{i}];")
    _declare_large(ctx)
    _declare_arrays(ctx)
    for tile in ctx.plan.tiles.values():
        if not tile.is_variable:
            ctx.out.line(_tile_declaration(ctx, tile))
    _declare_claims(ctx)


def _declare_large(ctx: Context) -> None:
    """Whether the arrays that are only written are larger than any cache."""
    touched = buffer_effects(ctx.program.body).read
    for buffer in (param.buffer for param in ctx.program.params if isinstance(param, Tensor)):
        is_written = any(p.role == "out" for p in tensors(ctx.program) if p.buffer is buffer)
        if not is_written or buffer.name in touched or ctx.is_aliased(buffer.name):
            continue
        flag = ctx.large[buffer.name] = ctx.names.fresh(f"{ctx.names[buffer.name]}_is_large")
        size = f"(int64_t)sizeof({ctx.element_type(buffer.name)})"
        ctx.out.line(f"const int {flag} = {_product(ctx, buffer.shape)} * {size} >= TY_LARGE;")


def _product(ctx: Context, extents: tuple[Expr, ...]) -> str:
    """The product of sizes in 64 bits."""
    known = [int(extent.value) for extent in extents if isinstance(extent, Const)]
    if len(known) == len(extents):
        return f"INT64_C({math.prod(known)})"
    return " * ".join(f"(int64_t){index_term(ctx, extent)}" for extent in extents)


def _declare_arrays(ctx: Context) -> None:
    """Workspaces, and views of anything in global memory."""
    read_only = {
        param.buffer.name
        for param in ctx.program.params
        if isinstance(param, Tensor) and param.role == "in"
    }
    for buffer in ctx.program.buffers:
        if buffer.scope != "global":
            continue
        name = ctx.names[buffer.name]
        inner = "".join(f"[{index(ctx, extent)}]" for extent in buffer.shape[1:])
        star = f"(*{name}){inner}" if inner else f"*{name}"
        if buffer.view_of:
            const = "const " if buffer.view_of in read_only else ""
            place = f"(void *){ctx.names[buffer.view_of]}"
        else:
            const, place = "", f"(void *)(shared + {ctx.plan.workspaces[buffer.name]})"
        ctx.out.line(f"{const}{ctx.element_type(buffer.name)} {star} = {place};")


def _declare_claims(ctx: Context) -> None:
    """How far each slot is that all threads share, and what those of this thread hold: nothing at first."""
    shared = own = 0
    for buffer, kept in ctx.plan.keeping.tiles.items():
        if kept.is_shared:
            ctx.out.line(f"int32_t *{ctx.claims[buffer]} = (void *)(shared + {shared});")
            shared += CLAIM_BYTES * kept.slots
        else:
            ctx.out.line(f"int64_t *{ctx.claims[buffer]} = (void *)(scratch + {own});")
            own += TAG_BYTES * kept.slots


def numbers(program: Program) -> tuple[Var, ...]:
    """What the runtime passes in ``scalars``, in order."""
    return (*program.dims, *scalar_params(program))


def _tile_declaration(ctx: Context, tile: Tile) -> str:
    name, scalar = ctx.names[tile.name], tile.scalar
    place = f"(void *)({'shared' if tile.is_shared else 'scratch'} + {tile.offset})"
    shape = " x ".join(map(str, tile.shape))
    if tile.view_of:
        place = f"(void *){ctx.names[tile.view_of]}"
        shape += f", {ctx.names[tile.view_of]} read otherwise"
    restrict = "" if ctx.is_aliased(tile.name) else "restrict "
    match tile.layout:
        case Rows(stride=stride):
            inner = [*tile.shape[1:-1], stride] if len(tile.shape) > 1 else []
            if not inner:
                return f"{scalar} *{restrict}{name} = {place}; /* {shape} */"
            extents = "".join(f"[{extent}]" for extent in inner)
            return f"{scalar} (*{restrict}{name}){extents} = {place}; /* {shape} */"
        case RowPanels(split=split):
            heights = " and ".join(f"{count} of {height}" for height, count in split)
            note = f"{shape} in panels of rows: {heights}"
        case ColumnPanels(columns=columns, transposed=transposed):
            note = f"{shape}{' transposed' if transposed else ''} in panels of {columns} columns"
    if tile.slots > 1:
        note += f", {tile.slots} of them{' for all threads' if tile.is_shared else ''}"
    return f"{scalar} *{name} = {place}; /* {note} */"


def declare_block(ctx: Context) -> None:
    """Which block this is, and the variables that live as long as it."""
    if ctx.plan.keeping.group:
        _declare_grouped(ctx, ctx.plan.keeping.group)
    else:
        _declare_axes(ctx, ctx.program.grid, "block")
    for tile in ctx.plan.tiles.values():
        if tile.is_variable:
            shape = "".join(f"[{extent}]" for extent in tile.shape or (1,))
            ctx.out.line(f"{tile.scalar} {ctx.names[tile.name]}{shape};")
    for flag in ctx.lazy.values():
        ctx.out.line(f"int {flag} = 0;")


def _declare_axes(ctx: Context, axes: tuple[Axis, ...], rest: str) -> None:
    """The variables of ``axes``, the first the fastest, for the block number ``rest`` of them."""
    for i, axis in enumerate(axes):
        extent = index_term(ctx, axis.extent)
        kind = SCALARS[axis.var.dtype].value
        text = rest if i == len(axes) - 1 else f"{rest} % {extent}"
        value = f"({text})" if " " in text else text
        ctx.out.line(f"const {kind} {ctx.names[axis.var.name]} = ({kind}){value};")
        rest = f"{rest} / {extent}"


def _declare_grouped(ctx: Context, width: int) -> None:
    """As ``_declare_axes``, but ``width`` columns of the first axis at a time, for all the others."""
    first, *others = ctx.program.grid
    kind = SCALARS[first.var.dtype].value
    columns = index_term(ctx, first.extent)
    rows = " * ".join(f"(int64_t){index_term(ctx, axis.extent)}" for axis in others)
    out = ctx.out
    out.line(f"const int64_t rows_ = {rows};")
    out.line(f"const int64_t left_ = block / ({width} * rows_) * {width};")
    out.line(f"const int64_t width_ = {columns} - left_ < {width} ? {columns} - left_ : {width};")
    out.line("const int64_t inside_ = block - left_ * rows_;")
    name = ctx.names[first.var.name]
    out.line(f"const {kind} {name} = ({kind})(left_ + inside_ % width_);")
    out.line("const int64_t rest_ = inside_ / width_;")
    _declare_axes(ctx, tuple(others), "rest_")

"""The search for a small Program that still fails: delta debugging with the cuts of this room. It
runs nothing: it yields candidates, each valid and smaller than the smallest failing one, and
receives whether they fail alike. Their order depends only on the Program.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress

import msgspec

from tileyard.base.errors import InvalidProgramError
from tileyard.base.model import Value
from tileyard.ir.nodes import (
    Buffer,
    Const,
    Expr,
    For,
    InitBarrier,
    Issue,
    Load,
    Param,
    Product,
    Program,
    Region,
    Scalar,
    Stmt,
    Tensor,
    TileOperation,
    Var,
)
from tileyard.ir.rewrite import rewrite
from tileyard.ir.verify import verify
from tileyard.ir.walk import expressions, number_statements, own_effects, walk, walk_expr
from tileyard.reduce.edits import (
    Search,
    all_buffers,
    barriers_of,
    constant,
    regions_of,
    replace_everywhere,
    replace_statements,
)
from tileyard.reduce.statements import (
    drop_buffers,
    drop_pairs,
    drop_statements,
    inline_lets,
    simplify_expressions,
    unwrap_statements,
)

FACTORS = (16, 8, 4, 2)
FEW = (1, 2, 3)
GEMM_TILE = 16
WGMMA_TILE = 64
"""Smallest tile sizes of products: TileLang accepts no smaller ones."""


def bind_numbers(program: Program, numbers: Mapping[str, Value]) -> Program:
    """``program`` with dimensions and scalar parameters that ``numbers`` has replaced by constants."""
    scalars = [param.var for param in program.params if isinstance(param, Scalar)]
    found: dict[Expr, Expr] = {
        var: _literal(numbers[var.name], var.dtype)
        for var in (*program.dims, *scalars)
        if not isinstance(numbers.get(var.name), str | None)
    }
    bound = replace_everywhere(program, found.get)
    return msgspec.structs.replace(
        bound,
        dims=tuple(var for var in program.dims if var not in found),
        params=tuple(p for p in bound.params if isinstance(p, Tensor) or p.var not in found),
    )


def _literal(value: Value, dtype: str) -> Const:
    return msgspec.structs.replace(constant(0, dtype), value=value)


# ---- sizes ----------------------------------------------------------------------------------


def shrink_sizes(program: Program) -> Search:
    """Shrink all sizes by a factor, then each number that is a size, then each axis' and loop's extent."""
    least = _least(program)
    for factor in FACTORS:
        found = {size: max(size // factor, min(size, least)) for size in _sizes(program)}
        candidate = _resize(program, found)
        if (yield candidate):
            program = candidate
            break
    for size in _sizes(program):
        for smaller in _below(size, least):
            candidate = _resize(program, {size: smaller})
            if (yield candidate):
                program = candidate
                break
    yield from _shrink_extents(program)


def _shrink_extents(program: Program) -> Search:
    for number, axis in enumerate(program.grid):
        for few in FEW:
            grid = list(program.grid)
            grid[number] = msgspec.structs.replace(axis, extent=constant(few, axis.extent.dtype))
            candidate = msgspec.structs.replace(program, grid=tuple(grid))
            if (yield candidate):
                program = candidate
                break
    for number, stmt in list(number_statements(program)):
        if isinstance(stmt, For):
            for few in FEW:
                current = dict(number_statements(program))[number]
                shorter = msgspec.structs.replace(current, extent=constant(few, stmt.extent.dtype))
                candidate = replace_statements(program, {number: (shorter,)})
                if (yield candidate):
                    program = candidate
                    break


def _sizes(program: Program) -> list[int]:
    """The numbers that are extents, largest first."""
    exprs = [extent for buffer in all_buffers(program).values() for extent in buffer.shape]
    exprs += [axis.extent for axis in program.grid]
    for stmt in walk(program.body):
        exprs += [stmt.extent] if isinstance(stmt, For) else []
        exprs += [extent for region in regions_of(stmt) for extent in region.extents]
    rows = {len(buffer.arrivals) for buffer in program.buffers if buffer.arrivals}
    found = {int(e.value) for e in exprs if isinstance(e, Const)} - rows
    return sorted((size for size in found if size > 1), reverse=True)


def _least(program: Program) -> int:
    issued = [inner for s in walk(program.body) if isinstance(s, Issue) for inner in walk(s.body)]
    if any(isinstance(stmt, Product) for stmt in issued):
        return WGMMA_TILE
    has_gemm = any(isinstance(stmt, Product) for stmt in walk(program.body))
    return GEMM_TILE if has_gemm else 1


def _below(size: int, least: int) -> Iterator[int]:
    """Powers of two below ``size``; for a small size, such as a number of stages, only small ones."""
    smaller = 1 if size < least else least
    while smaller < size:
        yield smaller
        smaller *= 2


def _resize(program: Program, sizes: Mapping[int, int]) -> Program:
    def known(expr: Expr) -> Expr | None:
        if isinstance(expr, Const) and type(expr.value) is int and expr.value in sizes:
            return Const(sizes[expr.value], expr.dtype)
        return None

    return replace_everywhere(program, known)


# ---- declarations ---------------------------------------------------------------------------


def drop_unused(program: Program) -> Search:
    """Drop unused parameters, buffers, dimensions and axes (but the first): all at once, else one by one."""
    unused = _unused(program)
    candidate = _without(program, unused)
    if not unused or (yield candidate):
        return
    for name in sorted(unused):
        candidate = _without(program, {name})
        if (yield candidate):
            program = candidate


def _unused(program: Program) -> set[str]:
    used: set[str] = set()
    for stmt in walk(program.body):
        effects = own_effects(stmt)
        used |= effects.read | effects.written | barriers_of(stmt)
        for expr in expressions(stmt):
            used |= {part.name for part in walk_expr(expr) if isinstance(part, Var)}
    buffers = all_buffers(program)
    used |= {buffer.view_of for buffer in buffers.values() if buffer.name in used}
    sizes = [e for b in buffers.values() if b.name in used for e in (*b.shape, *b.strides)]
    sizes += [axis.extent for axis in program.grid]
    used |= {part.name for e in sizes for part in walk_expr(e) if isinstance(part, Var)}
    scalars = {param.var.name for param in program.params if isinstance(param, Scalar)}
    axes = {axis.var.name for axis in program.grid[1:]}
    return {*buffers, *scalars, *axes, *(var.name for var in program.dims)} - used


def _without(program: Program, names: Collection[str]) -> Program:
    def is_kept(param: Param) -> bool:
        return (param.var if isinstance(param, Scalar) else param.buffer).name not in names

    return msgspec.structs.replace(
        program,
        params=tuple(filter(is_kept, program.params)),
        dims=tuple(var for var in program.dims if var.name not in names),
        grid=tuple(axis for axis in program.grid if axis.var.name not in names),
        buffers=tuple(buffer for buffer in program.buffers if buffer.name not in names),
    )


def drop_attributes(program: Program) -> Search:
    """Drop layouts, strides, schedules of loops, stages, and all barriers of a row except one."""
    for plain in (_plain_layouts(program), _plain_loops(program)):
        if plain != program and (yield plain):
            program = plain
    for buffer in all_buffers(program).values():
        if len(buffer.arrivals) > 1:
            candidate = _with_one_barrier(program, buffer)
            if (yield candidate):
                program = candidate


def _plain_layouts(program: Program) -> Program:
    def plain(buffer: Buffer) -> Buffer:
        return msgspec.structs.replace(buffer, layout=None, strides=())

    return msgspec.structs.replace(
        program,
        params=tuple(
            Tensor(plain(param.buffer), param.role) if isinstance(param, Tensor) else param
            for param in program.params
        ),
        buffers=tuple(map(plain, program.buffers)),
    )


def _plain_loops(program: Program) -> Program:
    def plain(stmt: Stmt) -> tuple[Stmt, ...]:
        if not isinstance(stmt, For) or stmt.kind != "pipelined":
            return (stmt,)
        return (For(stmt.var, stmt.start, stmt.extent, "serial", stmt.body),)

    return rewrite(program, plain).program


def _with_one_barrier(program: Program, row: Buffer) -> Program:
    first = Load(row.name, (constant(0, "int32"),), row.dtype)
    one = constant(1, "int32")

    def made_ready(stmt: Stmt) -> tuple[Stmt, ...]:
        if isinstance(stmt, InitBarrier) and stmt.barriers.buffer == row.name:
            return (InitBarrier(Region(row.name, first.indices, (one,))),)
        return (stmt,)

    program = replace_everywhere(
        program, lambda e: first if isinstance(e, Load) and e.buffer == row.name else None
    )
    short = msgspec.structs.replace(row, shape=(one,), arrivals=row.arrivals[:1])
    return msgspec.structs.replace(
        rewrite(program, made_ready).program,
        buffers=tuple(short if buffer.name == row.name else buffer for buffer in program.buffers),
    )


CUTS: tuple[Callable[[Program], Search], ...] = (
    shrink_sizes,
    drop_statements,
    drop_buffers,
    unwrap_statements,
    inline_lets,
    drop_unused,
    drop_attributes,
    drop_pairs,
    simplify_expressions,
)
"""The cuts in order: sizes first, as a small kernel runs fast; expressions last, as few are left."""
UNRUN_CUTS = (*CUTS[1:], CUTS[0])
"""The order for candidates that are not run: then the number of statements decides the time."""


def count_statements(program: Program) -> int:
    """The number of statements of a Program, nested ones included."""
    return sum(1 for _ in walk(program.body))


def search(program: Program, *, is_run: bool = True) -> Search:
    """Yield candidates, which the caller may run, for ``program``, in rounds of cuts until one finds none."""
    tried, weight = {program}, _weigh(program)
    before = None
    while before != program:
        before = program
        for cut in CUTS if is_run else UNRUN_CUTS:
            candidates = cut(program)
            with suppress(StopIteration):
                candidate = next(candidates)
                while True:
                    fails = False
                    if _weigh(candidate) < weight and candidate not in tried:
                        tried.add(candidate)
                        fails = _is_valid(candidate) and (yield candidate)
                    if fails:
                        program, weight = candidate, _weigh(candidate)
                    candidate = candidates.send(fails)


def _is_valid(candidate: Program) -> bool:
    try:
        verify(candidate)
    except InvalidProgramError:
        return False
    return True


def _weigh(program: Program) -> tuple[int, int, int, int]:
    """A Program's size in this order of weight: statements, declarations, parts of expressions, numbers."""
    buffers = all_buffers(program)
    stmts = list(walk(program.body))
    exprs: list[Expr] = [e for buffer in buffers.values() for e in (*buffer.shape, *buffer.strides)]
    exprs += [axis.extent for axis in program.grid]
    exprs += [expr for stmt in stmts for expr in expressions(stmt)]
    parts = [part for expr in exprs for part in walk_expr(expr)]
    loops = [stmt for stmt in stmts if isinstance(stmt, For)]
    marks = sum((loop.kind == "pipelined") + len(loop.order + loop.stage) for loop in loops)
    marks += sum(isinstance(s, TileOperation) and not s.clear for s in stmts)
    marks += sum(buffer.layout is not None for buffer in buffers.values())
    numbers = sum(abs(part.value) for part in parts if isinstance(part, Const))
    return (
        len(stmts),
        len(program.params) + len(program.dims) + len(program.grid) + len(program.buffers),
        len(parts) + marks,
        int(min(numbers, 1 << 60)),
    )

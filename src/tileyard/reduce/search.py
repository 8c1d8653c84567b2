"""The search for a small Program that still fails: delta debugging with the cuts of this room. It
runs nothing: it yields candidates, each valid and smaller than the smallest failing one, and
receives whether they fail alike. Their order depends only on the Program.
"""

from collections.abc import Callable
from contextlib import suppress

from tileyard.base.errors import InvalidProgramError
from tileyard.ir.nodes import Const, Expr, For, Program, TileOperation
from tileyard.ir.verify import verify
from tileyard.ir.walk import expressions, walk, walk_expr
from tileyard.reduce.edits import Search, all_buffers
from tileyard.reduce.sizes import drop_attributes, drop_unused, shrink_sizes
from tileyard.reduce.statements import (
    drop_buffers,
    drop_pairs,
    drop_statements,
    inline_lets,
    simplify_expressions,
    unwrap_statements,
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

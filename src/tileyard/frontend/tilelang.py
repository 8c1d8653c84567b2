"""Lowers a TileLang ``PrimFunc``, as elaborated and before any compiler pass, to a Program."""

from collections.abc import Sequence
from typing import Any

from tileyard.errors import InvalidProgramError
from tileyard.frontend.divisors import guard_divisors
from tileyard.frontend.params import assign_roles, declare_params, kernel_name, marked_outputs
from tileyard.frontend.scope import Scope
from tileyard.frontend.statements import BodyLowering
from tileyard.frontend.targets import TARGET_MARK, has_threads
from tileyard.ir.effects import buffer_effects
from tileyard.ir.nodes import Program
from tileyard.ir.verify import verify
from tileyard.ir.walk import number_statements
from tileyard.model import Record, SourceLine

_FUNCTION_HINTS = frozenset(
    {
        "global_symbol",
        "tilelang_callee_allocated_outputs",
        "tilelang_compile_flags",
        "tilelang_out_idx",
        "tilelang_pass_configs",
        TARGET_MARK,
        "tirx.noalias",
        "tirx.is_entry_func",
    }
)


class Lowered(Record):
    """A Program with the line of the user's file for each numbered statement that has one."""

    program: Program
    lines: dict[int, SourceLine]


def lower_prim_func(
    func: Any,  # noqa: ANN401 (TVM's nodes are untyped)
    out_idx: Sequence[int] | int | None = None,
    name: str | None = None,
) -> Lowered:
    """Lower ``func``; raises UnsupportedError naming the first operation that is not covered.

    ``out_idx`` are the positions of the outputs, as in ``tilelang.jit``; without it the
    function's own mark decides, then which parameters are written and never read.
    """
    scope = Scope(has_threads=has_threads(func))
    scope.start(func)
    attrs = dict(func.attrs.items()) if func.attrs is not None else {}
    for key in attrs:
        if str(key) not in _FUNCTION_HINTS:
            scope.refuse(f"attribute {key} of the function")
    storage, dims = declare_params(scope, func)
    body = BodyLowering(scope)
    stmts = body.lower_body(func.body)
    owners = {view.name: view.view_of for view in scope.buffers if view.view_of}
    effects = buffer_effects(stmts).through(owners)
    program = Program(
        name=kernel_name(scope, func, name),
        params=assign_roles(storage, effects, marked_outputs(func, out_idx)),
        dims=tuple(dims),
        grid=tuple(body.grid[tag] for tag in sorted(body.grid)),
        threads=body.threads,
        buffers=tuple(scope.buffers),
        body=stmts,
    )
    program = guard_divisors(program)
    _check(scope, program, body.lines)
    return Lowered(program=program, lines=body.lines)


def _check(scope: Scope, program: Program, lines: dict[int, SourceLine]) -> None:
    """Refuse what TileLang takes and the tile IR does not, at the statement's line."""
    try:
        verify(program)
    except InvalidProgramError as error:
        scope.where = lines.get(error.statement, scope.where)
        numbered = dict(number_statements(program))
        culprit = numbered.get(error.statement)
        operation = "kernel" if culprit is None else str(culprit.__struct_config__.tag)
        scope.refuse(operation, f"is not covered: {error.message}")

"""Lowers a TileLang ``PrimFunc``, as elaborated and before any compiler pass, to a Program."""

from collections.abc import Sequence
from typing import Any, Literal

from tilelang import tvm

from tileyard.errors import InvalidProgramError
from tileyard.frontend.expressions import lower_expr
from tileyard.frontend.scope import Scope
from tileyard.frontend.statements import BodyLowering
from tileyard.ir.effects import buffer_effects
from tileyard.ir.nodes import Buffer, Expr, Param, Program, Scalar, Tensor, Var
from tileyard.ir.verify import verify
from tileyard.ir.walk import number_statements
from tileyard.model import Record, SourceLine

_FUNCTION_HINTS = frozenset(
    {"global_symbol", "tilelang_out_idx", "tirx.noalias", "tirx.is_entry_func"}
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
    scope = Scope()
    scope.start(func)
    attrs = dict(func.attrs.items()) if func.attrs is not None else {}
    for key in attrs:
        if str(key) not in _FUNCTION_HINTS:
            scope.refuse(f"attribute {key} of the function")
    storage, dims = _declare_params(scope, func)
    body = BodyLowering(scope)
    stmts = body.lower(func.body)
    marked = out_idx if out_idx is not None else attrs.get("tilelang_out_idx")
    marked = [marked] if isinstance(marked, int) else marked
    outputs = None if marked is None else {int(i) % len(func.params) for i in marked}
    program = Program(
        name=scope.names.legal(name or str(attrs.get("global_symbol") or "kernel")),
        params=_assign_roles(storage, stmts, outputs),
        dims=tuple(dims),
        grid=tuple(body.grid[tag] for tag in sorted(body.grid)),
        threads=body.threads,
        buffers=tuple(body.buffers),
        body=stmts,
    )
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


def _declare_params(scope: Scope, func: Any) -> tuple[list[Buffer | Var], list[Var]]:  # noqa: ANN401
    """The parameters' storage in calling order, and the variables of their shapes."""
    tensors = dict(func.buffer_map.items())
    by_param = {param: tensors.get(param) for param in func.params}
    scalars = {param: scope.bind_var(param) for param, tir in by_param.items() if tir is None}
    dims: list[Var] = []
    storage: list[Buffer | Var] = []
    for param, tir in by_param.items():
        if tir is None:
            storage.append(scalars[param])
            continue
        for extent in tir.shape:
            if type(extent).__name__ in ("Var", "SizeVar") and not scope.knows_var(extent):
                dims.append(scope.bind_var(extent))  # noqa: PERF401 (a name may come twice)
        storage.append(_declare_tensor(scope, tir))
    return storage, dims


def _declare_tensor(scope: Scope, tir: Any) -> Buffer:  # noqa: ANN401
    before = scope.enter_buffer(tir)
    if not (type(tir.elem_offset).__name__ == "IntImm" and int(tir.elem_offset.value) == 0):
        scope.refuse(f"{tir.name} with an offset")
    buffer = Buffer(
        scope.names.take(str(tir.name)),
        scope.dtype(tir.dtype, str(tir.name)),
        tuple(lower_expr(scope, extent) for extent in tir.shape),
        "global",
        () if _is_row_major(tir) else _lower_strides(scope, tir),
    )
    scope.bind_buffer(tir, buffer)
    scope.where = before
    return buffer


def _is_row_major(tir: Any) -> bool:  # noqa: ANN401
    """Whether the strides of ``tir`` follow from its shape."""
    analyzer = tvm.arith.Analyzer()
    expected: Any = 1
    for extent, stride in zip(reversed(tir.shape), reversed(tir.strides), strict=False):
        if not analyzer.can_prove_equal(stride, expected):
            return False
        expected = extent * expected
    return True


def _lower_strides(scope: Scope, tir: Any) -> tuple[Expr, ...]:  # noqa: ANN401
    for stride in tir.strides:
        if type(stride).__name__ in ("Var", "SizeVar") and not scope.knows_var(stride):
            scope.refuse(f"{tir.name} with a stride that is known only when it runs")
    return tuple(lower_expr(scope, stride) for stride in tir.strides)


def _assign_roles(
    storage: Sequence[Buffer | Var], body: tuple[Any, ...], outputs: set[int] | None
) -> tuple[Param, ...]:
    effects = buffer_effects(body)
    params: list[Param] = []
    for position, item in enumerate(storage):
        if isinstance(item, Var):
            params.append(Scalar(item))
            continue
        role: Literal["in", "out", "inout"] = "in"
        if outputs is not None and position in outputs:
            role = "out"
        elif item.name in effects.written:
            only_written = outputs is None and item.name not in effects.read
            role = "out" if only_written else "inout"
        params.append(Tensor(item, role))
    return tuple(params)

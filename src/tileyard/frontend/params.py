"""The parameters of a PrimFunc: their storage, their dimensions, and what the kernel does to them."""

from collections.abc import Sequence
from typing import Any, Literal

from tileyard.errors import UsageError
from tileyard.frontend.expressions import free_vars, is_row_major, lower_expr
from tileyard.frontend.scope import Scope
from tileyard.ir.effects import Effects
from tileyard.ir.nodes import Buffer, Const, Expr, Param, Scalar, Tensor, Var

OUTPUTS_MARK = "tilelang_out_idx"
"""The attribute by which TileLang marks a function's outputs."""


def kernel_name(scope: Scope, func: Any, name: str | None) -> str:  # noqa: ANN401 (TVM's nodes are untyped)
    """``name``, or the function's own, made into an identifier."""
    return scope.names.legal(name or str(_attrs(func).get("global_symbol") or "kernel"))


def marked_outputs(func: Any, out_idx: Sequence[int] | int | None) -> frozenset[int] | None:  # noqa: ANN401
    """The positions of the outputs, as given or as the function itself marks them; None for neither."""
    marked: Any = out_idx if out_idx is not None else _attrs(func).get(OUTPUTS_MARK)
    marked = [marked] if isinstance(marked, int) else marked
    if marked is None:
        return None
    count = len(func.params)
    for position in marked:
        if not -count <= int(position) < count:
            raise UsageError(f"out_idx names parameter {position}, and there are {count}")
    return frozenset(int(position) % count for position in marked)


def _attrs(func: Any) -> dict[str, Any]:  # noqa: ANN401
    return {} if func.attrs is None else dict(func.attrs.items())


def declare_params(scope: Scope, func: Any) -> tuple[list[Buffer | Var], list[Var]]:  # noqa: ANN401
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
            dims += [scope.bind_var(var) for var in free_vars(extent) if not scope.knows_var(var)]
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
        () if is_row_major(tir) else _lower_strides(scope, tir),
    )
    scope.bind_buffer(tir, buffer)
    scope.where = before
    return buffer


def _lower_strides(scope: Scope, tir: Any) -> tuple[Expr, ...]:  # noqa: ANN401
    """The strides, 0 for one that is known only when the kernel runs."""
    return tuple(
        lower_expr(scope, stride)
        if all(scope.knows_var(var) for var in free_vars(stride))
        else Const(0, "int32")
        for stride in tir.strides
    )


def assign_roles(
    storage: Sequence[Buffer | Var], effects: Effects, outputs: frozenset[int] | None
) -> tuple[Param, ...]:
    """The parameters with what the kernel does to each: ``outputs`` where they are known.

    Else what is written is an output, and what is also read is both.
    """
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

"""The parameters of a PrimFunc: their storage, their dimensions, and what the kernel does to them.

A target that takes TIR as it is builds what the tile IR does not cover. Inputs and outputs still have
to be known: the result is a Program with parameters and no body.
"""

from collections.abc import Sequence
from typing import Any, Literal

from tileyard.errors import UsageError
from tileyard.frontend.expressions import is_row_major, lower_expr
from tileyard.frontend.scope import Scope, key_of
from tileyard.frontend.tir_queries import attributes_of, call_name, free_vars, is_zero, nodes_of
from tileyard.ir.effects import Effects
from tileyard.ir.nodes import Buffer, Const, Expr, Param, Program, Scalar, Tensor, Var

OUTPUTS_MARK = "tilelang_out_idx"
"""The attribute by which TileLang marks a function's outputs."""


def kernel_name(scope: Scope, func: Any, name: str | None) -> str:  # noqa: ANN401 (TVM's nodes are untyped)
    """``name``, or the function's own, made into an identifier."""
    return scope.names.legal(name or str(attributes_of(func).get("global_symbol") or "kernel"))


def marked_outputs(func: Any, out_idx: Sequence[int] | int | None) -> frozenset[int] | None:  # noqa: ANN401
    """The positions of the outputs, as given or as the function itself marks them; None for neither."""
    marked: Any = out_idx if out_idx is not None else attributes_of(func).get(OUTPUTS_MARK)
    marked = [marked] if isinstance(marked, int) else marked
    if marked is None:
        return None
    count = len(func.params)
    for position in marked:
        if not -count <= int(position) < count:
            raise UsageError(f"out_idx names parameter {position}, and there are {count}")
    return frozenset(int(position) % count for position in marked)


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
    scope.require(is_zero(tir.elem_offset), f"{tir.name} with an offset")
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


_READS, _WRITES = 1, 2
"""Bits of the access mask of a region or pointer."""

_POINTERS = {"tl.access_ptr": 2, "tl.region": 1}
"""Calls that say of an element or box how it is accessed: the position of the mask."""


def read_interface(
    func: Any,  # noqa: ANN401 (TVM's nodes are untyped)
    name: str | None = None,
) -> Program:
    """The parameters of ``func``, in a Program without a body.

    Roles are found as for a whole Program: by the function's own mark, else by what its body reads
    and writes. Raises UnsupportedError for a parameter of a shape that is not covered.
    """
    scope = Scope(any_dtype=True)
    scope.start(func)
    storage, dims = declare_params(scope, func)
    return Program(
        name=kernel_name(scope, func, name),
        params=assign_roles(storage, _find_effects(scope, func), marked_outputs(func, None)),
        dims=tuple(dims),
        grid=(),
        threads=(),
        buffers=(),
        body=(),
    )


def _find_effects(scope: Scope, func: Any) -> Effects:  # noqa: ANN401
    """Which parameters the body reads and writes; one whose address is taken, both."""
    names = {
        key_of(tir.data): scope.buffer(tir).name for tir in dict(func.buffer_map.items()).values()
    }
    accesses: list[tuple[Any, int]] = []
    loads: dict[object, Any] = {}
    masked: set[object] = set()
    for node in nodes_of(func.body):
        called = call_name(node)
        match type(node).__name__:
            case "BufferStore":
                accesses.append((node.buffer.data, _WRITES))
            case "BufferLoad":
                loads[key_of(node)] = node.buffer.data
            case "Call" if called == "tirx.tvm_access_ptr":
                accesses.append((node.args[1], _mask_of(node, 4)))
            case "Call" if called in ("tirx.address_of", *_POINTERS) and len(node.args):
                target = node.args[0]
                masked.add(key_of(target))
                if hasattr(target, "buffer"):
                    mask = _mask_of(node, _POINTERS.get(called, len(node.args)))
                    accesses.append((target.buffer.data, mask))
            case _:
                pass
    accesses += [(data, _READS) for load, data in loads.items() if load not in masked]
    known = [(names[key_of(data)], mask) for data, mask in accesses if key_of(data) in names]
    return Effects(
        read=frozenset(name for name, mask in known if mask & _READS),
        written=frozenset(name for name, mask in known if mask & _WRITES),
    )


def _mask_of(call: Any, position: int) -> int:  # noqa: ANN401
    """The access mask at ``position``; both ways where none is stated."""
    if position < len(call.args) and type(call.args[position]).__name__ == "IntImm":
        return int(call.args[position].value)
    return _READS | _WRITES

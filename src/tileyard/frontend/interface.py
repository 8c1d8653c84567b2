"""The parameters of a PrimFunc read from its TIR, for kernels that have no Program.

A target that takes TIR as it is builds what the tile IR does not cover. Inputs and outputs still have
to be known: the result is a Program with parameters and no body.
"""

from typing import Any

from tilelang import tvm

from tileyard.frontend.params import assign_roles, declare_params, kernel_name, marked_outputs
from tileyard.frontend.scope import Scope, key_of
from tileyard.ir.effects import Effects
from tileyard.ir.nodes import Program

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
    loads: dict[object, str] = {}
    masked: set[object] = set()
    read: set[str] = set()
    written: set[str] = set()

    def note(name: str | None, mask: int) -> None:
        if name is not None:
            read.update({name} if mask & _READS else ())
            written.update({name} if mask & _WRITES else ())

    def visit(node: Any) -> None:  # noqa: ANN401
        kind = type(node).__name__
        if kind == "BufferStore":
            note(names.get(key_of(node.buffer.data)), _WRITES)
        elif kind == "BufferLoad":
            name = names.get(key_of(node.buffer.data))
            if name is not None:
                loads[key_of(node)] = name
        elif kind == "Call":
            called = str(getattr(node.op, "name", ""))
            if called == "tirx.tvm_access_ptr":
                note(names.get(key_of(node.args[1])), _mask_of(node, 4))
            elif called in ("tirx.address_of", *_POINTERS) and len(node.args):
                target = node.args[0]
                masked.add(key_of(target))
                buffer = getattr(target, "buffer", None)
                name = None if buffer is None else names.get(key_of(buffer.data))
                note(name, _mask_of(node, _POINTERS.get(called, len(node.args))))

    tvm.tirx.stmt_functor.post_order_visit(func.body, visit)
    for load, name in loads.items():
        if load not in masked:
            read.add(name)
    return Effects(read=frozenset(read), written=frozenset(written))


def _mask_of(call: Any, position: int) -> int:  # noqa: ANN401
    """The access mask at ``position``; both ways where none is stated."""
    if position < len(call.args) and type(call.args[position]).__name__ == "IntImm":
        return int(call.args[position].value)
    return _READS | _WRITES

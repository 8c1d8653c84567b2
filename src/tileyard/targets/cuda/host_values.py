"""What the variables of a lowered host module are: a call's arguments, and numbers that follow from them.

Names stand in place of values: a tensor is known by its position, and a size by the signature's own
dimensions.
"""

import contextlib
from typing import Any

import msgspec
from tilelang import tvm

from tileyard.errors import UnsupportedError
from tileyard.frontend.expressions import lower_expr
from tileyard.frontend.scope import Scope, key_of
from tileyard.ir.nodes import Buffer, Cast, Const, Expr, Load, Op, Program, Scalar, Tensor, Var
from tileyard.model import Record

# Fields of ``tvm_struct_get``, by TVM's numbers.
_VALUE = 15
_FIELDS = {1: "data", 2: "shape", 3: "strides"}

_WORKSPACE = "TVMBackendAllocWorkspace"


class Place(Record):
    """What a handle is: an argument, a tensor's data, shape or strides, or a workspace; and its position."""

    what: str
    index: int


class HostValues:
    """What is known of a host function's variables, each by its identity.

    ``workspaces`` are sizes in bytes of the memory that the function takes for itself.
    """

    def __init__(self, signature: Program) -> None:
        self._signature = signature
        self._scope = Scope(any_dtype=True)
        self._places: dict[object, Place] = {}
        self._values: dict[str, Expr] = {}
        self.workspaces: list[Expr] = []

    def place(self, handle: Any) -> Place | None:  # noqa: ANN401 (TVM's nodes are untyped)
        """What a handle is; None for one that is neither an argument nor memory."""
        return self._places.get(key_of(handle))

    def lower(self, value: Any) -> Expr:  # noqa: ANN401
        """An expression over the signature's dimensions and scalars. Raises UnsupportedError."""
        return self._resolve(lower_expr(self._scope, value))

    def bind(self, var: Any, value: Any) -> None:  # noqa: ANN401
        """Take in that a variable has this value."""
        place = self._find_place(value)
        if place is not None and place.what == "argument" and str(var.dtype) != "handle":
            self._know(var, self._scalar(place.index))
        elif place is not None:
            self._places[key_of(var)] = place
        elif called(value) == _WORKSPACE:
            self._lend(var, self.lower(value.args[2]))
        elif str(var.dtype) != "handle":
            # One for a check of the arguments need not be known; where a launch needs it, that is refused.
            with contextlib.suppress(UnsupportedError):
                self._know(var, self.lower(value))

    def declare(self, tir: Any) -> None:  # noqa: ANN401
        """Take in an array: one that holds a tensor's shape or strides gives numbers."""
        place = self.place(tir.data)
        if place is not None and place.what in ("shape", "strides"):
            name = f"{place.what}:{place.index}"
            self._scope.bind_buffer(tir, Buffer(name, str(tir.dtype), (), "global"))

    def allocate(self, tir: Any) -> None:  # noqa: ANN401
        """Take in memory that is taken for one call. Raises UnsupportedError for the host's own."""
        if str(tir.scope()) != "global":
            self._scope.refuse(f"memory of scope {tir.scope()} on the host")
        element = tvm.DataType(str(tir.dtype))
        bits: Any = tvm.tirx.IntImm("int64", int(element.bits) * int(element.lanes))
        for extent in tir.shape:
            bits = bits * tvm.tirx.Cast("int64", extent)
        self._lend(tir.data, self.lower(tvm.arith.Analyzer().simplify((bits + 7) // 8)))

    def _lend(self, handle: Any, size: Expr) -> None:  # noqa: ANN401
        self._places[key_of(handle)] = Place(what="workspace", index=len(self.workspaces))
        self.workspaces.append(size)

    def _know(self, var: Any, value: Expr) -> None:  # noqa: ANN401
        self._values[self._scope.bind_var(var).name] = value

    def _find_place(self, value: Any) -> Place | None:  # noqa: ANN401
        """What a value is, where it is an argument or a part of one."""
        kind = type(value).__name__
        if kind == "Select":  # a tensor object, or its bare description; a float, or an integer
            return self._find_place(value.false_value)
        if kind == "Cast":
            return self._find_place(value.value)
        if kind == "Var":
            return self.place(value)
        if called(value) != "tirx.tvm_struct_get":
            return None
        owner, index, field = value.args[0], int(value.args[1].value), int(value.args[2].value)
        place = self.place(owner)
        if place is None:
            is_argument = field == _VALUE and str(owner.name) == "args"
            return Place(what="argument", index=index) if is_argument else None
        return Place(what=_FIELDS[field], index=place.index) if field in _FIELDS else None

    def _resolve(self, expr: Expr) -> Expr:
        match expr:
            case Var():
                return self._values[expr.name]
            case Load(indices=(Const(value=number),)):
                what, _, index = expr.buffer.partition(":")
                extent = self._extent(what, int(index), int(number))
                return extent if extent.dtype == expr.dtype else Cast(extent, expr.dtype)
            case Op():
                return msgspec.structs.replace(expr, args=tuple(map(self._resolve, expr.args)))
            case Cast(value=inner):
                resolved = self._resolve(inner)
                return resolved if resolved.dtype == expr.dtype else _cast(resolved, expr.dtype)
            case _:
                return expr

    def _extent(self, what: str, index: int, number: int) -> Expr:
        """One number of a tensor's shape or strides, as the signature has it."""
        tensor = self._signature.params[index]
        if isinstance(tensor, Tensor) and what == "shape":
            return tensor.buffer.shape[number]
        if isinstance(tensor, Tensor) and tensor.buffer.strides:
            return tensor.buffer.strides[number]
        return self._scope.refuse("a stride that is known only when it runs")

    def _scalar(self, index: int) -> Expr:
        param = self._signature.params[index]
        if not isinstance(param, Scalar):
            self._scope.refuse(f"parameter {index} in place of a number")
        return param.var


def called(value: Any) -> str:  # noqa: ANN401
    """What a call of an external function calls, or the intrinsic; empty for no call."""
    if type(value).__name__ != "Call":
        return ""
    name = str(getattr(value.op, "name", ""))
    if name in ("tirx.tvm_call_packed", "tirx.call_extern", "tirx.call_packed") and len(value.args):
        return str(value.args[0].value)
    return name


def _cast(expr: Expr, dtype: str) -> Expr:
    """A conversion; of an integer literal the literal, and of what was only widened, the narrow one."""
    if isinstance(expr, Const) and isinstance(expr.value, int) and "int" in dtype:
        return Const(expr.value, dtype)
    if isinstance(expr, Cast) and expr.dtype == "int64" and expr.value.dtype == dtype == "int32":
        return expr.value
    return Cast(expr, dtype)

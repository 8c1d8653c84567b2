"""Reads how a kernel is launched from the host module that TileLang lowers it to. The module checks
and unpacks arguments, makes TMA descriptors, and calls device functions. It is followed once with
symbols for values: tensors by position, sizes by the signature's dimensions.
"""

import contextlib
from collections.abc import Mapping
from itertools import islice
from typing import Any

import msgspec
from tilelang import tvm

from tileyard.base.errors import UnsupportedError
from tileyard.base.model import Record
from tileyard.frontend.expressions import lower_expr
from tileyard.frontend.scope import Scope, key_of
from tileyard.ir.nodes import Buffer, Cast, Const, Expr, Load, Op, Program, Scalar, Tensor, Var
from tileyard.targets.cuda.launching import (
    Argument,
    KernelLaunch,
    LaunchRecord,
    MapParam,
    ScalarParam,
    TensorMap,
    TensorParam,
    WorkspaceParam,
)

# ---- values ---------------------------------------------------------------------------------------


# Fields of ``tvm_struct_get``, by TVM's numbers.
_VALUE = 15
_FIELDS = {1: "data", 2: "shape", 3: "strides"}

_WORKSPACE = "TVMBackendAllocWorkspace"


class Place(Record):
    """What a handle means: an argument, a tensor's data, shape or strides, a workspace; and its position."""

    what: str
    index: int


def called(value: Any) -> str:  # noqa: ANN401
    """The name of the called external function or intrinsic; empty if ``value`` is not a call."""
    if type(value).__name__ != "Call":
        return ""
    name = str(getattr(value.op, "name", ""))
    if name in ("tirx.tvm_call_packed", "tirx.call_extern", "tirx.call_packed") and len(value.args):
        return str(value.args[0].value)
    return name


def _cast(expr: Expr, dtype: str) -> Expr:
    """A conversion; an integer literal stays a literal, and a mere widening keeps the narrow value."""
    if isinstance(expr, Const) and isinstance(expr.value, int) and "int" in dtype:
        return Const(expr.value, dtype)
    if isinstance(expr, Cast) and expr.dtype == "int64" and expr.value.dtype == dtype == "int32":
        return expr.value
    return Cast(expr, dtype)


# ---- launches -------------------------------------------------------------------------------------


_TILED, _IM2COL = "__tvm_tensormap_create_tiled", "__tvm_tensormap_create_im2col"
_NO_EFFECT = frozenset(
    {
        "__tvm_set_device",
        "TVMBackendFreeWorkspace",
        "tirx.ret",
        # The part of the L2 cache reserved for a buffer changes no result.
        "__tvm_cuda_stream_set_access_policy_window",
        "__tvm_cuda_stream_reset_access_policy_window",
    }
)
_SIZES = {
    "tir.cluster_dim_x": "cluster.x",
    "tir.cluster_dim_y": "cluster.y",
    "tir.cluster_dim_z": "cluster.z",
    "blockIdx.x": "grid.x",
    "blockIdx.y": "grid.y",
    "blockIdx.z": "grid.z",
    "threadIdx.x": "block.x",
    "threadIdx.y": "block.y",
    "threadIdx.z": "block.z",
    "tirx.use_dyn_shared_memory": "shared",
}
"""The sizes that follow a device function's own arguments in a call, by TVM's tags."""

_ONE, _NONE = Const(1, "int32"), Const(0, "int32")

_CONTROL = {"IfThenElse": "a condition", "For": "a loop", "While": "a loop"}


def read_launch(host: Any, device: Any, signature: Program) -> LaunchRecord:  # noqa: ANN401 (TVM's)
    """The kernel's launch record in these lowered modules; ``signature`` has its parameters.
    UnsupportedError names why if the host does more.
    """
    functions = [function for _, function in host.functions.items()]
    if len(functions) != 1:
        raise UnsupportedError(f"{signature.name} lowers to {len(functions)} host functions")
    reader = _Reader(signature, {_symbol(f): f for _, f in device.functions.items()})
    reader.follow(functions[0].body)
    return LaunchRecord(
        signature=signature,
        launches=tuple(reader.launches),
        maps=tuple(reader.maps),
        workspaces=tuple(reader.workspaces),
    )


class _Reader:
    """Follows a host function; variables by identity. ``workspaces`` are bytes that it allocates."""

    def __init__(self, signature: Program, device: Mapping[str, Any]) -> None:
        self._signature = signature
        self._device = device
        self._scope = Scope(any_dtype=True)
        self._places: dict[object, Place] = {}
        self._values: dict[str, Expr] = {}
        self._maps: dict[object, int] = {}
        self.workspaces: list[Expr] = []
        self.launches: list[KernelLaunch] = []
        self.maps: list[TensorMap] = []

    def follow(self, stmt: Any) -> None:  # noqa: ANN401
        match type(stmt).__name__:
            case "SeqStmt":
                for part in stmt.seq:
                    self.follow(part)
            case "AttrStmt":
                self.follow(stmt.body)
            case "Bind":
                self.bind(stmt.var, stmt.value)
            case "DeclBuffer":
                self.declare(stmt.buffer)
            case "AllocBuffer":
                self.allocate(stmt.buffer)
            case "Evaluate":
                self._evaluate(stmt.value)
            case "AssertStmt":
                pass
            case kind:
                self._scope.refuse(f"{_CONTROL.get(kind, kind)} around launches")

    def _evaluate(self, call: Any) -> None:  # noqa: ANN401
        if type(call).__name__ != "Call":
            return
        name = called(call)
        if name in (_TILED, _IM2COL):
            self._describe_map(name, call.args)
        elif name in self._device:
            self._launch(self._device[name], call.args)
        elif name not in _NO_EFFECT:
            self._scope.refuse(f"{name} on the host")

    def _describe_map(self, name: str, args: Any) -> None:  # noqa: ANN401
        rank = int(args[3].value)
        place = self.place(args[4])
        if place is None or place.what != "data":
            self._scope.refuse("a TMA descriptor of memory that is not a parameter's")
        numbers = iter([self.lower(arg) for arg in list(args)[5:]])

        def take(count: int) -> tuple[Expr, ...]:
            return tuple(islice(numbers, count))

        dims, strides = take(rank), take(rank)[1:]
        box: tuple[Expr, ...] = ()
        lower, upper = box, box
        pixels = channels = None
        if name == _TILED:
            box, element_strides = take(rank), take(rank)
        else:
            element_strides, lower, upper = take(rank), take(rank - 2), take(rank - 2)
            pixels, channels = take(2)
        interleave, swizzle, l2_promotion, oob_fill = map(_number, take(4))
        self._maps[key_of(args[1])] = len(self.maps)
        self.maps.append(
            TensorMap(
                kind="tiled" if name == _TILED else "im2col",
                param=place.index,
                dtype=int(args[2].value),
                dims=dims,
                strides=strides,
                element_strides=element_strides,
                interleave=interleave,
                swizzle=swizzle,
                l2_promotion=l2_promotion,
                oob_fill=oob_fill,
                box=box,
                lower_corner=lower,
                upper_corner=upper,
                channels=channels,
                pixels=pixels,
            )
        )

    def _launch(self, function: Any, args: Any) -> None:  # noqa: ANN401
        params, given = list(function.params), list(args)[1:]
        tags = [str(tag) for tag in function.attrs["tirx.kernel_launch_params"]]
        sizes: dict[str, Expr] = {}
        for tag, value in zip(tags, given[len(params) :], strict=True):
            if tag not in _SIZES:
                self._scope.refuse(f"a launch with {tag}")
            sizes[_SIZES[tag]] = self.lower(value)
        cluster = tuple(sizes.get(f"cluster.{axis}", _ONE) for axis in "xyz")
        self.launches.append(
            KernelLaunch(
                symbol=_symbol(function),
                grid=_three(sizes, "grid"),
                block=_three(sizes, "block"),
                shared_bytes=sizes.get("shared", _NONE),
                arguments=tuple(
                    self._argument(param, value)
                    for param, value in zip(params, given[: len(params)], strict=True)
                ),
                cluster=() if all(extent == _ONE for extent in cluster) else cluster,
                cooperative=_flag(function, "use_cooperative_groups"),
                programmatic=_flag(function, "has_cuda_pdl_sync"),
            )
        )

    def _argument(self, param: Any, value: Any) -> Argument:  # noqa: ANN401
        if str(param.dtype) != "handle":
            return ScalarParam(value=self.lower(value), dtype=str(param.dtype))
        key = key_of(value)
        if key in self._maps:
            return MapParam(map=self._maps[key])
        place = self.place(value)
        if place is None or place.what not in ("data", "argument", "workspace"):
            return self._scope.refuse(f"argument {param.name} of {called(value) or 'a kernel'}")
        if place.what == "workspace":
            return WorkspaceParam(workspace=place.index)
        return TensorParam(param=place.index)

    # ---- what variables are ---------------------------------------------------------------------

    def place(self, handle: Any) -> Place | None:  # noqa: ANN401 (TVM's nodes are untyped)
        """The place of a handle; None if it is neither an argument nor memory."""
        return self._places.get(key_of(handle))

    def lower(self, value: Any) -> Expr:  # noqa: ANN401
        """An expression over the signature's dimensions and scalars. Raises UnsupportedError."""
        return self._resolve(lower_expr(self._scope, value))

    def bind(self, var: Any, value: Any) -> None:  # noqa: ANN401
        place = self._find_place(value)
        if place is not None and place.what == "argument" and str(var.dtype) != "handle":
            self._know(var, self._scalar(place.index))
        elif place is not None:
            self._places[key_of(var)] = place
        elif called(value) == _WORKSPACE:
            self._lend(var, self.lower(value.args[2]))
        elif str(var.dtype) != "handle":
            # A value for checking arguments need not be known; a launch that needs it is refused.
            with contextlib.suppress(UnsupportedError):
                self._know(var, self.lower(value))

    def declare(self, tir: Any) -> None:  # noqa: ANN401
        """Record an array: one that holds a tensor's shape or strides gives numbers."""
        place = self.place(tir.data)
        if place is not None and place.what in ("shape", "strides"):
            name = f"{place.what}:{place.index}"
            self._scope.bind_buffer(tir, Buffer(name, str(tir.dtype), (), "global"))

    def allocate(self, tir: Any) -> None:  # noqa: ANN401
        """Record memory that is allocated for one call. Raises UnsupportedError for host memory."""
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
        """The place of a value that is an argument or a part of one."""
        match type(value).__name__:
            case "Select":  # a tensor object or its bare description; a float or an integer
                return self._find_place(value.false_value)
            case "Cast":
                return self._find_place(value.value)
            case "Var":
                return self.place(value)
            case _:
                pass
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
        """One number of a tensor's shape or strides, as in the signature."""
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


def _three(sizes: Mapping[str, Expr], what: str) -> tuple[Expr, Expr, Expr]:
    x, y, z = (sizes.get(f"{what}.{axis}", _ONE) for axis in "xyz")
    return x, y, z


def _number(expr: Expr) -> int:
    """The value of a literal, which the compiler chose and no shape decides."""
    if not isinstance(expr, Const):
        raise UnsupportedError("a TMA descriptor whose form depends on the call")
    return int(expr.value)


def _symbol(function: Any) -> str:  # noqa: ANN401
    return str(function.attrs["global_symbol"])


def _flag(function: Any, name: str) -> bool:  # noqa: ANN401
    value = function.attrs.get(name)
    return value is not None and bool(int(getattr(value, "value", value)))

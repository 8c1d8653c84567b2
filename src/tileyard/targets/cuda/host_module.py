"""Reads how a kernel is launched from the host module that TileLang lowers it to.

The host module checks and unpacks its arguments, makes TMA descriptors, and calls each device function
with its arguments and its sizes. It is followed here once, from its begin to its end; what its variables
stand for is kept by ``host_values``.
"""

from collections.abc import Mapping
from typing import Any

from tileyard.errors import UnsupportedError
from tileyard.frontend.scope import Scope, key_of
from tileyard.ir.nodes import Const, Expr, Program
from tileyard.targets.cuda.host_values import HostValues, called
from tileyard.targets.cuda.records import (
    Argument,
    KernelLaunch,
    LaunchRecord,
    MapParam,
    ScalarParam,
    TensorMap,
    TensorParam,
    WorkspaceParam,
)

_TILED, _IM2COL = "__tvm_tensormap_create_tiled", "__tvm_tensormap_create_im2col"
_NO_EFFECT = frozenset(
    {
        "__tvm_set_device",
        "TVMBackendFreeWorkspace",
        "tirx.ret",
        # What part of the L2 cache is kept for a buffer changes no result.
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
"""What stands behind a device function's own arguments in a call of it, by TVM's tags."""

_ONE, _NONE = Const(1, "int32"), Const(0, "int32")


_CONTROL = {"IfThenElse": "a condition", "For": "a loop", "While": "a loop"}


def read_launch(host: Any, device: Any, signature: Program) -> LaunchRecord:  # noqa: ANN401 (TVM's)
    """How the kernel of these lowered modules is launched.

    ``signature`` has its parameters. Raises UnsupportedError for a host module that does more than
    launch: what it does is named.
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
        workspaces=tuple(reader.values.workspaces),
    )


class _Reader:
    """Follows one host function. Maps are known by the identity of the variable that holds them."""

    def __init__(self, signature: Program, device: Mapping[str, Any]) -> None:
        self._device = device
        self._scope = Scope()
        self._maps: dict[object, int] = {}
        self.values = HostValues(signature)
        self.launches: list[KernelLaunch] = []
        self.maps: list[TensorMap] = []

    def follow(self, stmt: Any) -> None:  # noqa: ANN401
        """Take in a statement and all that it holds."""
        kind = type(stmt).__name__
        if kind == "SeqStmt":
            for part in stmt.seq:
                self.follow(part)
        elif kind == "AttrStmt":
            self.follow(stmt.body)
        elif kind == "Bind":
            self.values.bind(stmt.var, stmt.value)
        elif kind == "DeclBuffer":
            self.values.declare(stmt.buffer)
        elif kind == "AllocBuffer":
            self.values.allocate(stmt.buffer)
        elif kind == "Evaluate":
            self._evaluate(stmt.value)
        elif kind != "AssertStmt":
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
        place = self.values.place(args[4])
        if place is None or place.what != "data":
            self._scope.refuse("a TMA descriptor of memory that is no parameter's")
        numbers = [self.values.lower(arg) for arg in list(args)[5:]]

        def take(count: int) -> tuple[Expr, ...]:
            taken = tuple(numbers[:count])
            del numbers[:count]
            return taken

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
            sizes[_SIZES[tag]] = self.values.lower(value)
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
            return ScalarParam(value=self.values.lower(value), dtype=str(param.dtype))
        key = key_of(value)
        if key in self._maps:
            return MapParam(map=self._maps[key])
        place = self.values.place(value)
        if place is None or place.what not in ("data", "argument", "workspace"):
            return self._scope.refuse(f"argument {param.name} of {called(value) or 'a kernel'}")
        if place.what == "workspace":
            return WorkspaceParam(workspace=place.index)
        return TensorParam(param=place.index)


def _three(sizes: Mapping[str, Expr], what: str) -> tuple[Expr, Expr, Expr]:
    x, y, z = (sizes.get(f"{what}.{axis}", _ONE) for axis in "xyz")
    return x, y, z


def _number(expr: Expr) -> int:
    """A literal's value: what the compiler chose, and no shape decides."""
    if not isinstance(expr, Const):
        raise UnsupportedError("a TMA descriptor whose form depends on the call")
    return int(expr.value)


def _symbol(function: Any) -> str:  # noqa: ANN401
    return str(function.attrs["global_symbol"])


def _flag(function: Any, name: str) -> bool:  # noqa: ANN401
    value = function.attrs.get(name)
    return value is not None and bool(int(getattr(value, "value", value)))

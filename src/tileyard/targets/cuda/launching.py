"""Prepares calls of a kernel: sizes, packed arguments, and launches, configured once per sizes. The
driver encodes TMA descriptors into the launches' memory of arguments, which has the alignment.
"""

import ctypes
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np

from tileyard.base.errors import BindError, DamagedError
from tileyard.base.model import Record, TensorSpec, Value
from tileyard.base.wording import count_of
from tileyard.ir.dtypes import find_dtype
from tileyard.ir.nodes import Expr, Program, Scalar, Tensor, Var
from tileyard.ir.specs import (
    Evaluator,
    bind_dims,
    convert_scalar,
    evaluate_size,
    no_loads,
    tensor_specs,
)
from tileyard.ir.walk import walk_expr
from tileyard.targets.arguments import find_name
from tileyard.targets.cuda.architectures import parse_architecture
from tileyard.targets.cuda.driver import Driver, Gpu, check_driver, explain
from tileyard.targets.own_sources import Resources

DETAILS_VERSION = 1
CUBIN_FILE = "kernel.cubin"
SOURCE_FILE = "kernel.cu"
HOST_FILE = "host.txt"
"""The lowered host module as TVM prints it, from which the launch record was read."""
TILELANG_FILE = "kernel.py"
"""The kernel after our pipeline, as TileLang source."""
PORTABLE_CLUSTER = 8


class TensorParam(Record, tag="tensor"):
    """The address of a parameter's first element. ``param`` is its position in the signature."""

    param: int


class ScalarParam(Record, tag="scalar"):
    """A number, passed as ``dtype``."""

    value: Expr
    dtype: str


class MapParam(Record, tag="map"):
    """A TMA descriptor, by its position in the record; 128 bytes, passed by value."""

    map: int


class WorkspaceParam(Record, tag="workspace"):
    """The address of memory that the kernel gets for one call, by its position in the record."""

    workspace: int


Argument = TensorParam | ScalarParam | MapParam | WorkspaceParam


class TensorMap(Record):
    """A TMA descriptor as ``cuTensorMapEncodeTiled`` takes it, innermost dimension first, with the driver's
    numbers. ``param`` is the tensor's position in the signature; ``strides`` are bytes, but the innermost's.
    For ``im2col`` two corners, channels and pixels give the box, as for ``cuTensorMapEncodeIm2col``.
    """

    kind: Literal["tiled", "im2col"]
    param: int
    dtype: int
    dims: tuple[Expr, ...]
    strides: tuple[Expr, ...]
    element_strides: tuple[Expr, ...]
    interleave: int
    swizzle: int
    l2_promotion: int
    oob_fill: int
    box: tuple[Expr, ...] = ()
    lower_corner: tuple[Expr, ...] = ()
    upper_corner: tuple[Expr, ...] = ()
    channels: Expr | None = None
    pixels: Expr | None = None


class KernelLaunch(Record):
    """One launch of a device function, in blocks, threads and bytes; ``cluster`` is empty for none."""

    symbol: str
    grid: tuple[Expr, Expr, Expr]
    block: tuple[Expr, Expr, Expr]
    shared_bytes: Expr
    arguments: tuple[Argument, ...]
    cluster: tuple[Expr, ...] = ()
    cooperative: bool = False
    programmatic: bool = False


class LaunchRecord(Record):
    """Everything that happens between a call and its end, in order. ``signature`` is a Program of
    the parameters without a body, ``workspaces`` are bytes of memory for one call.
    """

    signature: Program
    launches: tuple[KernelLaunch, ...]
    maps: tuple[TensorMap, ...] = ()
    workspaces: tuple[Expr, ...] = ()


class Details(Record):
    """The target's part of the manifest. ``compiler`` names the binary's compilers, ``cuda`` the
    oldest CUDA release whose driver loads the cubin. ``precisions`` are those of a launch. ``facts``: see
    ``Reported``.
    """

    arch: str
    launch: LaunchRecord
    resources: tuple[Resources, ...]
    compiler: str
    cuda: tuple[int, int]
    flags: tuple[str, ...] = ()
    precisions: dict[str, str] = {}
    facts: dict[str, int] = {}
    version: int = DETAILS_VERSION


# ---- TMA descriptors ------------------------------------------------------------------------------


MAP_BYTES, MAP_ALIGNMENT = 128, 64

_POINTER, _INT, _U32 = ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32
_BEGIN = (_INT, _POINTER, _INT, _U32, _POINTER, _POINTER, _POINTER)
_END = (_INT, _INT, _INT, _INT)
# The bindings' own function encodes into an object of its own, which is aligned to 16 bytes only.
_TILED = ctypes.CFUNCTYPE(*_BEGIN, _POINTER, _POINTER, *_END)
_IM2COL = ctypes.CFUNCTYPE(*_BEGIN, _POINTER, _POINTER, _U32, _U32, _POINTER, *_END)


_REPLACE = ctypes.CFUNCTYPE(_INT, _POINTER, _POINTER)


class MapEncoder:
    """One descriptor of a launch record for given sizes; ``place`` is its address. The driver
    encodes it once; later calls replace only its address, with a dozen arguments fewer.
    """

    def __init__(
        self,
        driver: Driver,
        tensor_map: TensorMap,
        numbers: Mapping[str, Value],
        place: int,
        name: str,
    ) -> None:
        self._driver = driver
        self._place = place
        self._name = name
        sizes = functools.partial(evaluate_sizes, numbers)
        rank = len(tensor_map.dims)
        dims = (ctypes.c_uint64 * rank)(*sizes(tensor_map.dims))
        strides = (ctypes.c_uint64 * max(rank - 1, 1))(*sizes(tensor_map.strides))
        steps = (ctypes.c_uint32 * rank)(*sizes(tensor_map.element_strides))
        middle: tuple[object, ...]
        if tensor_map.kind == "tiled":
            self._encode = _find(driver, "cuTensorMapEncodeTiled", _TILED)
            middle = ((ctypes.c_uint32 * rank)(*sizes(tensor_map.box)), steps)
        else:
            self._encode = _find(driver, "cuTensorMapEncodeIm2col", _IM2COL)
            corners = (tensor_map.lower_corner, tensor_map.upper_corner)
            lower, upper = ((ctypes.c_int32 * max(rank - 2, 1))(*sizes(one)) for one in corners)
            channels, pixels = sizes(
                [one for one in (tensor_map.channels, tensor_map.pixels) if one is not None]
            )
            middle = (lower, upper, channels, pixels, steps)
        self._replace = _find(driver, "cuTensorMapReplaceAddress", _REPLACE)
        self._is_encoded = False
        self._before = (tensor_map.dtype, rank)
        self._after = (
            dims,
            strides,
            *middle,
            tensor_map.interleave,
            tensor_map.swizzle,
            tensor_map.l2_promotion,
            tensor_map.oob_fill,
        )

    def write(self, address: int) -> None:
        """Write the descriptor for a tensor at this address. Raises BindError."""
        if self._is_encoded and self._replace(self._place, address) == 0:
            return
        status = self._encode(self._place, *self._before, address, *self._after)
        if status != 0:
            error = self._driver.api.CUresult(status).name
            raise BindError(f"no TMA descriptor can be made for {self._name}: {error}")
        self._is_encoded = True


def evaluate_sizes(numbers: Mapping[str, Value], exprs: Sequence[Expr]) -> list[int]:
    """The values of integer expressions whose variables are all in ``numbers``."""
    return [evaluate_size(expr, numbers) for expr in exprs]


def _find(driver: Driver, name: str, kind: Any) -> Callable[..., int]:  # noqa: ANN401 (a prototype)
    found: Callable[..., int] = kind(
        int(driver.call("cuGetProcAddress", name.encode(), 12000, 0)[0])
    )
    return found


# ---- arguments ------------------------------------------------------------------------------------


class Packed:
    """One place per argument, shared by all launches. ``tensors`` and ``lent`` pair a parameter or workspace
    with its word among ``words``; ``tables`` are addresses of each launch's array of arguments' addresses.
    """

    def __init__(self, record: LaunchRecord, numbers: Mapping[str, Value]) -> None:
        scalars = [
            argument
            for launch in record.launches
            for argument in launch.arguments
            if isinstance(argument, ScalarParam)
        ]
        maps = len(record.maps) * MAP_BYTES
        words = len(record.signature.params) + len(record.workspaces) + len(scalars)
        count = sum(len(launch.arguments) for launch in record.launches)
        raw = np.zeros(maps + 8 * (words + count) + MAP_ALIGNMENT, np.uint8)
        skip = -raw.ctypes.data % MAP_ALIGNMENT
        space = raw[skip : skip + maps + 8 * (words + count)]
        base = space.ctypes.data
        self.words = memoryview(space.data).cast("Q")
        self.map_places = [base + MAP_BYTES * number for number in range(len(record.maps))]
        first = maps // 8
        first_lent = first + len(record.signature.params)
        next_scalar = first_lent + len(record.workspaces)
        next_entry = first + words
        self.tables: list[int] = []
        params = enumerate(record.signature.params)
        self.tensors = [(at, first + at) for at, param in params if isinstance(param, Tensor)]
        self.lent = [(at, first_lent + at) for at in range(len(record.workspaces))]
        for launch in record.launches:
            self.tables.append(base + 8 * next_entry)
            for argument in launch.arguments:
                match argument:
                    case TensorParam(param=number):
                        place = base + 8 * (first + number)
                    case WorkspaceParam(workspace=number):
                        place = base + 8 * (first_lent + number)
                    case MapParam(map=number):
                        place = self.map_places[number]
                    case ScalarParam():
                        place = base + 8 * next_scalar
                        data = np.frombuffer(pack_scalar(argument, numbers), np.uint8)
                        space[8 * next_scalar : 8 * next_scalar + data.size] = data
                        next_scalar += 1
                self.words[next_entry] = place
                next_entry += 1


def pack_scalar(argument: ScalarParam, numbers: Mapping[str, Value]) -> bytes:
    """The bytes of a number as a kernel expects them."""
    dtypes = {part.name: part.dtype for part in walk_expr(argument.value) if isinstance(part, Var)}
    values = {name: convert_scalar(numbers[name], dtype) for name, dtype in dtypes.items()}
    found = Evaluator(values, no_loads).value(argument.value)
    return bytes(convert_scalar(found.item(), argument.dtype).tobytes())


def size_of(argument: TensorParam | ScalarParam | MapParam | WorkspaceParam) -> int:
    """Bytes of an argument of a kernel."""
    if isinstance(argument, MapParam):
        return MAP_BYTES
    if isinstance(argument, ScalarParam):
        return find_dtype(argument.dtype).bits // 8
    return 8


# ---- launches -------------------------------------------------------------------------------------


ALIGNMENT = 16
"""Alignment of a tensor's first byte, in bytes: kernels read and write that much at once."""

_DYNAMIC_SHARED, _LARGE_CLUSTERS = 8, 14


class CudaModule:
    """A cubin loaded on a device, with its launch record."""

    def __init__(self, gpu: Gpu, details: Details, cubin: bytes) -> None:
        """Raises BindError if this device or its driver cannot run it, DamagedError for an unsound cubin."""
        self.gpu = gpu
        self.record = details.launch
        self.precisions = details.precisions
        self.signature = details.launch.signature
        architecture = parse_architecture(details.arch)
        if not architecture.fits(gpu.capability):
            have = ".".join(map(str, gpu.capability))
            raise BindError(
                f"the artifact is for {details.arch} and runs on devices of capability "
                f"{architecture.runs_on}; {gpu.name} has {have}"
            )
        check_driver(gpu.driver, details.cuda)
        gpu.activate()
        module = gpu.driver.call("cuModuleLoadDataEx", cubin, 0, [], [])
        self.functions = tuple(Function(gpu, module, launch) for launch in details.launch.launches)

    def numbers(
        self, shapes: Sequence[tuple[int, ...]], scalars: Sequence[Value]
    ) -> dict[str, Value]:
        """Dimensions and scalars by name, given the tensors' shapes. Raises BindError."""
        params = [param.var for param in self.signature.params if isinstance(param, Scalar)]
        dims = bind_dims(self.signature, shapes, scalars)
        if len(params) != len(scalars):
            raise BindError(
                f"{self.signature.name} takes {count_of(len(params), 'scalar')}, not {len(scalars)}"
            )
        return {**{var.name: one for var, one in zip(params, scalars, strict=True)}, **dims}

    def specs_for(self, numbers: Mapping[str, Value]) -> tuple[TensorSpec, ...]:
        """The tensor parameters with concrete shapes."""
        dims = {name: one for name, one in numbers.items() if isinstance(one, int)}
        return tensor_specs(self.signature, dims)


class Function:
    """One device function, whose parameters the driver reports as in the record."""

    def __init__(self, gpu: Gpu, module: object, launch: KernelLaunch) -> None:
        call = self._call = gpu.driver.call
        self.launch = launch
        self.handle = call("cuModuleGetFunction", module, launch.symbol.encode())
        self._kinds = gpu.driver.api.CUfunction_attribute
        self._shared_bytes = 0
        for number, argument in enumerate(launch.arguments):
            _, size = call("cuFuncGetParamInfo", self.handle, number)
            want = size_of(argument)
            if int(size) != want:
                raise DamagedError(
                    f"parameter {number} of {launch.symbol} has {size} bytes in the cubin and "
                    f"{want} in its record"
                )

    def allow_shared(self, bytes_: int) -> None:
        """Allow launches with this many bytes of dynamic shared memory. Raises KernelFault."""
        if bytes_ > self._shared_bytes:
            self.allow(_DYNAMIC_SHARED, bytes_)
            self._shared_bytes = bytes_

    def allow(self, attribute: int, value: int) -> None:
        """Allow launches that not every device accepts."""
        self._call("cuFuncSetAttribute", self.handle, self._kinds(attribute), value)


class Plan:
    """Every launch of a call for given sizes; each call fills addresses in. Not thread-safe."""

    def __init__(self, module: CudaModule, numbers: Mapping[str, Value]) -> None:
        record = module.record
        names = [find_name(param) for param in module.signature.params]
        self.workspaces = tuple(evaluate_sizes(numbers, record.workspaces))
        packed = Packed(record, numbers)
        self._bytes = packed.words.cast("B")
        self._tensors = [word for _, word in packed.tensors]
        order = {number: at for at, (number, _) in enumerate(packed.tensors)}
        self._names = [names[number] for number in order]
        self._maps = [
            (
                order[one.param],
                MapEncoder(module.gpu.driver, one, numbers, place, names[one.param]),
            )
            for one, place in zip(record.maps, packed.map_places, strict=True)
        ]
        self._packed = packed
        self._launches = [
            made
            for function, table in zip(module.functions, packed.tables, strict=True)
            if (made := _configure(module.gpu, function, numbers, table)) is not None
        ]
        self._launch_one = module.gpu.driver.api.cuLaunchKernelEx

    def aim(self, addresses: Sequence[int], workspaces: Sequence[int] = ()) -> None:
        """Set the address of each tensor in calling order. After a BindError no address is valid."""
        words, joined = self._packed.words, 0
        for word, address in zip(self._tensors, addresses, strict=True):
            words[word] = address
            joined |= address
        if joined % ALIGNMENT:
            wrong = next(at for at, address in enumerate(addresses) if address % ALIGNMENT)
            raise BindError(
                f"{self._names[wrong]} begins at an address that is not a multiple of {ALIGNMENT} bytes"
            )
        for number, word in self._packed.lent:
            words[word] = workspaces[number]
        for at, encoder in self._maps:
            encoder.write(addresses[at])

    def save(self) -> bytes:
        """All arguments as they are now."""
        return bytes(self._packed.words)

    def restore(self, state: bytes) -> None:
        """Restore all arguments."""
        self._bytes[:] = state

    def launch(self, stream: int) -> None:
        """Launch everything on a stream, in order, without waiting. Raises KernelFault."""
        for one in self._launches:
            if one.stream != stream:
                one.config.hStream = one.stream = stream
            (status,) = self._launch_one(one.config, one.function, one.table, 0)
            if status:
                raise explain(status.name, "cuLaunchKernelEx")


@dataclass(slots=True)
class _Configured:
    """One launch as the driver takes it: only the stream changes between calls."""

    config: Any
    function: object
    table: int
    stream: int = -1


def _configure(
    gpu: Gpu, function: Function, numbers: Mapping[str, Value], table: int
) -> _Configured | None:
    """Configure a launch; None if the grid is empty, which the driver would refuse."""
    launch, api, sizes = function.launch, gpu.driver.api, partial(evaluate_sizes, numbers)
    grid = sizes(launch.grid)
    if 0 in grid:
        return None
    shared_bytes = evaluate_size(launch.shared_bytes, numbers)
    function.allow_shared(shared_bytes)
    config = api.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = grid
    config.blockDimX, config.blockDimY, config.blockDimZ = sizes(launch.block)
    config.sharedMemBytes = shared_bytes
    values = {}
    kinds = api.CUlaunchAttributeID
    if launch.cluster:
        value = values[kinds.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION] = api.CUlaunchAttributeValue()
        cluster = [*sizes(launch.cluster), 1, 1][:3]
        if math.prod(cluster) > PORTABLE_CLUSTER:
            function.allow(_LARGE_CLUSTERS, 1)
        value.clusterDim.x, value.clusterDim.y, value.clusterDim.z = cluster
    programmatic = kinds.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
    for is_asked, kind, field in (
        (launch.cooperative, kinds.CU_LAUNCH_ATTRIBUTE_COOPERATIVE, "cooperative"),
        (launch.programmatic, programmatic, "programmaticStreamSerializationAllowed"),
    ):
        if is_asked:
            values[kind] = api.CUlaunchAttributeValue()
            setattr(values[kind], field, 1)
    made = []
    for kind, value in values.items():
        attribute = api.CUlaunchAttribute()
        attribute.id, attribute.value = kind, value
        made.append(attribute)
    config.attrs, config.numAttrs = made, len(made)
    return _Configured(config, function.handle, table)

"""A call of a kernel made ready: sizes evaluated, arguments packed, launches configured once for given sizes."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tileyard.errors import BindError, DamagedError
from tileyard.ir.dtypes import find_dtype
from tileyard.ir.evaluate import Evaluator, no_loads
from tileyard.ir.nodes import Expr, Scalar, Tensor, Var
from tileyard.ir.specs import bind_dims, convert_scalar, evaluate_size, tensor_specs
from tileyard.ir.walk import walk_expr
from tileyard.model import TensorSpec, Value
from tileyard.targets.cuda.architectures import parse_architecture
from tileyard.targets.cuda.driver import Gpu, check_driver, explain
from tileyard.targets.cuda.maps import MAP_ALIGNMENT, MAP_BYTES, MapEncoder
from tileyard.targets.cuda.records import (
    Details,
    KernelLaunch,
    LaunchRecord,
    MapParam,
    ScalarParam,
    TensorParam,
    WorkspaceParam,
)

ALIGNMENT = 16
"""Of a tensor's first byte: kernels read and write so much at once."""
PORTABLE_CLUSTER = 8

_DYNAMIC_SHARED, _LARGE_CLUSTERS = 8, 14


class CudaModule:
    """A cubin loaded on a device, with its launch record."""

    def __init__(self, gpu: Gpu, details: Details, cubin: bytes) -> None:
        """Raises BindError where this device or its driver cannot run it, DamagedError for no sound cubin."""
        self.gpu = gpu
        self.record: LaunchRecord = details.launch
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
                f"{self.signature.name} takes {len(params)} scalars, not {len(scalars)}"
            )
        return {**{var.name: one for var, one in zip(params, scalars, strict=True)}, **dims}

    def specs(self, numbers: Mapping[str, Value]) -> tuple[TensorSpec, ...]:
        """The tensor parameters with concrete shapes."""
        dims = {name: one for name, one in numbers.items() if isinstance(one, int)}
        return tensor_specs(self.signature, dims)


class Function:
    """One device function; what the driver says of its parameters agrees with the record."""

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
                    f"parameter {number} of {launch.symbol} has {size} bytes in the cubin and {want} in its record"
                )

    def allow_shared(self, bytes_: int) -> None:
        """Have launches with so much dynamic shared memory be accepted. Raises KernelFault."""
        if bytes_ > self._shared_bytes:
            self._allow(_DYNAMIC_SHARED, bytes_)
            self._shared_bytes = bytes_

    def allow_large_cluster(self) -> None:
        """Have launches in clusters of more blocks than every device takes be accepted."""
        self._allow(_LARGE_CLUSTERS, 1)

    def _allow(self, attribute: int, value: int) -> None:
        self._call("cuFuncSetAttribute", self.handle, self._kinds(attribute), value)


class Plan:
    """Every launch of a call for given sizes. Addresses are filled in from call to call.

    Not for two threads at once.
    """

    def __init__(self, module: CudaModule, numbers: Mapping[str, Value]) -> None:
        record = module.record
        self._params = module.signature.params
        self._gpu = module.gpu
        self.workspaces = tuple(evaluate_size(size, numbers) for size in record.workspaces)
        packed = _Packed(record, numbers)
        self._words = packed.words
        self._bytes = packed.words.cast("B")
        self._tensors = packed.tensors
        self._lent = packed.lent
        self._maps = [
            MapEncoder(module.gpu.driver, one, numbers, place, self._name(one.param))
            for one, place in zip(record.maps, packed.map_places, strict=True)
        ]
        self._keep = packed
        self._launches = [
            made
            for function, table in zip(module.functions, packed.tables, strict=True)
            if (made := _configure(module.gpu, function, numbers, table)) is not None
        ]
        self._launch_one = module.gpu.driver.api.cuLaunchKernelEx

    def aim(self, addresses: Sequence[int], workspaces: Sequence[int] = ()) -> None:
        """Set the address of each parameter in calling order (of numbers: anything). Raises BindError."""
        for number, word in self._tensors:
            address = addresses[number]
            if address % ALIGNMENT:
                raise BindError(
                    f"{self._name(number)} begins at an address that is no multiple of {ALIGNMENT} bytes"
                )
            self._words[word] = address
        for number, word in self._lent:
            self._words[word] = workspaces[number]
        for encoder in self._maps:
            encoder.write(addresses[encoder.param])

    def save(self) -> bytes:
        """All arguments as they are now."""
        return bytes(self._words)

    def restore(self, state: bytes) -> None:
        """Have all arguments be again as they were."""
        self._bytes[:] = state

    def launch(self, stream: int) -> None:
        """Launch everything on a stream, in order, and do not wait. Raises KernelFault."""
        for one in self._launches:
            if one.stream != stream:
                one.config.hStream = one.stream = stream
            (status,) = self._launch_one(one.config, one.function, one.table, 0)
            if status:
                raise explain(status.name, "cuLaunchKernelEx")

    def _name(self, number: int) -> str:
        param = self._params[number]
        return param.buffer.name if isinstance(param, Tensor) else param.var.name


class _Configured:
    """One launch as the driver takes it: nothing changes from call to call but the stream."""

    __slots__ = ("config", "function", "stream", "table")

    def __init__(self, config: Any, function: object, table: int) -> None:  # noqa: ANN401
        self.config = config
        self.function = function
        self.table = table
        self.stream = -1


class _Packed:
    """The memory that launches take their arguments from: one place for each, shared by all launches.

    ``tensors`` and ``lent`` are pairs of a parameter or workspace and its word among ``words``;
    ``tables`` are addresses of arrays with the address of each argument, one for each launch.
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
        self._raw = raw
        self.words = memoryview(space.data).cast("Q")
        self.map_places = [base + MAP_BYTES * number for number in range(len(record.maps))]
        self.tensors: list[tuple[int, int]] = []
        self.lent: list[tuple[int, int]] = []
        first = maps // 8
        first_lent = first + len(record.signature.params)
        next_scalar = first_lent + len(record.workspaces)
        next_entry = first + words
        self.tables: list[int] = []
        for number, param in enumerate(record.signature.params):
            if isinstance(param, Tensor):
                self.tensors.append((number, first + number))
        for number in range(len(record.workspaces)):
            self.lent.append((number, first_lent + number))
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
                        self._put(space, 8 * next_scalar, pack_scalar(argument, numbers))
                        next_scalar += 1
                self.words[next_entry] = place
                next_entry += 1

    @staticmethod
    def _put(space: Any, at: int, data: bytes) -> None:  # noqa: ANN401 (an array)
        space[at : at + len(data)] = np.frombuffer(data, np.uint8)


def pack_scalar(argument: ScalarParam, numbers: Mapping[str, Value]) -> bytes:
    """The bytes of a number as a kernel takes them."""
    dtypes = {part.name: part.dtype for part in walk_expr(argument.value) if isinstance(part, Var)}
    values = {name: convert_scalar(numbers[name], dtype) for name, dtype in dtypes.items()}
    found = Evaluator(values, no_loads).value(argument.value)
    data: bytes = convert_scalar(found.item(), argument.dtype).tobytes()
    return data


def size_of(argument: TensorParam | ScalarParam | MapParam | WorkspaceParam) -> int:
    """How many bytes a kernel takes for an argument."""
    if isinstance(argument, MapParam):
        return MAP_BYTES
    if isinstance(argument, ScalarParam):
        return find_dtype(argument.dtype).bits // 8
    return 8


def _configure(
    gpu: Gpu, function: Function, numbers: Mapping[str, Value], table: int
) -> _Configured | None:
    """None where a grid is empty: then there is nothing to launch, and the driver would refuse it."""
    launch, api = function.launch, gpu.driver.api

    def sizes(exprs: Sequence[Expr]) -> list[int]:
        return [evaluate_size(expr, numbers) for expr in exprs]

    grid = sizes(launch.grid)
    if 0 in grid:
        return None
    shared_bytes = evaluate_size(launch.shared_bytes, numbers)
    function.allow_shared(shared_bytes)
    config = api.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = grid
    config.blockDimX, config.blockDimY, config.blockDimZ = sizes(launch.block)
    config.sharedMemBytes = shared_bytes
    attributes = []
    kinds = api.CUlaunchAttributeID
    if launch.cluster:
        value = api.CUlaunchAttributeValue()
        cluster = [*sizes(launch.cluster), 1, 1][:3]
        if math.prod(cluster) > PORTABLE_CLUSTER:
            function.allow_large_cluster()
        value.clusterDim.x, value.clusterDim.y, value.clusterDim.z = cluster
        attributes.append((kinds.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, value))
    if launch.cooperative:
        value = api.CUlaunchAttributeValue()
        value.cooperative = 1
        attributes.append((kinds.CU_LAUNCH_ATTRIBUTE_COOPERATIVE, value))
    if launch.programmatic:
        value = api.CUlaunchAttributeValue()
        value.programmaticStreamSerializationAllowed = 1
        attributes.append((kinds.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION, value))
    made = []
    for kind, value in attributes:
        attribute = api.CUlaunchAttribute()
        attribute.id, attribute.value = kind, value
        made.append(attribute)
    config.attrs, config.numAttrs = made, len(made)
    return _Configured(config, function.handle, table)

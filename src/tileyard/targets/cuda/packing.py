"""The memory that launches of a kernel take their arguments from, TMA descriptors among them.

The driver encodes descriptors there, because the memory is aligned as it asks.
"""

import ctypes
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tileyard.errors import BindError
from tileyard.ir.dtypes import find_dtype
from tileyard.ir.evaluate import Evaluator, no_loads
from tileyard.ir.nodes import Expr, Tensor, Var
from tileyard.ir.specs import convert_scalar, evaluate_size
from tileyard.ir.walk import walk_expr
from tileyard.model import Value
from tileyard.targets.cuda.driver import Driver
from tileyard.targets.cuda.records import (
    LaunchRecord,
    MapParam,
    ScalarParam,
    TensorMap,
    TensorParam,
    WorkspaceParam,
)

# ---- TMA descriptors ------------------------------------------------------------------------------


MAP_BYTES, MAP_ALIGNMENT = 128, 64

_POINTER, _INT, _U32 = ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32
_BEGIN = (_INT, _POINTER, _INT, _U32, _POINTER, _POINTER, _POINTER)
_END = (_INT, _INT, _INT, _INT)
# The bindings' own function encodes into an object of theirs, which is aligned to 16 bytes only.
_TILED = ctypes.CFUNCTYPE(*_BEGIN, _POINTER, _POINTER, *_END)
_IM2COL = ctypes.CFUNCTYPE(*_BEGIN, _POINTER, _POINTER, _U32, _U32, _POINTER, *_END)


_REPLACE = ctypes.CFUNCTYPE(_INT, _POINTER, _POINTER)


class MapEncoder:
    """One descriptor of a launch record for given sizes; ``place`` is where it is written.

    It is encoded once. From then on only its address is exchanged: the driver does both, and asks
    for a dozen arguments fewer.
    """

    def __init__(
        self,
        driver: Driver,
        tensor_map: TensorMap,
        numbers: Mapping[str, Value],
        place: int,
        name: str,
    ) -> None:
        self.param = tensor_map.param
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
        """Write the descriptor for a tensor that begins at this address. Raises BindError."""
        if self._is_encoded and self._replace(self._place, address) == 0:
            return
        status = self._encode(self._place, *self._before, address, *self._after)
        if status != 0:
            error = self._driver.api.CUresult(status).name
            raise BindError(f"no TMA descriptor can be made for {self._name}: {error}")
        self._is_encoded = True


def evaluate_sizes(numbers: Mapping[str, Value], exprs: Sequence[Expr]) -> list[int]:
    """The values of integer expressions over variables that are all among ``numbers``."""
    return [evaluate_size(expr, numbers) for expr in exprs]


def _find(driver: Driver, name: str, kind: Any) -> Callable[..., int]:  # noqa: ANN401 (a prototype)
    found: Callable[..., int] = kind(
        int(driver.call("cuGetProcAddress", name.encode(), 12000, 0)[0])
    )
    return found


# ---- arguments ------------------------------------------------------------------------------------


class Packed:
    """One place for each argument, shared by all launches.

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

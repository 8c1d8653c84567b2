"""The memory that launches of a kernel take their arguments from."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from tileyard.ir.dtypes import find_dtype
from tileyard.ir.nodes import Tensor, Var
from tileyard.ir.specs import Evaluator, convert_scalar, no_loads
from tileyard.ir.walk import walk_expr
from tileyard.model import Value
from tileyard.targets.cuda.maps import MAP_ALIGNMENT, MAP_BYTES
from tileyard.targets.cuda.records import (
    LaunchRecord,
    MapParam,
    ScalarParam,
    TensorParam,
    WorkspaceParam,
)


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

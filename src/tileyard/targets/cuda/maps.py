"""TMA descriptors, encoded by the driver into memory that is aligned as it asks."""

import ctypes
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tileyard.errors import BindError
from tileyard.ir.nodes import Expr
from tileyard.ir.specs import evaluate_size
from tileyard.model import Value
from tileyard.targets.cuda.driver import Driver
from tileyard.targets.cuda.records import TensorMap

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
        sizes = functools.partial(_sizes, numbers)
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


def _sizes(numbers: Mapping[str, Value], exprs: Sequence[Expr]) -> list[int]:
    return [evaluate_size(expr, numbers) for expr in exprs]


def _find(driver: Driver, name: str, kind: Any) -> Callable[..., int]:  # noqa: ANN401 (a prototype)
    found: Callable[..., int] = kind(
        int(driver.call("cuGetProcAddress", name.encode(), 12000, 0)[0])
    )
    return found

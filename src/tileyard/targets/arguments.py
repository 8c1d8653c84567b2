"""Matches and checks the arguments of a kernel call, for all targets."""

from collections.abc import Sequence

import numpy as np

from tileyard.errors import BindError
from tileyard.ir.dtypes import find_dtype
from tileyard.ir.nodes import Program, Scalar, Tensor
from tileyard.ir.specs import tensors
from tileyard.targets.base import Array
from tileyard.wording import count_of

PAGE = 4096


def match_arguments(
    signature: Program, arguments: tuple[object, ...]
) -> list[tuple[Tensor | Scalar, object]]:
    """The parameters that were passed, with or without the ``out`` tensors, each with its argument.

    Raises BindError if the number of arguments fits neither.
    """
    given = [p for p in signature.params if isinstance(p, Scalar) or p.role != "out"]
    for params in (list(signature.params), given):
        if len(arguments) == len(params):
            return list(zip(params, arguments, strict=True))
    *fewer, most = sorted({len(given), len(signature.params)})
    counts = " or ".join((*map(str, fewer), count_of(most, "argument")))
    raise BindError(
        f"{signature.name} takes {counts}, not {len(arguments)}",
        hint=f"in this order: {', '.join(map(find_name, signature.params))}",
    )


def find_name(param: Tensor | Scalar) -> str:
    """The name of a parameter."""
    return param.buffer.name if isinstance(param, Tensor) else param.var.name


def check_arrays(signature: Program, arrays: Sequence[Array]) -> None:
    """Raise BindError unless there is one array of the right type for each ``in`` and ``inout`` tensor."""
    given = [tensor for tensor in tensors(signature) if tensor.role != "out"]
    if len(arrays) != len(given):
        raise BindError(
            f"{signature.name} takes {count_of(len(given), 'array')}, not {len(arrays)}"
        )
    for tensor, array in zip(given, arrays, strict=True):
        want = find_dtype(tensor.buffer.dtype).numpy
        if array.dtype != want:
            raise BindError(f"{tensor.buffer.name} is {want}, the array {array.dtype}")


def unwrap(outputs: Sequence[object]) -> object:
    """The return value of a call: None, one array or a tuple."""
    if not outputs:
        return None
    return outputs[0] if len(outputs) == 1 else tuple(outputs)


def allocate(shape: tuple[int, ...], dtype: "np.dtype[np.generic]", offset: int = 0) -> Array:
    """An array that begins ``offset`` bytes after the start of a page.

    Without an offset it is page-aligned, as on a device, so times do not vary with its address.
    """
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    raw = np.empty(size + offset + PAGE, np.uint8)
    start = -raw.ctypes.data % PAGE + offset
    array: Array = raw[start : start + size].view(dtype).reshape(shape)
    return array

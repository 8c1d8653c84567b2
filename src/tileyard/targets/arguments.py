"""Matches and checks the arguments of a kernel call, for all targets."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tileyard.base.errors import BindError, UsageError
from tileyard.base.model import Rule, Value
from tileyard.base.wording import count_of
from tileyard.ir.dtypes import find_dtype
from tileyard.ir.nodes import Program, Scalar, Tensor
from tileyard.ir.reader import read_program
from tileyard.ir.specs import bind_dims, scalar_params, tensors
from tileyard.targets.base import Array

PAGE = 4096
Allow = Callable[[Mapping[str, Value]], None]
"""Raises if a kernel's rule rejects these dimensions and scalars of a call."""


def match_arguments(
    signature: Program, arguments: tuple[object, ...]
) -> list[tuple[Tensor | Scalar, object]]:
    """The parameters passed, with or without ``out`` tensors, and their arguments; BindError otherwise."""
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


def guard(
    run: Callable[..., object],
    rule: Rule | None,
    allow: Allow | None = None,
) -> Callable[..., object]:
    """A kernel that is launched only with numbers that its rule accepts. ``allow``, called once for each new
    set of numbers, raises if the rule rejects them; without it they are refused with a UsageError.
    """
    if rule is None:
        return run
    signature = read_program(rule.signature)
    known: set[object] = set()

    names = [var.name for var in scalar_params(signature)]

    def call(*arguments: Any) -> object:  # noqa: ANN401 - arrays of any library
        taken = match_arguments(signature, arguments)
        shapes = tuple(
            [tuple(getattr(one, "shape", ())) for param, one in taken if isinstance(param, Tensor)]
        )
        scalars = tuple([_read_number(one) for param, one in taken if isinstance(param, Scalar)])
        if (
            None not in scalars and (shapes, scalars) not in known
        ):  # the kernel refuses anything but a number
            bound = {
                **bind_dims(signature, shapes, scalars),
                **dict(zip(names, scalars, strict=True)),
            }
            numbers = {name: bound[name] for name in rule.numbers}
            if numbers != rule.numbers:
                if allow is None:
                    raise _describe_unknown(rule, numbers)
                allow(numbers)
            known.add((shapes, scalars))
        return run(*arguments)

    return call


def _read_number(value: Any) -> Any:  # noqa: ANN401 - of any library
    value = value.item() if getattr(value, "shape", None) == () else value
    return value if isinstance(value, bool | int | float) else None


def _describe_unknown(rule: Rule, numbers: Mapping[str, object]) -> UsageError:
    was = " ".join(f"{name}={rule.numbers[name]}" for name in numbers)
    asked = " ".join(f"{name}={value}" for name, value in numbers.items())
    return UsageError(
        f"{rule.text} was evaluated for {was} when this kernel was built, and not for {asked}",
        "build it for that, or use tileyard.tuned with its source",
    )


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
    """An array that begins ``offset`` bytes after a page's start. Without one it is page-aligned,
    as on a device, so that times do not vary with its address.
    """
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    raw = np.empty(size + offset + PAGE, np.uint8)
    start = -raw.ctypes.data % PAGE + offset
    array: Array = raw[start : start + size].view(dtype).reshape(shape)
    return array

"""Tensors are divided by numbers as torch does on a GPU: by multiplying with the reciprocal.

On CPUs torch divides. The two differ in the last bit, and a script that compares what a kernel
quantized with its own quotient, to the bit, was written for the one.
"""

import functools
import math
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

_METHODS = ("__truediv__", "div", "divide", "true_divide")
_IN_PLACE = ("__itruediv__", "div_", "divide_", "true_divide_")


def divide_as_gpus_do(torch: ModuleType) -> None:
    """Replace torch's true divisions where the divisor is a number."""
    tensor: Any = torch.Tensor
    division = _Division(torch)
    for name in (*_METHODS, *_IN_PLACE):
        multiply = tensor.mul_ if name in _IN_PLACE else tensor.mul
        setattr(tensor, name, division.replacing(getattr(tensor, name), multiply))
    for name in _METHODS[1:]:
        setattr(torch, name, division.replacing(getattr(torch, name), tensor.mul))


def reciprocal(number: float, *, is_double: bool) -> float:
    """``1 / number`` as a GPU has it: both rounded to f32, or to f64 where ``is_double``."""
    kind = np.float64 if is_double else np.float32
    with np.errstate(all="ignore"):
        divisor = float(kind(number))
        return float(kind(1.0 / divisor)) if divisor else math.copysign(math.inf, divisor)


class _Division:
    """Which divisions are replaced, and by what."""

    def __init__(self, torch: ModuleType) -> None:
        self._tensor: Any = torch.Tensor
        self._double = torch.float64
        self._kinds = (torch.float16, torch.bfloat16, torch.float32, torch.float64)

    def replacing(
        self, divide: Callable[..., Any], multiply: Callable[..., Any]
    ) -> Callable[..., Any]:
        """``divide``, done by ``multiply`` where a tensor of floats is divided by a number."""

        @functools.wraps(divide)
        def divided(given: Any, *args: Any, **kwargs: Any) -> object:  # noqa: ANN401 (torch's)
            if (
                len(args) == 1
                and not kwargs
                and type(args[0]) in (int, float)
                and isinstance(given, self._tensor)
                and given.dtype in self._kinds
            ):
                is_double = given.dtype == self._double
                return multiply(given, reciprocal(args[0], is_double=is_double))
            return divide(given, *args, **kwargs)

        return divided

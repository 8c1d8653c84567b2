"""torch's arithmetic as on a GPU. Products of half-precision matrices are computed in f32 and rounded once,
as torch's own take a hundred times as long on CPUs; they are replaced below autograd, where all forms of a
product meet, in all threads. A tensor divided by a number is multiplied by the reciprocal: that differs in
the last bit, and scripts compare bits.
"""

import functools
import math
import warnings
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

from tileyard.verbs.exec.plan.tally import Tally

_FLASH = "_scaled_dot_product_flash_attention_for_cpu"
OPERATIONS = {
    "mm": "mm",
    "bmm": "bmm",
    "addmm": "addmm",
    "baddbmm": "baddbmm",
    "addmv": "addmv",
    "convolution": "convolution",
    "convolution_backward": "convolution_backward",
    _FLASH: "scaled_dot_product_attention",
    f"{_FLASH}_backward": "scaled_dot_product_attention",
}
"""torch's operations, each with the name under which it is counted."""

_FIRST_ONLY = frozenset({_FLASH})
"""Operations of which only the first result has the type of the operands."""

_IN_PARTS = frozenset({"mm", "bmm"})
_PART = 1 << 26
"""Number of elements of a product computed at once."""
_BATCHED = 3


def promote_half(torch: ModuleType, tally: Tally) -> None:
    """Compute these in f32 from here on."""
    library = torch.library.Library("aten", "IMPL")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns whenever a kernel of its own is replaced
        for operation in OPERATIONS:
            promoted = _promoted(torch, operation, tally)
            library.impl(operation, promoted, "CPU", with_keyset=True, allow_override=True)
    vars(torch)["_tileyard_promoted"] = library  # it removes its kernels when it is deleted


def _promoted(torch: ModuleType, operation: str, tally: Tally) -> Callable[..., object]:
    original = torch.library.get_kernel(f"aten::{operation}", "CPU").call_boxed
    name = OPERATIONS[operation]
    half = (torch.float16, torch.bfloat16)

    def widen(value: Any) -> object:  # noqa: ANN401 (torch's)
        is_half = isinstance(value, torch.Tensor) and value.dtype in half
        return value.to(torch.float32) if is_half else value

    def compute(keyset: object, *args: object, **kwargs: object) -> object:
        """The operation's results, in the type of its operands."""
        given = (*args, *kwargs.values())
        kinds = [value.dtype for value in given if isinstance(value, torch.Tensor)]
        kind = next((kind for kind in kinds if kind in half), None)
        if kind is None:
            return original(keyset, *args, **kwargs)
        tally.note_promotion(name)
        if name in _IN_PARTS and not kwargs:
            return multiply(keyset, *args)
        widened = {key: widen(value) for key, value in kwargs.items()}
        results = original(keyset, *map(widen, args), **widened)
        if not isinstance(results, tuple):
            return results.to(kind)
        if operation in _FIRST_ONLY:
            return (results[0].to(kind), *results[1:])
        return tuple(
            result.to(kind) if isinstance(result, torch.Tensor) else result for result in results
        )

    def multiply(keyset: object, a: Any, b: Any) -> object:  # noqa: ANN401 (torch's)
        """A product in parts along its first dimension, so that only a small part is in f32 at once."""
        shape = (*a.shape[:-1], b.shape[-1])
        result = a.new_empty(shape)
        row = max(math.prod(shape[1:]), math.prod(a.shape[1:]), 1)
        step = max(_PART // row, 1)
        whole = widen(b) if b.dim() < _BATCHED else None
        for start in range(0, shape[0], step):
            part = slice(start, start + step)
            other = whole if whole is not None else widen(b[part])
            result[part] = original(keyset, widen(a[part]), other)
        return result

    return compute


_METHODS = ("__truediv__", "div", "divide", "true_divide")
_IN_PLACE = ("__itruediv__", "div_", "divide_", "true_divide_")


def divide_as_gpus_do(torch: ModuleType) -> None:
    """Replace torch's true divisions if the divisor is a number."""
    tensor: Any = torch.Tensor
    divided = functools.partial(_divided, torch)
    for name in (*_METHODS, *_IN_PLACE):
        multiply = tensor.mul_ if name in _IN_PLACE else tensor.mul
        setattr(tensor, name, divided(getattr(tensor, name), multiply))
    for name in _METHODS[1:]:
        setattr(torch, name, divided(getattr(torch, name), tensor.mul))


def reciprocal(number: float, *, is_double: bool) -> float:
    """``1 / number`` as on a GPU: both rounded to f32, or to f64 if ``is_double``."""
    kind = np.float64 if is_double else np.float32
    with np.errstate(all="ignore"):
        divisor = float(kind(number))
        return float(kind(1.0 / divisor)) if divisor else math.copysign(math.inf, divisor)


def _divided(
    torch: ModuleType, divide: Callable[..., Any], multiply: Callable[..., Any]
) -> Callable[..., Any]:
    """``divide``, replaced by ``multiply`` if a tensor of floats is divided by a number."""
    kinds = (torch.float16, torch.bfloat16, torch.float32, torch.float64)

    @functools.wraps(divide)
    def divided(given: Any, *args: Any, **kwargs: Any) -> object:  # noqa: ANN401 (torch's)
        if (
            len(args) == 1
            and not kwargs
            and type(args[0]) in (int, float)
            and isinstance(given, torch.Tensor)
            and given.dtype in kinds
        ):
            is_double = given.dtype == torch.float64
            return multiply(given, reciprocal(args[0], is_double=is_double))
        return divide(given, *args, **kwargs)

    return divided

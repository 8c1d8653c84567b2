"""Products of half-precision matrices, computed in f32 and rounded once.

torch's own on CPUs take a hundred times as long. They are replaced below autograd, where all of
torch's forms of a product (``@``, ``einsum``, ``linear``) come together, in all threads.
"""

import math
import warnings
from types import ModuleType
from typing import Any

from tileyard.scripts.tally import Tally

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
"""Operations of whose results only the first has the type of the operands."""

_IN_PARTS = frozenset({"mm", "bmm"})
_PART = 1 << 26
"""How many elements of a product are computed at once."""
_BATCHED = 3


def promote_half(torch: ModuleType, tally: Tally) -> object:
    """Compute these in f32 from here on, for as long as what this returns is kept."""
    library = torch.library.Library("aten", "IMPL")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch tells everyone who replaces a kernel of its own
        for operation in OPERATIONS:
            compute = _Promoted(torch, operation, tally).compute
            library.impl(operation, compute, "CPU", with_keyset=True, allow_override=True)
    return library


class _Promoted:
    """One operation of torch, in f32 where it is asked for in half precision."""

    def __init__(self, torch: ModuleType, operation: str, tally: Tally) -> None:
        self._original = torch.library.get_kernel(f"aten::{operation}", "CPU").call_boxed
        self._tally = tally
        self._name = OPERATIONS[operation]
        self._first_only = operation in _FIRST_ONLY
        self._tensor: Any = torch.Tensor
        self._half = (torch.float16, torch.bfloat16)
        self._wide = torch.float32

    def compute(self, keyset: object, *args: object, **kwargs: object) -> object:
        """The operation's results, in the type of its operands."""
        given = (*args, *kwargs.values())
        kinds = [value.dtype for value in given if isinstance(value, self._tensor)]
        kind = next((kind for kind in kinds if kind in self._half), None)
        if kind is None:
            return self._original(keyset, *args, **kwargs)
        self._tally.note_promotion(self._name)
        if self._name in _IN_PARTS and not kwargs:
            return self._multiply(keyset, *args)
        widened = {key: self._widen(value) for key, value in kwargs.items()}
        results = self._original(keyset, *map(self._widen, args), **widened)
        if not isinstance(results, tuple):
            return results.to(kind)
        first, *rest = results
        if self._first_only:
            return (first.to(kind), *rest)
        return tuple(
            result.to(kind) if isinstance(result, self._tensor) else result for result in results
        )

    def _multiply(self, keyset: object, a: Any, b: Any) -> object:  # noqa: ANN401 (torch's)
        """A product in parts along its first dimension, so that little of it is there in f32 at once."""
        shape = (*a.shape[:-1], b.shape[-1])
        result = a.new_empty(shape)
        row = max(math.prod(shape[1:]), math.prod(a.shape[1:]), 1)
        step = max(_PART // row, 1)
        whole = self._widen(b) if b.dim() < _BATCHED else None
        for start in range(0, shape[0], step):
            part = slice(start, start + step)
            other = whole if whole is not None else self._widen(b[part])
            result[part] = self._original(keyset, self._widen(a[part]), other)
        return result

    def _widen(self, value: Any) -> object:  # noqa: ANN401 (torch's)
        is_half = isinstance(value, self._tensor) and value.dtype in self._half
        return value.to(self._wide) if is_half else value

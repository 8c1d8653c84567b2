"""Products of half-precision matrices, computed in f32 and rounded once.

torch's own on CPUs take a hundred times as long. They are replaced below autograd, where all of
torch's forms of a product (``@``, ``einsum``, ``linear``) come together, in all threads.
"""

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

    def _widen(self, value: Any) -> object:  # noqa: ANN401 (torch's)
        is_half = isinstance(value, self._tensor) and value.dtype in self._half
        return value.to(self._wide) if is_half else value

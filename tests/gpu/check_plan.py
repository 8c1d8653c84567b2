"""What ``make gpu-check`` runs: kernels with arguments that suit a GPU, their inputs and their references.

Nothing here needs a GPU, and only who builds the artifacts imports it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Reference = Callable[..., Any]


@dataclass(frozen=True, kw_only=True)
class Check:
    """One kernel. ``expect`` takes its module, what it reads and its numbers, and gives what it writes.
    ``dims`` are dimensions that the call decides. ``like`` names what torch has in its place. ``not_for`` are
    architectures that TileLang cannot lower it for. ``fault`` says how it must end. One that is ``beside``
    another one is the same kernel behind our own pipeline. One that ``reads_old`` adds to what its outputs
    hold.
    """

    file: str
    kernel: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    expect: Reference | None = None
    dims: Mapping[str, int] = field(default_factory=dict)
    scalars: Sequence[bool | int | float] = ()
    rtol: float = 1e-4
    atol: float = 1e-4
    like: str = ""
    not_for: Sequence[str] = ()
    fault: str = ""
    beside: str = ""
    reads_old: bool = False


def _named(name: str) -> Reference:
    """A reference of the kernel's own file."""

    def expect(module: ModuleType, *given: Any) -> Any:  # noqa: ANN401
        return getattr(module, name)(*given)

    return expect


def _two_steps(_: ModuleType, a: Array, *rest: Any) -> Any:  # noqa: ANN401
    negative, step, scale, half = rest[-4:]  # before them B, where it counts as read
    b = -a if negative else a
    return b, np.repeat(b * np.float32(scale) + np.float32(step) + np.float32(half), 2)


def _convolve(_: ModuleType, data: Array, weights: Array) -> Array:
    data = np.pad(data, ((0, 0), (1, 1), (1, 1), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(
        data.astype(np.float32), weights.shape[:2], (1, 2)
    )
    return np.einsum("nhwcij,ijcf->nhwf", windows, weights.astype(np.float32)).astype(np.float16)


def _histogram(_: ModuleType, x: Array, *_counts: Array) -> Array:
    """It adds to what its output holds before: our poison, where it is no input as well."""
    counts = _counts[0] if _counts else np.full(64, np.iinfo(np.int32).min, np.int32)
    return counts + np.bincount(x % counts.size, minlength=counts.size).astype(np.int32)


_SMALL = {"M": 256, "N": 128, "K": 64}
_HALF = {"rtol": 1e-2, "atol": 5e-2}
_ATTENTION = {"batch": 1, "heads": 8, "seq_len": 512, "dim": 64, "block_M": 64, "block_N": 64}

CHECKS: dict[str, Check] = {
    "gemm": Check(
        file="gemm", kernel="gemm", expect=_named("reference"), like="matmul", rtol=1e-2, atol=0.3,
        arguments={"M": 1024, "N": 1024, "K": 1024, "block_M": 128, "block_N": 128, "dtype": "float16"},
    ),
    "gemm_ragged": Check(
        file="gemm", kernel="gemm", expect=_named("reference"), **_HALF,
        arguments={"M": 200, "N": 72, "K": 40},
    ),
    "gemm_eager": Check(file="gemm", kernel="gemm_eager", arguments=_SMALL, expect=_named("reference"),
                        **_HALF),
    "gemm_transposed": Check(
        file="gemm", kernel="gemm_transposed", arguments=_SMALL, **_HALF,
        expect=lambda module, a, b: module.reference(a, b, False, True),
    ),
    "gemm_last_tile": Check(
        file="gemm", kernel="gemm_last_tile", **_HALF,
        expect=lambda module, a, b: module.reference(a[:, -32:], b[-32:]),
        arguments={**_SMALL, "dtype": "float16"},
    ),
    "add": Check(
        file="elementwise", kernel="add", arguments={"M": 512, "N": 1024},
        expect=_named("add_reference"), like="add",
    ),
    "gelu": Check(file="elementwise", kernel="gelu", arguments={"N": 1000, "block": 128},
                  expect=_named("gelu_reference")),
    "functions": Check(
        file="elementwise", kernel="functions", arguments={"N": 64}, expect=_named("functions_reference"),
        rtol=1e-3
    ),
    "integers": Check(file="elementwise", kernel="integers", arguments={"N": 64},
                      expect=_named("integers_reference")),
    "collatz": Check(file="elementwise", kernel="collatz", arguments={"N": 64},
                     expect=_named("collatz_reference")),
    "scale_in_place": Check(
        file="elementwise", kernel="scale_in_place", arguments={"N": 128}, scalars=(2.5,),
        expect=_named("scale_in_place_reference"),
    ),
    "softmax": Check(
        file="reductions", kernel="softmax", arguments={"M": 1024, "N": 512, "block_N": 64},
        expect=_named("softmax_reference"), like="softmax",
    ),
    "rms_norm": Check(
        file="reductions", kernel="rms_norm", arguments={"M": 64, "N": 256},
        expect=_named("rms_norm_reference")
    ),
    "columns": Check(
        file="reductions", kernel="columns", arguments={"M": 8, "N": 32}, expect=_named("columns_reference")
    ),
    "attention": Check(
        file="attention", kernel="attention", arguments=_ATTENTION, expect=_named("reference"),
        like="attention", not_for=("sm_80",), **_HALF,
    ),
    "dynamic_linear": Check(
        file="dynamic", kernel="linear", expect=_named("linear_reference"), dims={"m": 333}, **_HALF,
        arguments={"N": 128, "K": 64, "block_M": 64, "block_N": 64, "block_K": 32, "dtype": "float16"},
    ),
    "scale": Check(
        file="styles", kernel="scale", arguments={"N": 128}, dims={"m": 7}, scalars=(0.5, 3),
        expect=lambda _, a, s, n: a * np.float32(s) + np.float32(n),
    ),
    "add_number": Check(
        file="styles",
        kernel="add_number",
        arguments={"M": 128},
        scalars=(3,),
        expect=lambda _, a, n: a + np.float32(n),
    ),
    "tuned_gemm": Check(
        file="styles",
        kernel="tuned_gemm",
        expect=lambda _, a, b: (a.astype(np.float32) @ b.astype(np.float32)).astype(np.float16),
        arguments={
            "M": 128,
            "N": 128,
            "K": 64,
            "block_M": 64,
            "block_N": 64,
            "policy": "FullRow",
        },
        **_HALF,
    ),
    "tuned_double": Check(
        file="styles",
        kernel="tuned_double",
        arguments={"M": 128},
        expect=lambda _, a: a * np.float32(2),
    ),
    "unchecked": Check(
        file="styles",
        kernel="unchecked",
        arguments={"M": 128, "block": 64},
        expect=lambda _, a: a,
    ),
    "reverse_warp": Check(
        file="gpu", kernel="reverse_warp", arguments={"N": 64},
        expect=lambda _, a, s: (s + np.int32(64), a.reshape(-1, 32)[:, ::-1].reshape(-1)),
    ),
    "two_steps": Check(
        file="gpu", kernel="two_steps", dims={"n": 1001}, scalars=(True, -(1 << 20), 0.5, 1.5),
        expect=_two_steps, rtol=1e-6,
    ),
    "through_memory": Check(
        file="gpu", kernel="through_memory", arguments={"N": 1024},
        expect=lambda _, a: (a[::-1] + np.float32(1)) * np.float32(2),
    ),
    "neighbours": Check(
        file="gpu", kernel="neighbours", arguments={"N": 256}, expect=lambda _, a: a, not_for=("sm_80",)
    ),
    "convolution": Check(
        file="gpu", kernel="convolution", expect=_convolve, rtol=1e-2, atol=0.3,
        arguments={"N": 2, "C": 64, "H": 16, "W": 16, "F": 64, "K": 3, "P": 1},
    ),
    "with_source": Check(
        file="gpu", kernel="with_source", arguments={"N": 512},
        expect=lambda _, a: a / (np.float32(1) + np.abs(a)),
    ),
    "histogram": Check(file="gpu", kernel="histogram", arguments={"N": 1024}, expect=_histogram,
                       reads_old=True),
    "stray": Check(
        file="gpu_endings", kernel="faulty", arguments={"N": 512, "fault": "stray"},
        fault="CUDA_ERROR_ILLEGAL_ADDRESS",
    ),
    "endless": Check(
        file="gpu_endings", kernel="faulty", arguments={"N": 512, "fault": "endless"}, fault="timeout"
    ),
}  # fmt: skip
"""By name. Faults come last; after each of them a kernel that is well runs once more."""

CHECKS |= {
    f"{name}_ours": replace(CHECKS[name], beside=name, like="")
    for name in ("gemm", "gemm_ragged", "gemm_transposed", "attention", "dynamic_linear")
}

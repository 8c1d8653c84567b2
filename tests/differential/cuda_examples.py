"""Our kernels with arguments that suit a GPU, and which of them TileLang refuses for which architecture."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tileyard.base.model import Value


@dataclass(frozen=True, kw_only=True)
class Example:
    """A kernel with arguments that suit a GPU; ``numbers`` are its dimensions and scalars in a call.

    ``views`` are other names of parameters, under which alone the device function knows them.
    """

    file: str
    kernel: str
    arguments: Mapping[str, Value | tuple[int, ...]]
    numbers: Mapping[str, Value] = field(default_factory=dict)
    views: Mapping[str, str] = field(default_factory=dict)


def _gemm(kernel: str = "gemm", **arguments: Value) -> Example:
    sizes = {"M": 256, "N": 128, "K": 64}
    return Example(file="gemm", kernel=kernel, arguments={**sizes, **arguments})


def _attention(**arguments: Value) -> Example:
    sizes = {"batch": 1, "heads": 2, "seq_len": 128, "dim": 64, "block_M": 64, "block_N": 64}
    return Example(file="attention", kernel="attention", arguments={**sizes, **arguments})


def _of(
    file: str,
    kernel: str,
    /,
    *,
    numbers: Mapping[str, Value] = {},
    views: Mapping[str, str] = {},
    **arguments: Value | tuple[int, ...],
) -> Example:
    return Example(file=file, kernel=kernel, arguments=arguments, numbers=numbers, views=views)


_TILES = {"block_M": 64, "block_N": 64, "block_K": 32}

EXAMPLES = {
    "gemm": _gemm(dtype="float16"),
    "gemm, ragged": _gemm(M=200, N=72, K=40),
    "gemm, eager": _gemm("gemm_eager"),
    "gemm, NT": _gemm("gemm_transposed"),
    "gemm, last tile": _gemm("gemm_last_tile", dtype="float16"),
    "elementwise add": _of("elementwise", "add", M=96, N=64),
    "gelu": _of("elementwise", "gelu", N=1000, block=128),
    "functions": _of("elementwise", "functions", N=64),
    "integers": _of("elementwise", "integers", N=64),
    "narrow integers": _of("elementwise", "narrow_integers", N=64),
    "collatz": _of("elementwise", "collatz", N=64),
    "scale in place": _of("elementwise", "scale_in_place", N=128, numbers={"factor": 2.5}),
    "softmax": _of("reductions", "softmax", M=64, N=256, block_N=64),
    "rms_norm": _of("reductions", "rms_norm", M=64, N=256),
    "columns": _of("reductions", "columns", M=8, N=32),
    "attention": _attention(),
    "dynamic linear": _of(
        "dynamic", "linear", N=128, K=64, block_M=64, block_N=64, block_K=32, dtype="float16",
        numbers={"m": 333},
    ),
    "scale": _of("styles", "scale", N=128, numbers={"m": 7, "s": 0.5, "n": 3}),
    "add number": _of("styles", "add_number", M=128, numbers={"n": 3}),
    "tuned gemm": _of("styles", "tuned_gemm", M=128, N=128, K=64, block_M=64, block_N=64, policy="FullRow"),
    "tuned double": _of("styles", "tuned_double", M=128),
    "unchecked": _of("styles", "unchecked", M=128, block=64),
    "reverse warp": _of("gpu", "reverse_warp", N=64),
    "two steps": _of(
        "gpu", "two_steps",
        numbers={"n": 1001, "is_negative": True, "step": -(1 << 40), "scale": 0.5, "half": 1.5},
    ),
    "through memory": _of("gpu", "through_memory", N=1024),
    "neighbours": _of("gpu", "neighbours", N=256),
    "convolution": _of("gpu", "convolution", N=2, C=64, H=16, W=16, F=64, K=3),
    "with source": _of("gpu", "with_source", N=512),
    "histogram": _of("gpu", "histogram", N=1024),
    "backward sums": _of("attention_more", "backward_sums", heads=2, length=128, dim=64, block=32),
    "backward": _of("attention_more", "backward", heads=1, length=64, dim=32, block_M=32, block_N=32),
    "paged decode": _of(
        "attention_more", "paged_decode", batch=2, heads=64, pages=8, page=64, dim=64, block_H=64
    ),
    "split decode": _of(
        "attention_more", "split_decode", heads=32, length=128, dim=32, splits=2, block=32
    ),
    "combine": _of("attention_more", "combine", splits=4, heads=6, dim=64),
    "varlen": _of(
        "attention_more", "varlen", total=128, heads=1, dim=32, sequences=2, longest=64, block_M=32,
        block_N=32,
    ),
    "conv2d": _of(
        "convolution", "conv2d", n=1, h=8, w=8, c=64, f=64, kernel=3, stride=1, dilation=1, padding=1,
        **_TILES, views={"filters": "W", "pixels": "Y"},
    ),
    "causal conv1d": _of("convolution", "causal_conv1d", length=128, channels=64, width=4, block=32),
    "grouped gemm": _of("grouped", "grouped_gemm", sizes=(64, 128), K=64, N=64, **_TILES),
    "moe": _of("grouped", "moe", tokens=64, experts=2, width=32, hidden=32, chosen=32, block=32),
    "chunked": _of("linear_attention", "chunked", heads=2, length=64, dim=32, chunk=32),
    "decayed": _of("linear_attention", "decayed", length=64, dim=32, chunk=32),
    "int8 gemm": _of("quantized", "int8_gemm", M=64, N=64, K=64, block=64),
    "int4 gemm": _of("quantized", "int4_gemm", M=64, N=64, K=64, group=32, block=64),
    "quantize rows": _of("quantized", "quantize_rows", M=16, N=128),
    "layer norm": _of("rows", "layer_norm", M=16, N=128),
    "cross entropy": _of("rows", "cross_entropy", M=6, N=256, block_N=64),
    "top k": _of("rows", "top_k", M=16, N=64, k=3),
    "rotate": _of("rows", "rotate", length=32, heads=2, dim=64),
    "unpack bits": _of("rows", "unpack_bits", N=64),
    "runs": _of("rows", "runs", N=64),
    "cumsum of columns": _of("scans", "cumsum", M=16, N=64, dim=0, reverse=True),
    "cummax": _of("scans", "cummax", N=64),
    "transpose": _of("scans", "transpose", M=64, N=96, block=32),
    "folds": _of("scans", "folds", M=16, N=64),
    "skip empty": _of("scans", "skip_empty", M=32, N=8),
    "split k": _of("splitting", "split_k", M=64, N=64, K=128, split=2, **_TILES),
    "stream k": _of("splitting", "stream_k", M=128, N=64, K=64, blocks=3, **_TILES),
    "persistent": _of("splitting", "persistent", M=128, N=128, K=64, blocks=3, **_TILES),
    "histogram, extremes": _of("splitting", "histogram", N=1000, bins=10),
    "compact": _of("splitting", "compact", N=128),
    "column sums": _of("splitting", "column_sums", M=64, N=64),
    "two launches": _of("splitting", "two_launches", M=16, N=128, block=16),
    "reducers": _of("splitting", "reducers", M=64, N=64),
    "async gemm": _of("splitting", "async_gemm", M=64, N=64, K=64, block=32),
    "two stages": _of("roles", "gemm_two_stages", M=128, N=64, K=64),
    "three roles": _of("roles", "gemm_three_roles", M=128, N=64, K=64),
    "sides": _of("roles", "sides", M=64, N=64),
    "deadlocked": _of("roles", "deadlocked", N=64),
    "neighbours of threads": _of("threads", "neighbours", M=8, N=64),
    "dot rows": _of("threads", "dot_rows", M=64, K=128, rows=4, lanes=32),
    "places": _of("threads", "places", N=100),
    "folded": _of("threads", "folded", M=8, N=16),
    "visits": _of("threads", "visits", N=8),
}  # fmt: skip

_BOTH = ("sm_80", "sm_90a")
_CONVERSION = "Layout infer conflict between scores and weights in T.Parallel loop"
_OPERAND = "Get different layout for scores"
_NO_TMA = "T.tma_copy() requires TMA-capable target"

REFUSED = {
    ("attention", "sm_80"): _CONVERSION,
    ("paged decode", "sm_80"): _CONVERSION,
    ("neighbours", "sm_80"): "T.copy with dst_block requires cluster-copy support (CUDA SM90+)",
    # What one product gives is an operand of the next in float32, which the layouts of TF32 do not allow.
    **{(name, arch): _OPERAND for name in ("backward", "split decode", "varlen") for arch in _BOTH},
    ("two stages", "sm_80"): _NO_TMA,
    ("three roles", "sm_80"): _NO_TMA,
    ("deadlocked", "sm_80"): "T.alloc_barrier() requires sm_90 (Hopper) or later",
}
"""What TileLang cannot lower whatever the sizes, with its reason."""

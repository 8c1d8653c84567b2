"""Kernels over the whole tile language, each through everything once: TIR, Program, text, interpreter, C.

A kernel's file has its inputs (``<kernel>_inputs``) and its reference (``<kernel>_reference``, or
the one that its entry names), which gives every array that the kernel writes.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.samples import choose_cases, list_contents, sampled

from tileyard.base.model import Device
from tileyard.ir.lanes import interpret_lanes
from tileyard.ir.printer import print_program
from tileyard.ir.reader import read_program
from tileyard.targets.cpu.target import CpuTarget
from tileyard.testing.target_cases import load_program

Array = NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A kernel with its arguments. ``tolerance`` is relative to the largest number of an array."""

    file: str
    kernel: str
    arguments: Mapping[str, object]
    reference: str = ""
    tolerance: float = 0.0


def _entries(file: str, tolerance: float, **kernels: Mapping[str, object]) -> dict[str, Entry]:
    return {
        name: Entry(file=file, kernel=name, arguments=arguments, tolerance=tolerance)
        for name, arguments in kernels.items()
    }


CATALOGUE = {
    **_entries(
        "splitting",
        1e-5,
        split_k={"M": 21, "N": 37, "K": 64, "split": 4},
        stream_k={"M": 40, "N": 35, "K": 30, "blocks": 5},
        persistent={"M": 50, "N": 70, "K": 20, "blocks": 3},
        histogram={"N": 1000, "bins": 10},
        compact={"N": 128},
        column_sums={"M": 40, "N": 12},
        two_launches={"M": 6, "N": 35},
        reducers={"M": 8, "N": 16},
        async_gemm={"M": 20, "N": 33, "K": 48},
    ),
    **_entries(
        "scans",
        0.0,
        cummax={"N": 50},
        transpose={"M": 21, "N": 37},
        folds={"M": 6, "N": 10},
        skip_empty={"M": 24, "N": 6},
    ),
    "cumsum of rows": Entry(
        file="scans",
        kernel="cumsum",
        arguments={"M": 16, "N": 24, "dim": 1, "reverse": False},
        reference="cumsum_rows_reference",
    ),
    "cumsum of columns, from the end": Entry(
        file="scans",
        kernel="cumsum",
        arguments={"M": 16, "N": 24, "dim": 0, "reverse": True},
        reference="cumsum_columns_reference",
    ),
    **_entries(
        "convolution",
        1e-5,
        conv2d={
            "n": 2,
            "h": 9,
            "w": 7,
            "c": 4,
            "f": 5,
            "kernel": 3,
            "stride": 2,
            "dilation": 1,
            "padding": 1,
        },
        causal_conv1d={"length": 41, "channels": 6, "width": 4},
    ),
    **_entries(
        "grouped",
        1e-5,
        grouped_gemm={"sizes": (5, 16, 1, 10), "K": 20, "N": 24},
        moe={"tokens": 20, "experts": 3, "width": 12, "hidden": 9, "chosen": 11},
    ),
    **_entries(
        "quantized",
        1e-5,
        int8_gemm={"M": 20, "N": 27, "K": 40},
        int4_gemm={"M": 20, "N": 24, "K": 64, "group": 32},
        quantize_rows={"M": 10, "N": 33},
    ),
    **_entries(
        "attention_more",
        1e-5,
        backward_sums={"heads": 2, "length": 20, "dim": 8},
        backward={"heads": 2, "length": 20, "dim": 8},
        split_decode={"heads": 6, "length": 32, "dim": 8, "splits": 4},
        combine={"splits": 4, "heads": 6, "dim": 8},
        varlen={"total": 34, "heads": 2, "dim": 8, "sequences": 3, "longest": 20},
    ),
    **_entries(
        "attention_more",
        2e-3,
        paged_decode={"batch": 2, "heads": 10, "pages": 12, "page": 8, "dim": 8},
    ),
    **_entries(
        "linear_attention",
        1e-5,
        chunked={"heads": 2, "length": 20, "dim": 8},
        decayed={"length": 24, "dim": 8},
    ),
    **_entries(
        "rows",
        1e-5,
        cross_entropy={"M": 6, "N": 41},
        top_k={"M": 10, "N": 24, "k": 3},
        unpack_bits={"N": 5},
        runs={"N": 40},
    ),
    **_entries("rows", 1e-3, layer_norm={"M": 10, "N": 24}),
    **_entries("elementwise", 0.0, narrow_integers={"N": 200}),
    **_entries("rows", 1e-2, rotate={"length": 20, "heads": 2, "dim": 8}),
}

_TARGET = CpuTarget()
SAMPLE = (
    *("varlen", "narrow_integers", "folds", "cross_entropy", "int4_gemm", "quantize_rows"),
    *("histogram", "runs", "persistent", "skip_empty", "two_launches", "causal_conv1d"),
    *("layer_norm", "top_k", "rotate", "split_decode", "backward", "stream_k"),
)
"""Kernels that together have everything which any of them has."""


def _explain(got: Array, want: Array, tolerance: float) -> str:
    """How two arrays differ, empty where they do not by more than ``tolerance``."""
    if got.dtype != want.dtype or got.shape != want.shape:
        return f"{got.dtype}{got.shape} in place of {want.dtype}{want.shape}"
    a, b = got.astype(np.float64), want.astype(np.float64)
    limit = tolerance * max(float(np.max(np.abs(b), initial=0.0)), 1e-30)
    wrong = ~((np.abs(a - b) <= limit) | (a == b) | (np.isnan(a) & np.isnan(b)))
    if not wrong.any():
        return ""
    at = tuple(map(int, np.argwhere(wrong)[0]))
    return f"{int(wrong.sum())} of {wrong.size} differ, first {at}: {a[at]} in place of {b[at]}"


@pytest.mark.slow
def test_the_sample_has_everything(
    kernels: Callable[[str], ModuleType], lower_prim_func: Callable[..., Any]
) -> None:
    """Each operation, scalar type and statement of any kernel is in one of the sample."""
    contents: dict[str, set[str]] = {}
    for name, entry in CATALOGUE.items():
        function = getattr(kernels(entry.file), entry.kernel)
        func = function.get_tir(**entry.arguments)
        contents[name] = list_contents(lower_prim_func(func, function.out_idx).program)
    missing = set().union(*contents.values()).difference(*(contents[name] for name in SAMPLE))
    assert not missing, f"{missing}: a sample is {choose_cases(contents)}"


@pytest.mark.slow
@pytest.mark.parametrize("name", sampled(CATALOGUE, SAMPLE))
def test_kernel_agrees_with_its_reference(
    name: str,
    kernels: Callable[[str], ModuleType],
    lower_prim_func: Callable[..., Any],
    tmp_path: Path,
) -> None:
    """The interpreter and the CPU compute what NumPy does; the Program survives its text."""
    entry = CATALOGUE[name]
    module = kernels(entry.file)
    function = getattr(module, entry.kernel)
    lowered = lower_prim_func(function.get_tir(**entry.arguments), function.out_idx)
    text = print_program(lowered.program)
    assert read_program(text) == lowered.program
    assert print_program(read_program(text)) == text
    assert all(Path(line.file).stem == entry.file for line in lowered.lines.values())

    arrays: Sequence[Array] = getattr(module, f"{entry.kernel}_inputs")(np.random.default_rng(7))
    expected = getattr(module, entry.reference or f"{entry.kernel}_reference")(*arrays)
    cores = tuple(sorted(os.sched_getaffinity(0)))
    device = Device(name="cpu:0", kind="cpu", identity="test", cores=cores)
    launch = load_program(_TARGET, device, lowered.program, tmp_path).bind(arrays, ())
    launch.run()
    runs = {"interpreted": interpret_lanes(lowered.program, arrays), "compiled": launch.read()}
    for how, written in runs.items():
        assert len(written) == len(expected)
        for number, (got, want) in enumerate(zip(written, expected, strict=True)):
            difference = _explain(got, want, entry.tolerance)
            assert not difference, f"{how}, output {number}: {difference}\n{text}"

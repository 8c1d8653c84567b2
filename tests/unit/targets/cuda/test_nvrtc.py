"""The real NVRTC, for sources that are compiled in no time, and compiler flags as it takes them."""

from pathlib import Path
from types import ModuleType

import pytest

from tileyard.base.model import Kernel, Value
from tileyard.targets.cuda.nvrtc import Nvrtc, NvrtcError, kernel_flags

KERNEL = 'extern "C" __global__ void k(float* a) { a[0] = faulty(a[1]); }\n'


@pytest.mark.slow
def test_a_refused_allocation_is_no_error_of_the_source(
    gpu_faults: ModuleType, tmp_path: Path
) -> None:
    """Where the assembler cannot have what a constant takes, that is want of memory."""
    expected = "NVRTC: ptxas fatal"
    with pytest.raises(MemoryError, match=expected):
        Nvrtc("sm_80", tmp_path, "").compile("", gpu_faults.TABLES + KERNEL, ())


@pytest.mark.slow
def test_an_error_of_the_source_is_told(gpu_faults: ModuleType, tmp_path: Path) -> None:
    """What NVRTC says of a source that is wrong is kept."""
    expected = 'identifier "nowhere" is undefined'
    with pytest.raises(NvrtcError, match=expected):
        Nvrtc("sm_80", tmp_path, "").compile("", gpu_faults.SOURCE + KERNEL, ())


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, ()),
        ({"tl.enable_fast_math": True}, ("--use_fast_math",)),
        ({"tl.enable_fast_math": False}, ()),
        (
            {"tl.ptxas_register_usage_level": 7},
            ("--ptxas-options=--register-usage-level=7",),
        ),
        ({"tl.device_compile_flags": "-lineinfo --ftz=true"}, ("-lineinfo", "--ftz=true")),
        ({"tl.disable_tma_lower": True}, ()),
    ],
)
def test_pass_options_that_are_for_the_compiler(
    options: dict[str, Value], expected: tuple[str, ...]
) -> None:
    """TileLang hands some of its pass options to nvcc; NVRTC gets them, too, and no others."""
    assert kernel_flags(Kernel(name="k", tir="1", pass_options=options)) == expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (("-O3", "-maxrregcount=64"), ("-maxrregcount=64",)),
        (("-Xcompiler", "-fPIC", "-G"), ("-G",)),
        (("-Xcompiler=-fPIC", "-ccbin=gcc-12", "-ccbin", "gcc"), ()),
        (("-Xptxas", "-dlcm=ca"), ("--ptxas-options=-dlcm=ca",)),
        (("--ptxas-options", "-v"), ("--ptxas-options=-v",)),
    ],
)
def test_flags_in_nvccs_spelling(given: tuple[str, ...], expected: tuple[str, ...]) -> None:
    """What concerns host code is dropped with what belongs to it; the rest is said as NVRTC says it."""
    assert kernel_flags(Kernel(name="k", tir="1", flags=given)) == expected


def test_authors_flags_come_last() -> None:
    """Of contradicting flags the author's own counts."""
    options: dict[str, Value] = {"tl.device_compile_flags": "-maxrregcount=32"}
    expected = ("-maxrregcount=32", "-maxrregcount=64")
    kernel = Kernel(name="k", tir="1", pass_options=options, flags=("-maxrregcount=64",))
    assert kernel_flags(kernel) == expected

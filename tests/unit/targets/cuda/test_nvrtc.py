"""The real NVRTC, for sources that are compiled in no time."""

from pathlib import Path
from types import ModuleType

import pytest

from tileyard.targets.cuda.nvrtc import Nvrtc, NvrtcError

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

"""What the real NVRTC makes of kernels that no multiprocessor has room for, and how their builds end."""

import re
from pathlib import Path

import msgspec
import pytest

from tileyard.artifacts.manifest import Build
from tileyard.base.model import Outcome
from tileyard.ir.nodes import Const, Program
from tileyard.targets.cuda.grouping import Member
from tileyard.targets.cuda.launching import Details, KernelLaunch, LaunchRecord
from tileyard.targets.cuda.resources import find_launch_excess
from tileyard.targets.cuda.target import CudaTarget, _Prepared

pytestmark = pytest.mark.slow

THREADS = 1024
WIDE = """
extern "C" __global__ void {bounds} k(float *x, int n) {{
    float held[96];
#pragma unroll
    for (int i = 0; i < 96; ++i) held[i] = x[i * n + threadIdx.x];
    for (int turn = 0; turn < n; ++turn)
#pragma unroll
        for (int i = 0; i < 96; ++i) held[i] = held[i] * held[(i + 1) % 96] + held[(i * 5 + 3) % 96];
#pragma unroll
    for (int i = 0; i < 96; ++i) x[i * n + threadIdx.x] = held[i];
}}
"""
"""Keeps 96 numbers in registers, and needs more for their indices."""
SHARED = """
extern "C" __global__ void __launch_bounds__(1024) k(float *x, int n) {{
    __shared__ float own[{kib} * 256];
    own[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = own[(threadIdx.x * n) % ({kib} * 256)];
}}
"""
BOUNDS = "__launch_bounds__(1024, 1)"
"""As TileLang writes them at each kernel."""


def build(folder: Path, source: str, flags: tuple[str, ...] = (), shared_kib: int = 0) -> Build:
    """How the build of a source ends that is to be launched with 1,024 threads, 256 by 4."""
    one = Const(1, "int32")
    launch = KernelLaunch(
        symbol="k",
        grid=(one, one, one),
        block=(Const(256, "int32"), Const(THREADS // 256, "int32"), one),
        shared_bytes=Const(shared_kib << 10, "int32"),
        arguments=(),
    )
    signature = Program("k", (), (), (), (), (), ())
    prepared = _Prepared(
        headers="",
        member=Member(name="k.cu", text=source, symbols=("k",)),
        launch=LaunchRecord(signature=signature, launches=(launch,)),
        flags=flags,
        binary="k",
        host="",
        log="lowered\n",
        tilelang="",
    )
    target = CudaTarget("sm_80")
    target.caches = folder
    assert find_launch_excess(prepared.launch, target.architecture) is None
    return target._finish(prepared, target._compile({"k": prepared}), folder)


@pytest.mark.parametrize("flags", [(), ("-maxrregcount=255",)])
def test_launch_bounds_keep_registers_within_what_there_is(
    tmp_path: Path, flags: tuple[str, ...]
) -> None:
    """Whatever the flags: the rest is spilled."""
    built = build(tmp_path, WIDE.format(bounds=BOUNDS), flags)
    assert (built.outcome, built.exceeds) == (Outcome.PASSED, "")
    (taken,) = msgspec.json.decode(built.details, type=Details).resources
    assert taken.registers <= 65_536 // THREADS
    assert taken.occupancy is not None
    assert taken.occupancy > 0


@pytest.mark.parametrize(
    ("source", "shared_kib", "limit", "message"),
    [
        (WIDE.format(bounds=""), 0, "registers", r"needs \d+ registers x 1024 threads = \d{6} "),
        (
            *(SHARED.format(kib=40), 130, "shared memory"),
            "needs 170 KiB of shared memory per block; sm_80 allows 163 KiB$",
        ),
        (
            *(SHARED.format(kib=60), 0, "shared memory"),
            "needs 60 KiB of static shared memory per block; sm_80 allows 48 KiB$",
        ),
    ],
)
def test_what_has_no_room_once_it_is_compiled_is_not_built(
    tmp_path: Path, source: str, shared_kib: int, limit: str, message: str
) -> None:
    """By its binary, or as ptxas says; with the log, in which each text is whole."""
    built = build(tmp_path, source, shared_kib=shared_kib)
    assert (built.outcome, built.exceeds, built.files) == (Outcome.COMPILE_ERROR, limit, ())
    assert built.diagnostic is not None
    assert re.match(message, built.diagnostic.message)
    assert built.printed.startswith("lowered\n")
    assert "ptxas" in built.printed
    assert "\0" not in built.printed

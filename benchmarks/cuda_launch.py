"""What a launch costs the caller of ``load()``'s callable: our own part, with the driver library stubbed.

``python benchmarks/cuda_launch.py``. Needs a C compiler, cuda-bindings with NVRTC, and torch (its CPU build
will do), and no GPU: none of this runs on one. The stub answers at once, so what is measured is Python
and the bindings. Tensors are torch's CPU tensors, which stand for CUDA tensors: reading address, shape
and dtype of either is the same call. What a real driver takes for a launch comes on top.
"""

import itertools
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from tileyard.targets.cuda.driver import Gpu, open_gpu
from tileyard.targets.cuda.launching import Details
from tileyard.targets.cuda.loaded import CudaLoaded

ROOT = Path(__file__).parent.parent
STUB = ROOT / "tests" / "gpu" / "stub_driver" / "stub_cuda.c"
CALLS, ROUNDS = 20_000, 7


def main() -> None:
    """Measure in a process that finds the stub, and print a table."""
    with tempfile.TemporaryDirectory() as folder:
        compiler = shutil.which("cc") or "cc"
        library = Path(folder) / "libcuda.so.1"
        subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", library, STUB], check=True)
        make_artifacts(Path(folder))
        paths = {"LD_LIBRARY_PATH": folder, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
        env = {**os.environ, **paths, "STUB_CUDA_QUIET": "1", "OMP_NUM_THREADS": "1"}
        command = [sys.executable, __file__, folder]
        done = subprocess.run(command, env=env, check=True, stdout=subprocess.PIPE, text=True)
    print(
        "microseconds of CPU time per call, median of rounds (fastest); the driver library is stubbed"
    )
    for name, (median, fastest) in json.loads(done.stdout).items():
        print(f"{name:58}{median:7.2f} ({fastest:.2f})")


def make_artifacts(folder: Path) -> None:
    """Two kernels of a few lines, in this process: NVRTC is not to find the stub."""
    sys.path.insert(0, str(ROOT))
    from tests.gpu.bare_kernels import compile_bare

    for name in ("scale", "mapped"):
        details, cubin = compile_bare(name, "sm_90a")
        (folder / f"{name}.json").write_bytes(msgspec.json.encode(details))
        (folder / f"{name}.cubin").write_bytes(cubin)


def load(gpu: Gpu, folder: Path, name: str) -> CudaLoaded:
    """One of them."""
    details = msgspec.json.decode((folder / f"{name}.json").read_bytes(), type=Details)
    return CudaLoaded(gpu, details, (folder / f"{name}.cubin").read_bytes())


def measure(folder: Path) -> None:
    """Time every way of calling, and print JSON."""
    import torch

    gpu = open_gpu(0)
    gpu.activate()
    gpu.ordinal = -1  # where torch says that CPU tensors are
    torch._C._cuda_getCurrentRawStream = lambda ordinal: 0  # noqa: SLF001 - a CPU build has none
    scale, mapped = load(gpu, folder, "scale"), load(gpu, folder, "mapped")
    call_scale, call_mapped = scale.as_callable(), mapped.as_callable()
    a, b = torch.zeros(1000), torch.zeros(1000)
    wide = [torch.zeros(1000, 64) for _ in range(4)]
    plan = mapped.bind([wide[0].numpy()], [])._plan  # noqa: SLF001 - the launch alone
    turns = iter(())

    def alternate() -> None:
        nonlocal turns
        pair = next(turns, None)
        if pair is None:
            turns = iter(((wide[0], wide[1]), (wide[2], wide[3])))
            pair = next(turns)
        call_mapped(*pair)

    many = torch.zeros(1000 * 2, 64 * 64)
    fresh = itertools.cycle([many[i : i + 16].view(-1)[:64000].view(1000, 64) for i in range(1900)])

    cases: dict[str, Callable[[], object]] = {
        "the launch alone, one kernel": lambda: plan.launch(0),
        "2 tensors, one kernel with a TMA descriptor": lambda: call_mapped(wide[0], wide[1]),
        "the same, other tensors in each call": alternate,
        "the same, tensors that it has not seen": lambda: call_mapped(next(fresh), wide[1]),
        "2 tensors and 2 numbers, two kernels and a workspace": lambda: call_scale(a, 0.5, b, 3),
    }
    found = {}
    for name, case in cases.items():
        rounds = []
        for _ in range(ROUNDS):
            for _ in range(200):
                case()
            began = time.process_time()
            for _ in range(CALLS):
                case()
            rounds.append((time.process_time() - began) / CALLS * 1e6)
        found[name] = (statistics.median(rounds), min(rounds))
    print(json.dumps(found))


if __name__ == "__main__":
    if len(sys.argv) == 2:
        measure(Path(sys.argv[1]))
    else:
        main()

"""Kernels of many types on the CPU beside what a user would run instead, on one core and on all.

Kernels that only pass over memory meet a plain copy of the same number of bytes, attention and
products meet torch. Each contender is a process of its own that is idle unless it is its turn; in each
round all take their turn, forwards and backwards, and ratios are within rounds. Prints ratios,
gigabytes or operations a second, the memory that a run takes beside its arrays, and the time of the C
compiler.

    python benchmarks/cpu_kernels.py [PART OF A CASE'S NAME ...]
"""

import ctypes
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import ml_dtypes
import numpy as np

from tileyard.artifacts.manifest import Artifact, find_artifact, publish
from tileyard.artifacts.objects import ObjectStore
from tileyard.measure.paired import compare_pair
from tileyard.model import BuildKey, Outcome
from tileyard.targets.cpu.loaded import CpuLoaded
from tileyard.workers.environment import THREAD_VARIABLES

ROUNDS = 24
FEWEST_ROUNDS = 6
CASE_S = 20.0
"""After so long, and the fewest rounds, a case is over: torch takes seconds for products of halves."""
LAUNCHES = 3
LONG_S = 0.2
SETTLE_S = 0.02
ROWS, COLUMNS, SIZE = 2048, 8192, 1024
HEADS, LENGTH, DIM = 8, 1024, 64

Array = np.ndarray


@dataclass(frozen=True, kw_only=True)
class Case:
    """One kernel: its name in kernels_cpu.py, its arguments, and its arrays, the last one the output.

    ``work`` is in floating-point operations, 0 where bytes are what counts. ``other`` is what it meets.
    """

    kernel: str
    arguments: tuple[object, ...]
    arrays: tuple[tuple[tuple[int, ...], str], ...]
    other: str
    work: int = 0

    @property
    def bytes(self) -> int:
        """Bytes of all arrays."""
        return sum(math.prod(shape) * numpy_type(name).itemsize for shape, name in self.arrays)


def numpy_type(name: str) -> "np.dtype[np.generic]":
    """NumPy's type of this name, also where ml_dtypes has it."""
    return np.dtype(getattr(ml_dtypes, name, None) or name)


def cases() -> dict[str, Case]:
    """All cases by name."""
    found = {}
    flat, row = (ROWS, COLUMNS), (COLUMNS,)
    for dtype in ("float32", "float16", "bfloat16"):
        whole = (flat, dtype)
        for kernel, arrays in (
            ("add", (whole, whole, whole)),
            ("softmax", (whole, whole)),
            ("rms_norm", (whole, (row, dtype), whole)),
            ("dequantize", (((ROWS, COLUMNS // 2), "uint8"), ((ROWS,), "float32"), whole)),
        ):
            arguments = (ROWS, COLUMNS, dtype)
            found[f"{kernel} {dtype}"] = Case(
                kernel=kernel, arguments=arguments, arrays=arrays, other="copy"
            )
    square = (SIZE, SIZE)
    for dtype in ("float32", "float16", "bfloat16", "float8_e4m3fn", "int8"):
        result = "int32" if dtype == "int8" else "float32"
        known = dtype in ("float32", "float16", "bfloat16")
        found[f"gemm {dtype}"] = Case(
            kernel="gemm",
            arguments=(SIZE, dtype, result),
            arrays=((square, dtype), (square, dtype), (square, result)),
            other="torch" if known else "numpy",
            work=2 * SIZE**3,
        )
    shape = (1, HEADS, LENGTH, DIM)
    for dtype in ("float32", "float16"):
        for causal in (False, True):
            found[f"attention {dtype}{' causal' if causal else ''}"] = Case(
                kernel="attention",
                arguments=(HEADS, LENGTH, DIM, dtype, causal),
                arrays=((shape, dtype),) * 4,
                other="torch",
                work=4 * HEADS * LENGTH**2 * DIM // (2 if causal else 1),
            )
    return found


# ---- contenders ---------------------------------------------------------------------------------


def make_arrays(case: Case) -> list[Array]:
    """The case's arrays at lines of the cache, as frameworks place them; the output is cleared."""
    rng = np.random.default_rng(0)
    arrays = []
    for i, (shape, name) in enumerate(case.arrays):
        dtype = numpy_type(name)
        size = math.prod(shape) * dtype.itemsize
        memory = np.zeros(size + 64, np.uint8)
        start = -memory.ctypes.data % 64
        array = memory[start : start + size].view(dtype).reshape(shape)
        if i + 1 < len(case.arrays):
            numbers = rng.standard_normal(shape, np.float32) * (1 if dtype.kind in "fV" else 40)
            array[...] = (np.abs(numbers) if name == "uint8" else numbers).astype(dtype)
        arrays.append(array)
    return arrays


def copier(case: Case, cores: Sequence[int]) -> Callable[[], object]:
    """A copy that reads and writes as many bytes as the case does in all, on each core a part."""
    part = case.bytes // 2 // len(cores) // 64 * 64
    source, target = (np.ones(part * len(cores), np.uint8) for _ in range(2))
    copy = ctypes.CDLL(None).memmove

    def move(index: int) -> None:
        a, b = (ctypes.c_void_p(x.ctypes.data + index * part) for x in (target, source))
        copy(a, b, ctypes.c_size_t(part))

    if len(cores) == 1:
        return lambda: move(0)
    threads = ThreadPoolExecutor(len(cores))
    return lambda: list(threads.map(move, range(len(cores))))


def torch_call(case: Case, cores: Sequence[int]) -> Callable[[], object]:
    """The same by torch."""
    import torch

    torch.set_num_threads(len(cores))
    *given, _ = make_arrays(case)
    tensors = [torch.from_numpy(x.astype(np.float32)) for x in given]
    tensors = [
        x.to(getattr(torch, name)) for x, (_, name) in zip(tensors, case.arrays[:-1], strict=True)
    ]
    if case.kernel == "gemm":
        a, b = tensors
        return lambda: torch.matmul(a, b)
    q, k, v = tensors
    causal = bool(case.arguments[-1])
    attend = torch.nn.functional.scaled_dot_product_attention
    return lambda: attend(q, k, v, is_causal=causal)


def numpy_call(case: Case, _: Sequence[int]) -> Callable[[], object]:
    """A float32 product by NumPy."""
    a, b = (np.random.default_rng(0).standard_normal((SIZE, SIZE), np.float32) for _ in "ab")
    out = np.empty_like(a)
    return lambda: np.matmul(a, b, out=out)


def our_call(case: Case, cores: Sequence[int], folder: Path) -> Callable[[], object]:
    """Our kernel, checked against NumPy before anything is timed."""
    artifact = find_artifact(BuildKey("key"), ObjectStore(folder / "objects"))
    if artifact is None:
        raise AssertionError("the kernel was built before its contender began")
    kernel = CpuLoaded(artifact, tuple(cores), is_pinned=True).as_callable()
    arrays = make_arrays(case)
    before = peak_bytes(reset=True)
    kernel(*arrays)
    print(json.dumps(peak_bytes() - before - arrays[-1].nbytes), flush=True)
    return lambda: kernel(*arrays)


def peak_bytes(*, reset: bool = False) -> int:
    """The largest memory of this process so far, or since the last ``reset``."""
    if reset:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.split("VmHWM:")[1].split()[0]) << 10


def serve(kind: str, name: str, folder: str, listed: str) -> None:
    """Be a contender: for every line read, time some launches and write their median as JSON."""
    case, cores = cases()[name], [int(core) for core in listed.split(",")]
    match kind:
        case "ours":
            call = our_call(case, cores, Path(folder))
        case "copy":
            call = copier(case, cores)
        case "torch":
            call = torch_call(case, cores)
        case _:
            call = numpy_call(case, cores)
    started_s = time.perf_counter()
    call()
    warm_s = time.perf_counter() - started_s
    print("ready", flush=True)
    for _ in sys.stdin:
        times: list[float] = []
        if warm_s < LONG_S:
            call()
        while len(times) < LAUNCHES and sum(times) < LONG_S:
            started_s = time.perf_counter()
            call()
            times.append(time.perf_counter() - started_s)
        print(json.dumps(statistics.median(times)), flush=True)


# ---- the parent ---------------------------------------------------------------------------------


def build(case: Case, folder: Path) -> float:
    """Build a kernel into ``folder``; returns the seconds of the C compiler."""
    import kernels_cpu

    from tileyard.frontend.kernels import make_kernel
    from tileyard.ir.text import read_program
    from tileyard.targets.cpu.abi import KERNEL_FILE, SOURCE_FILE
    from tileyard.targets.cpu.target import CpuTarget
    from tileyard.testing.builds import make_source, store_artifact

    target = CpuTarget()
    kernel = make_kernel(getattr(kernels_cpu, case.kernel)(*case.arguments), None).kernel
    (built,) = target.build([make_source(read_program(kernel.program))], folder)
    if built.outcome is not Outcome.PASSED:
        raise SystemExit(f"{case.kernel}: {built}")
    artifact: Artifact = store_artifact(target, built, folder)
    publish(artifact.manifest, ObjectStore(folder / "objects"))
    before = os.times()
    target.toolchain.compile_kernel(folder / "0", SOURCE_FILE, KERNEL_FILE)
    after = os.times()
    return (
        after.children_user + after.children_system - before.children_user - before.children_system
    )


def measure(
    name: str, case: Case, cores: Sequence[int], folder: Path
) -> tuple[list[list[float]], int]:
    """Seconds per launch of ours and of the other, one value a round, and what memory ours took."""
    env = {**os.environ, **dict.fromkeys(THREAD_VARIABLES, str(len(cores)))}
    listed = ",".join(map(str, cores))
    command = ["taskset", "-c", listed, sys.executable, __file__]
    workers = []
    for kind in ("ours", case.other):
        arguments = [*command, kind, name, str(folder), listed]
        pipe = subprocess.PIPE
        workers.append(subprocess.Popen(arguments, env=env, stdin=pipe, stdout=pipe, text=True))
    taken = int(json.loads(workers[0].stdout.readline()))  # type: ignore[union-attr]  # a pipe
    for worker in workers:
        worker.stdout.readline()  # type: ignore[union-attr]  # a pipe
    found: list[list[float]] = [[], []]
    ends_s = time.monotonic() + CASE_S
    for number in range(ROUNDS):
        if number >= FEWEST_ROUNDS and time.monotonic() > ends_s:
            break
        sums = [0.0, 0.0]
        for index in (0, 1, 1, 0):
            time.sleep(SETTLE_S)
            workers[index].stdin.write("go\n")  # type: ignore[union-attr]  # a pipe
            workers[index].stdin.flush()  # type: ignore[union-attr]  # a pipe
            sums[index] += float(workers[index].stdout.readline()) / 2  # type: ignore[union-attr]
        for own, total in zip(found, sums, strict=True):
            own.append(total)
    for worker in workers:
        worker.communicate()
    return found, taken


def main(parts: Sequence[str]) -> None:
    """All cases with one of ``parts`` in their names, on one core and on all."""
    cores = sorted(os.sched_getaffinity(0))
    for name, case in cases().items():
        if parts and not any(part in name for part in parts):
            continue
        with tempfile.TemporaryDirectory() as place:
            compiler_s = build(case, Path(place))
            for chosen in (cores[:1], cores)[: len(cores)]:
                (own, other), taken = measure(name, case, chosen, Path(place))
                ratio = compare_pair(own, other, 0.95)
                low, high = math.exp(ratio.low), math.exp(ratio.high)
                rate = (case.work or case.bytes) / statistics.median(own) / 1e9
                print(
                    f"{name:25} {len(chosen)} core(s) {rate:7.1f} {'GFLOP/s' if case.work else 'GB/s':7}"
                    f" {ratio.ratio:6.2f} x {case.other:5} [{low:.2f}, {high:.2f}]"
                    f"  {taken / 2**20 / len(chosen):5.1f} MiB a thread  {compiler_s:.2f} s of cc",
                    flush=True,
                )


if __name__ == "__main__":
    if len(sys.argv) == 5 and sys.argv[1] in ("ours", "copy", "torch", "numpy"):
        serve(*sys.argv[1:])
    else:
        main(sys.argv[1:])

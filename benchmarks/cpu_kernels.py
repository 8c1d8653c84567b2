"""Kernels of many types on the CPU beside what a user would run instead, on one core and on all.

Kernels that only pass over memory meet a plain copy of the same number of bytes, attention and
products meet torch, products NumPy and our own float32 product too. Each contender is a process of its
own that is idle unless it is its turn; in each round all take their turn, forwards and backwards, and
ratios are within rounds. Prints ratios, gigabytes or operations a second, the memory that a run takes
beside its arrays, and the time of the C compiler.

Whatever computes is shown beside the peak of the cores, one contender more: multiplications and
additions from registers alone. No kernel is faster, so a ratio to another contender has a limit, which
is printed too. What torch multiplies with depends on how it was built, and is printed first.

    python benchmarks/cpu_kernels.py [PART OF A CASE'S NAME ...]
"""

import ctypes
import json
import math
import os
import re
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
from fma_peak import measure_peak, peak_call

from tileyard.artifacts.manifest import Artifact, find_artifact, publish
from tileyard.artifacts.objects import ObjectStore
from tileyard.base.model import BuildKey, Outcome
from tileyard.measure.paired import compare_pair
from tileyard.targets.cpu.loaded import CpuLoaded
from tileyard.workers.command_runs import THREAD_VARIABLES

KINDS = ("ours", "copy", "torch", "numpy", "float32", "peak")
ROUNDS = 24
FEWEST_ROUNDS = 6
CASE_S = 20.0
"""After so long, and the fewest rounds, a case is over: torch takes seconds for products of halves."""
LAUNCHES = 3
LONG_S = 0.2
SETTLE_S = 0.02
ROWS, COLUMNS, SIZE, LARGE = 2048, 8192, 1024, 2048
GROUPS = 4
HEADS, LENGTH, DIM = 8, 1024, 64

Array = np.ndarray


@dataclass(frozen=True, kw_only=True)
class Case:
    """One kernel: its name in kernels_cpu.py, its arguments, and its arrays, the last one the output.
    ``work`` is in floating-point operations, 0 where bytes are what counts. ``others`` are what it meets,
    none where only the C compiler is timed. ``one_core`` says that it is not measured on all of them.
    """

    kernel: str
    arguments: tuple[object, ...]
    arrays: tuple[tuple[tuple[int, ...], str], ...]
    others: tuple[str, ...]
    work: int = 0
    one_core: bool = False

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
                kernel=kernel, arguments=arguments, arrays=arrays, others=("copy",)
            )
    for dtype in ("float32", "float16", "bfloat16", "float8_e4m3fn", "int8"):
        result = "int32" if dtype == "int8" else "float32"
        others = ("torch", "numpy") if dtype == "float32" else ("torch", "numpy", "float32")
        found[f"gemm {dtype}"] = product(SIZE, (dtype, result), others)
        if dtype != "float16":  # torch takes half a minute
            found[f"gemm {dtype} {LARGE}"] = product(LARGE, (dtype, result), others[:2])
    cube = ((GROUPS, SIZE, SIZE), "float8_e4m3fn")
    found["gemm of groups float8_e4m3fn"] = Case(
        kernel="gemm_of_groups",
        arguments=(GROUPS, SIZE, "float8_e4m3fn", "float32"),
        arrays=(cube, cube, (cube[0], "float32")),
        others=("torch",),
        work=2 * GROUPS * SIZE**3,
    )
    for dtype in ("float16", "bfloat16"):
        square = (SIZE, SIZE)
        arrays = ((square, dtype), ((SIZE, SIZE // 2), "uint8"), ((SIZE,), dtype))
        found[f"gemm dequantized {dtype}"] = Case(
            kernel="gemm_dequantized",
            arguments=(SIZE, dtype, "float32"),
            arrays=(*arrays, (square, "float32")),
            others=("torch",),
            work=2 * SIZE**3,
        )
    shape = (1, HEADS, LENGTH, DIM)
    for dtype in ("float32", "float16", "bfloat16"):
        for causal in (False, True):
            found[f"attention {dtype}{' causal' if causal else ''}"] = Case(
                kernel="attention",
                arguments=(HEADS, LENGTH, DIM, dtype, causal),
                arrays=((shape, dtype),) * 4,
                others=("torch",),
                work=4 * HEADS * LENGTH**2 * DIM // (2 if causal else 1),
            )
    found["attention backward"] = Case(
        kernel="attention_backward", arguments=(HEADS, LENGTH, DIM), arrays=(), others=()
    )
    return found


def product(
    size: int, dtypes: tuple[str, str], others: tuple[str, ...], *, one_core: bool = False
) -> Case:
    """A square product: the dtypes of its operands and of its result."""
    square = (size, size)
    return Case(
        kernel="gemm",
        arguments=(size, *dtypes),
        arrays=((square, dtypes[0]), (square, dtypes[0]), (square, dtypes[1])),
        others=others,
        work=2 * size**3,
        one_core=one_core,
    )


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
    """The same by torch; its products of 8-bit floats, and of four-bit numbers, are of bfloat16 or the other
    operand's type, to which nothing is converted while it is timed.
    """
    import torch

    torch.set_num_threads(len(cores))
    *given, _ = make_arrays(case)
    tensors = []
    for array, (_, name) in zip(given, case.arrays[:-1], strict=True):
        kind = torch.bfloat16 if name.startswith("float8") else getattr(torch, name)
        tensors.append(torch.from_numpy(array.astype(np.float32)).to(kind))
    if case.kernel == "gemm_dequantized":
        left = tensors[0]
        right = torch.randn(left.shape).to(left.dtype)
        return lambda: left @ right.T
    if case.kernel.startswith("gemm"):
        a, b = tensors
        multiply = torch._int_mm if a.dtype == torch.int8 else torch.matmul  # noqa: SLF001  (no other)
        return lambda: multiply(a, b)
    q, k, v = tensors
    causal = bool(case.arguments[-1])
    attend = torch.nn.functional.scaled_dot_product_attention
    return lambda: attend(q, k, v, is_causal=causal)


def numpy_call(case: Case, _: Sequence[int]) -> Callable[[], object]:
    """A float32 product of the same size by NumPy."""
    shape = case.arrays[0][0]
    a, b = (np.random.default_rng(0).standard_normal(shape, np.float32) for _ in "ab")
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
        case "peak":
            call = peak_call(case.work, cores, Path(folder))
        case "float32":
            call = our_call(cases()["gemm float32"], cores, Path(folder) / "float32")
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


def torch_library() -> str:
    """The library that torch multiplies matrices of floats with."""
    import torch

    found = re.search(r"BLAS_INFO=(\w+)", torch.__config__.show())
    return found.group(1) if found else "an unknown library"


# ---- the parent ---------------------------------------------------------------------------------


def build(case: Case, folder: Path) -> float:
    """Build a kernel into ``folder``; returns the seconds of the C compiler."""
    import kernels_cpu

    from tileyard.frontend.tilelang import make_kernel
    from tileyard.ir.reader import read_program
    from tileyard.targets.cpu.machine import KERNEL_FILE, SOURCE_FILE
    from tileyard.targets.cpu.target import CpuTarget
    from tileyard.testing.target_cases import make_source, store_artifact

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
    """Seconds per launch of ours and of the others, one value a round, and what memory ours took. The peak
    comes last where a case computes.
    """
    env = {**os.environ, **dict.fromkeys(THREAD_VARIABLES, str(len(cores)))}
    listed = ",".join(map(str, cores))
    command = ["taskset", "-c", listed, sys.executable, __file__]
    workers = []
    for kind in ("ours", *case.others, *(("peak",) if case.work else ())):
        arguments = [*command, kind, name, str(folder), listed]
        pipe = subprocess.PIPE
        workers.append(subprocess.Popen(arguments, env=env, stdin=pipe, stdout=pipe, text=True))
    told = [_until_ready(worker) for worker in workers]
    found: list[list[float]] = [[] for _ in workers]
    ends_s = time.monotonic() + CASE_S
    order = (*range(len(workers)), *reversed(range(len(workers))))
    for number in range(ROUNDS):
        if number >= FEWEST_ROUNDS and time.monotonic() > ends_s:
            break
        sums = [0.0] * len(workers)
        for index in order:
            time.sleep(SETTLE_S)
            workers[index].stdin.write("go\n")  # type: ignore[union-attr]  # a pipe
            workers[index].stdin.flush()  # type: ignore[union-attr]  # a pipe
            sums[index] += float(workers[index].stdout.readline()) / 2  # type: ignore[union-attr]
        for own, total in zip(found, sums, strict=True):
            own.append(total)
    for worker in workers:
        worker.communicate()
    return found, int(json.loads(told[0][0]))


def _until_ready(worker: "subprocess.Popen[str]") -> list[str]:
    """What a contender says before it is ready."""
    told: list[str] = []
    while (line := worker.stdout.readline().strip()) != "ready":  # type: ignore[union-attr]  # a pipe
        if not line and worker.poll() is not None:
            raise SystemExit(f"a contender ended: {worker.args}")
        told.append(line)
    return told


def show(name: str, case: Case, cores: Sequence[int], folder: Path) -> None:
    """Measure a case on these cores and print it: a line of ours, and one for each that it meets."""
    (own, *others), taken = measure(name, case, cores, folder)
    rate = (case.work or case.bytes) / statistics.median(own) / 1e9
    peak = others.pop() if case.work else None
    share = f" {compare_pair(own, peak, 0.95).ratio:4.0%} of the peak" if peak else ""
    print(
        f"{name:25} {len(cores)} core(s) {rate:7.1f} {'GFLOP/s' if case.work else 'GB/s'}{share}"
        f"  {taken / 2**20 / len(cores):5.1f} MiB a thread",
        flush=True,
    )
    for kind, other in zip(case.others, others, strict=True):
        ratio = compare_pair(own, other, 0.95)
        low, high = math.exp(ratio.low), math.exp(ratio.high)
        limit = f"   the peak is {compare_pair(peak, other, 0.95).ratio:.2f} x" if peak else ""
        print(f"{'':25} {ratio.ratio:6.2f} x {kind:7} [{low:.2f}, {high:.2f}]{limit}", flush=True)


def main(parts: Sequence[str]) -> None:
    """All cases with one of ``parts`` in their names, on one core and on all."""
    cores = sorted(os.sched_getaffinity(0))
    choices = (cores[:1], cores)[: len(cores)]
    for chosen in choices:
        peak = measure_peak(chosen)
        print(f"peak of {len(chosen)} core(s): {peak:.1f} GFLOP/s in float32")
    print(f"torch multiplies with {torch_library()}", flush=True)
    for name, case in cases().items():
        if parts and not any(part in name for part in parts):
            continue
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            print(f"{name:25} {build(case, folder):.2f} s of the C compiler")
            if "float32" in case.others:
                build(cases()["gemm float32"], folder / "float32")
            for chosen in choices:
                if case.others and (len(chosen) == 1 or not case.one_core):
                    show(name, case, chosen, folder)


if __name__ == "__main__":
    if len(sys.argv) == 5 and sys.argv[1] in KINDS:
        serve(*sys.argv[1:])
    else:
        main(sys.argv[1:])

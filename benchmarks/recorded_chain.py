"""One study of recorded latencies, by TileLang's AutoTuner or ours: what ``recorded_tuners.py`` compares.

    python benchmarks/recorded_chain.py tilelang|tileyard OPTIONS_AS_JSON

The kernel is the matrix product below, or that of a ``file``, in which the import of the tuner is changed for
ours and nothing else. For TileLang's the runs are replaced here: its tuner, its builds, its threads and
queues are as they are, its profiler waits. Where there is a GPU, runs are ``real``.
"""

import itertools
import json
import logging
import random
import runpy
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tilelang.language as T
from tests.e2e.recorded_target import recall_ms

SIZE = 1024
AXES = {
    "block_M": (64, 128, 256),
    "block_N": (64, 128, 256),
    "block_K": (32, 64),
    "num_stages": (0, 1, 2, 3),
    "threads": (128, 256),
}
CONFIGS = [dict(zip(AXES, one, strict=True)) for one in itertools.product(*AXES.values())]
"""144: the space of TileLang's own example of a tuned matrix product, but for its rasterization."""


def make_kernel() -> Any:
    """What makes the kernel of one config."""

    def matmul(  # type: ignore[no-untyped-def]
        block_M=None, block_N=None, block_K=None, num_stages=None, threads=None
    ):
        @T.prim_func
        def main(
            A: T.Tensor((SIZE, SIZE), "float16"),
            B: T.Tensor((SIZE, SIZE), "float16"),
            C: T.Tensor((SIZE, SIZE), "float16"),
        ):
            with T.Kernel(SIZE // block_N, SIZE // block_M, threads=threads) as (bx, by):
                A_tile = T.alloc_shared((block_M, block_K), "float16")
                B_tile = T.alloc_shared((block_K, block_N), "float16")
                C_tile = T.alloc_fragment((block_M, block_N), "float32")
                T.clear(C_tile)
                for k in T.Pipelined(SIZE // block_K, num_stages=num_stages):
                    T.copy(A[by * block_M, k * block_K], A_tile)
                    T.copy(B[k * block_K, bx * block_N], B_tile)
                    T.gemm(A_tile, B_tile, C_tile)
                T.copy(C_tile, C[by * block_M, bx * block_N])

        return main

    return matmul


class Profiler:
    """Says how long a kernel takes, and waits for as long as timing it would."""

    def __init__(self, kernel: Any) -> None:
        symbols = [one.name_hint for one in kernel.artifact.device_mod.functions]
        self._latency_ms = recall_ms(kernel.get_kernel_source(), symbols[0])

    def _get_params(self, with_output: bool = False) -> list[object]:
        return []

    def _get_inputs(self, with_output: bool = False) -> list[object]:
        return []

    def do_bench(self, *_: object, n_warmup: int, n_repeat: int, **__: object) -> float:
        """Milliseconds."""
        running_s = (n_warmup + n_repeat) * self._latency_ms / 1e3
        time.sleep(running_s)
        RAN_S.append(running_s)
        return self._latency_ms


RAN_S: list[float] = []
BUILT_S: list[float] = []


def replace_runs(devices: int) -> None:
    """Have TileLang find so many devices and time nothing, and write down how long its builds take."""
    from tilelang.autotuner import AutoTuner, tuner
    from tilelang.autotuner.param import CompileArgs
    from tilelang.jit import JITKernel

    def find(self: object, benchmark_multi_gpu: bool, **_: object) -> tuple[bool, list[int]]:
        found = list(range(devices)) if benchmark_multi_gpu else [0]
        return len(found) > 1, found

    def timed(build: Callable[..., object]) -> Callable[..., object]:
        def run(*args: object, **kwargs: object) -> object:
            began_s = time.monotonic()
            try:
                return build(*args, **kwargs)
            finally:
                BUILT_S.append(time.monotonic() - began_s)

        return run

    JITKernel.get_profiler = lambda self, **_: Profiler(self)
    AutoTuner._resolve_benchmark_devices = find  # noqa: SLF001
    CompileArgs.compile_program = timed(CompileArgs.compile_program)
    tuner.compile_grouped_unit_tvm_ffi = timed(tuner.compile_grouped_unit_tvm_ffi)


def read_trials() -> dict[str, Any]:
    """Seconds of builds and runs of the only study in this home, configs timed, and each one's time."""
    command = [sys.executable, "-m", "tileyard", "trials", "--json", "--rows", "1000"]
    printed = subprocess.run(command, capture_output=True, check=True).stdout
    trials = json.loads(printed)
    built_s, ran_s = (sum(one[name] for one in trials) for name in ("build_s", "run_s"))
    timed = {
        json.dumps(one["config"], sort_keys=True): one["measurement"]["median_ns"]
        for one in trials
        if one["measurement"]
    }
    return {"built": built_s, "ran": ran_s, "timed": len(timed), "all_ns": timed}


def tune(which: str, options: dict[str, Any]) -> Any:
    """Tune the matrix product."""
    if which == "tilelang":
        from tilelang.autotuner import AutoTuner
    else:
        from tileyard import AutoTuner
    return (
        AutoTuner.from_kernel(make_kernel(), random.Random(1).sample(CONFIGS, options["configs"]))
        .set_compile_args(
            out_idx=[-1],
            target={"kind": "cuda", "arch": "sm_90a"},
            execution_backend="tvm_ffi",
        )
        .set_profile_args(skip_check=True)
        .run(timeout=600, **options["run"])
    )


def tune_file(which: str, file: str) -> Any:
    """Have a file tune."""
    text = Path(file).read_text()
    if which == "tileyard":
        text = text.replace("from tilelang.autotuner import", "from tileyard import")
        text = text.replace("@tilelang.autotune(", "@__import__('tileyard').autotune(")
    copy = Path("tuned_file.py")
    copy.write_text(text)
    return runpy.run_path(str(copy))["tune"]()


def main() -> None:
    """Run the study; one line of JSON."""
    which, options = sys.argv[1], json.loads(sys.argv[2])
    logging.disable(logging.WARNING)
    if which == "tilelang" and not options.get("real"):
        replace_runs(options["devices"])
    began_s = time.monotonic()
    result = tune_file(which, options["file"]) if "file" in options else tune(which, options)
    seconds = time.monotonic() - began_s
    found = {"built": sum(BUILT_S), "ran": sum(RAN_S), "timed": len(RAN_S)}
    if which == "tileyard":
        found = read_trials()
    found["seconds"] = seconds
    print(json.dumps({**found, "config": result.config, "latency": result.latency}))


if __name__ == "__main__":
    main()

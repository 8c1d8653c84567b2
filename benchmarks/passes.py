"""Time of the pass pipeline beside that of TileLang's own planning, on the same elaborated kernels.

``python benchmarks/passes.py`` prints medians; both begin with what the frontend has, and end with a plan of
the whole kernel.
"""

import importlib
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

ROOT = Path(__file__).parents[1]
ROUNDS = 30
KERNELS = ("gemm", "attention", "backward")
PIPELINES = ("sm_80", "sm_90a")


def time_ms(work: Callable[[], object]) -> float:
    """The median of some rounds, in milliseconds."""
    samples = []
    for _ in range(ROUNDS):
        start_ns = time.perf_counter_ns()
        work()
        samples.append((time.perf_counter_ns() - start_ns) / 1e6)
    return statistics.median(samples)


def main() -> None:
    """A line for each kernel."""
    sys.path.insert(0, str(ROOT))
    load_module = importlib.import_module("tests.differential.conftest").load_module
    examples = importlib.import_module("tests.differential.cuda_examples").EXAMPLES
    run_pipeline = importlib.import_module("tileyard.passes.pipeline").run_pipeline
    for name in KERNELS:
        example = examples[name]
        kernel = getattr(load_module(ROOT / "tests/kernels" / f"{example.file}.py"), example.kernel)
        function = getattr(kernel, "jit_impl", kernel)
        lower = importlib.import_module("tileyard.frontend.tilelang").lower_prim_func
        plan = importlib.import_module("tileyard.frontend.pipelined").plan
        func = function.get_tir(**example.arguments)
        written = lower(func, function.out_idx).written
        for pipeline in PIPELINES:
            ours_ms = time_ms(partial(run_pipeline, written, pipeline))
            theirs_ms = time_ms(partial(plan, func, pipeline, {}))
            ours, theirs = f"{ours_ms:.1f} ms", f"TileLang's passes {theirs_ms:.1f} ms"
            print(f"{name}, {pipeline}: {ours}, {theirs} ({theirs_ms / ours_ms:.1f} times)")


if __name__ == "__main__":
    main()

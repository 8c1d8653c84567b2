"""The best f32 GEMM of examples/gemm.py beside NumPy's and torch's matmul, on one core and on all.

Each contender is a process of its own that is idle unless it is its turn, because numeric libraries
keep their threads spinning after a call. In each round all take their turn, forwards and backwards;
ratios are within rounds. Prints medians, their share of the machine's measured FMA peak, and ratios.
"""

import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from fma_peak import measure_peak

import tileyard
from tileyard.measure.paired import compare_pair
from tileyard.workers.command_runs import THREAD_VARIABLES

N = 1024
FLOPS = 2 * N**3
ROUNDS = 80
LAUNCHES = 6
SETTLE_S = 0.05
KERNEL = f"{Path(__file__).parent.parent / 'examples' / 'gemm.py'}::gemm"


def contender(name: str, device: str, home: str) -> Callable[[], object]:
    """One matmul of the contender's own, called in the contender's process."""
    import numpy as np

    generator = np.random.default_rng(0)
    a, b = (generator.standard_normal((N, N), dtype=np.float32) for _ in range(2))
    out = np.empty_like(a)
    if name == "numpy":
        return lambda: np.matmul(a, b, out=out)
    if name == "torch":
        import torch

        torch.set_num_threads(len(os.sched_getaffinity(0)))
        given = [torch.from_numpy(array) for array in (a, b, out)]
        return lambda: torch.matmul(given[0], given[1], out=given[2])
    kernel = tileyard.load(name, device=device, home=home)
    return lambda: kernel(a, b, out)


def serve(name: str, device: str, home: str) -> None:
    """Be a contender: for every line read, time some launches and write them as JSON."""
    call = contender(name, device, home)
    for _ in sys.stdin:
        call()
        call()
        times = []
        for _ in range(LAUNCHES):
            started_s = time.perf_counter()
            call()
            times.append(time.perf_counter() - started_s)
        print(json.dumps(statistics.median(times)), flush=True)


def take_turns(
    names: Sequence[str], device: str, cores: Sequence[int], home: str
) -> list[list[float]]:
    """Seconds per launch of each contender, one value a round."""
    env = {**os.environ, **dict.fromkeys(THREAD_VARIABLES, str(len(cores)))}
    bind = ["taskset", "-c", ",".join(map(str, cores)), sys.executable, __file__]
    workers = [
        subprocess.Popen(
            [*bind, name, device, home],
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in names
    ]
    found: list[list[float]] = [[] for _ in names]
    for _ in range(ROUNDS):
        sums = [0.0] * len(names)
        for index in (*range(len(names)), *reversed(range(len(names)))):
            worker = workers[index]
            if worker.stdin is None or worker.stdout is None:
                raise AssertionError("contenders are started with pipes")
            time.sleep(SETTLE_S)
            worker.stdin.write("go\n")
            worker.stdin.flush()
            sums[index] += float(json.loads(worker.stdout.readline())) / 2
        for own, total in zip(found, sums, strict=True):
            own.append(total)
    for worker in workers:
        worker.communicate()
    return found


def compare(cores: Sequence[int], device: str, home: str) -> None:
    """Tune on these cores, then let the winner meet NumPy and torch."""
    best = tileyard.tune(KERNEL, devices=device, home=home, progress=False).best
    peak = measure_peak(cores)
    names = [best.trial.id, "numpy", "torch"]
    times = take_turns(names, device, cores, home)
    print(f"{len(cores)} core(s), FMA peak {peak:.0f} GFLOP/s, ours is {best.config}")
    for name, own in zip(["ours", *names[1:]], times, strict=True):
        rate = FLOPS / statistics.median(own) / 1e9
        line = f"  {name:6} {rate:7.1f} GFLOP/s  {rate / peak:6.1%} of peak"
        if name != "ours":
            ratio = compare_pair(times[0], own, 0.95)
            low, high = math.exp(ratio.low), math.exp(ratio.high)
            line += f"   ours is {ratio.ratio:.3f} x as fast [{low:.3f}, {high:.3f}]"
        print(line)


def main() -> None:
    """Compare on one core, then on all."""
    cores = sorted(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as home:
        compare(cores[:1], f"cpu:cores={cores[0]}", home)
        if len(cores) > 1:
            compare(cores, "cpu", home)


if __name__ == "__main__":
    if len(sys.argv) == 4:
        serve(*sys.argv[1:])
    else:
        main()

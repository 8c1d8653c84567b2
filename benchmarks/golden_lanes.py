"""What lanes for golden results give: ``tileyard test`` of kernels with one per core, beside a single one.

    python benchmarks/golden_lanes.py [--seconds 1.0] [--tests 8] [--pairs 5]

References that compute for as long as is asked, in a home of their own each time. Pairs take turns in which
is first; below 1 lanes have saved time. Quick references (``--seconds 0.002``) should give 1: no further
process is started for them.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

KERNELS = """
import time

import tilelang.language as T
import tileyard

def reference(A):
    until = time.thread_time() + {seconds}
    while time.thread_time() < until:
        pass
    return A + A

@tileyard.kernel(reference=reference, shapes={{f"of{{n}}": {{"N": 64 * n}} for n in range(1, {tests} + 1)}})
def double(N, block=64):
    @T.prim_func
    def main(A: T.Tensor((N,), "float32"), B: T.Tensor((N,), "float32")):
        with T.Kernel(N // block, threads=block) as bx:
            for i in T.Parallel(block):
                B[bx * block + i] = A[bx * block + i] + A[bx * block + i]
    return main
"""


def main() -> None:
    """Time pairs and print the median of their ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--tests", type=int, default=8)
    parser.add_argument("--pairs", type=int, default=5)
    asked = parser.parse_args()
    cores = len(os.sched_getaffinity(0))
    ratios = []
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "kernels.py")
        file.write_text(KERNELS.format(seconds=asked.seconds, tests=asked.tests), encoding="utf-8")
        for pair in range(asked.pairs):
            lanes = (1, cores) if pair % 2 else (cores, 1)
            taken_s = {number: _time(file, number, f"{folder}/{pair}.{number}") for number in lanes}
            ratios.append(taken_s[cores] / taken_s[1])
            print(f"{taken_s[1]:6.1f} s   {taken_s[cores]:6.1f} s   {ratios[-1]:.2f}", flush=True)
    print(
        f"{asked.tests} references of {asked.seconds:g} s, {cores} lanes / 1 lane: "
        f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
    )


def _time(file: Path, lanes: int, home: str) -> float:
    """Seconds that a run takes in a home that knows nothing."""
    argv = (sys.executable, "-m", "tileyard", "test", str(file), "--golden-threads", str(lanes))
    own = {"TILEYARD_HOME": home, "TILEYARD_LOCK_DIR": f"{home}.locks"}
    began_s = time.perf_counter()
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL, env={**os.environ, **own})
    return time.perf_counter() - began_s


if __name__ == "__main__":
    main()

"""What a tuned kernel adds to each call of the compiled one: a look-up by its tensors' shapes and dtypes.

    python benchmarks/dispatch.py [--rounds 300]

A kernel of four small tensors, compiled with its default config, is called in turn by itself and through
``tileyard.tuned``; the median of the differences of rounds of a hundred calls each, with NumPy's arrays and
with torch's.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np
import tilelang.language as T  # noqa: N812 - as everybody names it
import torch

import tileyard

SHAPE = (4, 16)
CALLS = 100


@tileyard.kernel
def add(rows: int, block: int) -> object:
    """Three tensors into a fourth."""
    Three = T.Tensor((rows, 16), "float32")  # noqa: N806

    @T.prim_func
    def main(A: Three, B: Three, C: Three, D: Three) -> None:  # type: ignore[valid-type]  # noqa: N803
        with T.Kernel(rows, threads=block) as bx:
            for i in T.Parallel(16):
                D[bx, i] = A[bx, i] + B[bx, i] + C[bx, i]  # type: ignore[index]

    return main


def time_us(call: Callable[[], object]) -> float:
    """Microseconds of one of a hundred calls."""
    began_ns = time.perf_counter_ns()
    for _ in range(CALLS):
        call()
    return (time.perf_counter_ns() - began_ns) / 1000 / CALLS


def main() -> None:
    """Both kinds of arrays."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=300)
    rounds = parser.parse_args().rounds
    tuned = tileyard.tuned(
        add, default={"block": 32}, arguments=lambda *arrays: {"rows": arrays[0].shape[0]}
    )
    for name, make in (("NumPy", np.zeros), ("torch", torch.zeros)):
        arrays = [make(SHAPE, dtype=(np if name == "NumPy" else torch).float32)] * 3
        arrays.append(arrays[0] + 0)
        tuned(*arrays)
        alone = tuned.find(*arrays)
        added = [
            time_us(lambda: tuned(*arrays)) - time_us(lambda: alone(*arrays))  # noqa: B023
            for _ in range(rounds)
        ]
        low, median, high = statistics.quantiles(added, n=4)
        print(f"{name}: {median:.2f} us more (quartiles {low:.2f} to {high:.2f})")


if __name__ == "__main__":
    main()

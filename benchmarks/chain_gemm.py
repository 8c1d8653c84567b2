"""A product for TileLang's target ``c``, tuned with its AutoTuner: what ``tilelangs_tuner.py`` compares."""

import itertools
import json
import sys
import time

import tilelang.language as T
from tilelang.autotuner import AutoTuner

CONFIGS = [
    {"block_M": m, "block_N": n, "block_K": k}
    for m, n, k in itertools.product((32, 64), (32, 64, 128, 256), (16, 32))
]
MANY = [
    {"block_M": m, "block_N": n, "block_K": k}
    for m, n, k in itertools.product((4, 8, 16, 32, 64, 128), repeat=3)
]
ELABORATED_S = {}
"""The time of the thread in which TileLang first elaborated each config."""


def make_kernel(size):
    """A function that makes the kernel of one config."""

    def matmul(block_M=None, block_N=None, block_K=None):
        began_s = time.thread_time()

        @T.prim_func
        def main(
            A: T.Tensor((size, size), "float32"),
            B: T.Tensor((size, size), "float32"),
            C: T.Tensor((size, size), "float32"),
        ):
            with T.Kernel(T.ceildiv(size, block_N), T.ceildiv(size, block_M)) as (bx, by):
                A_local = T.alloc_local((block_M, block_K), "float32")
                B_local = T.alloc_local((block_K, block_N), "float32")
                C_local = T.alloc_local((block_M, block_N), "float32")
                for i in T.serial(block_M):
                    for j in T.serial(block_N):
                        C_local[i, j] = 0
                for ko in T.serial(size // block_K):
                    for i in T.serial(block_M):
                        for k in T.serial(block_K):
                            A_local[i, k] = A[by * block_M + i, ko * block_K + k]
                    for k in T.serial(block_K):
                        for j in T.serial(block_N):
                            B_local[k, j] = B[ko * block_K + k, bx * block_N + j]
                    for i in T.serial(block_M):
                        for k in T.serial(block_K):
                            for j in T.serial(block_N):
                                C_local[i, j] += A_local[i, k] * B_local[k, j]
                for i in T.serial(block_M):
                    for j in T.serial(block_N):
                        C[by * block_M + i, bx * block_N + j] = C_local[i, j]

        ELABORATED_S.setdefault((block_M, block_N, block_K), time.thread_time() - began_s)
        return main

    return matmul


def main():
    size, is_checked = int(sys.argv[1]), sys.argv[2] == "checked"
    configs = MANY if sys.argv[3] == "many" else CONFIGS
    began_s = time.monotonic()
    result = (
        AutoTuner.from_kernel(make_kernel(size), configs)
        .set_compile_args(out_idx=[-1], target="c")
        .set_profile_args(
            ref_prog=lambda A, B: A @ B,
            skip_check=not is_checked,
            cache_input_tensors=True,
            backend="wall",
        )
        .run(warmup=3, rep=20, use_pipeline=True)
    )
    seconds = time.monotonic() - began_s
    elaborating = sum(ELABORATED_S.values())
    found = {"config": result.config, "latency": result.latency, "elaborating": elaborating}
    print(json.dumps({"seconds": seconds, **found}))


if __name__ == "__main__":
    main()

"""Softmax of every row, Y[i, :] = exp(X[i, :]) / sum(exp(X[i, :])).

    tileyard tune examples/softmax.py
    tileyard tune examples/softmax.py --arg N=4096

Each block of the grid takes block_M whole rows. The row's maximum is subtracted before the
exponential, so that nothing overflows; the reference does the same. How many rows a block takes is
what is searched.
"""

import numpy as np
import tilelang.language as T

import tileyard

LOG2_E = 1.4426950408889634  # exp(x) is exp2(x * LOG2_E), and exp2 is what GPUs have


def softmax_reference(X):
    """The same in NumPy."""
    shifted = np.exp(X - X.max(axis=1, keepdims=True))
    return shifted / shifted.sum(axis=1, keepdims=True)


@tileyard.kernel(
    space={"block_M": [1, 2, 4, 8, 16, 32, 64]},
    where=lambda M, block_M: block_M <= M,
    shapes={"large": {"M": 4096, "N": 1024}, "small": {"M": 64, "N": 256}},
    reference=softmax_reference,
)
def softmax(M, N, block_M=4):
    """Softmax of every row of X (M x N, float32) into Y."""

    @T.prim_func
    def main(X: T.Tensor((M, N), "float32"), Y: T.Tensor((M, N), "float32")):
        with T.Kernel(T.ceildiv(M, block_M), threads=128) as bx:
            x = T.alloc_fragment((block_M, N), "float32")
            row_max = T.alloc_fragment((block_M,), "float32")
            row_sum = T.alloc_fragment((block_M,), "float32")

            T.copy(X[bx * block_M, 0], x)
            T.reduce_max(x, row_max, dim=1)
            for i, j in T.Parallel(block_M, N):
                x[i, j] = T.exp2((x[i, j] - row_max[i]) * LOG2_E)
            T.reduce_sum(x, row_sum, dim=1)
            for i, j in T.Parallel(block_M, N):
                x[i, j] = x[i, j] / row_sum[i]
            T.copy(x, Y[bx * block_M, 0])

    return main

"""Attention, O = softmax(Q @ K^T / sqrt(dim)) @ V, without ever holding the whole score matrix.

    tileyard tune examples/flash_attention.py
    tileyard tune examples/flash_attention.py --arg causal=true

Each block of the grid takes block_M queries of one head and walks over the keys in steps of
block_N. It keeps, for every query, the largest score so far and the sum of exponentials relative to
it; when a larger score turns up, what was accumulated is scaled down. With ``causal`` a query sees
no key that comes after it, and blocks of keys that no query of the tile can see are not visited.
"""

import numpy as np
import tilelang.language as T

import tileyard

LOG2_E = 1.4426950408889634  # exp(x) is exp2(x * LOG2_E), and exp2 is what GPUs have


def attention(Q, K, V, causal):
    """The same in NumPy, score matrix and all. ``causal`` is the kernel's argument, by name."""
    scores = Q @ K.swapaxes(-1, -2) / np.sqrt(Q.shape[-1])
    if causal:
        scores = np.where(np.tri(*scores.shape[-2:], dtype=bool), scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True) @ V


def attention_flops(batch, heads, seq_len, dim, causal):
    """Two matrix products; a causal mask needs half of them."""
    return 4 * batch * heads * seq_len**2 * dim * (0.5 if causal else 1)


@tileyard.kernel(
    space={"block_M": [32, 64, 128], "block_N": [32, 64, 128]},
    where=["seq_len % block_M == 0", "seq_len % block_N == 0"],
    shapes={
        "large": {"batch": 1, "heads": 8, "seq_len": 1024, "dim": 64},
        "small": {"batch": 1, "heads": 2, "seq_len": 256, "dim": 32},
    },
    reference=attention,
    flops=attention_flops,
)
def flash_attention(batch, heads, seq_len, dim, causal=False, block_M=64, block_N=64, num_stages=1):
    """O of the shape of Q, K and V: (batch, heads, seq_len, dim), float32."""
    shape = (batch, heads, seq_len, dim)
    scale = LOG2_E / dim**0.5

    @T.prim_func
    def main(
        Q: T.Tensor(shape, "float32"),
        K: T.Tensor(shape, "float32"),
        V: T.Tensor(shape, "float32"),
        O: T.Tensor(shape, "float32"),
    ):
        with T.Kernel(T.ceildiv(seq_len, block_M), heads, batch, threads=128) as (bx, by, bz):
            q = T.alloc_shared((block_M, dim), "float32")
            k = T.alloc_shared((block_N, dim), "float32")
            v = T.alloc_shared((block_N, dim), "float32")
            scores = T.alloc_fragment((block_M, block_N), "float32")
            out = T.alloc_fragment((block_M, dim), "float32")
            largest = T.alloc_fragment((block_M,), "float32")
            previous = T.alloc_fragment((block_M,), "float32")
            shrink = T.alloc_fragment((block_M,), "float32")
            tile_sum = T.alloc_fragment((block_M,), "float32")
            total = T.alloc_fragment((block_M,), "float32")

            T.copy(Q[bz, by, bx * block_M, 0], q)
            T.clear(out)
            T.clear(total)
            T.fill(largest, -T.infinity("float32"))

            steps = (
                T.ceildiv((bx + 1) * block_M, block_N) if causal else T.ceildiv(seq_len, block_N)
            )
            for step in T.Pipelined(steps, num_stages=num_stages):
                # Scores of this tile: masked ones begin at -inf and stay there.
                T.copy(K[bz, by, step * block_N, 0], k)
                if causal:
                    for i, j in T.Parallel(block_M, block_N):
                        scores[i, j] = T.if_then_else(
                            bx * block_M + i >= step * block_N + j, 0, -T.infinity("float32")
                        )
                else:
                    T.clear(scores)
                T.gemm(q, k, scores, transpose_B=True)

                # The largest score so far, and by how much it makes the earlier ones shrink.
                T.copy(largest, previous)
                T.reduce_max(scores, largest, dim=1, clear=False)
                for i in T.Parallel(block_M):
                    shrink[i] = T.exp2((previous[i] - largest[i]) * scale)

                # Weights take the place of scores; sums and output follow.
                for i, j in T.Parallel(block_M, block_N):
                    scores[i, j] = T.exp2((scores[i, j] - largest[i]) * scale)
                T.reduce_sum(scores, tile_sum, dim=1)
                for i in T.Parallel(block_M):
                    total[i] = total[i] * shrink[i] + tile_sum[i]
                for i, j in T.Parallel(block_M, dim):
                    out[i, j] *= shrink[i]
                T.copy(V[bz, by, step * block_N, 0], v)
                T.gemm(scores, v, out)

            for i, j in T.Parallel(block_M, dim):
                out[i, j] /= total[i]
            T.copy(out, O[bz, by, bx * block_M, 0])

    return main

"""Flash attention, forward: batch, sequence, heads, dimension; causal or not; grouped heads."""

import numpy as np
import tilelang
import tilelang.language as T


@tilelang.jit(out_idx=[3])
def attention(  # noqa: PLR0915 (one kernel is one function)
    batch,
    heads,
    seq_len,
    dim,
    is_causal=False,
    groups=1,
    block_M=32,
    block_N=32,
    num_stages=2,
    dtype="float16",
):
    scale = 1.4426950408889634 / dim**0.5
    q_shape = (batch, seq_len, heads, dim)
    kv_shape = (batch, seq_len, heads // groups, dim)

    @T.prim_func
    def main(
        Q: T.Tensor(q_shape, dtype),
        K: T.Tensor(kv_shape, dtype),
        V: T.Tensor(kv_shape, dtype),
        O: T.Tensor(q_shape, dtype),
    ):
        with T.Kernel(T.ceildiv(seq_len, block_M), heads, batch, threads=128) as (bx, by, bz):
            Q_shared = T.alloc_shared((block_M, dim), dtype)
            K_shared = T.alloc_shared((block_N, dim), dtype)
            V_shared = T.alloc_shared((block_N, dim), dtype)
            scores = T.alloc_fragment((block_M, block_N), "float32")
            weights = T.alloc_fragment((block_M, block_N), dtype)
            out = T.alloc_fragment((block_M, dim), "float32")
            new_max = T.alloc_fragment((block_M,), "float32")
            old_max = T.alloc_fragment((block_M,), "float32")
            shrink = T.alloc_fragment((block_M,), "float32")
            tile_sum = T.alloc_fragment((block_M,), "float32")
            total = T.alloc_fragment((block_M,), "float32")

            T.copy(Q[bz, bx * block_M : (bx + 1) * block_M, by, :], Q_shared)
            T.clear(out)
            T.clear(total)
            T.fill(new_max, -T.infinity("float32"))
            tiles = T.ceildiv(seq_len, block_N)
            if is_causal:
                tiles = T.min(tiles, T.ceildiv((bx + 1) * block_M, block_N))
            for k in T.Pipelined(tiles, num_stages=num_stages):
                T.copy(K[bz, k * block_N : (k + 1) * block_N, by // groups, :], K_shared)
                T.gemm(Q_shared, K_shared, scores, transpose_B=True, clear_accum=True)
                for i, j in T.Parallel(block_M, block_N):
                    if is_causal:
                        scores[i, j] = T.if_then_else(
                            bx * block_M + i >= k * block_N + j,
                            scores[i, j],
                            -T.infinity("float32"),
                        )
                    else:
                        scores[i, j] = T.if_then_else(
                            k * block_N + j < seq_len, scores[i, j], -T.infinity("float32")
                        )
                T.copy(new_max, old_max)
                T.reduce_max(scores, new_max, dim=1, clear=False)
                for i in T.Parallel(block_M):
                    shrink[i] = T.exp2((old_max[i] - new_max[i]) * scale)
                for i, j in T.Parallel(block_M, block_N):
                    scores[i, j] = T.exp2((scores[i, j] - new_max[i]) * scale)
                T.reduce_sum(scores, tile_sum, dim=1)
                for i in T.Parallel(block_M):
                    total[i] = total[i] * shrink[i] + tile_sum[i]
                for i, j in T.Parallel(block_M, dim):
                    out[i, j] *= shrink[i]
                T.copy(scores, weights)
                T.copy(V[bz, k * block_N : (k + 1) * block_N, by // groups, :], V_shared)
                T.gemm(weights, V_shared, out)
            for i, j in T.Parallel(block_M, dim):
                out[i, j] /= total[i]
            T.copy(out, O[bz, bx * block_M : (bx + 1) * block_M, by, :])

    return main


def reference(Q, K, V, is_causal=False):
    """Attention in float64, in the inputs' dtype."""
    q, k, v = (x.astype(np.float64) for x in (Q, K, V))
    groups = q.shape[2] // k.shape[2]
    k, v = np.repeat(k, groups, axis=2), np.repeat(v, groups, axis=2)
    scores = np.einsum("bqhd,bkhd->bhqk", q, k) / np.sqrt(q.shape[-1])
    if is_causal:
        scores = np.where(np.tril(np.ones(scores.shape[-2:], bool)), scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    return np.einsum("bhqk,bkhd->bqhd", weights, v).astype(Q.dtype)

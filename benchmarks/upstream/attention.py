"""Flash attention, tuned with the decorator."""

import tilelang
import tilelang.language as T

CONFIGS = [
    {"block_M": m, "block_N": n, "num_stages": stages}
    for m in (64, 128)
    for n in (64, 128)
    for stages in (1, 2)
]


@tilelang.autotune(configs=CONFIGS, warmup=5, rep=50, skip_check=True)
@tilelang.jit(out_idx=[3], target={"kind": "cuda", "arch": "sm_90a"})
def attention(batch, heads, seq_len, dim, block_M=64, block_N=64, num_stages=1):
    scale = 1.44269504 / dim**0.5
    shape = (batch, seq_len, heads, dim)

    @T.prim_func
    def main(
        Q: T.Tensor(shape, "float16"),
        K: T.Tensor(shape, "float16"),
        V: T.Tensor(shape, "float16"),
        Output: T.Tensor(shape, "float16"),
    ):
        with T.Kernel(T.ceildiv(seq_len, block_M), heads, batch, threads=128) as (bx, by, bz):
            q = T.alloc_shared((block_M, dim), "float16")
            k = T.alloc_shared((block_N, dim), "float16")
            v = T.alloc_shared((block_N, dim), "float16")
            scores = T.alloc_fragment((block_M, block_N), "float32")
            weights = T.alloc_fragment((block_M, block_N), "float16")
            out = T.alloc_fragment((block_M, dim), "float32")
            largest = T.alloc_fragment((block_M,), "float32")
            previous = T.alloc_fragment((block_M,), "float32")
            shrink = T.alloc_fragment((block_M,), "float32")
            sums = T.alloc_fragment((block_M,), "float32")
            total = T.alloc_fragment((block_M,), "float32")
            T.copy(Q[bz, bx * block_M : (bx + 1) * block_M, by, :], q)
            T.fill(out, 0)
            T.fill(total, 0)
            T.fill(largest, -T.infinity("float32"))
            for step in T.Pipelined(T.ceildiv(seq_len, block_N), num_stages=num_stages):
                T.copy(K[bz, step * block_N : (step + 1) * block_N, by, :], k)
                T.clear(scores)
                T.gemm(q, k, scores, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
                T.copy(largest, previous)
                T.reduce_max(scores, largest, dim=1, clear=False)
                for i in T.Parallel(block_M):
                    shrink[i] = T.exp2(previous[i] * scale - largest[i] * scale)
                for i, j in T.Parallel(block_M, block_N):
                    scores[i, j] = T.exp2(scores[i, j] * scale - largest[i] * scale)
                T.reduce_sum(scores, sums, dim=1)
                for i in T.Parallel(block_M):
                    total[i] = total[i] * shrink[i] + sums[i]
                T.copy(scores, weights)
                for i, j in T.Parallel(block_M, dim):
                    out[i, j] *= shrink[i]
                T.copy(V[bz, step * block_N : (step + 1) * block_N, by, :], v)
                T.gemm(weights, v, out, policy=T.GemmWarpPolicy.FullRow)
            for i, j in T.Parallel(block_M, dim):
                out[i, j] /= total[i]
            T.copy(out, Output[bz, bx * block_M : (bx + 1) * block_M, by, :])

    return main


def tune():
    return attention(1, 8, 1024, 64)

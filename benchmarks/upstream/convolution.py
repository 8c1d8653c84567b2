"""A convolution as a matrix product over unfolded windows, tuned with the decorator."""

import tilelang
import tilelang.language as T

CONFIGS = [
    {"block_M": m, "block_N": 64, "block_K": k, "num_stages": stages, "threads": threads}
    for m in (64, 128)
    for k in (32, 64)
    for stages in (2, 3)
    for threads in (128,)
]


@tilelang.autotune(configs=CONFIGS, warmup=5, rep=50, skip_check=True)
@tilelang.jit(out_idx=[2], target={"kind": "cuda", "arch": "sm_90a"})
def convolution(
    N, C, H, W, F, K, S, D, P, block_M=64, block_N=64, block_K=32, num_stages=2, threads=128
):
    out_h = (H + 2 * P - D * (K - 1) - 1) // S + 1
    out_w = (W + 2 * P - D * (K - 1) - 1) // S + 1

    @T.prim_func
    def main(
        data: T.Tensor((N, H, W, C), "float16"),
        weight: T.Tensor((K, K, C, F), "float16"),
        out: T.Tensor((N, out_h, out_w, F), "float16"),
    ):
        with T.Kernel(
            T.ceildiv(F, block_N), T.ceildiv(N * out_h * out_w, block_M), threads=threads
        ) as (bx, by):
            data_shared = T.alloc_shared((block_M, block_K), "float16")
            weight_shared = T.alloc_shared((block_K, block_N), "float16")
            out_local = T.alloc_fragment((block_M, block_N), "float32")
            flat_weight = T.Tensor((K * K * C, F), "float16", weight.data)
            flat_out = T.Tensor((N * out_h * out_w, F), "float16", out.data)
            T.clear(out_local)
            for step in T.Pipelined(T.ceildiv(K * K * C, block_K), num_stages=num_stages):
                T.im2col(data, data_shared, by, step, K, S, D, P)
                T.copy(flat_weight[step * block_K, bx * block_N], weight_shared)
                T.gemm(data_shared, weight_shared, out_local)
            T.copy(out_local, flat_out[by * block_M, bx * block_N])

    return main


def tune():
    return convolution(8, 128, 32, 32, 128, 3, 1, 1, 1)

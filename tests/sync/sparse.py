"""A product whose left matrix has two of each four elements, with metadata that says which."""

import tilelang
import tilelang.language as T


@tilelang.jit(out_idx=[-1])
def matmul_sp(M, N, K, block=16, block_K=32, by_wgmma=False):
    @T.prim_func
    def main(
        A_sparse: T.Tensor((M, K // 2), "float16"),
        E: T.Tensor((M, K // 16), "int16"),
        B: T.Tensor((K, N), "float16"),
        C: T.Tensor((M, N), "float32"),
    ):
        with T.Kernel(T.ceildiv(N, block), T.ceildiv(M, block), threads=128) as (bx, by):
            A_shared = T.alloc_shared((block, block_K // 2), "float16")
            E_shared = T.alloc_shared((block, block_K // 16), "int16")
            B_shared = T.alloc_shared((block_K, block), "float16")
            C_local = T.alloc_fragment((block, block), "float32")
            T.clear(C_local)
            for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=2):
                T.copy(A_sparse[by * block, k * block_K // 2], A_shared)
                T.copy(E[by * block, k * block_K // 16], E_shared)
                T.copy(B[k * block_K, bx * block], B_shared)
                if by_wgmma:
                    T.fence_proxy_async()
                    T.wgmma_gemm_sp(A_shared, E_shared, B_shared, C_local)
                    T.wait_wgmma(0)
                else:
                    T.gemm_sp(A_shared, E_shared, B_shared, C_local)
            T.copy(C_local, C[by * block, bx * block])

    return main

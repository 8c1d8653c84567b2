"""Pipelines that say their asynchronous copies themselves: plant a mistake, `tileyard check` finds it."""

import tilelang
import tilelang.language as T

BLOCK = 16


@tilelang.jit(out_idx=[2])
def gemm(M, N, K):
    """Three stages, two groups ahead: each group has a tile of A and, committed apart, one of B."""
    steps = K // BLOCK

    @T.prim_func
    def main(
        A: T.Tensor((M, K), "float16"),
        B: T.Tensor((K, N), "float16"),
        C: T.Tensor((M, N), "float32"),
    ):
        with T.Kernel(T.ceildiv(N, BLOCK), T.ceildiv(M, BLOCK), threads=128) as (bx, by):
            a = T.alloc_shared((3, BLOCK, BLOCK), "float16")
            b = T.alloc_shared((3, BLOCK, BLOCK), "float16")
            c = T.alloc_fragment((BLOCK, BLOCK), "float32")
            T.clear(c)
            for p in T.serial(2):
                T.async_copy(
                    A[by * BLOCK : (by + 1) * BLOCK, p * BLOCK : (p + 1) * BLOCK], a[p, :, :]
                )
                T.async_copy(
                    B[p * BLOCK : (p + 1) * BLOCK, bx * BLOCK : (bx + 1) * BLOCK], b[p, :, :]
                )
            for k in T.serial(steps):
                if k + 1 < steps:
                    T.ptx_wait_group(2)
                else:
                    T.ptx_wait_group(0)
                if k + 2 < steps:
                    T.async_copy(
                        A[by * BLOCK : (by + 1) * BLOCK, (k + 2) * BLOCK : (k + 3) * BLOCK],
                        a[(k + 2) % 3, :, :],
                    )
                    T.async_copy(
                        B[(k + 2) * BLOCK : (k + 3) * BLOCK, bx * BLOCK : (bx + 1) * BLOCK],
                        b[(k + 2) % 3, :, :],
                    )
                T.gemm(a[k % 3, :, :], b[k % 3, :, :], c)
            T.copy(c, C[by * BLOCK, bx * BLOCK])

    return main


@tilelang.jit(out_idx=[1])
def scale(N):
    """Three stages, copied element by element; the last groups are empty, so that one count does for all."""
    steps = N // BLOCK

    @T.prim_func
    def main(X: T.Tensor((N,), "float32"), Y: T.Tensor((N,), "float32")):
        with T.Kernel(1, threads=32) as _:
            x = T.alloc_shared((3, BLOCK), "float32")
            for p in T.serial(2):
                for i in T.Parallel(BLOCK // 4):
                    T.ptx_cp_async(
                        T.access_ptr(x[p, i * 4], "w"), T.access_ptr(X[p * BLOCK + i * 4], "r"), 4
                    )
                T.ptx_commit_group()
            for k in T.serial(steps):
                T.ptx_wait_group(1)
                for i in T.Parallel(BLOCK):
                    Y[k * BLOCK + i] = x[k % 3, i] * 2.0
                if k + 2 < steps:
                    for i in T.Parallel(BLOCK // 4):
                        T.ptx_cp_async(
                            T.access_ptr(x[(k + 2) % 3, i * 4], "w"),
                            T.access_ptr(X[(k + 2) * BLOCK + i * 4], "r"),
                            4,
                        )
                T.ptx_commit_group()

    return main


@tilelang.jit(out_idx=[2])
def permute(N):
    """Rows of X by number, four at a time, by TMA in both directions; one thread does it all."""

    @T.prim_func
    def main(
        X: T.Tensor((N, BLOCK), "float32"),
        rows: T.Tensor((N,), "int32"),
        Y: T.Tensor((N, BLOCK), "float32"),
    ):
        with T.Kernel(1, threads=128) as _:
            four = T.alloc_shared((4, BLOCK), "float32")
            full = T.alloc_barrier(1)
            for k in T.serial(N // 4):
                if T.shuffle_elect(128):
                    T.mbarrier_expect_tx(full, T.tma_gather4_bytes(BLOCK, "float32"))
                    T.tma_gather4(X, four, 0, [rows[4 * k + i] for i in range(4)], barrier=full)
                    T.barrier_arrive(full)
                    T.mbarrier_wait_parity(full, k % 2)
                    T.tma_scatter4(four, Y, 0, [4 * k + i for i in range(4)])
                    T.tma_store_arrive()
                    T.tma_store_wait(0)

    return main

"""Kernels whose threads have roles: some bring tiles, others use them, and barriers keep them in step."""

import numpy as np
import tilelang
import tilelang.language as T


@tilelang.jit(out_idx=[-1])
def gemm_two_stages(M, N, K, block_M=64, block_N=64, block_K=32, dtype="float16"):
    """One role fills two stages in turn, the other multiplies what is full and says what is free."""

    @T.prim_func
    def main(A: T.Tensor((M, K), dtype), B: T.Tensor((K, N), dtype), C: T.Tensor((M, N), dtype)):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=256) as (bx, by):
            A_shared = T.alloc_shared((2, block_M, block_K), dtype)
            B_shared = T.alloc_shared((2, block_K, block_N), dtype)
            C_local = T.alloc_fragment((block_M, block_N), "float32")
            full = T.alloc_barrier(arrive_count=[128, 128])
            free = T.alloc_barrier(arrive_count=[128, 128])
            tx = T.get_thread_binding()
            if tx < 128:
                for k in T.serial(T.ceildiv(K, block_K)):
                    T.barrier_wait(free[k % 2], (k // 2 + 1) % 2)
                    T.tma_copy(
                        A[by * block_M : (by + 1) * block_M, k * block_K : (k + 1) * block_K],
                        A_shared[k % 2, :, :],
                        barrier=full[k % 2],
                    )
                    T.tma_copy(
                        B[k * block_K : (k + 1) * block_K, bx * block_N : (bx + 1) * block_N],
                        B_shared[k % 2, :, :],
                        barrier=full[k % 2],
                    )
                    T.barrier_arrive(full[k % 2])
            else:
                T.clear(C_local)
                for k in T.serial(T.ceildiv(K, block_K)):
                    T.barrier_wait(full[k % 2], k // 2 % 2)
                    T.wgmma_gemm(A_shared[k % 2, :, :], B_shared[k % 2, :, :], C_local)
                    T.wait_wgmma(0)
                    T.barrier_arrive(free[k % 2])
                T.copy(C_local, C[by * block_M, bx * block_N])

    return main


@tilelang.jit(out_idx=[-1])
def gemm_three_roles(M, N, K, block_M=64, block_N=64, block_K=32, dtype="float16"):
    """One role brings tiles; two multiply a half of the rows each, and both have to be done with a tile."""

    @T.prim_func
    def main(A: T.Tensor((M, K), dtype), B: T.Tensor((K, N), dtype), C: T.Tensor((M, N), dtype)):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=384) as (bx, by):
            A_shared = T.alloc_shared((block_M, block_K), dtype)
            B_shared = T.alloc_shared((block_K, block_N), dtype)
            upper = T.alloc_fragment((block_M // 2, block_N), "float32")
            lower = T.alloc_fragment((block_M // 2, block_N), "float32")
            full = T.alloc_barrier(arrive_count=1)
            free = T.alloc_barrier(arrive_count=256)
            tx = T.get_thread_binding()
            for k in T.serial(T.ceildiv(K, block_K)):
                if tx >= 256:
                    T.barrier_wait(free, (k + 1) % 2)
                    T.tma_copy(A[by * block_M, k * block_K], A_shared, barrier=full)
                    T.tma_copy(B[k * block_K, bx * block_N], B_shared, barrier=full)
                    if tx == 256:
                        T.barrier_arrive(full)
                elif tx < 128:
                    T.barrier_wait(full, k % 2)
                    T.gemm(A_shared[: block_M // 2, :], B_shared, upper, clear_accum=k == 0)
                    T.barrier_arrive(free)
                else:
                    T.barrier_wait(full, k % 2)
                    T.gemm(A_shared[block_M // 2 :, :], B_shared, lower, clear_accum=k == 0)
                    T.barrier_arrive(free)
            with T.ws(0):
                T.copy(upper, C[by * block_M, bx * block_N])
            with T.ws(1):
                T.copy(lower, C[by * block_M + block_M // 2, bx * block_N])

    return main


@tilelang.jit(out_idx=[-1])
def sides(M, N, block_M=32, block_N=32, dtype="float32"):
    """Two roles that do not wait for each other, each on its own side of a tile that both have read."""

    @T.prim_func
    def main(A: T.Tensor((M, N), dtype), B: T.Tensor((M, N), dtype)):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=256) as (bx, by):
            tile = T.alloc_shared((block_M, block_N), dtype)
            top = T.alloc_fragment((block_M // 2, block_N), dtype)
            bottom = T.alloc_fragment((block_M // 2, block_N), dtype)
            T.copy(A[by * block_M, bx * block_N], tile)
            with T.ws(0):
                T.copy(tile[: block_M // 2, :], top)
                for i, j in T.Parallel(block_M // 2, block_N):
                    top[i, j] = top[i, j] * 2
                T.copy(top, B[by * block_M, bx * block_N])
            with T.ws(1):
                T.copy(tile[block_M // 2 :, :], bottom)
                for i, j in T.Parallel(block_M // 2, block_N):
                    bottom[i, j] = bottom[i, j] + 1
                T.copy(bottom, B[by * block_M + block_M // 2, bx * block_N])

    return main


@tilelang.jit(out_idx=[-1])
def deadlocked(N, block=32):
    """The first role waits for tiles to be free, which the second never says."""

    @T.prim_func
    def main(A: T.Tensor((N,), "float32"), B: T.Tensor((N,), "float32")):
        with T.Kernel(1, threads=256):
            tile = T.alloc_shared((block,), "float32")
            full = T.alloc_barrier(arrive_count=128)
            free = T.alloc_barrier(arrive_count=128)
            with T.ws(0):
                for k in T.serial(T.ceildiv(N, block)):
                    T.barrier_wait(free, (k + 1) % 2)
                    T.copy(A[k * block], tile)
                    T.barrier_arrive(full)
            with T.ws(1):
                for k in T.serial(T.ceildiv(N, block)):
                    T.barrier_wait(full, k % 2)
                    T.copy(tile, B[k * block])

    return main


def product(A, B):
    """The product in float32, in the inputs' dtype."""
    return (A.astype(np.float32) @ B.astype(np.float32)).astype(A.dtype)


def sides_reference(A, block_M=32):
    """The first half of the rows of each tile doubled, one added to the second."""
    is_top = np.arange(A.shape[0]) % block_M < block_M // 2
    return np.where(is_top[:, None], A * 2, A + 1)

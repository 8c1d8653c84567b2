"""Kernels for what a GPU has and tiles do not show: threads, clusters, TMA, several launches, CUDA source."""

import tilelang
import tilelang.language as T


@tilelang.jit(out_idx=[-1])
def reverse_warp(N):
    """Per-thread code: each thread has its element, and is counted."""

    @T.prim_func
    def main(
        A: T.Tensor((N,), "float32"), S: T.Tensor((1,), "int32"), B: T.Tensor((N,), "float32")
    ):
        with T.Kernel(T.ceildiv(N, 32), threads=32) as bx:
            tx = T.get_thread_binding()
            B[bx * 32 + tx] = A[bx * 32 + 31 - tx]
            T.atomic_add(S[0], 1)

    return main


@tilelang.jit(out_idx=[-1])
def two_steps(block=128):
    """Two launches, one after the other, for any size; numbers of several kinds."""
    n = T.dynamic("n")

    @T.prim_func
    def main(
        A: T.Tensor((n,), "float32"),
        is_negative: T.bool,
        step: T.int64,
        scale: T.float32,
        half: T.float16,
        B: T.Tensor((n,), "float32"),
        C: T.Tensor((n * 2,), "float32"),
    ):
        with T.Kernel(T.ceildiv(n, block), threads=block) as bx:
            for i in T.Parallel(block):
                B[bx * block + i] = T.if_then_else(
                    is_negative, -A[bx * block + i], A[bx * block + i]
                )
        with T.Kernel(T.ceildiv(n, 2 * block), 2, threads=block) as (bx, by):
            for i in T.Parallel(2 * block):
                C[(bx * 2 * block + i) * 2 + by] = (
                    B[bx * 2 * block + i] * scale
                    + T.cast(step, "float32")
                    + T.cast(half, "float32")
                )

    return main


@tilelang.jit(out_idx=[-1])
def through_memory(N, block=128):
    """The first launch writes to memory that the kernel takes for itself; the second reads it."""

    @T.prim_func
    def main(A: T.Tensor((N,), "float32"), B: T.Tensor((N,), "float32")):
        middle = T.alloc_global((N,), "float32")
        with T.Kernel(T.ceildiv(N, block), threads=block) as bx:
            for i in T.Parallel(block):
                middle[bx * block + i] = A[bx * block + i] + 1.0
        with T.Kernel(T.ceildiv(N, block), threads=block) as bx:
            for i in T.Parallel(block):
                B[bx * block + i] = middle[N - 1 - bx * block - i] * 2.0

    return main


@tilelang.jit(out_idx=[-1])
def neighbours(N):
    """Blocks of a cluster of two: the second one gets what the first one has in shared memory."""

    @T.prim_func
    def main(A: T.Tensor((N,), "float32"), B: T.Tensor((N,), "float32")):
        with T.ClusterKernel(2, threads=128, cluster_dims=(2, 1, 1)) as block:
            source = T.alloc_shared((N,), "float32")
            target = T.alloc_shared((N,), "float32")
            T.fill(source, 0.0)
            T.fill(target, 0.0)
            T.cluster_sync()
            if block == 0:
                for i in T.Parallel(N):
                    source[i] = A[i]
                T.copy_cluster(source, target, dst_block=1)
            T.cluster_sync()
            if block == 1:
                for i in T.Parallel(N):
                    B[i] = target[i]

    return main


@tilelang.jit(out_idx=[-1])
def convolution(N, C, H, W, F, K, P=0, block_M=64, block_N=64, block_K=32):
    """A convolution with the image's windows laid out by TMA.

    On a GPU TileLang 0.1.15 lays them out rightly only where the padding P is (K - 1) / 2: its descriptor has
    the box end at -P.
    """
    rows, columns = H + 2 * P - K + 1, W + 2 * P - K + 1
    pixels = N * rows * columns

    @T.prim_func
    def main(
        data: T.Tensor((N, H, W, C), "float16"),
        weights: T.Tensor((K, K, C, F), "float16"),
        out: T.Tensor((N, rows, columns, F), "float16"),
    ):
        with T.Kernel(T.ceildiv(F, block_N), T.ceildiv(pixels, block_M), threads=128) as (bx, by):
            windows = T.alloc_shared((block_M, block_K), "float16")
            part = T.alloc_shared((block_K, block_N), "float16")
            total = T.alloc_fragment((block_M, block_N), "float32")
            flat_weights = T.Tensor((K * K * C, F), "float16", weights.data)
            flat_out = T.Tensor((pixels, F), "float16", out.data)
            T.clear(total)
            for k in T.Pipelined(T.ceildiv(K * K * C, block_K), num_stages=2):
                T.im2col(data, windows, by, k, K, 1, 1, P)
                T.copy(flat_weights[k * block_K, bx * block_N], part)
                T.gemm(windows, part, total)
            T.copy(total, flat_out[by * block_M, bx * block_N])

    return main


PRELUDE = """
__device__ __forceinline__ float softened(float x) { return x / (1.0f + fabsf(x)); }
"""


@tilelang.jit(out_idx=[-1])
def with_source(N, block=128):
    """CUDA source of the user's, called for each element."""

    @T.prim_func
    def main(A: T.Tensor((N,), "float32"), B: T.Tensor((N,), "float32")):
        with T.Kernel(T.ceildiv(N, block), threads=block, prelude=PRELUDE) as bx:
            for i in T.Parallel(block):
                B[bx * block + i] = T.call_extern("float32", "softened", A[bx * block + i])

    return main


@tilelang.jit(out_idx=[-1])
def histogram(N, bins=64, block=256):
    """Atomic additions in shared memory, then in global memory."""

    @T.prim_func
    def main(X: T.Tensor((N,), "int32"), counts: T.Tensor((bins,), "int32")):
        with T.Kernel(T.ceildiv(N, block), threads=block) as bx:
            own = T.alloc_shared((bins,), "int32")
            T.clear(own)
            for i in T.Parallel(block):
                T.atomic_add(own[X[bx * block + i] % bins], 1)
            for i in T.Parallel(bins):
                T.atomic_add(counts[i], own[i])

    return main

"""Integers that stand for numbers: int8 GEMM, packed int4 weights, quantization by rows."""

import numpy as np
import tilelang
import tilelang.language as T


@tilelang.jit(out_idx=[2])
def int8_gemm(M, N, K, block=16):
    """Products of bytes, summed in 32 bits."""

    @T.prim_func
    def main(
        A: T.Tensor((M, K), "int8"), B: T.Tensor((N, K), "int8"), C: T.Tensor((M, N), "int32")
    ):
        with T.Kernel(T.ceildiv(N, block), T.ceildiv(M, block), threads=64) as (bx, by):
            a = T.alloc_shared((block, block), "int8")
            b = T.alloc_shared((block, block), "int8")
            c = T.alloc_fragment((block, block), "int32")
            T.clear(c)
            for k in T.Pipelined(T.ceildiv(K, block), num_stages=2):
                T.copy(A[by * block, k * block], a)
                T.copy(B[bx * block, k * block], b)
                T.gemm(a, b, c, transpose_B=True)
            T.copy(c, C[by * block, bx * block])

    return main


def int8_gemm_inputs(rng):
    return [rng.integers(-128, 128, s).astype(np.int8) for s in ((20, 40), (27, 40))]


def int8_gemm_reference(A, B):
    return [A.astype(np.int32) @ B.astype(np.int32).T]


@tilelang.jit(out_idx=[3])
def int4_gemm(M, N, K, group, block=16):
    """Two weights in a byte, one scale for a group of them."""

    @T.prim_func
    def main(
        A: T.Tensor((M, K), "float16"),
        packed: T.Tensor((N, K // 2), "uint8"),
        scales: T.Tensor((N, K // group), "float16"),
        C: T.Tensor((M, N), "float32"),
    ):
        with T.Kernel(T.ceildiv(N, block), T.ceildiv(M, block), threads=64) as (bx, by):
            a = T.alloc_shared((block, block), "float16")
            p = T.alloc_shared((block, block // 2), "uint8")
            p_local = T.alloc_fragment((block, block // 2), "uint8")
            b = T.alloc_fragment((block, block), "float16")
            c = T.alloc_fragment((block, block), "float32")
            T.clear(c)
            for k in T.Pipelined(T.ceildiv(K, block), num_stages=2):
                T.copy(A[by * block, k * block], a)
                T.copy(packed[bx * block, k * block // 2], p)
                T.copy(p, p_local)
                for i, j in T.Parallel(block, block):
                    nibble = (p_local[i, j // 2] >> T.cast(j % 2 * 4, "uint8")) & T.uint8(15)
                    b[i, j] = (T.cast(nibble, "float16") - 8.0) * scales[
                        bx * block + i, (k * block + j) // group
                    ]
                T.gemm(a, b, c, transpose_B=True)
            T.copy(c, C[by * block, bx * block])

    return main


def int4_gemm_inputs(rng):
    return [
        rng.standard_normal((20, 64)).astype("f2"),
        rng.integers(0, 256, (24, 32)).astype(np.uint8),
        (rng.random((24, 2)) + 0.5).astype("f2"),
    ]


def int4_gemm_reference(A, packed, scales):
    nibbles = np.stack([packed & 15, packed >> 4], axis=-1).reshape(24, 64)
    B = (nibbles.astype("f2") - np.float16(8)) * np.repeat(scales, 32, axis=1)
    return [A.astype("f4") @ B.astype("f4").T]


@tilelang.jit(out_idx=[1, 2])
def quantize_rows(M, N, block_M=4):
    """Each row scaled to the range of a byte, rounded and clamped."""

    @T.prim_func
    def main(
        X: T.Tensor((M, N), "float32"), Q: T.Tensor((M, N), "int8"), S: T.Tensor((M,), "float32")
    ):
        with T.Kernel(T.ceildiv(M, block_M), threads=64) as bx:
            x = T.alloc_fragment((block_M, N), "float32")
            q = T.alloc_fragment((block_M, N), "int8")
            most = T.alloc_fragment((block_M,), "float32")
            T.copy(X[bx * block_M, 0], x)
            T.reduce_absmax(x, most, dim=1)
            for i in T.Parallel(block_M):
                most[i] = T.max(most[i], 1e-4) / 127.0
            for i, j in T.Parallel(block_M, N):
                q[i, j] = T.cast(T.clamp(T.round(x[i, j] / most[i]), -127.0, 127.0), "int8")
            T.copy(q, Q[bx * block_M, 0])
            T.copy(most, S[bx * block_M])

    return main


def quantize_rows_inputs(rng):
    return [rng.standard_normal((10, 33)).astype("f4")]


def quantize_rows_reference(X):
    S = np.maximum(np.abs(X).max(axis=1), np.float32(1e-4)) / np.float32(127)
    return [np.rint(X / S[:, None]).astype(np.int8), S]

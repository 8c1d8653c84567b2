"""Kernels with pipelined loops of nine kinds, for ``pipelines.py``: half precision, sums in float32."""

import math

import tilelang.language as T

import tileyard

HALF, SINGLE = "float16", "float32"
SCALE = 1.4426950408889634 / math.sqrt(64)
"""Of scores, for exponents of 2."""


@tileyard.kernel
def gemm(M=4096, N=4096, K=4096, m=128, n=128, k=32, stages=3):
    """C = A @ B."""

    @T.prim_func
    def main(A: T.Tensor((M, K), HALF), B: T.Tensor((K, N), HALF), C: T.Tensor((M, N), HALF)):
        with T.Kernel(N // n, M // m, threads=128) as (bx, by):
            a = T.alloc_shared((m, k), HALF)
            b = T.alloc_shared((k, n), HALF)
            c = T.alloc_fragment((m, n), SINGLE)
            T.clear(c)
            for i in T.Pipelined(K // k, num_stages=stages):
                T.copy(A[by * m, i * k], a)
                T.copy(B[i * k, bx * n], b)
                T.gemm(a, b, c)
            T.copy(c, C[by * m, bx * n])

    return main


@tileyard.kernel
def gemm_epilogue(M=4096, N=4096, K=4096, m=128, n=128, k=32, stages=3):
    """C = gelu(A @ B + bias)."""

    @T.prim_func
    def main(
        A: T.Tensor((M, K), HALF),
        B: T.Tensor((K, N), HALF),
        bias: T.Tensor((N,), HALF),
        C: T.Tensor((M, N), HALF),
    ):
        with T.Kernel(N // n, M // m, threads=128) as (bx, by):
            a = T.alloc_shared((m, k), HALF)
            b = T.alloc_shared((k, n), HALF)
            row = T.alloc_shared((n,), HALF)
            out = T.alloc_shared((m, n), HALF)
            c = T.alloc_fragment((m, n), SINGLE)
            T.use_swizzle(10)
            T.copy(bias[bx * n], row)
            T.clear(c)
            for i in T.Pipelined(K // k, num_stages=stages):
                T.copy(A[by * m, i * k], a)
                T.copy(B[i * k, bx * n], b)
                T.gemm(a, b, c)
            for i, j in T.Parallel(m, n):
                c[i, j] = c[i, j] + T.cast(row[j], SINGLE)
                c[i, j] = 0.5 * c[i, j] * (1.0 + T.erf(c[i, j] * 0.7071067811865476))
            T.copy(c, out)
            T.copy(out, C[by * m, bx * n])

    return main


@tileyard.kernel
def split_k(M=1024, N=1024, K=8192, m=128, n=128, k=32, split=4, stages=3):
    """C += A @ B, a part of K for each block."""
    part = K // split

    @T.prim_func
    def main(A: T.Tensor((M, K), HALF), B: T.Tensor((K, N), HALF), C: T.Tensor((M, N), SINGLE)):
        with T.Kernel(N // n, M // m, split, threads=128) as (bx, by, bz):
            a = T.alloc_shared((m, k), HALF)
            b = T.alloc_shared((k, n), HALF)
            c = T.alloc_fragment((m, n), SINGLE)
            T.clear(c)
            for i in T.Pipelined(part // k, num_stages=stages):
                T.copy(A[by * m, bz * part + i * k], a)
                T.copy(B[bz * part + i * k, bx * n], b)
                T.gemm(a, b, c)
            for i, j in T.Parallel(m, n):
                T.atomic_add(C[by * m + i, bx * n + j], c[i, j])

    return main


@tileyard.kernel
def block_sparse(M=2048, N=2048, K=2048, m=128, n=128, k=32, stages=2):
    """C = A @ B, where a mask says which blocks take part."""

    @T.prim_func
    def main(
        A: T.Tensor((M, K), HALF),
        B: T.Tensor((K, N), HALF),
        mask: T.Tensor((M // m, N // n, K // k), "bool"),
        C: T.Tensor((M, N), HALF),
    ):
        with T.Kernel(N // n, M // m, threads=128) as (bx, by):
            a = T.alloc_shared((m, k), HALF)
            b = T.alloc_shared((k, n), HALF)
            c = T.alloc_fragment((m, n), SINGLE)
            T.clear(c)
            for i in T.Pipelined(K // k, num_stages=stages):
                if mask[by, bx, i]:
                    T.copy(A[by * m, i * k], a)
                    T.copy(B[i * k, bx * n], b)
                    T.gemm(a, b, c)
            T.copy(c, C[by * m, bx * n])

    return main


@tileyard.kernel
def dequantized(M=1024, N=4096, K=4096, m=128, n=128, k=64, stages=2):
    """C = A @ B.T, where B has two numbers of 4 bits in each byte."""

    @T.prim_func
    def main(
        A: T.Tensor((M, K), HALF), packed: T.Tensor((N, K // 2), "uint8"), C: T.Tensor((M, N), HALF)
    ):
        with T.Kernel(N // n, M // m, threads=128) as (bx, by):
            a = T.alloc_shared((m, k), HALF)
            p = T.alloc_shared((n, k // 2), "uint8")
            p_own = T.alloc_fragment((n, k // 2), "uint8")
            b_own = T.alloc_fragment((n, k), HALF)
            b = T.alloc_shared((n, k), HALF)
            c = T.alloc_fragment((m, n), SINGLE)
            T.clear(c)
            for i in T.Pipelined(K // k, num_stages=stages):
                T.copy(A[by * m, i * k], a)
                T.copy(packed[bx * n, i * k // 2], p)
                T.copy(p, p_own)
                for r, s in T.Parallel(n, k):
                    nibble = (p_own[r, s // 2] >> T.cast(s % 2 * 4, "uint8")) & T.uint8(15)
                    b_own[r, s] = T.cast(nibble, HALF) - T.float16(8.0)
                T.copy(b_own, b)
                T.gemm(a, b, c, transpose_B=True)
            T.copy(c, C[by * m, bx * n])

    return main


def _attention(heads, length, m, n, stages, is_causal):
    dim = 64
    shape = (heads, length, dim)

    @T.prim_func
    def main(
        Q: T.Tensor(shape, HALF),
        K: T.Tensor(shape, HALF),
        V: T.Tensor(shape, HALF),
        out: T.Tensor(shape, HALF),
    ):
        with T.Kernel(length // m, heads, threads=128) as (bx, by):
            q = T.alloc_shared((m, dim), HALF)
            k = T.alloc_shared((n, dim), HALF)
            v = T.alloc_shared((n, dim), HALF)
            scores = T.alloc_fragment((m, n), SINGLE)
            weights = T.alloc_fragment((m, n), HALF)
            total = T.alloc_fragment((m, dim), SINGLE)
            top = T.alloc_fragment((m,), SINGLE)
            before = T.alloc_fragment((m,), SINGLE)
            ratio = T.alloc_fragment((m,), SINGLE)
            row = T.alloc_fragment((m,), SINGLE)
            sums = T.alloc_fragment((m,), SINGLE)
            T.copy(Q[by, bx * m : (bx + 1) * m, :], q)
            T.clear(total)
            T.clear(sums)
            T.fill(top, -T.infinity(SINGLE))
            steps = T.ceildiv((bx + 1) * m, n) if is_causal else T.ceildiv(length, n)
            for i in T.Pipelined(steps, num_stages=stages):
                T.copy(K[by, i * n : (i + 1) * n, :], k)
                if is_causal:
                    for r, s in T.Parallel(m, n):
                        scores[r, s] = T.if_then_else(
                            bx * m + r >= i * n + s, 0.0, -T.infinity(SINGLE)
                        )
                else:
                    T.clear(scores)
                T.gemm(q, k, scores, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
                T.copy(V[by, i * n : (i + 1) * n, :], v)
                T.copy(top, before)
                T.reduce_max(scores, top, dim=1, clear=False)
                for r in T.Parallel(m):
                    ratio[r] = T.exp2(before[r] * SCALE - top[r] * SCALE)
                for r, s in T.Parallel(m, n):
                    scores[r, s] = T.exp2(scores[r, s] * SCALE - top[r] * SCALE)
                T.reduce_sum(scores, row, dim=1)
                for r in T.Parallel(m):
                    sums[r] = sums[r] * ratio[r] + row[r]
                T.copy(scores, weights)
                for r, s in T.Parallel(m, dim):
                    total[r, s] = total[r, s] * ratio[r]
                T.gemm(weights, v, total, policy=T.GemmWarpPolicy.FullRow)
            for r, s in T.Parallel(m, dim):
                total[r, s] = total[r, s] / sums[r]
            T.copy(total, out[by, bx * m : (bx + 1) * m, :])

    return main


@tileyard.kernel
def attention(heads=32, length=2048, m=64, n=64, stages=2):
    """Softmax(Q @ K.T) @ V, for each head."""
    return _attention(heads, length, m, n, stages, is_causal=False)


@tileyard.kernel
def causal_attention(heads=32, length=2048, m=64, n=64, stages=2):
    """The same, for queries that see the keys up to their own."""
    return _attention(heads, length, m, n, stages, is_causal=True)


@tileyard.kernel
def attention_backward(heads=32, length=2048, m=64, n=64, stages=2):
    """The gradients of Q, K and V; a block has ``m`` keys."""
    dim = 64
    shape = (heads, length, dim)

    @T.prim_func
    def main(
        Q: T.Tensor(shape, HALF),
        K: T.Tensor(shape, HALF),
        V: T.Tensor(shape, HALF),
        dO: T.Tensor(shape, HALF),
        lse: T.Tensor((heads, length), SINGLE),
        delta: T.Tensor((heads, length), SINGLE),
        dQ: T.Tensor(shape, SINGLE),
        dK: T.Tensor(shape, HALF),
        dV: T.Tensor(shape, HALF),
    ):
        with T.Kernel(heads, length // m, threads=128) as (bx, by):
            k = T.alloc_shared((m, dim), HALF)
            v = T.alloc_shared((m, dim), HALF)
            q = T.alloc_shared((n, dim), HALF)
            do = T.alloc_shared((n, dim), HALF)
            row_lse = T.alloc_shared((n,), SINGLE)
            row_delta = T.alloc_shared((n,), SINGLE)
            ds = T.alloc_shared((m, n), HALF)
            scores = T.alloc_fragment((m, n), SINGLE)
            weights = T.alloc_fragment((m, n), HALF)
            dscores = T.alloc_fragment((m, n), SINGLE)
            dweights = T.alloc_fragment((m, n), HALF)
            dk = T.alloc_fragment((m, dim), SINGLE)
            dv = T.alloc_fragment((m, dim), SINGLE)
            dq = T.alloc_fragment((n, dim), SINGLE)
            T.copy(K[bx, by * m : (by + 1) * m, :], k)
            T.copy(V[bx, by * m : (by + 1) * m, :], v)
            T.clear(dk)
            T.clear(dv)
            for i in T.Pipelined(length // n, num_stages=stages):
                T.copy(Q[bx, i * n : (i + 1) * n, :], q)
                T.clear(scores)
                T.gemm(k, q, scores, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
                T.copy(lse[bx, i * n : (i + 1) * n], row_lse)
                for r, s in T.Parallel(m, n):
                    scores[r, s] = T.exp2(scores[r, s] * SCALE - row_lse[s])
                T.copy(dO[bx, i * n : (i + 1) * n, :], do)
                T.clear(dscores)
                T.gemm(v, do, dscores, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
                T.copy(delta[bx, i * n : (i + 1) * n], row_delta)
                T.copy(scores, weights)
                T.gemm(weights, do, dv, policy=T.GemmWarpPolicy.FullRow)
                for r, s in T.Parallel(m, n):
                    dweights[r, s] = scores[r, s] * (dscores[r, s] - row_delta[s]) * SCALE
                T.gemm(dweights, q, dk, policy=T.GemmWarpPolicy.FullRow)
                T.copy(dweights, ds)
                T.clear(dq)
                T.gemm(ds, k, dq, transpose_A=True)
                for r, s in T.Parallel(n, dim):
                    T.atomic_add(dQ[bx, i * n + r, s], dq[r, s])
            T.copy(dk, dK[bx, by * m : (by + 1) * m, :])
            T.copy(dv, dV[bx, by * m : (by + 1) * m, :])

    return main


@tileyard.kernel
def sparse_gemm(M=4096, N=4096, K=4096, m=128, n=128, k=64, stages=2):
    """C = A @ B, where A has two of each four elements, and ``places`` says which."""

    @T.prim_func
    def main(
        A: T.Tensor((M, K // 2), HALF),
        places: T.Tensor((M, K // 16), "int16"),
        B: T.Tensor((K, N), HALF),
        C: T.Tensor((M, N), SINGLE),
    ):
        with T.Kernel(N // n, M // m, threads=128) as (bx, by):
            a = T.alloc_shared((m, k // 2), HALF)
            e = T.alloc_shared((m, k // 16), "int16")
            b = T.alloc_shared((k, n), HALF)
            c = T.alloc_fragment((m, n), SINGLE)
            T.clear(c)
            for i in T.Pipelined(K // k, num_stages=stages):
                T.copy(A[by * m, i * k // 2], a)
                T.copy(places[by * m, i * k // 16], e)
                T.copy(B[i * k, bx * n], b)
                T.gemm_sp(a, e, b, c)
            T.copy(c, C[by * m, bx * n])

    return main

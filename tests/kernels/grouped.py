"""Several small GEMMs in one launch: groups of rows, and experts that tokens are sent to."""

import numpy as np
import tilelang
import tilelang.language as T


@tilelang.jit(out_idx=[2])
def grouped_gemm(sizes, K, N, block_M=8, block_N=16, block_K=8):
    """Rows lie one group after the other; each group has a matrix of its own."""
    total = sum(sizes)
    groups = len(sizes)
    tiles = sum(-(-size // block_M) for size in sizes)

    @T.prim_func
    def main(
        A: T.Tensor((total, K), "float16"),
        B: T.Tensor((groups, K, N), "float16"),
        C: T.Tensor((total, N), "float32"),
        counts: T.Tensor((groups,), "int32"),
        offsets: T.Tensor((groups,), "int32"),
        padded: T.Tensor((groups,), "int32"),
    ):
        with T.Kernel(tiles, T.ceildiv(N, block_N), threads=128) as (bx, by):
            a = T.alloc_shared((block_M, block_K), "float16")
            b = T.alloc_shared((block_K, block_N), "float16")
            c = T.alloc_fragment((block_M, block_N), "float32")
            group = T.alloc_var("int32")
            group = 0
            for i in T.serial(groups):
                if bx * block_M >= padded[i]:
                    group = i
            row = bx * block_M - padded[group] + offsets[group]
            rows = T.max(0, T.min(block_M, counts[group] + padded[group] - bx * block_M))
            T.clear(c)
            for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=2):
                T.copy(A[row : row + block_M, k * block_K : (k + 1) * block_K], a)
                T.copy(
                    B[group, k * block_K : (k + 1) * block_K, by * block_N : (by + 1) * block_N], b
                )
                T.gemm(a, b, c)
            for i, j in T.Parallel(block_M, block_N):
                if i < rows:
                    C[row + i, by * block_N + j] = c[i, j]

    return main


def grouped_gemm_inputs(rng):
    sizes = np.array([5, 16, 1, 10], np.int32)
    A = rng.standard_normal((32, 20)).astype("f2")
    B = rng.standard_normal((4, 20, 24)).astype("f2")
    padded = (-(-sizes // 8) * 8).cumsum() - -(-sizes // 8) * 8
    return [A, B, sizes, sizes.cumsum().astype("i4") - sizes, padded.astype("i4")]


def grouped_gemm_reference(A, B, counts, offsets, padded):
    C = [
        A[o : o + n].astype("f4") @ B[i].astype("f4")
        for i, (o, n) in enumerate(zip(offsets, counts, strict=True))
    ]
    return [np.concatenate(C)]


@tilelang.jit(out_idx=[4])
def moe(tokens, experts, width, hidden, chosen, block=8):
    """Each expert gathers its tokens, and adds what it makes of them at their places."""

    @T.prim_func
    def main(
        X: T.Tensor((tokens, width), "float32"),
        W: T.Tensor((experts, width, hidden), "float32"),
        ids: T.Tensor((experts, chosen), "int32"),
        gates: T.Tensor((experts, chosen), "float32"),
        Y: T.Tensor((experts, chosen, hidden), "float32"),
    ):
        with T.Kernel(T.ceildiv(chosen, block), experts, threads=64) as (bx, expert):
            x = T.alloc_shared((block, width), "float32")
            w = T.alloc_shared((width, hidden), "float32")
            y = T.alloc_fragment((block, hidden), "float32")
            T.copy(W[expert, :, :], w)
            for i, j in T.Parallel(block, width):
                if bx * block + i < chosen:
                    x[i, j] = X[ids[expert, bx * block + i], j]
                else:
                    x[i, j] = 0.0
            T.clear(y)
            T.gemm(x, w, y)
            for i, j in T.Parallel(block, hidden):
                y[i, j] = y[i, j] * gates[expert, bx * block + i]
            T.copy(y, Y[expert, bx * block, 0])

    return main


def moe_inputs(rng):
    return [
        rng.standard_normal((20, 12)).astype("f4"),
        rng.standard_normal((3, 12, 9)).astype("f4"),
        rng.integers(0, 20, (3, 11), dtype=np.int32),
        rng.random((3, 11)).astype("f4"),
    ]


def moe_reference(X, W, ids, gates):
    return [np.einsum("ecw,ewh->ech", X[ids], W) * gates[..., None]]

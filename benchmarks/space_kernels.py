"""Six kernels of different families, whose spaces `benchmarks/record_spaces.py` records on a CPU.

Each has at least 500 configs with different Programs, and takes up to 2 ms at its only shape, which few
tiles divide.
"""

import numpy as np
import tilelang.language as T

import tileyard

LOG2_E = 1.4426950408889634


@tileyard.kernel(
    space={
        "block_M": [8, 16, 24, 32, 40, 48, 56, 64, 72, 80, 96, 112, 128, 160],
        "block_N": [16, 32, 48, 64, 80, 96, 112, 128, 144, 160, 192, 224, 256],
        "block_K": [32, 128, 384],
    },
    where=["block_M * block_N <= 24576"],
    shapes={"recorded": {"M": 300, "N": 500, "K": 384}},
    reference=lambda A, B: A @ B,
)
def product(M, N, K, block_M=64, block_N=64, block_K=32):
    """C (M x N) = A (M x K) @ B (K x N), float32."""

    @T.prim_func
    def main(
        A: T.Tensor((M, K), "float32"),
        B: T.Tensor((K, N), "float32"),
        C: T.Tensor((M, N), "float32"),
    ):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=128) as (bx, by):
            row, column = by * block_M, bx * block_N
            a = T.alloc_shared((block_M, block_K), "float32")
            b = T.alloc_shared((block_K, block_N), "float32")
            c = T.alloc_fragment((block_M, block_N), "float32")
            T.clear(c)
            for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=2):
                T.copy(A[row, k * block_K], a)
                T.copy(B[k * block_K, column], b)
                T.gemm(a, b, c)
            T.copy(c, C[row, column])

    return main


def dequantized_inputs(rng, M, N, K, group):
    """Scales are powers of two, so that no weight is rounded."""
    return [
        rng.standard_normal((M, K)).astype(np.float16),
        rng.integers(0, 256, (N, K // 2)).astype(np.uint8),
        (2.0 ** rng.integers(-2, 2, (N, K // group))).astype(np.float32),
    ]


def dequantized_reference(A, packed, scales):
    """The weights are those of the packed halves of bytes, minus 8."""
    halves = np.stack([packed & 15, packed >> 4], axis=-1).reshape(len(packed), -1)
    each = halves.shape[1] // scales.shape[1]
    weights = (halves.astype(np.float32) - 8) * np.repeat(scales, each, axis=1)
    return A.astype(np.float32) @ weights.T


@tileyard.kernel(
    space={
        "block_M": [8, 16, 24, 32, 40, 48, 56, 64, 72, 80, 96, 104, 112, 128],
        "block_N": [16, 32, 64, 128],
        "block_K": [64, 128, 256],
        "scales_sums": [False, True],
        "tile": ["float16", "float32"],
    },
    where=["block_M * block_N <= 8192"],
    shapes={"recorded": {"M": 140, "N": 384, "K": 512, "group": 256}},
    reference=dequantized_reference,
    inputs=dequantized_inputs,
)
def dequantized(
    M,
    N,
    K,
    group,
    block_M=32,
    block_N=64,
    block_K=64,
    scales_sums=False,
    tile="float16",
):
    """C (M x N) = A @ W^T, weights of four bits, one scale for a group: applied to weights or sums."""

    @T.prim_func
    def main(
        A: T.Tensor((M, K), "float16"),
        packed: T.Tensor((N, K // 2), "uint8"),
        scales: T.Tensor((N, K // group), "float32"),
        C: T.Tensor((M, N), "float32"),
    ):
        with T.Kernel(N // block_N, T.ceildiv(M, block_M), threads=128) as (bx, by):
            row, column = by * block_M, bx * block_N
            a = T.alloc_shared((block_M, block_K), tile)
            p = T.alloc_fragment((block_N, block_K // 2), "uint8")
            w = T.alloc_fragment((block_N, block_K), tile)
            part = T.alloc_fragment((block_M, block_N), "float32")
            c = T.alloc_fragment((block_M, block_N), "float32")
            T.clear(c)
            for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=2):
                T.copy(A[row, k * block_K], a)
                T.copy(packed[column, k * block_K // 2], p)
                if scales_sums:
                    for i, j in T.Parallel(block_N, block_K):
                        half = (p[i, j // 2] >> T.cast(j % 2 * 4, "uint8")) & T.uint8(15)
                        w[i, j] = T.cast(half, tile) - T.cast(8, tile)
                    T.gemm(a, w, part, transpose_B=True, clear_accum=True)
                    for i, j in T.Parallel(block_M, block_N):
                        c[i, j] += part[i, j] * scales[column + j, k * block_K // group]
                else:
                    for i, j in T.Parallel(block_N, block_K):
                        half = (p[i, j // 2] >> T.cast(j % 2 * 4, "uint8")) & T.uint8(15)
                        w[i, j] = (T.cast(half, tile) - T.cast(8, tile)) * T.cast(
                            scales[column + i, k * block_K // group], tile
                        )
                    T.gemm(a, w, c, transpose_B=True)
            T.copy(c, C[row, column])

    return main


def attention_reference(Q, K, V):
    """The same in NumPy."""
    scores = Q @ K.swapaxes(-1, -2) / np.sqrt(Q.shape[-1])
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True) @ V


@tileyard.kernel(
    space={
        "block_M": [8, 16, 24, 32, 40, 48, 64, 80, 96, 128, 192],
        "block_N": [8, 12, 18, 24, 30, 36, 40, 60, 72, 90, 120, 180],
        "scales_queries": [False, True],
        "finds_largest_first": [False, True],
    },
    where=["block_M * block_N >= 192"],
    shapes={"recorded": {"heads": 2, "seq_len": 360, "dim": 32}},
    reference=attention_reference,
)
def attention(
    heads,
    seq_len,
    dim,
    block_M=64,
    block_N=64,
    scales_queries=False,
    finds_largest_first=False,
):
    """O (heads x seq_len x dim) of float32, with the largest scores found on the way, or before."""
    shape = (heads, seq_len, dim)
    before, after = (LOG2_E / dim**0.5, 1.0) if scales_queries else (1.0, LOG2_E / dim**0.5)

    @T.prim_func
    def main(
        Q: T.Tensor(shape, "float32"),
        K: T.Tensor(shape, "float32"),
        V: T.Tensor(shape, "float32"),
        O: T.Tensor(shape, "float32"),
    ):
        with T.Kernel(T.ceildiv(seq_len, block_M), heads, threads=128) as (bx, head):
            row = bx * block_M
            q = T.alloc_shared((block_M, dim), "float32")
            k = T.alloc_shared((block_N, dim), "float32")
            v = T.alloc_shared((block_N, dim), "float32")
            scores = T.alloc_fragment((block_M, block_N), "float32")
            out = T.alloc_fragment((block_M, dim), "float32")
            largest = T.alloc_fragment((block_M,), "float32")
            previous = T.alloc_fragment((block_M,), "float32")
            shrink = T.alloc_fragment((block_M,), "float32")
            tile_sum = T.alloc_fragment((block_M,), "float32")
            total = T.alloc_fragment((block_M,), "float32")

            T.copy(Q[head, row, 0], q)
            if scales_queries:
                for i, j in T.Parallel(block_M, dim):
                    q[i, j] *= before
            T.clear(out)
            T.clear(total)
            T.fill(largest, -T.infinity("float32"))
            if finds_largest_first:
                for step in T.Pipelined(seq_len // block_N, num_stages=1):
                    T.copy(K[head, step * block_N, 0], k)
                    T.gemm(q, k, scores, transpose_B=True, clear_accum=True)
                    T.reduce_max(scores, largest, dim=1, clear=False)
            for step in T.Pipelined(seq_len // block_N, num_stages=1):
                T.copy(K[head, step * block_N, 0], k)
                T.gemm(q, k, scores, transpose_B=True, clear_accum=True)
                if not finds_largest_first:
                    T.copy(largest, previous)
                    T.reduce_max(scores, largest, dim=1, clear=False)
                    for i in T.Parallel(block_M):
                        shrink[i] = T.exp2((previous[i] - largest[i]) * after)
                for i, j in T.Parallel(block_M, block_N):
                    scores[i, j] = T.exp2((scores[i, j] - largest[i]) * after)
                T.reduce_sum(scores, tile_sum, dim=1)
                if finds_largest_first:
                    for i in T.Parallel(block_M):
                        total[i] += tile_sum[i]
                else:
                    for i in T.Parallel(block_M):
                        total[i] = total[i] * shrink[i] + tile_sum[i]
                    for i, j in T.Parallel(block_M, dim):
                        out[i, j] *= shrink[i]
                T.copy(V[head, step * block_N, 0], v)
                T.gemm(scores, v, out)
            for i, j in T.Parallel(block_M, dim):
                out[i, j] /= total[i]
            T.copy(out, O[head, row, 0])

    return main


def softmax_reference(X):
    """The same in NumPy."""
    shifted = np.exp(X - X.max(axis=1, keepdims=True))
    return shifted / shifted.sum(axis=1, keepdims=True)


@tileyard.kernel(
    space={
        "tile_rows": [1, 2, 3, 4, 6, 8, 12, 16, 24, 32],
        "tiles": [1, 3, 8],
        "block_N": [20, 24, 36, 48, 60, 72, 90, 120, 180, 240],
        "sums_on_the_way": [False, True],
    },
    where=["tile_rows * block_N >= 72", "tile_rows * tiles <= 128"],
    shapes={"recorded": {"M": 500, "N": 720}},
    reference=softmax_reference,
)
def softmax(M, N, tile_rows=4, tiles=1, block_N=120, sums_on_the_way=True):
    """Softmax of each row of X (M x N, float32), in tiles; sums are found with the maximum, or after it."""
    rows = tile_rows * tiles

    @T.prim_func
    def main(X: T.Tensor((M, N), "float32"), Y: T.Tensor((M, N), "float32")):
        with T.Kernel(T.ceildiv(M, rows), threads=128) as bx:
            x = T.alloc_fragment((tile_rows, block_N), "float32")
            tile_sum = T.alloc_fragment((tile_rows,), "float32")
            previous = T.alloc_fragment((tile_rows,), "float32")
            largest = T.alloc_fragment((tile_rows,), "float32")
            total = T.alloc_fragment((tile_rows,), "float32")
            for part in T.serial(tiles):
                row = bx * rows + part * tile_rows
                T.fill(largest, -T.infinity("float32"))
                T.clear(total)
                for n in T.serial(N // block_N):
                    T.copy(X[row, n * block_N], x)
                    if sums_on_the_way:
                        T.copy(largest, previous)
                    T.reduce_max(x, largest, dim=1, clear=False)
                    if sums_on_the_way:
                        for i, j in T.Parallel(tile_rows, block_N):
                            x[i, j] = T.exp2((x[i, j] - largest[i]) * LOG2_E)
                        T.reduce_sum(x, tile_sum, dim=1)
                        for i in T.Parallel(tile_rows):
                            total[i] = (
                                total[i] * T.exp2((previous[i] - largest[i]) * LOG2_E) + tile_sum[i]
                            )
                if not sums_on_the_way:
                    for n in T.serial(N // block_N):
                        T.copy(X[row, n * block_N], x)
                        for i, j in T.Parallel(tile_rows, block_N):
                            x[i, j] = T.exp2((x[i, j] - largest[i]) * LOG2_E)
                        T.reduce_sum(x, total, dim=1, clear=False)
                for n in T.serial(N // block_N):
                    T.copy(X[row, n * block_N], x)
                    for i, j in T.Parallel(tile_rows, block_N):
                        x[i, j] = T.exp2((x[i, j] - largest[i]) * LOG2_E) / total[i]
                    T.copy(x, Y[row, n * block_N])

    return main


def convolution_reference(X, F):
    """The same in NumPy."""
    height, width = X.shape[0] - 2, X.shape[1] - 2
    return sum(
        X[dy : dy + height, dx : dx + width] * F[dy, dx] for dy in range(3) for dx in range(3)
    )


@tileyard.kernel(
    space={
        "block_H": [1, 2, 3, 4, 6, 8, 12],
        "block_W": [4, 8, 12, 16, 20, 24, 32, 50],
        "block_C": [16, 32, 64],
        "is_staged": [False, True],
        "by_taps": [False, True],
    },
    where=["block_H * block_W * block_C >= 512", "block_H * block_W <= 400"],
    shapes={"recorded": {"H": 58, "W": 50, "C": 64}},
    reference=convolution_reference,
)
def convolution(H, W, C, block_H=4, block_W=16, block_C=32, is_staged=True, by_taps=False):
    """Each channel of X (H + 2 x W + 2 x C, float32) with its own filter of 3 x 3."""
    grid = (C // block_C, T.ceildiv(W, block_W), T.ceildiv(H, block_H))

    @T.prim_func
    def main(
        X: T.Tensor((H + 2, W + 2, C), "float32"),
        F: T.Tensor((3, 3, C), "float32"),
        Y: T.Tensor((H, W, C), "float32"),
    ):
        with T.Kernel(*grid, threads=128) as (bx, by, bz):
            top, left, low = bz * block_H, by * block_W, bx * block_C
            x = T.alloc_shared((block_H + 2, block_W + 2, block_C), "float32")
            y = T.alloc_fragment((block_H, block_W, block_C), "float32")
            if is_staged:
                T.copy(X[top, left, low], x)
            T.clear(y)
            if by_taps:
                for dy in T.serial(3):
                    for dx in T.serial(3):
                        for i, j, c in T.Parallel(block_H, block_W, block_C):
                            if is_staged:
                                y[i, j, c] += x[i + dy, j + dx, c] * F[dy, dx, low + c]
                            else:
                                y[i, j, c] += (
                                    X[top + i + dy, left + j + dx, low + c] * F[dy, dx, low + c]
                                )
            else:
                for i, j, c in T.Parallel(block_H, block_W, block_C):
                    for dy in T.unroll(3):
                        for dx in T.unroll(3):
                            if is_staged:
                                y[i, j, c] += x[i + dy, j + dx, c] * F[dy, dx, low + c]
                            else:
                                y[i, j, c] += (
                                    X[top + i + dy, left + j + dx, low + c] * F[dy, dx, low + c]
                                )
            T.copy(y, Y[top, left, low])

    return main


@tileyard.kernel(
    space={
        "block_M": [4, 8, 16, 32, 64, 128],
        "block_N": [4, 8, 16, 32, 64, 128],
        "way": ["rows", "columns", "tile_rows", "tile_columns"],
        "strips": [1, 2],
        "by_rows": [False, True],
    },
    where=["block_M * block_N >= 64"],
    shapes={"recorded": {"M": 768, "N": 768}},
    reference=lambda X: X.T * np.float32(0.5),
)
def transposition(M, N, block_M=32, block_N=32, way="rows", strips=1, by_rows=True):
    """Y (N x M) = X^T / 2, float32: directly or through a tile, along rows of X or of Y, in strips."""
    across, down = N // block_N, M // block_M
    fast, slow = (across, down) if by_rows else (down, across)
    width = block_N // strips

    @T.prim_func
    def main(X: T.Tensor((M, N), "float32"), Y: T.Tensor((N, M), "float32")):
        with T.Kernel(fast, slow, threads=128) as (first, second):
            row = (second if by_rows else first) * block_M
            x = T.alloc_shared((block_M, width), "float32")
            y = T.alloc_shared((width, block_M), "float32")
            for strip in T.serial(strips):
                column = (first if by_rows else second) * block_N + strip * width
                if way == "rows":
                    for i, j in T.Parallel(block_M, width):
                        Y[column + j, row + i] = X[row + i, column + j] * 0.5
                elif way == "columns":
                    for j, i in T.Parallel(width, block_M):
                        Y[column + j, row + i] = X[row + i, column + j] * 0.5
                else:
                    T.copy(X[row, column], x)
                    if way == "tile_rows":
                        for i, j in T.Parallel(block_M, width):
                            y[j, i] = x[i, j] * 0.5
                    else:
                        for j, i in T.Parallel(width, block_M):
                            y[j, i] = x[i, j] * 0.5
                    T.copy(y, Y[column, row])

    return main

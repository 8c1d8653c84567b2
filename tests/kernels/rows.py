"""One row at a time: norms, losses, the largest elements, rotations, casts."""

import numpy as np
import tilelang
import tilelang.language as T


@tilelang.jit(out_idx=[3])
def layer_norm(M, N, block_M=4, eps=1e-5):
    """Mean and variance of each row, then a weight and a shift for each column."""

    @T.prim_func
    def main(
        X: T.Tensor((M, N), "float16"),
        W: T.Tensor((N,), "float32"),
        B: T.Tensor((N,), "float32"),
        Y: T.Tensor((M, N), "float16"),
    ):
        with T.Kernel(T.ceildiv(M, block_M), threads=64) as bx:
            x = T.alloc_fragment((block_M, N), "float32")
            square = T.alloc_fragment((block_M, N), "float32")
            mean = T.alloc_fragment((block_M,), "float32")
            variance = T.alloc_fragment((block_M,), "float32")
            T.copy(X[bx * block_M, 0], x)
            T.reduce_sum(x, mean, dim=1)
            for i in T.Parallel(block_M):
                mean[i] = mean[i] / N
            for i, j in T.Parallel(block_M, N):
                x[i, j] = x[i, j] - mean[i]
                square[i, j] = x[i, j] * x[i, j]
            T.reduce_sum(square, variance, dim=1)
            for i, j in T.Parallel(block_M, N):
                x[i, j] = x[i, j] * T.rsqrt(variance[i] / N + eps) * W[j] + B[j]
            T.copy(x, Y[bx * block_M, 0])

    return main


def layer_norm_inputs(rng):
    X = rng.standard_normal((10, 24)).astype("f2")
    return [X, *(rng.standard_normal(24).astype("f4") for _ in range(2))]


def layer_norm_reference(X, W, B):
    wide = X.astype("f8")
    centred = wide - wide.mean(axis=1, keepdims=True)
    return [(centred / np.sqrt(wide.var(axis=1, keepdims=True) + 1e-5) * W + B).astype("f2")]


@tilelang.jit(out_idx=[2])
def cross_entropy(M, N, block_N=16):
    """The loss of each row: the logarithm of its sum less the element of its label."""

    @T.prim_func
    def main(
        X: T.Tensor((M, N), "float32"),
        labels: T.Tensor((M,), "int64"),
        Y: T.Tensor((M,), "float32"),
    ):
        with T.Kernel(M, threads=64) as bx:
            x = T.alloc_fragment((block_N,), "float32")
            largest = T.alloc_fragment((1,), "float32")
            before = T.alloc_fragment((1,), "float32")
            part = T.alloc_fragment((1,), "float32")
            total = T.alloc_fragment((1,), "float32")
            T.fill(largest, -T.infinity("float32"))
            T.clear(total)
            for n in T.serial(T.ceildiv(N, block_N)):
                for j in T.Parallel(block_N):
                    x[j] = T.if_then_else(
                        n * block_N + j < N, X[bx, n * block_N + j], -T.infinity("float32")
                    )
                T.copy(largest, before)
                T.reduce_max(x, largest, dim=0, clear=False)
                for j in T.Parallel(block_N):
                    x[j] = T.exp(x[j] - largest[0])
                T.reduce_sum(x, part, dim=0)
                total[0] = total[0] * T.exp(before[0] - largest[0]) + part[0]
            Y[bx] = T.log(total[0]) + largest[0] - X[bx, labels[bx]]

    return main


def cross_entropy_inputs(rng):
    return [rng.standard_normal((6, 41)).astype("f4"), rng.integers(0, 41, 6)]


def cross_entropy_reference(X, labels):
    return [np.log(np.exp(X).sum(axis=1)) - X[np.arange(6), labels]]


@tilelang.jit(out_idx=[1, 2])
def top_k(M, N, k, block_M=4):
    """The largest element again and again, each time without those before it."""

    @T.prim_func
    def main(
        X: T.Tensor((M, N), "float32"),
        values: T.Tensor((M, k), "float32"),
        places: T.Tensor((M, k), "int32"),
    ):
        with T.Kernel(T.ceildiv(M, block_M), threads=64) as bx:
            x = T.alloc_fragment((block_M, N), "float32")
            largest = T.alloc_fragment((block_M,), "float32")
            candidates = T.alloc_fragment((block_M, N), "int32")
            place = T.alloc_fragment((block_M,), "int32")
            T.copy(X[bx * block_M, 0], x)
            for step in T.serial(k):
                T.fill(candidates, -1)
                T.reduce_max(x, largest, dim=1, clear=True)
                for i, j in T.Parallel(block_M, N):
                    candidates[i, j] = T.if_then_else(largest[i] == x[i, j], j, candidates[i, j])
                T.reduce_max(candidates, place, dim=1, clear=True)
                for i, j in T.Parallel(block_M, N):
                    x[i, j] = T.if_then_else(largest[i] == x[i, j], -T.infinity("float32"), x[i, j])
                for i in T.Parallel(block_M):
                    values[bx * block_M + i, step] = largest[i]
                    places[bx * block_M + i, step] = place[i]

    return main


def top_k_inputs(rng):
    return [rng.permutation(10 * 24).reshape(10, 24).astype("f4")]


def top_k_reference(X):
    order = np.argsort(-X, axis=1)[:, :3]
    return [np.take_along_axis(X, order, axis=1), order.astype("i4")]


@tilelang.jit(out_idx=[3])
def rotate(length, heads, dim, block=8):
    """Pairs of elements turned by an angle that grows along the sequence."""

    @T.prim_func
    def main(
        X: T.Tensor((length, heads, dim), "bfloat16"),
        cos: T.Tensor((length, dim // 2), "float32"),
        sin: T.Tensor((length, dim // 2), "float32"),
        Y: T.Tensor((length, heads, dim), "bfloat16"),
    ):
        with T.Kernel(T.ceildiv(length, block), heads, threads=64) as (bx, by):
            for i, j in T.Parallel(block, dim):
                row = bx * block + i
                other = T.if_then_else(
                    j < dim // 2, -X[row, by, j + dim // 2], X[row, by, j - dim // 2]
                )
                if row < length:
                    Y[row, by, j] = (
                        T.cast(X[row, by, j], "float32") * cos[row, j % (dim // 2)]
                        + T.cast(other, "float32") * sin[row, j % (dim // 2)]
                    )

    return main


def rotate_inputs(rng):
    import ml_dtypes

    angles = np.outer(np.arange(20), 10.0 ** -np.arange(4))
    X = rng.standard_normal((20, 2, 8)).astype(ml_dtypes.bfloat16)
    return [X, np.cos(angles).astype("f4"), np.sin(angles).astype("f4")]


def rotate_reference(X, cos, sin):
    wide = X.astype("f4")
    turned = np.concatenate([-wide[..., 4:], wide[..., :4]], axis=-1)
    both = [np.concatenate([angle, angle], axis=1)[:, None] for angle in (cos, sin)]
    return [(wide * both[0] + turned * both[1]).astype(X.dtype)]


@tilelang.jit(out_idx=[1, 2])
def unpack_bits(N):
    """A float as its bits, seen as bytes; and a matrix read as a vector."""

    @T.prim_func
    def main(
        X: T.Tensor((N, 4), "float32"),
        signs: T.Tensor((N * 4,), "bool"),
        exponents: T.Tensor((N * 4,), "uint8"),
    ):
        with T.Kernel(1, threads=64):
            x = T.alloc_shared((N, 4), "float32")
            T.copy(X, x)
            flat = T.reshape(x, (N * 4,))
            bits = T.view(x, (N * 4,), dtype="uint32")
            for i in T.Parallel(N * 4):
                signs[i] = flat[i] < 0.0
                exponents[i] = T.cast((bits[i] >> T.uint32(23)) & T.uint32(255), "uint8")

    return main


def unpack_bits_inputs(rng):
    return [rng.standard_normal((5, 4)).astype("f4")]


def unpack_bits_reference(X):
    bits = X.reshape(-1).view(np.uint32)
    return [X.reshape(-1) < 0, ((bits >> 23) & 255).astype(np.uint8)]


@tilelang.jit(out_idx=[-1])
def runs(N, block=16):
    """Lengths of runs of equal numbers, found by a loop that ends early."""

    @T.prim_func
    def main(X: T.Tensor((N,), "int32"), Y: T.Tensor((N,), "int32")):
        with T.Kernel(T.ceildiv(N, block), threads=64) as bx:
            for i in T.serial(block):
                count = T.alloc_var("int32")
                count = 0
                if bx * block + i < N:
                    for j in T.serial(N):
                        if bx * block + i + j >= N:
                            break
                        if X[bx * block + i + j] != X[bx * block + i]:
                            break
                        count += 1
                    Y[bx * block + i] = count

    return main


def runs_inputs(rng):
    return [rng.integers(0, 2, 40, dtype=np.int32)]


def runs_reference(X):
    Y = [next((j for j in range(i, 40) if X[j] != X[i]), 40) - i for i in range(40)]
    return [np.array(Y, np.int32)]

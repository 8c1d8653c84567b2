"""Kernels that treat each element alone: sums, activations, integers, control flow."""

import math

import numpy as np
import tilelang
import tilelang.language as T


@tilelang.jit(out_idx=[-1])
def add(M, N, block_M=32, block_N=32, in_dtype="float32", out_dtype="float32"):
    @T.prim_func
    def main(
        A: T.Tensor((M, N), in_dtype),
        B: T.Tensor((M, N), in_dtype),
        C: T.Tensor((M, N), out_dtype),
    ):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=128) as (bx, by):
            A_shared = T.alloc_shared((block_M, block_N), in_dtype)
            B_shared = T.alloc_shared((block_M, block_N), in_dtype)
            C_local = T.alloc_fragment((block_M, block_N), out_dtype)
            T.copy(A[by * block_M, bx * block_N], A_shared)
            T.copy(B[by * block_M, bx * block_N], B_shared)
            for i, j in T.Parallel(block_M, block_N):
                C_local[i, j] = A_shared[i, j] + B_shared[i, j]
            T.copy(C_local, C[by * block_M, bx * block_N])

    return main


def add_reference(A, B):
    return A + B


@tilelang.jit(out_idx=[-1])
def gelu(N, block=64):
    """Elements are read and written straight from global memory, past its end in the last block."""

    @T.prim_func
    def main(X: T.Tensor((N,), "float32"), Y: T.Tensor((N,), "float32")):
        with T.Kernel(T.ceildiv(N, block), threads=128) as bx:
            for i in T.Parallel(block):
                Y[bx * block + i] = (
                    0.5 * X[bx * block + i] * (1.0 + T.erf(X[bx * block + i] * 0.7071067811865476))
                )

    return main


def gelu_reference(X):
    erf = np.array([math.erf(x / math.sqrt(2.0)) for x in X.astype(np.float64)])
    return (0.5 * X * (1.0 + erf)).astype(np.float32)


@tilelang.jit(out_idx=[-1])
def functions(N):
    """One row for each function of the scalar language."""

    @T.prim_func
    def main(X: T.Tensor((N,), "float32"), Y: T.Tensor((22, N), "float32")):
        with T.Kernel(1, threads=64):
            for i in T.Parallel(N):
                Y[0, i] = T.exp(X[i])
                Y[1, i] = T.exp2(X[i])
                Y[2, i] = T.exp10(X[i])
                Y[3, i] = T.log(T.abs(X[i]))
                Y[4, i] = T.log2(T.abs(X[i]))
                Y[5, i] = T.log10(T.abs(X[i]))
                Y[6, i] = T.log1p(T.abs(X[i]))
                Y[7, i] = T.sqrt(T.abs(X[i]))
                Y[8, i] = T.rsqrt(T.abs(X[i]))
                Y[9, i] = T.tanh(X[i])
                Y[10, i] = T.sin(X[i])
                Y[11, i] = T.cos(X[i])
                Y[12, i] = T.tan(X[i])
                Y[13, i] = T.sigmoid(X[i])
                Y[14, i] = T.pow(T.abs(X[i]), 1.5)
                Y[15, i] = T.floor(X[i])
                Y[16, i] = T.ceil(X[i])
                Y[17, i] = T.round(X[i])
                Y[18, i] = T.trunc(X[i])
                Y[19, i] = T.fmod(X[i], 0.75)
                Y[20, i] = T.atan2(X[i], 0.5)
                Y[21, i] = T.clamp(-X[i], -1.0, 1.0)

    return main


def functions_reference(X):
    wide, size = X.astype(np.float64), np.abs(X.astype(np.float64))
    rows = [
        *(np.exp(wide), np.exp2(wide), 10.0**wide, np.log(size), np.log2(size), np.log10(size)),
        *(np.log1p(size), np.sqrt(size), 1 / np.sqrt(size), np.tanh(wide), np.sin(wide)),
        *(np.cos(wide), np.tan(wide), 1 / (1 + np.exp(-wide)), size**1.5, np.floor(wide)),
        *(np.ceil(wide), np.rint(wide), np.trunc(wide), np.fmod(wide, 0.75)),
        *(np.arctan2(wide, 0.5), np.clip(-wide, -1, 1)),
    ]
    return np.stack(rows).astype(np.float32)


@tilelang.jit(out_idx=[-1])
def integers(N):
    """One row for each operation on integers."""

    @T.prim_func
    def main(X: T.Tensor((N,), "int32"), Y: T.Tensor((11, N), "int32")):
        with T.Kernel(1, threads=64):
            for i in T.Parallel(N):
                Y[0, i] = X[i] // 7
                Y[1, i] = X[i] % 7
                Y[2, i] = T.truncdiv(X[i], 7)
                Y[3, i] = T.truncmod(X[i], 7)
                Y[4, i] = T.min(T.max(X[i], -3), 3)
                Y[5, i] = (X[i] & 12) | (X[i] ^ 5)
                Y[6, i] = ~X[i]
                Y[7, i] = (X[i] << 2) + (X[i] >> 1)
                Y[8, i] = T.cast(X[i] > 2, "int32")
                Y[9, i] = T.abs(X[i]) * 2147483647
                Y[10, i] = T.cast(T.cast(X[i], "float32") * 0.4, "int32")

    return main


def integers_reference(X):
    truncated = np.fix(X / 7).astype(np.int32)
    with np.errstate(over="ignore"):
        rows = [
            *(X // 7, X % 7, truncated, X - 7 * truncated, np.clip(X, -3, 3)),
            *((X & 12) | (X ^ 5), ~X, (X << 2) + (X >> 1), (X > 2).astype(np.int32)),
            np.abs(X) * np.int32(2147483647),
            np.trunc(X.astype(np.float32) * np.float32(0.4)).astype(np.int32),
        ]
    return np.stack(rows)


@tilelang.jit(out_idx=[-1])
def collatz(N, block=16):
    """Steps until each number reaches 1, at most 100: a while loop that is also left by a break."""

    @T.prim_func
    def main(X: T.Tensor((N,), "int32"), Y: T.Tensor((N,), "int32")):
        with T.Kernel(T.ceildiv(N, block), threads=32) as bx:
            for i in T.serial(block):
                number = T.alloc_var("int32", init=X[bx * block + i])
                steps = T.alloc_var("int32", init=0)
                while number > 1:
                    if number % 2 == 0:  # noqa: SIM108 (the branch is what is shown here)
                        number = number // 2
                    else:
                        number = number * 3 + 1
                    steps += 1
                    if steps >= 100:
                        break
                Y[bx * block + i] = steps

    return main


def collatz_reference(X):
    def steps(number):
        count = 0
        while number > 1 and count < 100:
            number = number // 2 if number % 2 == 0 else number * 3 + 1
            count += 1
        return count

    return np.array([steps(int(x)) for x in X], dtype=np.int32)


@tilelang.jit
def scale_in_place(N, block=32):
    """Reads and writes its one array; odd blocks are left alone."""

    @T.prim_func
    def main(X: T.Tensor((N,), "float32"), factor: T.float32):
        with T.Kernel(T.ceildiv(N, block), threads=32) as bx:
            X_local = T.alloc_fragment((block,), "float32")
            if bx % 2 == 0:
                T.copy(X[bx * block], X_local)
                for i in T.Parallel(block):
                    X_local[i] *= factor
                T.copy(X_local, X[bx * block])

    return main


def scale_in_place_reference(X, factor, block=32):
    even = (np.arange(X.size) // block) % 2 == 0
    return np.where(even, X * np.float32(factor), X)


@tilelang.jit
def narrow_integers(N, block=64):
    """Integers of 8 and 16 bits whose sums, products and shifts leave their type on the way."""

    @T.prim_func
    def main(
        A: T.Tensor((N,), "uint16"),
        B: T.Tensor((N,), "uint16"),
        S: T.Tensor((N,), "int8"),
        Pairs: T.Tensor((N,), "uint32"),
        Means: T.Tensor((N,), "uint16"),
        Squares: T.Tensor((N,), "int32"),
        Thirds: T.Tensor((N,), "float32"),
        Less: T.Tensor((N,), "uint16"),
        Cut: T.Tensor((N,), "uint16"),
        Total: T.Tensor((1,), "int32"),
    ):
        with T.Kernel(T.ceildiv(N, block), threads=32) as bx:
            for i in T.Parallel(block):
                n = bx * block + i
                Pairs[n] = (A[n] << 16) + B[n]
                Means[n] = (A[n] + B[n]) >> 1
                Squares[n] = S[n] * S[n] + T.if_then_else(S[n] > 3, S[n] + S[n], -S[n])
                Thirds[n] = T.cast(S[n] * 2 // 3, "float32")
                Less[n] = T.if_then_else(A[n] - B[n] < 0, T.max(A[n] - B[n], 5), ~B[n] >> 2)
                Cut[n] = (A[n] << 16) + A[n] * B[n]
                T.atomic_add(Total[0], S[n] * S[n])

    return main


def narrow_integers_inputs(rng):
    A, B = (rng.integers(0, 1 << 16, 200).astype(np.uint16) for _ in range(2))
    return [A, B, rng.integers(-128, 128, 200).astype(np.int8), np.zeros(1, np.int32)]


def narrow_integers_reference(A, B, S, Total):
    a, b, s = (x.astype(np.int64) for x in (A, B, S))
    squares = s * s
    return [
        ((a << 16) + b).astype(np.uint32),
        ((a + b) >> 1).astype(np.uint16),
        (squares + np.where(s > 3, 2 * s, -s)).astype(np.int32),
        (s * 2 // 3).astype(np.float32),
        np.where(a < b, 5, ~b >> 2).astype(np.uint16),
        (a * b).astype(np.uint16),
        (Total + squares.sum()).astype(np.int32),
    ]

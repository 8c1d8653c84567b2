"""Kernels in every style that can be found in a file: none of them knows of Tileyard."""

import tilelang
import tilelang.language as T
import torch


@tilelang.jit(out_idx=-1)
def scale(N, rows=None, block=64, dtype="float32"):
    """Lazy style: two numbers, and a size if nobody gives it, are known only when it runs."""
    m = T.dynamic("m") if rows is None else rows

    @T.prim_func
    def main(A: T.Tensor((m, N), dtype), s: T.float32, n: T.int32, B: T.Tensor((m, N), dtype)):
        with T.Kernel(T.ceildiv(N, block), m, threads=128) as (bx, by):
            for i in T.Parallel(block):
                B[by, bx * block + i] = A[by, bx * block + i] * s + n

    return main


@tilelang.jit
def add_number(A, B, n: T.int32, block: int = 64):
    """Eager style, in which the output is a parameter."""
    M = T.const("M")
    A: T.Tensor[[M], T.float32]
    B: T.Tensor[[M], T.float32]
    with T.Kernel(T.ceildiv(M, block), threads=128) as bx:
        for i in T.Parallel(block):
            B[bx * block + i] = A[bx * block + i] + n


def list_configs(rows, columns, *_):
    """As TileLang calls it: with the arguments of the call, whatever their names."""
    policies = (T.GemmWarpPolicy.Square, T.GemmWarpPolicy.FullRow)
    return [{"block_M": rows // 2, "block_N": columns // 2, "policy": p} for p in policies]


@tilelang.autotune(configs=list_configs, ref_prog=lambda A, B: A.float() @ B.float(), rtol=0.1)
@tilelang.jit(out_idx=[-1], pass_configs={tilelang.PassConfigKey.TL_DISABLE_TMA_LOWER: True})
def tuned_gemm(M, N, K, block_M=None, block_N=None, policy=None, dtype=T.float16):
    """Lazy style with configs that depend on the arguments."""

    @T.prim_func
    def main(A: T.Tensor((M, K), dtype), B: T.Tensor((K, N), dtype), C: T.Tensor((M, N), dtype)):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=128) as (bx, by):
            a = T.alloc_shared((block_M, K), dtype)
            b = T.alloc_shared((K, block_N), dtype)
            c = T.alloc_fragment((block_M, block_N), "float32")
            T.copy(A[by * block_M, 0], a)
            T.copy(B[0, bx * block_N], b)
            T.clear(c)
            T.gemm(a, b, c, policy=policy)
            T.copy(c, C[by * block_M, bx * block_N])

    return main


def supply(params):
    """Inputs as TileLang asks for them: one tensor for each parameter."""
    return [torch.full(tuple(p.shape), 2, dtype=p.torch_dtype()) for p in params]


@tilelang.autotune(
    configs=[
        {"block": 64, "pass_configs": {tilelang.PassConfigKey.TL_DISABLE_WARP_SPECIALIZED: True}},
        {"block": 128, "pass_configs": None},
    ],
    ref_prog=lambda A: A.mul(2),
    supply_prog=supply,
)
@tilelang.jit
def tuned_double(A, block: int = 64):
    """Eager style that makes its output."""
    M = T.const("M")
    A: T.Tensor[[M], T.float32]
    B = T.empty((M,), "float32")
    with T.Kernel(T.ceildiv(M, block), threads=128) as bx:
        for i in T.Parallel(block):
            B[bx * block + i] = A[bx * block + i] * 2.0
    return B


@tilelang.autotune(configs=[{"block": 64}], ref_prog=lambda A: A, skip_check=True)
@tilelang.jit(out_idx=[-1])
def unchecked(M, block=None):
    """A kernel whose author does not want it checked."""

    @T.prim_func
    def main(A: T.Tensor((M,), "float32"), B: T.Tensor((M,), "float32")):
        with T.Kernel(T.ceildiv(M, block), threads=128) as bx:
            for i in T.Parallel(block):
                B[bx * block + i] = A[bx * block + i]

    return main

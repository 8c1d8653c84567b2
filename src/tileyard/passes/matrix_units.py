"""Which products the matrix units can do: ``wgmma`` of four warps, ``mma.sync`` of one. Source: PTX
ISA, "Asynchronous Warpgroup Level Matrix Multiply-Accumulate Instructions" and "Warp Level Matrix
Multiply-Accumulate Instructions".
"""

from collections.abc import Mapping
from dataclasses import dataclass

from tileyard.ir.dtypes import find_dtype
from tileyard.ir.nodes import Buffer, Const, Expr, Product

_FLOAT8 = ("float8_e4m3fn", "float8_e5m2")
_INT8 = ("int8", "uint8")

WGMMA: dict[str, tuple[str, ...]] = {
    "float16": ("float16", "float32"),
    "bfloat16": ("float32",),
    "tfloat32": ("float32",),
    **dict.fromkeys(_FLOAT8, ("float16", "float32")),
    **dict.fromkeys(_INT8, ("int32",)),
}
"""Types of the sum, by the type of the operands."""

MMA: dict[str, tuple[str, ...]] = {
    "float16": ("float16", "float32"),
    "bfloat16": ("float32",),
    "tfloat32": ("float32",),
    "float32": ("float32",),  # rounded to tfloat32, as TileLang does
    "float64": ("float64",),
    **dict.fromkeys(_INT8, ("int32",)),
}

WARPGROUP, WARP = 128, 32
"""Number of threads."""

WGMMA_M, WGMMA_N, WGMMA_K_BYTES = 64, 8, 32
"""Rows of a product, the number that divides its columns, and bytes of a row of ``a``."""

MMA_M, MMA_N, MMA_K_BYTES = 16, 8, 16


@dataclass(frozen=True, kw_only=True)
class _Product:
    """A product: types of operands and sum, sizes, scopes of operands, and how many threads compute it."""

    types: tuple[str, str, str]
    scopes: tuple[str, str, str]
    is_k_major: bool
    m: int
    n: int
    k: int
    threads: int

    def why_not(self, sums: Mapping[str, tuple[str, ...]]) -> str:
        a, b, c = self.types
        is_pair = a == b or {a, b} <= {*_INT8} or {a, b} <= {*_FLOAT8}
        return "" if is_pair and c in sums.get(a, ()) else f"it does not add {a} x {b} to {c}"


def why_not_wgmma(stmt: Product, buffers: Mapping[str, Buffer], threads: int) -> str:
    """Why ``wgmma`` cannot do a product with this number of threads; empty if it can."""
    product = _read(stmt, buffers, threads)
    if product is None:
        return "its sizes are not constant"
    bits = find_dtype(product.types[0]).bits
    step = WGMMA_K_BYTES * 8 // bits * stmt.sparsity
    reasons = {
        product.why_not(WGMMA): product.why_not(WGMMA),
        "b is not in shared memory": product.scopes[1] != "shared",
        "a is neither in shared memory nor in registers": product.scopes[0]
        not in ("shared", "fragment"),
        "operands of this type are multiplied along their rows only": bits != 16
        and not product.is_k_major,
        f"{threads} threads are no groups of four warps": threads % WARPGROUP,
        f"its {product.m} rows are not a multiple of {WGMMA_M}": product.m % WGMMA_M,
        f"its {product.n} columns are not a multiple of {WGMMA_N}": product.n % WGMMA_N,
        f"its depth of {product.k} is not a multiple of {step}": product.k % step,
    }
    return next((reason for reason, is_given in reasons.items() if is_given), "")


def why_not_mma(stmt: Product, buffers: Mapping[str, Buffer], threads: int) -> str:
    """Why ``mma.sync`` cannot do a product with this number of threads; empty if it can."""
    product = _read(stmt, buffers, threads)
    if product is None:
        return "its sizes are not constant"
    bits = find_dtype(product.types[0]).bits
    step = (4 if bits == 64 else MMA_K_BYTES * 8 // bits) * stmt.sparsity
    reasons = {
        product.why_not(MMA): product.why_not(MMA),
        f"{threads} threads are no warps": threads % WARP,
        f"its {product.m} rows are not a multiple of {MMA_M}": product.m % MMA_M,
        f"its {product.n} columns are not a multiple of {MMA_N}": product.n % MMA_N,
        f"its depth of {product.k} is not a multiple of {step}": product.k % step,
    }
    return next((reason for reason, is_given in reasons.items() if is_given), "")


def _read(stmt: Product, buffers: Mapping[str, Buffer], threads: int) -> _Product | None:
    """The product of a statement."""
    a, b, c = (buffers[region.buffer] for region in (stmt.a, stmt.b, stmt.c))
    n, k = _sizes(stmt.b.extents[-2:], is_turned=not stmt.transpose_b)
    m, _ = _sizes(stmt.c.extents[-2:], is_turned=False)
    if not (m and n and k):
        return None
    return _Product(
        types=(a.dtype, b.dtype, c.dtype),
        scopes=(a.scope, b.scope, c.scope),
        is_k_major=not stmt.transpose_a and stmt.transpose_b,
        m=m,
        n=n,
        k=k,
        threads=threads,
    )


def _sizes(extents: tuple[Expr, ...], *, is_turned: bool) -> tuple[int, int]:
    """Two extents, the second one first if ``is_turned``; 0 for a non-constant one."""
    first, second = (int(e.value) if isinstance(e, Const) else 0 for e in extents)
    return (second, first) if is_turned else (first, second)

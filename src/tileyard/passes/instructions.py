"""Chooses the unit that carries out a tile operation on an architecture, and says why no better one
does. It is the only place that chooses: the planning passes ask here.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from tileyard.base.errors import UsageError
from tileyard.base.model import Record
from tileyard.ir.dtypes import find_dtype
from tileyard.ir.nodes import (
    Buffer,
    Cast,
    Const,
    Copy,
    Expr,
    Op,
    Product,
    Program,
    Roles,
    Stmt,
    Var,
)
from tileyard.ir.walk import walk
from tileyard.passes.bank_conflicts import count_together, is_known_swizzle
from tileyard.passes.storage import Storage

SIZES = (16, 8, 4)
"""Numbers of bytes that ``cp.async`` moves at once. Source and destination are aligned to this number."""
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
Instruction = Literal["tma", "cp_async", "copy", "wgmma", "mma", "fma"]
"""``copy`` goes through registers, ``fma`` multiplies without a matrix unit."""
LoadRule = Callable[[Copy, Buffer, Buffer, Mapping[str, Expr]], str]
ProductRule = Callable[[Product, Mapping[str, Buffer], int], str]
"""Returns why a unit cannot do a product; empty if it can."""


TMA_BYTES, TMA_BOX, TMA_RANK = 16, 256, 5
"""Bytes to which TMA aligns addresses, strides and rows; largest side of its boxes; largest rank."""


def why_not_cp_async(copy: Copy, src: Buffer, dst: Buffer, lets: Mapping[str, Expr]) -> str:
    """Why ``cp.async`` cannot do ``copy``, without conversion and 4, 8 or 16 bytes at once; empty if it can.

    ``lets`` are the values of variables by name.
    """
    if src.dtype != dst.dtype:
        return f"it converts {src.dtype} to {dst.dtype}"
    size = find_dtype(src.dtype).bits // 8
    count = _count_contiguous(copy, src, dst, lets)
    together = count_together(dst)
    if together < min(SIZES):
        return f"cp.async moves 4, 8 or 16 bytes, and the layout of {dst.name} leaves {together} together"
    if any(count * size % each == 0 for each in SIZES):
        return ""
    return (
        f"cp.async moves 4, 8 or 16 aligned bytes, and {src.name} has {count * size} in a row here"
    )


def _count_contiguous(copy: Copy, src: Buffer, dst: Buffer, lets: Mapping[str, Expr]) -> int:
    """The number of elements that are certain to be contiguous, and to begin at a multiple of this number."""
    if src.strides and src.strides[-1] != Const(1, src.strides[-1].dtype):
        return 1
    if not copy.dst.extents or copy.src.extents[-1] != copy.dst.extents[-1]:
        return 1
    outer = src.strides[-2:-1] if src.strides else src.shape[-1:] if len(src.shape) > 1 else ()
    parts = [copy.dst.extents[-1], dst.shape[-1], copy.src.starts[-1], *outer]
    return math.gcd(*(_find_divisor(part, lets) for part in parts))


def why_not_tma(copy: Copy, src: Buffer, dst: Buffer, lets: Mapping[str, Expr]) -> str:
    """Why the tensor memory accelerator cannot do ``copy``; empty if it can. ``lets`` are the values of
    variables by name.
    """
    if src.dtype != dst.dtype:
        return f"it converts {src.dtype} to {dst.dtype}"
    if src.dtype == "bool":
        return "TMA has no elements of type bool"
    if len(src.shape) > TMA_RANK:
        return f"TMA takes arrays of {TMA_RANK} dimensions at most, and {src.name} has {len(src.shape)}"
    bits, aligned = find_dtype(src.dtype).bits, TMA_BYTES * 8
    if src.strides and src.strides[-1] != Const(1, src.strides[-1].dtype):
        return f"the elements of a row of {src.name} are not one after the other"
    if any(stride * bits % aligned for stride in _strides(src, lets)):
        return f"TMA needs strides of 16 bytes, and those of {src.name} are not known to be"
    if copy.src.extents[-1:] != copy.dst.extents[-1:]:
        return f"a row of the tile is not one of {src.name}"
    row = _find_divisor(copy.src.extents[-1], lets)
    if row * bits % aligned:
        return f"TMA copies rows of 16 bytes, and {row} elements of {src.dtype} are none"
    if not is_known_swizzle(dst):
        return f"TMA knows rows and its own swizzles, and {dst.name} has another layout"
    is_one_row = all(extent == Const(1, extent.dtype) for extent in copy.src.extents[:-1])
    if is_one_row and _find_divisor(copy.src.starts[-1], lets) * bits % aligned:
        where = f"and this one of {src.name} may begin elsewhere"
        return f"TMA copies one row from a multiple of 16 bytes, {where}"
    for extent in copy.src.extents:
        if not isinstance(extent, Const) or int(extent.value) > TMA_BOX:
            return f"a side of the box has more than {TMA_BOX} elements"
    return ""


def _strides(src: Buffer, lets: Mapping[str, Expr]) -> list[int]:
    """For each dimension but the last a number that divides its stride in elements."""
    if src.strides:
        return [_find_divisor(stride, lets) or 1 for stride in src.strides[:-1]]
    found, product = list[int](), 1
    for extent in reversed(src.shape[1:]):
        product *= _find_divisor(extent, lets)
        found.append(product)
    return found


def _find_divisor(expr: Expr, lets: Mapping[str, Expr]) -> int:
    """A number that certainly divides ``expr``, to prove that addresses are aligned; 0 if ``expr`` is 0."""
    match expr:
        case Const(value=value):
            return abs(int(value))
        case Var(name=name) if name in lets:
            return _find_divisor(lets[name], lets)
        case Cast(value=value):
            return _find_divisor(value, lets)
        case Op(name="mul", args=(a, b)):
            return _find_divisor(a, lets) * _find_divisor(b, lets)
        case Op(name="floordiv" | "truncdiv", args=(a, Const(value=by))) if int(by) > 0:
            whole, left = divmod(_find_divisor(a, lets), int(by))
            return 1 if left else whole
        case Op(name="add" | "sub" | "min" | "max", args=(a, b)):
            return math.gcd(_find_divisor(a, lets), _find_divisor(b, lets))
        case _:
            return 1


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


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """Units that load tiles and that multiply, the best first; a block's limits: bytes of shared
    memory, threads. Source of the limits: CUDA C++ Programming Guide, "Technical Specifications per
    Compute Capability".
    """

    name: str
    loads: tuple[tuple[Instruction, LoadRule], ...]
    products: tuple[tuple[Instruction, ProductRule], ...]
    shared_bytes: int
    threads: int = 1024

    @property
    def has_tma(self) -> bool:
        """Whether copies can go by TMA."""
        return any(instruction == "tma" for instruction, _ in self.loads)

    def without_tma(self) -> "Architecture":
        """The same rules without those of TMA."""
        return replace(self, loads=tuple(rule for rule in self.loads if rule[0] != "tma"))


ARCHITECTURES = {
    one.name: one
    for one in (
        Architecture(
            name="sm_80",
            loads=(("cp_async", why_not_cp_async),),
            products=(("mma", why_not_mma),),
            shared_bytes=163 * 1024,
        ),
        Architecture(
            name="sm_90a",
            loads=(("tma", why_not_tma), ("cp_async", why_not_cp_async)),
            products=(("wgmma", why_not_wgmma), ("mma", why_not_mma)),
            shared_bytes=227 * 1024,
        ),
    )
}


class Choice(Record):
    """A unit, and a reason against each of the better ones."""

    instruction: Instruction
    reason: str = ""


def find_architecture(name: str) -> Architecture:
    """The rules of an architecture. Raises UsageError."""
    if name not in ARCHITECTURES:
        known = ", ".join(ARCHITECTURES)
        raise UsageError(f"there are no rules for {name!r}", f"there are those of {known}")
    return ARCHITECTURES[name]


def choose_load(copy: Copy, storage: Storage, arch: Architecture) -> Choice:
    """The unit that fills a tile in shared memory from an array."""
    src, dst = (storage.buffers[region.buffer] for region in (copy.src, copy.dst))
    reasons = list[str]()
    for instruction, rule in arch.loads:
        reason = rule(copy, src, dst, storage.lets)
        if not reason:
            return Choice(instruction=instruction, reason="; ".join(reasons))
        reasons.append(reason)
    return Choice(instruction="copy", reason="; ".join(dict.fromkeys(reasons)))


def choose_product(stmt: Product, storage: Storage, arch: Architecture) -> Choice:
    """The unit that multiplies, for all threads that run ``stmt``."""
    threads, reasons = count_threads(storage.program, stmt), list[str]()
    for instruction, rule in arch.products:
        reason = rule(stmt, storage.buffers, threads)
        if not reason:
            return Choice(instruction=instruction, reason="; ".join(reasons))
        reasons.append(f"not {instruction}: {reason}")
    return Choice(instruction="fma", reason="; ".join(reasons))


def is_load(copy: Copy, storage: Storage) -> bool:
    """Whether a copy fills a tile in shared memory from an array."""
    scopes = (storage.buffers[region.buffer].scope for region in (copy.src, copy.dst))
    return tuple(scopes) == ("global", "shared")


def block_of(program: Program) -> tuple[int, ...]:
    """The threads of a block in each dimension; TileLang's default if the kernel sets none."""
    return program.threads or (128, 1, 1)


def count_threads(program: Program, stmt: Stmt | None = None) -> int:
    """The number of threads of a block; with a ``stmt``, of the role that runs it, if any."""
    roles = (one for one in walk(program.body) if stmt and isinstance(one, Roles))
    for one in roles:
        for body, ranges in zip(one.bodies, one.threads, strict=False):
            if any(inner is stmt for inner in walk(body)):
                return sum(end - first for first, end in ranges)
    return math.prod(block_of(program))

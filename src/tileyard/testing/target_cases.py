"""Programs that every target must build and run like the interpreter, each with its arrays."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import ml_dtypes
import numpy as np

from tileyard.artifacts.manifest import Artifact, Build, Manifest
from tileyard.artifacts.objects import ObjectStore
from tileyard.base.model import BuildKey, Device, Elaborated, Kernel, Outcome, Value
from tileyard.ir.dtypes import DTYPES, TENSOR_FLOAT, find_dtype
from tileyard.ir.meanings import OPS, explain_misuse
from tileyard.ir.nodes import Buffer, Cast, Const, Expr, For, Load, Op, Program, Store, Tensor, Var
from tileyard.ir.printer import print_program
from tileyard.ir.reader import read_program
from tileyard.ir.specs import scalar_params, tensor_specs
from tileyard.targets.base import Array, Loaded, Source, Target

_COUNT = 96
_SHIFTS = frozenset({"shl", "shr", "floordiv", "floormod", "truncdiv", "truncmod"})
_RESULTS = ("float32", "float64", "int32", "uint8", "bool")
"""Result types for ``reinterpret`` and similar operations."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TargetCase:
    """A Program's text with its dimensions, scalars and arrays ``values``, random if empty. Floats
    may differ from the interpreter's by ``rtol`` of an array's largest number, for sums, or by
    ``ulps`` units in the last place.
    """

    text: str
    dims: dict[str, int]
    scalars: Sequence[Value] = ()
    rtol: float = 0.0
    ulps: int = 0
    values: tuple[Array, ...] = ()

    @property
    def program(self) -> Program:
        """The Program of the text."""
        return read_program(self.text)

    def arrays(self) -> list[Array]:
        """Arrays for the tensors that are read, the same each time."""
        if self.values:
            return list(self.values)
        return random_arrays(np.random.default_rng(7), self.program, self.dims)


def random_arrays(
    rng: np.random.Generator, program: Program, dims: Mapping[str, int]
) -> list[Array]:
    """One array of small numbers per tensor that is read."""
    return [
        random_array(rng, spec.dtype, spec.shape)
        for spec in tensor_specs(program, dims)
        if spec.role != "out"
    ]


def random_array(rng: np.random.Generator, dtype: str, shape: tuple[int, ...]) -> Array:
    """Small numbers of a scalar type."""
    kind = find_dtype(dtype)
    if kind.kind == "bool":
        return rng.integers(0, 2, shape).astype(np.bool_)
    if kind.is_float:
        return rng.standard_normal(shape).astype(kind.numpy)
    low, high = kind.range
    return rng.integers(max(low, -9), min(high, 9), shape, endpoint=True).astype(kind.numpy)


def gemm_case(
    dtype: str, result: str, flips: tuple[bool, bool], sizes: tuple[int, int, int]
) -> TargetCase:
    """A gemm of one block through shared tiles."""
    m, n, k = sizes
    a = (k, m) if flips[0] else (m, k)
    b = (n, k) if flips[1] else (k, n)
    options = f"transpose_a={flips[0]}, transpose_b={flips[1]}"
    text = f"""
def gemm(A: {dtype}[{a[0]}, {a[1]}], B: {dtype}[{b[0]}, {b[1]}], C: inout.{result}[{m}, {n}]):
    threads(128)
    A_shared: shared.{dtype}[{a[0]}, {a[1]}]
    B_shared: shared.{dtype}[{b[0]}, {b[1]}]
    C_local: fragment.{result}[{m}, {n}]
    copy(A, A_shared)
    copy(B, B_shared)
    copy(C, C_local)
    gemm(A_shared, B_shared, C_local, {options})
    copy(C_local, C)
"""
    narrow = {"float16": 2e-3, "bfloat16": 2e-2, "float32": 1e-6, "float64": 1e-14}.get(result, 0.0)
    return TargetCase(text=text, dims={}, rtol=narrow)


GEMMS = {
    f"{dtype} {m}x{n}x{k}{' At' if ta else ''}{' Bt' if tb else ''} into {result}": gemm_case(
        dtype, result, (ta, tb), (m, n, k)
    )
    for dtype, result, (m, n, k), (ta, tb) in [
        ("float32", "float32", (64, 48, 32), (False, False)),
        ("float32", "float32", (13, 37, 29), (False, False)),
        ("float32", "float32", (13, 37, 29), (True, False)),
        ("float32", "float32", (13, 37, 29), (False, True)),
        ("float32", "float32", (13, 37, 29), (True, True)),
        ("float32", "float32", (70, 20, 600), (False, False)),
        ("float32", "float32", (300, 24, 300), (False, True)),
        ("float32", "float32", (1, 16, 8), (False, False)),
        ("float32", "float32", (5, 1, 3), (False, False)),
        ("float32", "float32", (8, 40, 1), (False, True)),
        ("float16", "float32", (33, 24, 40), (False, False)),
        ("float16", "float32", (33, 24, 40), (False, True)),
        ("float16", "float16", (16, 16, 24), (False, False)),
        ("bfloat16", "float32", (16, 33, 16), (True, False)),
        ("bfloat16", "bfloat16", (16, 16, 16), (False, False)),
        ("float8_e4m3fn", "float32", (16, 16, 16), (False, False)),
        ("float8_e5m2", "float32", (9, 20, 16), (False, True)),
        ("tfloat32", "float32", (16, 24, 12), (False, False)),
        ("tfloat32", "float32", (9, 20, 12), (True, True)),
        ("float64", "float64", (14, 19, 23), (False, False)),
        ("float64", "float64", (14, 19, 23), (True, True)),
        ("float32", "float64", (14, 19, 23), (False, False)),
        ("float64", "float32", (14, 19, 23), (False, False)),
        ("int8", "int32", (12, 17, 20), (False, False)),
        ("int8", "int32", (12, 17, 20), (False, True)),
        ("uint8", "int32", (12, 17, 20), (True, False)),
        ("uint8", "int32", (5, 6, 300), (False, False)),
        ("int8", "int8", (12, 17, 20), (False, False)),
        ("int32", "int64", (5, 6, 7), (False, False)),
    ]
}
"""Gemms of every kind of operand, size and transposition."""


def _reduce(kind: str, dtype: str, result: str, axis: int, clear: bool) -> TargetCase:
    size = (5, 6, 37)
    left = [extent for i, extent in enumerate(size) if i != axis]
    text = f"""
def reduce_(X: {dtype}[5, 6, 37], Y: inout.{result}[{left[0]}, {left[1]}]):
    x: fragment.{dtype}[5, 6, 37]
    y: fragment.{result}[{left[0]}, {left[1]}]
    copy(X, x)
    copy(Y, y)
    reduce(x, y, kind="{kind}", axis={axis}, clear={clear})
    copy(y, Y)
"""
    rtol = {"float32": 1e-6, "float16": 1e-2, "bfloat16": 1e-1}.get(result, 0.0)
    return TargetCase(text=text, dims={}, rtol=rtol if "sum" in kind else 0.0)


REDUCTIONS = {
    f"{kind} of {dtype} along {axis}{'' if clear else ' onto'} {result}": _reduce(
        kind, dtype, result, axis, clear
    )
    for kind, dtype, result, axis, clear in [
        *((kind, "float32", "float32", axis, clear)
          for kind in ("sum", "max", "min", "abssum", "absmax")
          for axis, clear in ((2, True), (2, False), (0, True), (1, False))),
        *((kind, "int32", "int32", axis, True)
          for kind in ("sum", "max", "absmax", "bitand", "bitor", "bitxor") for axis in (2, 1)),
        ("sum", "float16", "float16", 2, True),
        ("sum", "float16", "float32", 2, True),
        ("sum", "float32", "float16", 1, True),
        ("max", "float32", "bfloat16", 2, False),
        ("sum", "bfloat16", "bfloat16", 0, True),
        ("sum", "int8", "int8", 2, True),
        ("min", "uint8", "int32", 0, True),
        ("sum", "float64", "float64", 2, True),
    ]
}  # fmt: skip
"""Reductions of every kind, along every axis, with and without old content."""


def scalar_case(dtype: str) -> TargetCase:
    """A scalar parameter of ``dtype``, used and returned."""
    is_float = DTYPES[dtype].is_float
    value: Value = 1.3 if is_float else 3
    return TargetCase(
        text=f"""
def scalar(s: {dtype}, X: {dtype}[4], Y: out.{dtype}[4]):
    for i in parallel(4):
        Y[i] = X[i] + s
""",
        dims={},
        scalars=(value,),
    )


SCALARS = {
    f"scalar of {name}": scalar_case(name) for name in DTYPES if name not in ("bool", TENSOR_FLOAT)
}
"""One scalar parameter of every type."""


def make_source(program: Program, name: str = "kernel") -> Source:
    """The Source of a Program without source lines."""
    kernel = Kernel(name=name, program=print_program(program))
    return Source(elaborated=Elaborated(kernel=kernel))


def store_artifact(target: Target, build: Build, folder: Path) -> Artifact:
    """The artifact that ``build`` wrote into ``folder/0``, in a separate store."""
    objects = ObjectStore(folder / "objects")
    files = {name: objects.put_file(folder / "0" / name) for name in build.files}
    manifest = Manifest(
        kernel="kernel",
        target=target.name,
        fingerprint=target.fingerprint(),
        build=BuildKey("key"),
        binary=build.binary,
        files=files,
        details=build.details,
    )
    return Artifact(manifest, objects)


def load_program(target: Target, device: Device, program: Program, folder: Path) -> Loaded:
    """Build and load ``program``."""
    (build,) = target.build([make_source(program)], folder)
    assert build.outcome is Outcome.PASSED, build
    return target.load(store_artifact(target, build, folder), device)


def explain_difference(got: Array, want: Array, case: TargetCase) -> str:
    """How ``got`` differs from ``want`` by more than ``case`` allows; empty if it does not."""
    if got.dtype != want.dtype or got.shape != want.shape:
        return f"{got.dtype}{got.shape} is not {want.dtype}{want.shape}"
    if want.dtype.kind in "iub":
        wrong = got != want
    else:
        eps, tiny = _limits(want.dtype)
        a, b = got.astype(np.float64), want.astype(np.float64)
        with np.errstate(all="ignore"):
            finite = np.abs(b[np.isfinite(b)])
            allowed = case.rtol * finite.max(initial=0.0)
            allowed = allowed + case.ulps * eps * np.maximum(np.abs(b), tiny)
            same = (a == b) | (np.isnan(a) & np.isnan(b))
            wrong = ~(same | (np.isfinite(a) & np.isfinite(b) & (np.abs(a - b) <= allowed)))
    if not wrong.any():
        return ""
    at = tuple(int(i) for i in np.argwhere(wrong)[0])
    return f"{int(wrong.sum())} differ, at {at}: {got[at]} is not {want[at]}"


def _limits(dtype: "np.dtype[np.generic]") -> tuple[float, float]:
    """The distance from 1 to the next number, and the smallest normal number."""
    limits = ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]
    return float(limits.eps), float(limits.smallest_normal)


def random_arguments(program: Program, seed: int) -> tuple[list[Array], list[Value]]:
    """Arrays and scalars for a Program without dimensions."""
    rng = np.random.default_rng(seed)
    arrays = random_arrays(rng, program, {})
    scalars: list[Value] = []
    for var in scalar_params(program):
        number = random_array(rng, var.dtype, (1,))[0]
        scalars.append(float(number) if find_dtype(var.dtype).is_float else int(number))
    return arrays, scalars


MEMORY = {
    "atomic updates of arrays that blocks share": TargetCase(
        text="""
def atomics(X: int32[64], S: inout.int32[8], L: inout.int64[2],
            H: inout.float16[1], F: inout.float64[2], B: inout.uint8[3]):
    bx: grid[16]
    for i in parallel(4):
        atomic_add(S[X[bx * 4 + i] % 8], 1)
        atomic_max(L[0], int64(X[bx * 4 + i]))
        atomic_min(L[1], int64(X[bx * 4 + i]))
        atomic_add(F[i - 2], float64(X[bx * 4 + i]))
        atomic_or(B[0], uint8(1 << (X[bx * 4 + i] + 9) % 8))
        atomic_and(B[1], uint8(X[bx * 4 + i] + 200))
        atomic_xor(B[2], uint8(X[bx * 4 + i] + 9))
        atomic_max(H[0], float16(X[bx * 4 + i]))
""",
        dims={},
    ),
    "atomic updates of tiles, and the content before": TargetCase(
        text="""
def previous(X: float32[8], C: inout.int32[1], Y: out.float32[8], Z: out.float32[8], N: out.int32[8]):
    t: shared.float32[8]
    h: fragment.bfloat16[8]
    fill(t, 0.5)
    fill(h, 0.5)
    for i in serial(8):
        old = atomic_add(t[i % 4], X[i])
        Y[i] = old
        atomic_add(h[i % 3], bfloat16(X[i]))
        last = atomic_exchange(t[7], old)
        Z[i] = last + float32(h[i % 3])
        place = atomic_add(C[0], 2)
        outside = atomic_add(C[i + 1], 2)
        N[i] = place + outside
""",
        dims={},
    ),
    "what would be written beyond an array is not computed": TargetCase(
        text="""
def beyond(X: int32[m], Y: out.int32[m], Z: out.int8[m], S: inout.int32[m]):
    m: dim
    bx: grid[(m + 15) // 16]
    for i in parallel(16):
        Y[bx * 16 + i] = X[bx * 16 + i] // (3 if bx * 16 + i < m else 0)
        Z[bx * 16 + i] = int8(X[bx * 16 + i] % (3 if bx * 16 + i < m else 0))
    for j in serial(16):
        atomic_add(S[bx * 16 + j], X[bx * 16 + j] // (3 if bx * 16 + j < m else 0))
""",
        dims={"m": 37},
    ),
    "views of tiles and of arrays": TargetCase(
        text="""
def views(X: float32[m, 8], I: inout.int32[6], Y: out.float32[m, 8]):
    m: dim
    flat: memory.float32[m * 8] = X
    words: memory.uint8[24] = I
    t: shared.float32[4, 6]
    u: shared.float32[2, 12] = t
    bits: shared.int32[24] = t
    c: fragment.float32[4, 6]
    d: fragment.float32[3, 8] = c
    for i in parallel(24):
        bits[i] = reinterpret(flat[i], int32) ^ 1
    fill(Y, 0.0)
    for i1, j in parallel(2, 12):
        Y[j // 8 + i1 * 2, j % 8] = u[i1, j] + t[3, 5]
    fill(c, 0.0)
    gemm(t[:, 0 : +4], t, c)
    for i2, j2 in parallel(3, 8):
        Y[i2 + 4, j2] = d[i2, j2]
    words[5] = 7
    for i3 in parallel(5):
        bits[i3 + 1] = bits[i3] + bits[i3 + 1]
    I[2] = bits[5] + int32(words[4])
""",
        dims={"m": 9},
        rtol=1e-6,
    ),
    "a workspace that one block fills and reads": TargetCase(
        text="""
def workspace(X: float16[32], Y: out.float16[32]):
    W: memory.float16[4, 8]
    V: memory.float16[32] = W
    for i in parallel(32):
        V[i] = X[31 - i]
    for i1, j in parallel(5, 8):
        Y[i1 * 8 + j] = W[i1, j] + X[j]
""",
        dims={},
    ),
}
"""Every case, named after what it shows."""


def _numbers(dtype: str, seed: int) -> Array:
    """Numbers of every kind in a type, the extreme ones first."""
    kind, rng = find_dtype(dtype), np.random.default_rng(seed)
    if kind.kind == "bool":
        return rng.integers(0, 2, _COUNT).astype(np.bool_)
    if not kind.is_float:
        low, high = kind.range
        found = [low, high, 0, 1, min(high, 100), max(low, -7)]
        found += [int(value) for value in rng.integers(max(low, -1000), min(high, 1000), _COUNT)]
        return np.array([value & ((1 << 64) - 1) for value in found[:_COUNT]], np.uint64).astype(
            kind.numpy
        )
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5, 2.5, -3.5, 1e-40, -1e-7, 1e30]
    wide = rng.standard_normal(_COUNT - len(special)) * 10.0 ** rng.integers(-3, 3, _COUNT - 13)
    with np.errstate(all="ignore"):
        return np.array([*special, *wide]).astype(kind.numpy)


def _small(dtype: str) -> Array:
    """Divisors and shift counts: not zero, less than the width of the narrowest word."""
    return (np.arange(_COUNT) % 7 + 1).astype(find_dtype(dtype).numpy)


def _array(name: str, dtype: str) -> Buffer:
    return Buffer(name, dtype, (Const(_COUNT, "int32"),), "global")


def _program(name: str, sources: dict[str, str], results: Mapping[str, Expr]) -> Program:
    i = Var("i", "int32")
    tensors = [Tensor(_array(source, dtype), "in") for source, dtype in sources.items()]
    tensors += [Tensor(_array(result, expr.dtype), "out") for result, expr in results.items()]
    stores = tuple(Store(result, (i,), expr) for result, expr in results.items())
    loop = For(i, Const(0, "int32"), Const(_COUNT, "int32"), "parallel", stores)
    return Program(name, tuple(tensors), (), (), (), (), (loop,))


def _operations(dtype: str) -> dict[str, Op]:
    i = Var("i", "int32")
    x, z, small = (Load(name, (i,), dtype) for name in ("X", "Z", "S"))
    flag = Load("F", (i,), "bool")
    found: dict[str, Op] = {}
    for name, row in OPS.items():
        args: tuple[Expr, ...] = (x, small if name in _SHIFTS else z)[: row.arity]
        args = (flag, x, z) if row.condition else args
        for result in dict.fromkeys((dtype, *_RESULTS)):
            op = Op(name, args, result)
            if not explain_misuse(op) and not _is_undefined(op, dtype):
                found[f"{name}_{result}"] = op
    return found


def _is_undefined(op: Op, dtype: str) -> bool:
    """Whether the bits of the result are undefined: those of a bool, or of a converted NaN."""
    if op.name != "reinterpret":
        return False
    return op.dtype == "bool" or DTYPES[dtype].is_float != DTYPES[op.dtype].is_float


def operation_case(dtype: str) -> TargetCase:
    """The case of every operation on ``dtype``."""
    sources = {"X": dtype, "Z": dtype, "S": dtype, "F": "bool"}
    program = _program(f"operations_{dtype}", sources, _operations(dtype))
    return TargetCase(
        text=print_program(program),
        dims={},
        ulps=4 if find_dtype(dtype).bits > 16 else 1,
        values=(_numbers(dtype, 1), _numbers(dtype, 2), _small(dtype), _numbers("bool", 3)),
    )


def conversion_case(dtype: str) -> TargetCase:
    """The case of the conversions of ``dtype`` to every type."""
    x = Load("X", (Var("i", "int32"),), dtype)
    results: dict[str, Expr] = {f"to_{name}": Cast(x, name) for name in DTYPES}
    return TargetCase(
        text=print_program(_program(f"conversions_{dtype}", {"X": dtype}, results)),
        dims={},
        values=(_numbers(dtype, 4),),
    )


OPERATIONS = {
    **{f"operations on {name}": operation_case(name) for name in DTYPES},
    **{f"conversions of {name}": conversion_case(name) for name in DTYPES},
}
"""Every scalar operation on every type, and every conversion."""

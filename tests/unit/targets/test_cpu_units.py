"""Gemms by dot-product units: as instructions, in plain C, and by FMA, beside exact sums."""

import dataclasses
import itertools
import re
import shutil
from functools import cache
from pathlib import Path

import ml_dtypes
import msgspec
import numpy as np
import pytest
from tests.samples import IS_WHOLE, sampled

from tileyard.devices.cpu import plain_cpu
from tileyard.ir.interpret import interpret
from tileyard.ir.reader import read_program
from tileyard.ir.specs import tensor_specs
from tileyard.targets.base import Array, Loaded
from tileyard.targets.cpu.emit.plan import make_plan
from tileyard.targets.cpu.emit.program import generate
from tileyard.targets.cpu.emit.tiles import RowPanels
from tileyard.targets.cpu.emit.units import find_unit
from tileyard.targets.cpu.machine import Machine
from tileyard.targets.cpu.target import CpuTarget
from tileyard.testing.target_cases import load_program

NUMPY = {
    "bfloat16": ml_dtypes.bfloat16,
    "float8_e4m3fn": ml_dtypes.float8_e4m3fn,
    "float8_e5m2": ml_dtypes.float8_e5m2,
    "int8": np.int8,
    "uint8": np.uint8,
}
FLOATS = ("bfloat16", "float8_e4m3fn", "float8_e5m2")
BYTES = ("int8", "uint8")
UNITS = ("units=0", "units=1", "units=2")
SIZES = ((1, 1, 1), (13, 37, 29), (16, 550, 66), (70, 20, 1603), (5, 33, 7), (129, 64, 128))


@cache
def target(units: str) -> CpuTarget:
    """The target with a choice of units; one compiles the runtime once."""
    return CpuTarget(f"native,{units}" if IS_WHOLE else f"native,optimize=1,{units}")


def write_gemm(
    a: str, b: str, c: str, flips: tuple[bool, bool], sizes: tuple[int, int, int]
) -> str:
    """A product that two steps of a loop add to what was there."""
    m, n, k = sizes
    at = f"{k}, {m}" if flips[0] else f"{m}, {k}"
    bt = f"{n}, {k}" if flips[1] else f"{k}, {n}"
    return f"""
def gemm(A: {a}[2, {at}], B: {b}[2, {bt}], C: inout.{c}[{m}, {n}]):
    threads(128)
    x: shared.{a}[{at}]
    y: shared.{b}[{bt}]
    z: fragment.{c}[{m}, {n}]
    copy(C, z)
    for i in serial(2):
        copy(A[i, :, :], x)
        copy(B[i, :, :], y)
        gemm(x, y, z, transpose_a={flips[0]}, transpose_b={flips[1]})
    copy(z, C)
"""


def load(text: str, units: str, folder: Path) -> Loaded:
    """A gemm, built with a choice of units."""
    return load_program(target(units), plain_cpu((0,)), read_program(text), folder / units)


def run(kernel: Loaded, arrays: list[Array]) -> Array:
    """The result of a gemm."""
    bound = kernel.bind(arrays, ())
    bound.run()
    return bound.read()[0]


USED = """
def used(Y: out.float32[256, 256]):
    threads(128)
    t: shared.float32[256, 256]
    fill(t, inf)
    copy(t, Y)
"""


def use_memory(units: str, folder: Path) -> None:
    """Leave infinities in the memory of the thread that runs the next kernel of this folder."""
    assert np.isinf(run(load(USED, units, folder), [])).all()


def multiply(arrays: list[Array], flips: tuple[bool, bool], kind: type) -> Array:
    """The products of both steps, summed in ``kind``."""
    a, b, c = (array.astype(kind) for array in arrays)
    a, b = a.swapaxes(1, 2) if flips[0] else a, b.swapaxes(1, 2) if flips[1] else b
    return c + (a @ b).sum(axis=0)


def draw_arrays(
    a: str, b: str, flips: tuple[bool, bool], sizes: tuple[int, int, int]
) -> list[Array]:
    """Operands and the start of a result: bytes of any value with an int32, or floats with a float32."""
    rng = np.random.default_rng(sum(sizes))
    shapes = list_shapes(flips, sizes)
    kinds = (NUMPY[a], NUMPY[b], np.int32 if a in BYTES else np.float32)
    if a not in BYTES:
        return [rng.standard_normal(s).astype(kind) for s, kind in zip(shapes, kinds, strict=True)]
    ends = [np.iinfo(kind) for kind in kinds]
    return [
        rng.integers(end.min, end.max, shape, endpoint=True).astype(end.dtype)
        for end, shape in zip(ends, shapes, strict=True)
    ]


def list_shapes(flips: tuple[bool, bool], sizes: tuple[int, int, int]) -> list[tuple[int, ...]]:
    """The shapes of a gemm's arrays."""
    m, n, k = sizes
    return [(2, k, m) if flips[0] else (2, m, k), (2, n, k) if flips[1] else (2, k, n), (m, n)]


def check_sums(result: Array, arrays: list[Array], flips: tuple[bool, bool], name: str) -> None:
    """Fail unless sums of bytes are exact, and those of floats within the documented bound."""
    if result.dtype == np.int32:
        expected = multiply(arrays, flips, np.int64).astype(np.int32)
        np.testing.assert_array_equal(result, expected, err_msg=name)
        return
    size = multiply([abs(array) for array in arrays], flips, np.float64)
    k = arrays[0].shape[1 if flips[0] else 2]
    bound = 2 * (k + 1) * (2.0**-23 * size + 2.0**-125)
    wrong = abs(result - multiply(arrays, flips, np.float64)) > bound
    assert not wrong.any(), f"{name}: {wrong.sum()} of {wrong.size}"


CHOICES = [
    (a, b, flips, sizes)
    for kinds in (FLOATS, BYTES)
    for (a, b), (flips, sizes) in zip(
        itertools.cycle(itertools.product(kinds, kinds)),
        itertools.product(itertools.product((False, True), repeat=2), SIZES),
        strict=False,
    )
]


@pytest.mark.parametrize(("a", "b", "flips", "sizes"), sampled(CHOICES, CHOICES[3::7]))
def test_sums_are_exact_or_within_the_bound(
    a: str, b: str, flips: tuple[bool, bool], sizes: tuple[int, int, int], tmp_path: Path
) -> None:
    """Sums of bytes are exact, with wrap-around; those of floats are as near as the documentation says."""
    arrays = draw_arrays(a, b, flips, sizes)
    text = write_gemm(a, b, str(arrays[2].dtype), flips, sizes)
    for units in UNITS:
        check_sums(run(load(text, units, tmp_path), arrays), arrays, flips, units)


def draw_tiny(flips: tuple[bool, bool], sizes: tuple[int, int, int]) -> list[Array]:
    """Operands in bfloat16 that are normal, and whose products and sums are not, as some starts of sums."""
    arrays = draw_arrays("bfloat16", "bfloat16", flips, sizes)
    return [
        array * array.dtype.type(2.0**shift)
        for array, shift in zip(arrays, (-65, -65, -128), strict=True)
    ]


SPECIAL = (1e-39, -1e-40, np.inf, -np.inf, np.nan, 3e38, 1e-37)


def draw_special(
    value: float, side: int, flips: tuple[bool, bool], sizes: tuple[int, int, int]
) -> list[Array]:
    """Operands of small integers in bfloat16, in one of which is another value; a tiny one is alone there, so
    that sums show it.
    """
    rng = np.random.default_rng(3)
    kinds = (*[NUMPY["bfloat16"]] * 2, np.float32)
    shapes = list_shapes(flips, sizes)
    arrays = [rng.integers(1, 9, s).astype(kind) for s, kind in zip(shapes, kinds, strict=True)]
    if abs(value) < 1e-30:
        arrays[side][...], arrays[2][...] = 0, 0
        arrays[1 - side] *= NUMPY["bfloat16"](2.0**100)
    place = rng.integers(arrays[side].shape)
    place[1 + (flips[side] == side)] = sizes[2] - 64  # a block before what is left of whole ones
    if value == SPECIAL[0]:
        place[1:] = -1
    arrays[side][tuple(place)] = value
    return arrays


def check_special(result: Array, arrays: list[Array], flips: tuple[bool, bool], name: str) -> None:
    """Fail unless each sum has the only special value in its row and column."""
    with np.errstate(all="ignore"):
        expected = multiply(arrays, flips, np.float64).astype(np.float32)
    np.testing.assert_allclose(result, expected, rtol=1e-6, err_msg=name)


FLIPS = list(itertools.product((False, True), repeat=2))


@pytest.mark.parametrize(("is_left_turned", "is_right_turned"), sampled(FLIPS, FLIPS[1:3]))
@pytest.mark.parametrize("units", UNITS)
def test_special_numbers_count_wherever_they_stand(
    units: str, is_left_turned: bool, is_right_turned: bool, tmp_path: Path
) -> None:
    """A denormal number, an infinity or a NaN changes its row, or column, and nothing else. Products and sums
    that would be denormal are within the bound.
    """
    flips = (is_left_turned, is_right_turned)
    sizes = (17, 63, 99)
    use_memory(units, tmp_path)
    kernel = load(write_gemm("bfloat16", "bfloat16", "float32", flips, sizes), units, tmp_path)
    for value, side in itertools.product(SPECIAL, (0, 1)):
        arrays = draw_special(value, side, flips, sizes)
        check_special(run(kernel, arrays), arrays, flips, str(value))
    arrays = draw_tiny(flips, sizes)
    check_sums(run(kernel, arrays), arrays, flips, "tiny")


def test_plain_sums_are_those_of_fma_and_others_the_units(tmp_path: Path) -> None:
    """In plain C, a unit adds in the order of k: bit for bit as FMA does. As an instruction it does not, and
    a denormal number changes this for no other tile.
    """
    rng = np.random.default_rng(5)
    shapes = ((2, 40, 300), (2, 300, 50), (40, 50))
    kinds = (NUMPY["bfloat16"],) * 2 + (np.float32,)
    arrays = [rng.standard_normal(s).astype(k) for s, k in zip(shapes, kinds, strict=True)]
    text = write_gemm("bfloat16", "bfloat16", "float32", (False, False), (40, 50, 300))
    kernels = {units: load(text, units, tmp_path) for units in UNITS}
    fma, unit, plain = (run(kernel, arrays) for kernel in kernels.values())
    np.testing.assert_array_equal(plain.view(np.uint32), fma.view(np.uint32))
    assert (unit != fma).any() or "bf16" not in target("units=1").toolchain.machine.units
    for side in (0, 1):
        arrays[1 - side][0] = 0
        expected = run(kernels["units=1"], arrays)
        arrays[side][0, 0, 0] = 1e-39
        np.testing.assert_array_equal(run(kernels["units=1"], arrays), expected)


BF16, E4M3, E5M2 = FLOATS
ARM = ("s8", "u8")


@pytest.mark.parametrize(
    ("units", "kinds", "expected"),
    [
        (("bf16",), (BF16, BF16, "float32"), "bf16 checked left checked right"),
        (("bf16",), (BF16, E5M2, "float32"), "bf16 checked left"),
        (("bf16",), (E4M3, BF16, "float32"), "bf16 checked right"),
        (("bf16",), (E4M3, E5M2, "float32"), "bf16"),
        (("bf16",), (BF16, BF16, BF16), ""),
        (("bf16",), (BF16, BF16, "float64"), ""),
        (("i8", *ARM), (BF16, BF16, "float32"), ""),
        (("i8",), ("int8", "int8", "int32"), "i8 flipped -128"),
        (("i8",), ("uint8", "uint8", "uint32"), "i8 flipped swapped 128"),
        (("i8", *ARM), ("uint8", "int8", "uint32"), "i8"),
        (("i8", *ARM), ("int8", "uint8", "int32"), "i8 swapped"),
        (("i8", *ARM), ("int8", "int8", "int32"), "s8"),
        (("i8", *ARM), ("uint8", "uint8", "int32"), "u8"),
        (ARM, ("uint8", "int8", "int32"), "s8 flipped 128"),
        (ARM, ("int8", "uint8", "int32"), "u8 flipped -128"),
        (("i8", *ARM), ("int8", "int8", "int64"), ""),
        (("i8", *ARM), ("int8", "int8", "int16"), ""),
        (("bf16",), ("int8", "int8", "int32"), ""),
        (("i8", *ARM), ("int16", "int8", "int32"), ""),
    ],
)
def test_units_multiply_what_they_compute_exactly_enough(
    units: tuple[str, ...], kinds: tuple[str, str, str], expected: str
) -> None:
    """The unit for each pair of types, and what is done for it."""
    machine = Machine(arch="x86_64", vector_bytes=32, registers=16, units=dict.fromkeys(units, ""))
    unit = find_unit(machine, *kinds)
    words = [] if unit is None else [unit.name]
    if unit is not None:
        assert not unit.right.is_flipped
        words += ["checked left"] * unit.left.is_checked
        words += ["checked right"] * unit.right.is_checked
        words += ["flipped"] * unit.left.is_flipped + ["swapped"] * unit.is_swapped
        words += [str(unit.correction)] * (unit.correction != 0)
    assert " ".join(words) == expected


def test_products_by_different_register_blocks_have_their_own_left_operands() -> None:
    """Of 16 registers, wide results take blocks of six rows and narrow ones of twelve: packed differently."""
    text = """
def products(A: int8[36, 66], B: int8[66, 53], D: int8[66, 3], P: out.int32[36, 53], Q: out.int32[36, 3]):
    threads(128)
    a: shared.int8[36, 66]
    p: fragment.int32[36, 53]
    q: fragment.int32[36, 3]
    copy(A, a)
    gemm(a, B, p, transpose_a=False, transpose_b=False, clear=True)
    gemm(a, D, q, transpose_a=False, transpose_b=False, clear=True)
    copy(p, P)
    copy(q, Q)
"""
    machine = Machine(arch="x86_64", vector_bytes=32, registers=16, units={"i8": "USDOT"})
    gemms = make_plan(read_program(text), machine).gemms.values()
    layouts = [gemm.staged_a.layout for gemm in gemms if gemm.staged_a]
    splits = [layout.split for layout in layouts if isinstance(layout, RowPanels)]
    assert splits == [((6, 6),), ((12, 3),)]


def test_copies_round_to_the_type_of_their_tile_and_not_to_that_of_its_words(
    tmp_path: Path,
) -> None:
    """8-bit floats are packed as bfloat16, which holds numbers between them. Rows of arrays convert, too."""
    text = """
def convert(A: float32[9, 40], B: float8_e4m3fn[40, 7], C: out.float32[9, 7], D: out.bfloat16[40, 7]):
    threads(128)
    x: shared.float8_e4m3fn[9, 40]
    y: shared.float8_e5m2[40, 7]
    z: fragment.float32[9, 7]
    copy(A, x)
    copy(B, y)
    gemm(x, y, z, transpose_a=False, transpose_b=False, clear=True)
    copy(z, C)
    copy(B, D)
"""
    rng = np.random.default_rng(7)
    shapes, kinds = ((9, 40), (40, 7)), (np.float32, NUMPY["float8_e4m3fn"])
    arrays = [rng.integers(-40, 40, s).astype(k) for s, k in zip(shapes, kinds, strict=True)]
    bound = load(text, "units=2", tmp_path).bind(arrays, ())
    bound.run()
    for got, want in zip(bound.read(), interpret(read_program(text), arrays, ()), strict=True):
        np.testing.assert_array_equal(got, want)


WRAPPING = """
def wrap(X: int64[8], A: float32[64], Y: out.int64[8, 9], T: out.float32[8, 4], S: out.int64[1]):
    threads(128)
    x: shared.int64[1, 8]
    t: shared.float32[4]
    s: fragment.int64[1]
    copy(X, x[0, :])
    reduce(x, s, kind="sum", axis=1, clear=True)
    copy(s, S)
    for i in parallel(8):
        Y[i, 0] = X[i] + 9223372036854775807
        Y[i, 1] = X[i] * X[7 - i]
        Y[i, 2] = abs(X[i]) - -X[i]
        Y[i, 3] = truncdiv(X[i], X[i] | 1) + (X[i] << 7)
        Y[i, 4] = int64(int32(X[i]) * int32(X[i]) + int32(X[i] + 1 > X[i]))
        Y[i, 5] = int64(int8(X[i]) * int8(X[i]) - int8(X[i]))
        Y[i, 6] = int64(int16(X[i]) * int16(X[i]) - int16(X[i]))
        Y[i, 7] = int64(A[X[i] - 9223372036854775807])
        Y[i, 8] = int64(A[X[i] * 4611686018427387904 + X[i]])
    for j in serial(8):
        copy(A[X[j] - 9223372036854775807 : +4], t)
        copy(t, T[j, :])
"""
"""Operations of all integers with a sign, and indices."""


@pytest.mark.skipif(not shutil.which("gcc"), reason="GCC's check for overflow is needed")
def test_what_wraps_does_not_overflow(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The C compiler may take for granted that sums and products of numbers with signs do not overflow. None
    does, and all give what the interpreter gives.
    """
    flips = (False, True)
    gemms = [write_gemm(kind, kind, "int32", flips, (13, 37, 29)) for kind in BYTES]
    checked = CpuTarget("native,optimize=1,units=2", cc="gcc")
    flags = (*checked.toolchain.flags, "-fsanitize=signed-integer-overflow")
    checked.__dict__["toolchain"] = dataclasses.replace(checked.toolchain, flags=flags)
    numbers = np.array([1, 2**63 - 1, 2**63 - 2, -2, 129, -(2**63), 2**31 - 1, 2**62], np.int64)
    given = [[numbers, np.arange(64, dtype=np.float32) + 1]]
    for kind in BYTES:
        given.append(draw_arrays(kind, kind, flips, (13, 37, 29)))
        given[-1][2] |= np.int32(0x7FFFFF00)
    for text, arrays in zip((WRAPPING, *gemms), given, strict=True):
        program = read_program(text)
        expected = interpret(program, arrays, ())
        bound = load_program(checked, plain_cpu((0,)), program, tmp_path).bind(arrays, ())
        bound.run()
        for got, want in zip(bound.read(), expected, strict=True):
            np.testing.assert_array_equal(got, want, err_msg=text)
    assert capfd.readouterr().err == ""


def test_a_tile_that_only_a_unit_reads_keeps_its_type() -> None:
    """Computed bfloat16 is stored as such, and looked up; not if something else reads the tile, too. The
    first comment names the unit.
    """
    text = """
def coded(A: bfloat16[48, 256], X: uint8[32, 128], S: bfloat16[32], \
C: out.float32[48, 32], T: out.float32[32, 256]):
    threads(128)
    b: shared.bfloat16[32, 256]
    c: fragment.float32[48, 32]
    for i, j in parallel(32, 256):
        b[i, j] = bfloat16(X[i, j // 2] >> uint8(j % 2 * 4) & 15) * S[i]
    gemm(A, b, c, transpose_a=False, transpose_b=True, clear=True)
    copy(c, C)
"""
    machine = Machine(arch="x86_64", vector_bytes=32, registers=16, units={"bf16": "BFDOT"})
    texts = [generate(read_program(x), machine, {}).text for x in (text, f"{text}    copy(b, T)\n")]
    declared = [x.partition("restrict b)")[0].split()[-2] for x in texts]
    looked_up = [x.count("ty_quad_look_up(") for x in texts]
    assert (declared, looked_up) == (["uint16_t", "float"], [1, 0])
    first = "/* coded, generated by Tileyard for 256-bit vectors"
    assert texts[0].startswith(f"{first}; dot products: BFDOT. */")
    fma = msgspec.structs.replace(machine, units={})
    assert generate(read_program(text), fma, {}).text.startswith(f"{first}. */")


def test_rows_are_converted_before_they_are_cut() -> None:
    """Chunks of a left operand are too short for the vectors of a conversion; words need none."""
    text = """
def cast(A: float32[24, 96], B: bfloat16[96, 32], C: out.float32[24, 32]):
    threads(128)
    a: shared.bfloat16[24, 96]
    c: fragment.float32[24, 32]
    copy(A, a)
    gemm(a, B, c, transpose_a=False, transpose_b=False, clear=True)
    copy(c, C)
"""
    machine = Machine(arch="x86_64", vector_bytes=32, registers=16, units={"bf16": "BFDOT"})
    texts = [
        generate(read_program(text.replace("A: float32", f"A: {kind}")), machine, {}).text
        for kind in ("float32", "bfloat16")
    ]
    calls = [re.findall(r"ty_row_to_bf16\((\w+)\[.*, (\d+)\);", one) for one in texts]
    assert calls == [[("part", "96")], []]


WAYS = ("copied", "past the edge", "computed", "copied twice", "one of three", "cleared")


def generate_program(rng: np.random.Generator) -> str:
    """Two products of a common left operand, with operands that come about in several ways."""
    kinds = FLOATS if rng.integers(2) else BYTES
    m, n, k, other = (int(one) for one in rng.integers(1, 70, 4))
    a, b, d = (str(one) for one in rng.choice(kinds, 3))
    c = "float32" if kinds == FLOATS else str(rng.choice(("uint32", "int32")))
    left, right, second = (bool(one) for one in rng.integers(2, size=3))
    shapes = {
        "A": (a, (k, m) if left else (m, k)),
        "B": (b, (n, k) if right else (k, n)),
        "D": (d, (other, k) if second else (k, other)),
    }
    head, made = [], []
    for name, (kind, (rows, columns)) in shapes.items():
        tile, way = name.lower(), str(rng.choice(WAYS))
        shape = f"{rows}, {columns}"
        stages = "3, " if way == "one of three" else ""
        head.append(f"{tile}: shared.{kind}[{stages}{shape}]")
        match way:
            case "past the edge":
                skip = int(rng.integers(-3, 4))
                made.append(f"copy({name}[{skip} : +{rows}, {-skip} : +{columns}], {tile})")
            case "computed":
                value = f"{name}[i_{tile}, j_{tile}] + {kind}(1)"
                made.append(f"for i_{tile}, j_{tile} in parallel({shape}):")
                made.append(f"    {tile}[i_{tile}, j_{tile}] = {value}")
            case "copied twice":
                head.append(f"{tile}_first: shared.{kind}[{shape}]")
                made += [f"copy({name}, {tile}_first)", f"copy({tile}_first, {tile})"]
            case "one of three":
                made.append(f"copy({name}, {tile}[s, :, :])")
            case "cleared":
                made.append(f"fill({tile}, {kind}(0))")
                made.append(f"if s != {'ABD'.index(name)}:\n            copy({name}, {tile})")
            case _:
                made.append(f"copy({name}, {tile})")
        shapes[name] = (tile if way != "one of three" else f"{tile}[s, :, :]", (rows, columns))
    params = ", ".join(
        f"{name}: {kind}[{rows}, {columns}]"
        for (name, (_, (rows, columns))), kind in zip(shapes.items(), (a, b, d), strict=True)
    )
    (x, _), (y, _), (z, _) = shapes.values()
    body = [
        *made,
        f"gemm({x}, {y}, p, transpose_a={left}, transpose_b={right})",
        f"gemm({x}, {z}, q, transpose_a={left}, transpose_b={second}, clear={rng.integers(2) == 1})",
    ]
    lines = "\n".join(f"        {line}" for line in body)
    head = [*head, f"p: fragment.{c}[{m}, {n}]", f"q: fragment.{c}[{m}, {other}]"]
    return f"""
def products({params}, P: inout.{c}[{m}, {n}], Q: out.{c}[{m}, {other}]):
    threads(128)
    {chr(10).join(f"    {line}" for line in head).strip()}
    copy(P, p)
    fill(q, {c}(0))
    for s in serial(3):
{lines}
    copy(p, P)
    copy(q, Q)
"""


@pytest.mark.parametrize("seed", sampled(range(600), (0, 1, 144)))
def test_generated_products_are_those_of_the_interpreter(seed: int, tmp_path: Path) -> None:
    """However operands come about: exact sums, which do not depend on their order, are the same."""
    rng = np.random.default_rng(seed)
    program = read_program(generate_program(rng))
    arrays = [
        rng.integers(0 if spec.dtype == "uint8" else -4, 5, spec.shape).astype(
            NUMPY.get(spec.dtype, spec.dtype)
        )
        for spec in tensor_specs(program, {})
        if spec.role != "out"
    ]
    expected = interpret(program, arrays, ())
    for units in UNITS:
        launch = load_program(target(units), plain_cpu((0,)), program, tmp_path / units)
        bound = launch.bind(arrays, ())
        bound.run()
        for got, want in zip(bound.read(), expected, strict=True):
            np.testing.assert_array_equal(got, want, err_msg=units)

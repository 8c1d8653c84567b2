"""The headers of kernels, number by number: conversions of narrow floats, and functions of floats."""

import ctypes
import itertools
import math
from pathlib import Path
from typing import Protocol

import ml_dtypes
import numpy as np
import pytest

from tileyard.ir.meanings import convert
from tileyard.targets.cpu.target import CpuTarget, header_text

pytestmark = pytest.mark.slow


NARROW = {
    "f16": (np.uint16, np.float16, "float16"),
    "bf16": (np.uint16, ml_dtypes.bfloat16, "bfloat16"),
    "f8e4m3": (np.uint8, ml_dtypes.float8_e4m3fn, "float8_e4m3fn"),
    "f8e5m2": (np.uint8, ml_dtypes.float8_e5m2, "float8_e5m2"),
}

FUNCTIONS = {
    "exp": (np.exp, -110.0, 95.0),
    "exp2": (np.exp2, -155.0, 130.0),
    "log": (np.log, 0.0, 4.0),
    "log2": (np.log2, 0.0, 4.0),
    "tanh": (np.tanh, -10.0, 10.0),
    "sigmoid": (lambda x: 1 / (1 + np.exp(-x)), -100.0, 100.0),
    "rsqrt": (lambda x: 1 / np.sqrt(x), 0.0, 1e4),
    "sqrt": (np.sqrt, 0.0, 1e4),
    "exp10": (lambda x: np.power(10.0, x), -50.0, 40.0),
    "log10": (np.log10, 0.0, 4.0),
    "sin": (np.sin, -1e3, 1e3),
    "cos": (np.cos, -1e3, 1e3),
    "erf": (np.vectorize(math.erf, otypes=[np.float64]), -4.5, 4.5),
}

QUAD_FUNCTIONS = ("exp", "exp2", "sqrt", "rsqrt", "round_f16", "round_bf16")
"""Functions of whole vectors that give exactly what those of one number give."""

MOVES = (
    ("quad", "f16"),
    ("quad", "bf16"),
    ("laced", "bf16"),
    ("quad", "u8"),
    ("laced", "u8"),
    ("quad", "i8"),
    ("laced", "i8"),
)
"""Orders of four vectors, and what is read from memory in them."""

MEMORY = {"f16": "uint16_t", "bf16": "uint16_t", "u8": "uint8_t", "i8": "int8_t"}

TOPS = {"max": np.fmax, "min": np.fmin, "absmax": np.fmax}
"""Folds of narrow rows among their bits."""

ROW_FUNCTIONS = ("exp", "exp2", "exp10", "log10", "sin", "cos")


class Call(Protocol):
    """Applies one of the headers' functions to an array; the result begins so many bytes past a line."""

    def __call__(self, name: str, x: np.ndarray, result: object, past: int = 16) -> np.ndarray:
        """Call the function ``name`` on ``x``, for results of a NumPy type."""


@pytest.fixture(scope="module")
def call(cpu: CpuTarget, tmp_path_factory: pytest.TempPathFactory) -> Call:
    """Applies one of the headers' functions to every element of an array."""
    loops = [(f"ty_{name}_f32", "float", "float") for name in FUNCTIONS]
    for mark, (word, _, _) in NARROW.items():
        memory = f"uint{np.dtype(word).itemsize * 8}_t"
        loops += [(f"ty_to_{mark}", "float", memory), (f"ty_from_{mark}", memory, "float")]
        loops.append((f"ty_round_{mark}", "float", "float"))
    for mark in ("f8e4m3", "f8e5m2"):
        loops.append((f"ty_saturate_{mark}", "float", "float"))
    loops += [("ty_odd_f32", "double", "float"), ("ty_truncate_f32_i32", "float", "int32_t")]
    text = '#include "tile.h"\n' + "".join(
        f"void call_{name}(const {a} *x, {b} *y, int64_t n) "
        f"{{ for (int64_t i = 0; i < n; ++i) y[i] = {name}(x[i]); }}\n"
        for name, a, b in loops
    )
    rows = [(f"ty_row_{name}_f32", "float", "float") for name in ROW_FUNCTIONS]
    for mark, (word, _, _) in NARROW.items():
        memory = f"uint{np.dtype(word).itemsize * 8}_t"
        rows += [(f"ty_row_from_{mark}", memory, "float"), (f"ty_row_to_{mark}", "float", memory)]
        rows += [
            (f"ty_row_pack_{mark}", "float", memory),
            (f"ty_row_round_{mark}", "float", "float"),
        ]
    rows += [(f"ty_row_bf16_from_{mark}", "uint8_t", "uint16_t") for mark in ("f8e4m3", "f8e5m2")]
    for name, a, b in rows:
        text += f"void call_{name}(const {a} *x, {b} *y, int64_t n) {{ {name}(y, x, n); }}\n"
    text += (
        "void call_has_small_bf16(const uint16_t *x, uint8_t *y, int64_t n) {"
        " for (int64_t i = 0; i < n; ++i) y[i] = ty_has_small_bf16(x + i, 1); }\n"
    )
    both = "const float *x, float *z, int64_t n"  # n numbers, half of them the exponents
    text += (
        f"void call_row_pow({both}) {{ ty_row_pow_f32(z, x, x + n / 2, n / 2); }}\n"
        f"void call_pow({both}) {{ for (int64_t i = 0; i < n / 2; ++i)"
        " z[i] = ty_pow_f32(x[i], x[n / 2 + i]); }\n"
    )
    return compile_calls(cpu, text, tmp_path_factory.mktemp("header"))


@pytest.fixture(scope="module", params=["native", "native,vectors=256"])
def vectors(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Call:
    """Applies functions of vectors, of 512 bits where this CPU has them, and of fewer."""
    text = '#include "tile.h"\n' + quads()
    return compile_calls(CpuTarget(request.param), text, tmp_path_factory.mktemp("vectors"))


def compile_calls(target: CpuTarget, text: str, folder: Path) -> Call:
    """The functions of a C text, by their names without ``call_``."""
    (folder / "loops.c").write_text(text)
    (folder / "tile.h").write_text(header_text())
    compiled = target.toolchain.compile_kernel(folder, "loops.c", "loops.so")
    assert compiled.ok, compiled.log
    library = ctypes.CDLL(str(folder / "loops.so"))

    def apply(name: str, x: np.ndarray, result: object, past: int = 16) -> np.ndarray:
        x = np.ascontiguousarray(x)
        size = x.size * np.dtype(result).itemsize  # type: ignore[call-overload]
        memory = np.zeros(size + 128, np.uint8)
        start = -memory.ctypes.data % 64 + past
        y = memory[start : start + size].view(result).reshape(x.shape)  # type: ignore[call-overload]
        pointers = [ctypes.c_void_p(array.ctypes.data) for array in (x, y)]
        getattr(library, f"call_{name}")(*pointers, ctypes.c_int64(x.size))
        assert not memory[:start].any()
        assert not memory[start + size :].any()
        return y

    return apply


def quads() -> str:
    """C that applies functions of vectors to arrays whose size is a multiple of theirs."""
    text = ""
    for form, step in (("quad", "TY_QUAD"), ("one", "TY_LANES")):
        store = (
            f"ty_{form}_store_f32(y + i, %s, 0)" if form == "quad" else "ty_store_f32(y + i, %s)"
        )
        calls = [(f"{form}_{name}", f"ty_{form}_{name}(x)") for name in QUAD_FUNCTIONS]
        calls += [(f"{form}_{name}", f"ty_{form}_{name}(x, y_)") for name in ("min", "max")]
        for name, call in calls:
            shift = f"ty_{form}_load_f32(x_ + n - i - {step})"
            text += (
                f"void call_{name}(const float *x_, float *y, int64_t n) {{"
                f" for (int64_t i = 0; i < n; i += {step}) {{"
                f" {'ty_quad' if form == 'quad' else 'ty_row'} x = ty_{form}_load_f32(x_ + i),"
                f" y_ = {shift}; {store % call}; }} }}\n"
            )
    for form, mark in MOVES:
        past = "TY_PLACE(y + i, i & TY_QUAD)"
        text += (
            f"void call_{form}_load_{mark}(const {MEMORY[mark]} *x, float *y, int64_t n) {{"
            " for (int64_t i = 0; i < n; i += TY_QUAD)"
            f" ty_{form}_store_f32(y + i, ty_{form}_load_{mark}(x + i), {past}); TY_SETTLE(); }}\n"
        )
        if mark.startswith(("f", "bf")):
            text += (
                f"void call_{form}_store_{mark}(const float *x, {MEMORY[mark]} *y, int64_t n) {{"
                " for (int64_t i = 0; i < n; i += TY_QUAD)"
                f" ty_{form}_store_{mark}(y + i, ty_{form}_load_f32(x + i), {past});"
                " TY_SETTLE(); }\n"
            )
    text += (
        "void call_unlaced(const float *x, float *y, int64_t n) {"
        " for (int64_t i = 0; i < n; i += TY_QUAD)"
        " ty_quad_store_f32(y + i, ty_unlaced(ty_laced_load_f32(x + i)), 0); }\n"
    )
    for kind, mark in itertools.product(TOPS, ("f16", "bf16")):
        text += (
            f"void call_tops_{kind}_{mark}(const uint16_t *x, float *y, int64_t n) {{"
            f" for (int64_t i = 0; i < n; i += 64) {{ ty_tops t = ty_tops_begin_{kind}();"
            f" for (int j = 0; j < 64; j += TY_QUAD) t = ty_tops_fold_{kind}_{mark}(t, x + i + j);"
            f" float total = ty_tops_end_{kind}_{mark}(0.25f, t, x + i, 64);"
            " for (int j = 0; j < 64; ++j) y[i + j] = total; } }\n"
        )
    return text


def many_floats() -> np.ndarray:
    """A million bit patterns, every half-precision number, and what lies between two of them."""
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 1 << 32, 1_000_000, dtype=np.uint64).astype(np.uint32)
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)
    with np.errstate(all="ignore"):
        between = (halves[:-1] + halves[1:]) / 2
    ends = [0.0, -0.0, 65519.99, 65520.0, 448.0, 464.0, 464.1, 57344.0, 61440.0, 1e-45, 2.0**-25]
    return np.concatenate([bits.view(np.float32), halves, between, np.float32(ends)])


def is_same(a: np.ndarray, b: np.ndarray) -> bool:
    """Equal with their signs, NaN to NaN."""
    a, b = a.astype(np.float32), b.astype(np.float32)
    equal = (a == b) & (np.signbit(a) == np.signbit(b))
    return bool(np.all(equal | (np.isnan(a) & np.isnan(b))))


@pytest.mark.parametrize("mark", NARROW)
def test_every_narrow_number_is_read(mark: str, call: Call) -> None:
    """All bit patterns of a narrow type have the value that NumPy gives them."""
    word, scalar, _ = NARROW[mark]
    patterns = np.arange(1 << (8 * np.dtype(word).itemsize), dtype=np.uint32).astype(word)
    expected = patterns.view(scalar)
    assert is_same(call(f"ty_from_{mark}", patterns, np.float32), expected)


@pytest.mark.parametrize("mark", NARROW)
def test_floats_round_to_narrow_ones(mark: str, call: Call) -> None:
    """Rounding is to nearest even, overflow and underflow included, as a value and as bits."""
    word, scalar, _ = NARROW[mark]
    x = many_floats()
    with np.errstate(all="ignore"):
        expected = x.astype(scalar)
    assert is_same(call(f"ty_round_{mark}", x, np.float32), expected)
    assert is_same(call(f"ty_to_{mark}", x, word).view(scalar), expected)


@pytest.mark.parametrize("mark", ["f8e4m3", "f8e5m2"])
def test_conversions_to_eight_bits_saturate(mark: str, call: Call) -> None:
    """A conversion to eight bits gives what the tile IR's conversion gives."""
    x = many_floats()
    with np.errstate(all="ignore"):
        expected = convert(x, NARROW[mark][2])
    assert is_same(call(f"ty_saturate_{mark}", x, np.float32), expected)


@pytest.mark.parametrize("mark", NARROW)
def test_rows_are_converted_as_single_numbers(mark: str, call: Call) -> None:
    """Whole rows, with instructions for them or without, give what the tile IR's conversion gives."""
    word, scalar, dtype = NARROW[mark]
    x = many_floats()[:-3]
    patterns = np.arange((1 << (8 * np.dtype(word).itemsize)) - 3, dtype=np.uint32).astype(word)
    with np.errstate(all="ignore"):
        expected = convert(x, dtype)
    rounded = call(f"ty_row_round_{mark}", x, np.float32)
    assert is_same(call(f"ty_row_to_{mark}", x, word).view(scalar), expected)
    assert is_same(rounded, expected)
    assert is_same(call(f"ty_row_pack_{mark}", rounded, word).view(scalar), expected)
    assert is_same(call(f"ty_row_from_{mark}", patterns, np.float32), patterns.view(scalar))
    if mark.startswith("f8"):
        wide = call(f"ty_row_bf16_from_{mark}", patterns, np.uint16).view(ml_dtypes.bfloat16)
        assert is_same(wide, patterns.view(scalar))


def test_denormal_numbers_are_found(call: Call) -> None:
    """Of all bfloat16, those between zero and the least normal one, with either sign."""
    patterns = np.arange(1 << 16, dtype=np.uint32).astype(np.uint16)
    sizes = patterns & 0x7FFF
    expected = (sizes > 0) & (sizes < 0x80)
    assert np.array_equal(call("has_small_bf16", patterns, np.bool_), expected)


def test_doubles_round_once(call: Call) -> None:
    """A double that lies just beside the middle of two halves goes to the nearer one."""
    halves = np.arange(0x0400, 0x7C00, dtype=np.uint16).view(np.float16).astype(np.float64)
    middles = (halves[:-1] + halves[1:]) / 2
    x = np.concatenate([middles * (1 + sign * 2.0**-40) for sign in (-1, 0, 1)])
    expected = x.astype(np.float16)
    odd = call("ty_odd_f32", x, np.float32)
    assert is_same(call("ty_round_f16", odd, np.float32), expected)


def test_floats_become_integers_at_the_nearest_end(call: Call) -> None:
    """Truncation towards zero, the ends where out of range, 0 for NaN."""
    x = many_floats()
    with np.errstate(all="ignore"):
        expected = convert(x, "int32")
    assert np.array_equal(call("ty_truncate_f32_i32", x, np.int32), expected)


def check_function(x: np.ndarray, got: np.ndarray, true: np.ndarray) -> None:
    """Fail where ``got`` is more than 2 units in the last place from ``true``, a float64."""
    with np.errstate(all="ignore"):
        expected = true.astype(np.float32)
        unit = np.spacing(np.maximum(np.abs(expected), np.float32(2.0**-126)))
        error = np.abs(got.astype(np.float64) - true) / unit
    same = (got == expected) | (np.isnan(got) & np.isnan(expected))
    wrong = ~same & ~(error <= 2.0)
    assert not wrong.any(), (x[wrong][:4], got[wrong][:4], expected[wrong][:4])


SPECIAL = [
    np.inf,
    -np.inf,
    np.nan,
    0,
    -0.0,
    1e-40,
    -1e-45,
    88.72,
    88.73,
    -103.97,
    128,
    -149,
    -126.5,
]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_are_right_to_the_last_places(name: str, call: Call) -> None:
    """Within 2 units in the last place of the true value, exact at infinities and NaN, also by rows."""
    function, low, high = FUNCTIONS[name]
    rng = np.random.default_rng(1)
    x = np.concatenate(
        [
            rng.uniform(low, high, 400_000).astype(np.float32),
            (1 + rng.uniform(-1e-3, 1e-3, 100_000)).astype(np.float32),
            (np.arange(-20_000, 20_000) * (np.pi / 2)).astype(np.float32),
            many_floats()[: 300_000 if name == "erf" else None],
            np.float32(SPECIAL),
        ]
    )
    with np.errstate(all="ignore"):
        true = function(x.astype(np.float64))
    check_function(x, call(f"ty_{name}_f32", x, np.float32), true)
    if name in ROW_FUNCTIONS:
        check_function(x, call(f"ty_row_{name}_f32", x, np.float32), true)


def test_powers_are_right_to_the_last_places(call: Call) -> None:
    """Within 2 units in the last place over plain numbers, and as defined for all others, also by rows."""
    rng = np.random.default_rng(2)
    plain = np.exp(rng.uniform(-20, 20, 200_000)), rng.uniform(-8, 8, 200_000)
    wild = (rng.permutation(many_floats())[:200_000] for _ in range(2))
    ends = np.meshgrid(np.float32([*SPECIAL, 1, -1, 2, -2, 3, 0.5]), np.float32([*SPECIAL, 2, 3]))
    x, y = (
        np.concatenate([a.astype(np.float32), b, c.ravel()])
        for a, b, c in zip(plain, wild, ends, strict=True)
    )
    with np.errstate(all="ignore"):
        true = np.power(x.astype(np.float64), y.astype(np.float64))
    for name in ("pow", "row_pow"):
        check_function(x, call(name, np.stack([x, y]), np.float32)[0], true)


@pytest.mark.parametrize("form", ["quad", "one"])
def test_vectors_give_what_single_numbers_give(form: str, call: Call, vectors: Call) -> None:
    """Every function of vectors gives, bit by bit, what that of one number gives, NaN aside."""
    x = many_floats()
    masked = np.linspace(-80, 80, 4096, dtype=np.float32)
    masked[np.random.default_rng(0).random(masked.size) < 0.3] = -np.inf
    x = np.concatenate([masked, x, np.linspace(-160, 140, 100_000, dtype=np.float32)])
    x = x[: x.size // 32 * 32]
    names = {name: name if "round" in name else f"{name}_f32" for name in QUAD_FUNCTIONS}
    expected = {name: call(f"ty_{single}", x, np.float32) for name, single in names.items()}
    got = {name: vectors(f"{form}_{name}", x, np.float32) for name in QUAD_FUNCTIONS}
    assert [name for name in names if not is_same(got[name], expected[name])] == []
    turned = x.reshape(-1, 32 if form == "quad" else 8)[::-1].reshape(-1)
    with np.errstate(all="ignore"):
        assert np.array_equal(
            vectors(f"{form}_min", x, np.float32), np.fmin(x, turned), equal_nan=True
        )
        assert np.array_equal(
            vectors(f"{form}_max", x, np.float32), np.fmax(x, turned), equal_nan=True
        )


@pytest.mark.parametrize(("form", "mark"), [move for move in MOVES if move[1] in NARROW])
def test_four_vectors_are_read_and_written_as_narrow_numbers(
    form: str, mark: str, vectors: Call
) -> None:
    """All patterns of a narrow type are read, and written through the caches and past them, wherever."""
    word, scalar, _ = NARROW[mark]
    patterns = np.arange(1 << 16, dtype=np.uint32).astype(word)
    assert is_same(vectors(f"{form}_load_{mark}", patterns, np.float32), patterns.view(scalar))
    x = many_floats()
    x = x[: x.size // 32 * 32]
    with np.errstate(all="ignore"):
        expected = x.astype(scalar)
    for past in (0, 2, 16, 32):
        assert is_same(vectors(f"{form}_store_{mark}", x, word, past).view(scalar), expected)


def test_four_vectors_are_read_from_bytes(vectors: Call) -> None:
    """Signed bytes and others are read as floats in both orders, and one order becomes the other."""
    patterns = np.random.default_rng(0).integers(0, 256, 4096).astype(np.uint8)
    expected = {"u8": patterns.astype(np.float32), "i8": patterns.view(np.int8).astype(np.float32)}
    for form, mark in MOVES:
        if mark in expected:
            for past in (0, 4, 16, 32):
                got = vectors(f"{form}_load_{mark}", patterns, np.float32, past)
                assert np.array_equal(got, expected[mark]), (form, mark)
    assert np.array_equal(vectors("unlaced", expected["i8"], np.float32), expected["i8"])


@pytest.mark.parametrize("kind", TOPS)
@pytest.mark.parametrize("mark", ["f16", "bf16"])
def test_the_end_of_a_narrow_row_is_found_among_its_bits(
    kind: str, mark: str, vectors: Call
) -> None:
    """Rows of one sign, of both, with NaN and of nothing else give what their floats give, NaN aside."""
    word, scalar, _ = NARROW[mark]
    patterns = np.arange(1 << 16, dtype=np.uint32).astype(word)
    mixed = np.random.default_rng(0).permutation(patterns)
    known = mixed[~np.isnan(mixed.view(scalar).astype(np.float32))]
    bits = np.concatenate([patterns, mixed, known[: known.size // 64 * 64]])
    rows = bits.view(scalar).astype(np.float32).reshape(-1, 64)
    rows = np.abs(rows) if kind == "absmax" else rows
    expected = TOPS[kind].reduce(rows, axis=1, initial=np.float32(0.25))
    assert np.array_equal(vectors(f"tops_{kind}_{mark}", bits, np.float32)[::64], expected)

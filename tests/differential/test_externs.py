"""CUDA functions that are known by name and text give what the bits say; all others are refused."""

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tileyard.base.errors import UnsupportedError
from tileyard.ir.interpret import interpret

if TYPE_CHECKING:
    from tileyard.frontend.tilelang import Lowered

Lower = Callable[..., "Lowered"]

TEXT = """
// a comment, {note}
template <typename A, typename B>
__device__ void inner(A *from, B *to) {{ to[0] = from[0]; }}
template <typename A, typename B>
__device__ void {name}(A *from, B *to, const int N = {count}) {{
    if (N > 0) {{ inner(from, to); }}
}}
__device__ int other(int x) {{ return x; }}
"""
KERNEL = """\
import tilelang
import tilelang.language as T

TEXT = {text!r}

@tilelang.jit(out_idx=[1])
def kernel():
    @T.prim_func
    def main(X: T.Tensor((16, {bytes}), "{source}"), Y: T.Tensor((16, {count}), "{target}")):
        with T.Kernel(1, threads=16) as bx:
            tx = T.get_thread_binding()
            packed = T.alloc_local(({bytes},), "{source}")
            whole = T.alloc_local(({count},), "{target}")
            T.import_source(TEXT)
            for i in T.vectorized({bytes}):
                packed[i] = X[tx, i]
            T.call_extern("handle", "{name}", T.access_ptr(packed, "r"), T.access_ptr(whole, "w"){more})
            for i in T.vectorized({count}):
                Y[tx, i] = whole[i]

    return main
"""


def _lower(folder: Path, lower: Lower, **given: object) -> Any:  # noqa: ANN401 (a Lowered, imported late)
    text = TEXT.format(name=given["name"], count=given["count"], note="that says nothing")
    values = {"source": "int8", "more": "", "text": text, **given}
    path = folder / "packed_numbers.py"
    path.write_text(KERNEL.format(**values), encoding="utf-8")
    spec = importlib.util.spec_from_file_location(f"packed_{given['name']}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return lower(module.kernel.get_tir(), [1])


def _take_as_known(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Have our text stand for the one that is known."""
    from tileyard.frontend import externs

    known = externs.KNOWN[name].digest
    monkeypatch.setattr(externs, "digest_function", lambda _, asked: known if asked == name else "")


# Where number k lies in the bits of all bytes together, the first byte the lowest.
_PLACES: dict[str, tuple[int, int, int, Callable[[int], int]]] = {
    "i1u_to_f16": (1, 8, 0, lambda k: k // 2 + 4 * (k % 2)),
    "i2u_to_f16": (2, 8, 0, lambda k: 2 * (k // 2) + 8 * (k % 2)),
    "i2s_to_f16": (2, 8, 2, lambda k: 2 * (k // 2) + 8 * (k % 2)),
    "i4u_to_f16": (4, 8, 0, lambda k: 4 * (k // 2) + 16 * (k % 2)),
    "i4s_to_f16": (4, 8, 8, lambda k: 4 * (k // 2) + 16 * (k % 2)),
    "i1u_to_i8s": (1, 16, 0, lambda k: k // 4 + 8 * (k % 2) + 4 * (k // 2 % 2)),
    "i2u_to_i8s": (2, 16, 0, lambda k: 2 * (k // 4) + 8 * (k % 4)),
    "i2s_to_i8s": (2, 16, 2, lambda k: 2 * (k // 4) + 8 * (k % 4)),
    "i4u_to_i8s": (4, 16, 0, lambda k: 32 * (k // 8) + 4 * (k // 4 % 2) + 8 * (k % 4)),
    "i4s_to_i8s": (4, 16, 7, lambda k: 32 * (k // 8) + 4 * (k // 4 % 2) + 8 * (k % 4)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", _PLACES)
def test_packed_integers_come_out(
    name: str, lower_prim_func: Lower, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Numbers that were put where the function looks for them are what it gives."""
    bits, count, offset, place = _PLACES[name]
    stored = np.random.default_rng(3).integers(0, 1 << bits, (16, count))
    expected = (stored - offset).astype(np.float16 if name.endswith("f16") else np.int8)
    words = [sum(int(row[k]) << place(k) for k in range(count)) for row in stored]
    size = bits * count // 8
    packed = np.array([list(word.to_bytes(size, "little")) for word in words], np.uint8)
    _take_as_known(monkeypatch, f"decode_{name}")
    program = _lower(
        tmp_path,
        lower_prim_func,
        name=f"decode_{name}",
        count=count,
        bytes=size,
        target=str(expected.dtype),
    ).program
    (got,) = interpret(program, [packed.view(np.int8)])
    np.testing.assert_array_equal(got, expected)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["i1s_to_f16", "i1s_to_i8s"])
def test_single_bits_are_signs(
    name: str, lower_prim_func: Lower, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bit that is set means 1, one that is not means -1."""
    count = 8 if name.endswith("f16") else 16
    expected = np.repeat(np.array([[-1], [1]] * 8), count, axis=1)
    packed = np.repeat(np.array([[0], [-1]] * 8, np.int8), count // 8, axis=1)
    _take_as_known(monkeypatch, f"decode_{name}")
    target = "float16" if name.endswith("f16") else "int8"
    sizes = {"count": count, "bytes": count // 8, "target": target}
    program = _lower(tmp_path, lower_prim_func, name=f"decode_{name}", **sizes).program
    (got,) = interpret(program, [packed])
    np.testing.assert_array_equal(got, expected)


def _as_a_gpu_does(packed: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Four bytes, the first one on top; shifted and masked, each half is a bfloat16 to be scaled."""
    rows = []
    for group in packed.reshape(-1, 4):
        word = int.from_bytes(bytes(group), "big")
        masked = [(word << 3 * j) & 0x81C081C0 for j in range(3)]
        masked.append(word << 1 & 0x80008000 | word >> 3 & 0x01800180 | word >> 7 & 0x00400040)
        halves = [m >> 16 & 0xFFFF for m in masked] + [m & 0xFFFF for m in masked]
        bits = np.array(halves, np.uint32) << np.uint32(16)
        rows.append(bits.view(np.float32).astype(np.float64) * 2.0**126)
    return np.concatenate(rows).astype(np.float32)


@pytest.mark.slow
def test_twiddled_numbers_of_four_bits_come_out(
    lower_prim_func: Lower, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All 16 numbers at all places are those that a GPU makes with a shift, a mask and a product."""
    packed = np.random.default_rng(5).integers(0, 256, (16, 8), np.uint8)
    expected = _as_a_gpu_does(packed).reshape(16, 16)
    assert set(np.abs(expected).ravel()) == {0, 0.5, 1, 1.5, 2, 3, 4, 6}
    name = "decode_fp4_to_bf16_twiddling"
    _take_as_known(monkeypatch, name)
    sizes = {"count": 16, "bytes": 8, "source": "uint8", "target": "bfloat16", "more": ", 2"}
    program = _lower(tmp_path, lower_prim_func, name=name, **sizes).program
    (got,) = interpret(program, [packed])
    np.testing.assert_array_equal(got.astype(np.float32), expected)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["decode_i4u_to_f16", "decode_i4u_to_f32"])
def test_another_text_is_another_function(
    name: str, lower_prim_func: Lower, tmp_path: Path
) -> None:
    """A function of the user's own is refused by its name, whatever it is called."""
    expected = f"call_extern {name}"
    with pytest.raises(UnsupportedError) as caught:
        _lower(tmp_path, lower_prim_func, name=name, count=8, bytes=4, target="float16")
    file = (tmp_path / "packed_numbers.py").read_text().splitlines()
    line = next(i for i, text in enumerate(file, 1) if "call_extern" in text)
    assert (caught.value.operation, caught.value.line) == (expected, line)


def test_spaces_and_comments_do_not_tell_functions_apart() -> None:
    """What a function says, and what those say that it calls, is what it is known by."""
    from tileyard.frontend.externs import digest_function

    plain = TEXT.format(name="decode", count=8, note="")
    expected = digest_function(plain, "decode")
    assert (
        digest_function(plain.replace("    ", "\n\t").replace("// a", "/* b */ // a"), "decode")
        == expected
    )
    assert digest_function(plain.replace("return x", "return 2 * x"), "decode") == expected
    assert digest_function(plain.replace("to[0] = from[0]", "to[0] = 1"), "decode") != expected
    assert digest_function(plain.replace("N > 0", "N > 1"), "decode") != expected
    assert digest_function(plain, "unknown") == ""

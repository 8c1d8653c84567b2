"""Refusals of TileLang name the kernel's line first; its own words follow."""

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from tileyard.artifacts.objects import ObjectStore
from tileyard.frontend.blame import describe_failure, explain_refusal
from tileyard.workers.author import Author
from tileyard.workers.protocol import ElaborateConfig, Failed

KERNEL = """
import tilelang.language as T
import tileyard

@tileyard.kernel()
def wrong(N=100, block=64, kind="x"):
    table = {{"a": 1}}
    @T.prim_func
    def main(A: T.Tensor((N,), "float32"), I: T.Tensor((N,), "int32"), O: T.Tensor((N,), "float32")):
        with T.Kernel(1, threads=32) as bx:
            tile = T.alloc_shared((N, 16), "float16")
            total = T.alloc_fragment((N, N), "float32")
            for i in T.Parallel(N):
                {line}
    return main
"""
WRONG = {
    "O[i] = A[i] % T.float32(2)": (
        "this takes integers, and A[i] is no integer, in `O[i] = A[i] % T.float32(2)` (TileLang: "
        "InternalError: Check failed: "
    ),
    "O[i] = A[i] & 3": "& takes integers, and A[i] is float32, in `O[i] = A[i] & 3` (TileLang: ",
    "O[i] = A[i] << 2": "<< takes integers, and A[i] is float32, in ",
    "I[i] = T.int32(1) << T.int32(31)": "2147483648 is not a value of int32, in ",
    "O[i] = A[i] and 1.0": "`and`, `or` and `not` take conditions, and an operand is a number, in ",
    "O[i] = max([A[i], 1.0])": "Python cannot decide on a value that is known only when the kernel runs: ",
    "I[i] = I[i // 0]": "division by zero, in `I[i] = I[i // 0]` (TileLang: ",
    "I[i] = I[i / 2]": "/ of integers is ambiguous: write //",
    "T.copy(A, tile)": (
        "the shapes of the two sides differ, in `T.copy(A, tile)` (TileLang: ValueError: "
        "StructuralEqual"
    ),
    "T.gemm(tile, tile, total)": (
        "the operands of T.gemm differ in K: 16 and 100, in `T.gemm(tile, tile, total)` (TileLang: "
    ),
    'O[i] = T.call_intrin("float32", "tirx.no_such", A[i])': "there is no operation tirx.no_such, in ",
    "assert N % block == 0": "`N % block == 0` does not hold, where N = 100, block = 64",
    "T.copy(A[0], total[0, :])": (
        "an assertion fails, in `T.copy(A[0], total[0, :])` (TileLang: `len(obj.indices) == len(exts)` "
        "does not hold)"
    ),
    "O[i] = A[table[kind]]": "there is no key 'x', in `O[i] = A[table[kind]]` (KeyError)",
    # Python's and TileLang's own sentences stay
    "O[i] = nothing": "NameError: name 'nothing' is not defined",
    "O[i] = A[i, 0]": "IndexError: Buffer A is 1-dimensional ",
    'assert N % block == 0, "a multiple of 64"': "AssertionError: a multiple of 64",
}
numbers = itertools.count()


@pytest.mark.slow
@pytest.mark.parametrize("line", WRONG)
def test_a_wrong_line_is_told_in_its_own_terms(tmp_path: Path, line: str) -> None:
    """Its place and one sentence come first, in one line; the compiler's own words come last."""
    file = tmp_path / f"wrong{next(numbers)}.py"
    file.write_text(KERNEL.format(line=line))
    author = Author.of_file(file, ObjectStore(tmp_path))
    reply = author.answer(ElaborateConfig(kernel="wrong", arguments={}, config={}))
    assert isinstance(reply, Failed)
    assert reply.message.startswith(f"{file}:14: {WRONG[line]}"), reply.message
    assert "\n" not in reply.message
    assert len(reply.message) < len(f"{file}") + 420
    assert "make_closure" not in reply.log


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Check failed: (x->y == z) is false: \n  in f()", "TileLang does not take this kernel"),
        ("", "TileLang does not take this kernel"),
        (" in T.Parallel loop:\n", "TileLang does not take this kernel"),
        (
            "Layout infer conflict between c and d in T.Parallel loop:\n  loop Fragment(",
            "c and d lie on different threads: let one of them pass through shared memory",
        ),
        (
            "Check failed: (M % 16 == 0) is false: M must be a multiple of 16",
            "M must be a multiple of 16",
        ),
        (
            "Mismatched type on argument #1 when calling: `f(0: x)`.\nExpected `Array<int>` but got `str`",
            "an argument has the wrong type: str in place of Array<int>",
        ),
        ("threads must be positive, got 0", ""),
    ],
)
def test_a_text_about_the_compilers_code_gets_a_sentence(text: str, expected: str) -> None:
    """Also one that is not known; a text that is a sentence itself gets none."""
    assert explain_refusal(text) == expected


@pytest.mark.parametrize(
    ("fail", "expected"),
    [
        (lambda: {}["a"], "there is no key 'a', in `(lambda"),
        (lambda: int("x"), "ValueError: invalid literal for int()"),
    ],
)
def test_errors_of_the_users_own_keep_their_words(
    fail: Callable[[], object], expected: str
) -> None:
    """A missing key alone says too little."""
    with pytest.raises((KeyError, ValueError)) as raised:
        fail()
    assert describe_failure(raised.value).summary.startswith(expected)

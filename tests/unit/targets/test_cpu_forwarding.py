"""Copies between tiles that gemms can do without."""

import pytest

from tileyard.ir.reader import read_program
from tileyard.targets.cpu.emit.keeping import find_forwarded
from tileyard.targets.cpu.emit.program import generate
from tileyard.targets.cpu.machine import Machine

PRODUCTS = """
def products(A: float32[32, 32], V: float32[32, 32], C: out.float32[32, 32]):
    threads(128)
    a: shared.float32[32, 32]
    v: shared.float32[32, 32]
    scores: fragment.float32[32, 32]
    weights: fragment.float32[32, 32]
    result: fragment.float32[32, 32]
    copy(A, a)
    copy(V, v)
    fill(result, 0.0)
    for step in serial(4):
        fill(scores, 0.0)
        gemm(a, v, scores)
        copy(scores, weights)
        gemm(weights, v, result)
    copy(result, C)
"""
COPY = "        copy(scores, weights)\n"


def test_a_gemm_reads_what_would_be_copied() -> None:
    """The copy is left out, its tile has no memory, and the rows that are read begin a vector apart."""
    text = generate(
        read_program(PRODUCTS), Machine(arch="x86_64", vector_bytes=32, registers=16), {}
    ).text
    expected = ("/* left out: gemms read scores */", "const float *left_ = &scores[0][0];")
    assert [part for part in expected if part not in text] == []
    assert "*weights" not in text
    assert "(*restrict scores)[40]" in text


def test_a_gemm_inside_a_later_statement_reads_what_would_be_copied() -> None:
    """What stands around the gemm makes no difference while it leaves the source alone."""
    program = read_program(
        PRODUCTS.replace("        gemm(weights", "        if step > 1:\n            gemm(weights")
    )
    expected = {"weights": "scores"}
    assert dict(find_forwarded(program).sources) == expected


@pytest.mark.parametrize(
    "changed",
    [
        PRODUCTS.replace(COPY, COPY + "        fill(scores, 1.0)\n"),
        PRODUCTS.replace("weights: fragment.float32", "weights: fragment.float16"),
        PRODUCTS.replace(COPY, "        if step > 1:\n            copy(scores, weights)\n"),
        PRODUCTS.replace(COPY, "").replace(
            "    fill(result", "    copy(scores, weights)\n    fill(result"
        ),
        PRODUCTS.replace("    copy(result, C)", "    copy(weights, C)"),
        PRODUCTS.replace("gemm(weights, v", "gemm(weights, weights"),
        PRODUCTS.replace("gemm(weights, v", "gemm(v, weights"),
        PRODUCTS.replace("gemm(weights, v, result)", "gemm(weights, v, result, transpose_a=True)"),
        PRODUCTS.replace("gemm(weights, v, result)", "gemm(weights, v, scores)"),
        PRODUCTS.replace(COPY, COPY + "        weights[0, 0] = 1.0\n"),
        PRODUCTS.replace(
            COPY, COPY.replace("scores, weights", "scores[0:+16, :], weights[0:+16, :]")
        ),
        PRODUCTS.replace("    result: ", "    row: fragment.float32[1024] = scores\n    result: "),
        PRODUCTS.replace("    result: ", "    row: fragment.float32[1024] = weights\n    result: "),
        PRODUCTS.replace(
            "    copy(A, a)",
            "    with roles:\n        with role(0, 32):\n            pass\n    copy(A, a)",
        ),
    ],
    ids=[
        "the source is written in between",
        "the copy rounds",
        "the copy is not always made",
        "the source is made anew before the gemm",
        "the copy is read by something else",
        "the copy is a right operand too",
        "the copy is a right operand",
        "the copy is read by columns",
        "the product goes into the source",
        "the copy is changed",
        "the copy is of a part",
        "the source has another name",
        "the copy has another name",
        "roles take turns",
    ],
)
def test_other_copies_are_made(changed: str) -> None:
    """A copy stays where its tile would hold something else than the source."""
    assert changed != PRODUCTS
    expected: dict[str, str] = {}
    assert dict(find_forwarded(read_program(changed)).sources) == expected

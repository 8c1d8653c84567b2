"""Random bodies of pipelined loops: whatever is pipelined means the same, and the checker is silent."""

import os

import numpy as np
from hypothesis import HealthCheck, assume, event, given, settings
from hypothesis import strategies as st
from tests.passes.cases import faults_of, is_pipelined, run_text

from tileyard.ir.nodes import Roles
from tileyard.workers.pass_steps import StepChecker

EXAMPLES = int(os.environ.get("TILEYARD_PASS_PROGRAMS", "60"))
ROWS = 12
HEAD = """\
def f(A: inout.float32[12, 4], B: float32[12, 4], T: int32[12], C: inout.float32[12, 4], n: int32):
    threads(32)
    a: shared.float32[4]
    b: shared.float32[4]
    e: shared.float32[2]
    s: shared.float32[4]
    c: fragment.float32[4]
    d: fragment.float32[4]

    fill(c, 0.5)
    fill(d, 0.25)
"""
PIECES = (
    "copy(A[K, :], a)",
    "copy(B[K, :], b)",
    "copy(A[K, :], a)\ncopy(B[K, :], b)",
    "copy(B[T[K], :], a)",
    "copy(B[K, 0 : +2], e)",
    "c[1] = c[1] + e[0]",
    "copy(A[ROW, :], b)",
    "copy(A[(K + ROW) % 12, :], a)",
    "copy(a, b)",
    "copy(b, s)",
    "copy(s, c)",
    "copy(c, s)",
    "copy(c, C[K, :])",
    "copy(d, A[K, :])",
    "C[K, 1] = a[2] + 1.0",
    "a[3] = d[0]",
    "for i@ in parallel(4):\n    c[i@] = c[i@] * 0.5 + a[i@]",
    "for i@ in parallel(4):\n    d[i@] = d[i@] + b[i@] * c[i@]",
    "for i@ in parallel(4):\n    b[i@] = b[i@] + 1.0",
    "for j@ in serial(2):\n    for i@ in parallel(4):\n        c[i@] = c[i@] + a[(i@ + j@) % 4]",
    "x@ = c[0]\nfill(d, x@)",
    "x@ = a[1] + b[2]\nfill(d, x@)",
    "for i@ in parallel(4):\n    a[i@] = A[ROW, i@]",
    "y@ = ROW + 1\ncopy(B[y@, :], b)",
    "if T[K] > 5:\n    copy(A[K, :], a)",
    "if T[K] > 5:\n    for i@ in parallel(4):\n        c[i@] = c[i@] + a[i@]",
    "if c[0] > 2.0:\n    copy(B[K, :], b)",
    "w@ = atomic_add(C[0, 0], 1.0)",
    "fill(a, 0.0)",
)
"""What bodies are made of: ``K`` is the variable of the loop, ``ROW`` a Let of it, ``@`` a number of the piece's own."""


FIRST = (
    "for i@ in parallel(4):\n    a[i@] = A[K, i@]\ncopy(B[K, :], b)",
    "copy(A[K, :], a)\nfor i@ in parallel(4):\n    b[i@] = B[K, i@]",
    "if T[K] > 5:\n    copy(A[K, :], a)\ncopy(B[K, :], b)",
    "copy(A[K, :], a)\ncopy(B[K, :], b)",
    "copy(B[ROW, :], b)\ncopy(A[K, :], a)",
    "fill(b, 1.0)\ncopy(A[K, :], a)",
    "copy(B[K, :], b)\ncopy(B[T[K], 2 : +2], e)\nd[0] = d[0] + b[0] * e[1]",
    "copy(B[K, :], a)\nfor i@ in parallel(4):\n    c[i@] = c[i@] * 0.5 + a[i@]",
    "",
)


def indented(text: str, depth: int) -> str:
    """Lines of a block."""
    return "".join(f"{'    ' * depth}{line}\n" for line in text.splitlines())


@st.composite
def loops(draw: st.DrawFn, name: str) -> str:
    """A pipelined loop, perhaps with a guard around its body, or within another loop."""
    trips = draw(st.sampled_from(["n", "n + 1", *map(str, range(10))]))
    start = draw(st.sampled_from(["", "", ", start=1", ", start=n // 4"]))
    chosen = draw(st.lists(st.sampled_from(PIECES), min_size=1, max_size=7))
    chosen = [draw(st.sampled_from(FIRST)), *chosen]
    pieces = [piece.replace("@", f"_{name}{number}") for number, piece in enumerate(chosen)]
    body = "ROW = T[K]\n" + "\n".join(pieces)
    around = draw(st.sampled_from(["", "", "", "if T[K] > 3:", "if c[1] < 9.0:", "if n > 4:"]))
    if around:
        body = f"{around}\n{indented(body, 1)}"
    stages = draw(st.integers(0, 5))
    text = f"for K in pipelined({trips}{start}, stages={stages}):\n{indented(body, 1)}"
    if draw(st.integers(0, 3)) == 0:
        text = f"for t_{name} in serial(2):\n{indented(text, 1)}"
    return text.replace("K", f"k_{name}").replace("ROW", f"row_{name}")


@st.composite
def programs(draw: st.DrawFn) -> str:
    """One or two loops over the same tiles, which are filled before, and perhaps used behind."""
    filled = draw(st.sampled_from(["", "", "fill(a, 1.0)\nfill(b, 2.0)\n"]))
    text = f"fill(s, 3.0)\n{filled}{draw(loops('p'))}"
    if draw(st.booleans()):
        text += draw(loops("q"))
    text += draw(st.sampled_from(["", "copy(a, C[11, :])\n", "copy(b, C[11, :])\n"]))
    return HEAD + indented(text + "copy(c, C[10, :])\ncopy(d, A[11, :])", 1)


@settings(
    max_examples=EXAMPLES,
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
@given(programs(), st.integers(0, 9), st.sampled_from(["sm_80", "sm_90a"]))
def test_random_loops_do_the_same(text: str, trips: int, pipeline: str) -> None:
    """After every pass, for every number of stages and iterations; what is wrong as it is written is no example."""
    rng = np.random.default_rng(0)
    table = (rng.permutation(ROWS) % 11).astype(np.int32)
    a, b, c = (rng.integers(1, 9, (ROWS, 4)).astype(np.float32) for _ in range(3))
    steps = run_text(text, pipeline)
    arrays = [a, b, table, c]
    checker = StepChecker(steps[0], arrays, [trips])
    assume(not checker.find_fault(steps[0]))
    has_roles = any(isinstance(stmt, Roles) for stmt in steps[-1].program.body)
    event("roles" if has_roles else "pipelined" if is_pipelined(steps[-1]) else "as it is")
    assert faults_of(steps, arrays, [trips]) == []

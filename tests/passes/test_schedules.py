"""Random schedules of the user's: a loop that follows one means the same, and the checker is silent."""

import os
import re
from collections import Counter

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from tests.passes.cases import faults_of, is_pipelined, run_text
from tests.passes.generated import indented

from tileyard.workers.pass_steps import StepChecker

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
    "copy(B[T[K], :], b)",
    "copy(B[ROW, 0 : +2], e)",
    "if T[K] > 5:\n    copy(A[K, :], a)",
    "copy(b, s)",
    "for i@ in parallel(4):\n    s[i@] = a[i@] * 2.0 + b[i@]",
    "for i@ in parallel(4):\n    s[i@] = s[i@] + a[i@]",
    "for i@ in parallel(4):\n    c[i@] = c[i@] * 0.5 + a[i@]",
    "for i@ in parallel(4):\n    c[i@] = c[i@] + s[i@]",
    "for i@ in parallel(4):\n    d[i@] = d[i@] + b[i@] * e[i@ % 2]",
    "if T[K] > 5:\n    for i@ in parallel(4):\n        c[i@] = c[i@] + a[i@]",
    "copy(c, C[K, :])",
    "copy(s, C[K, :])",
    "copy(a, c)",
    "C[ROW, 1] = b[2] + 1.0",
    "x@ = a[1] + s[2]\nfill(d, x@)",
    "y@ = ROW + 1\nfill(s, float32(y@))",
    "w@ = atomic_add(C[0, 0], 1.0)\nfill(d, w@)",
    "a[3] = d[0]",
)


@st.composite
def schedules(draw: st.DrawFn) -> str:
    """A loop with a user's schedule of up to four stages; mostly copies first and stages in order."""
    first = draw(st.sampled_from([PIECES[:2], PIECES[1:3], PIECES[2:5:2], PIECES[:1]]))
    chosen = [*first, *draw(st.lists(st.sampled_from(PIECES), min_size=1, max_size=5))]
    pieces = [piece.replace("@", str(number)) for number, piece in enumerate(chosen)]
    body = indented("ROW = T[K] % 9\n" + "\n".join(pieces), 1).replace("ROW", "row")
    stmts = [
        line
        for line in body.splitlines()
        if re.match(r"    (\w+\[|\w+ = atomic|\w+ (?!=)|\w+\()", line)
    ]
    count = len(stmts)
    stage = draw(st.lists(st.integers(0, 3), min_size=count, max_size=count))
    stage = draw(st.sampled_from([sorted(stage)] * 3 + [stage]))
    order = draw(
        st.sampled_from([[*range(count)], [*reversed(range(count))]])
        | st.permutations(range(count))
    )
    trips = draw(st.sampled_from(["n", "n + 1", *map(str, range(10))]))
    start = draw(st.sampled_from(["", "", ", start=1"]))
    listed = [", ".join(map(str, numbers)) + "," * (count == 1) for numbers in (order, stage)]
    loop = f"for K in pipelined({trips}{start}, order=({listed[0]}), stage=({listed[1]})):\n{body}"
    text = f"fill(a, 1.0)\nfill(b, 2.0)\nfill(e, 1.5)\nfill(s, 3.0)\n{loop.replace('K', 'k')}"
    text += draw(st.sampled_from(["", "", "", "copy(s, C[11, :])\n"]))
    return HEAD + indented(text + "copy(c, C[10, :])\ncopy(d, A[11, :])", 1)


SAMPLE = 30
EXAMPLES = int(os.environ.get("TILEYARD_PASS_PROGRAMS", SAMPLE))
pytestmark = [pytest.mark.slow, pytest.mark.timeout(10 * max(EXAMPLES, SAMPLE))]


def test_random_schedules_do_the_same() -> None:
    """Some that are followed, and those that break a dependence; beyond the sample after every pass."""
    followed: Counter[bool] = Counter()

    @settings(
        max_examples=EXAMPLES,
        derandomize=True,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )
    @given(schedules(), st.integers(0, 9), st.sampled_from(["sm_80", "sm_90a"]))
    def check(text: str, trips: int, pipeline: str) -> None:
        rng = np.random.default_rng(0)
        table = (rng.permutation(ROWS) % 11).astype(np.int32)
        a, b, c = (rng.integers(1, 9, (ROWS, 4)).astype(np.float32) for _ in range(3))
        steps, arrays = run_text(text, pipeline), [a, b, table, c]
        checker = StepChecker(steps[0], arrays, [trips])
        assume(not checker.find_fault(steps[0]))
        followed[is_pipelined(steps[-1])] += 1
        if EXAMPLES > SAMPLE:
            assert faults_of(steps, arrays, [trips]) == []
        assert checker.find_fault(steps[-1]) == ""

    check()
    assert min(followed[True], followed[False]) > 0

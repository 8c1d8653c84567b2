"""A mistake in a pass is found, and the pass is named."""

import re
from dataclasses import dataclass

import numpy as np
import pytest
from tests.passes.cases import run_text

from tileyard.ir.nodes import Program
from tileyard.ir.printer import print_program
from tileyard.ir.reader import read_program
from tileyard.passes.base import Pass, Passed
from tileyard.passes.pipeline import PIPELINES
from tileyard.workers.pass_steps import StepChecker

TEXT = """\
def f(A: float32[9, 4], B: float32[9, 4], C: out.float32[9, 4]):
    threads(32)
    a: shared.float32[4]
    b: shared.float32[4]

    for k in pipelined(9, stages=3):
        copy(A[k, :], a)
        copy(B[k, :], b)
        for i in parallel(4):
            C[k, i] = a[i] * 2.0 + b[i]
"""
ARRAYS = [np.arange(36, dtype=np.float32).reshape(9, 4) + 1, np.ones((9, 4), np.float32)]


@dataclass(frozen=True)
class Spoiled:
    """A pass with a mistake in the text of what it makes."""

    right: Pass
    old: str
    new: str

    @property
    def name(self) -> str:
        """That of the pass."""
        return self.right.name

    def run(self, program: Program) -> Passed:
        """Run the pass, and put the mistake in."""
        passed = self.right.run(program)
        text = re.sub(self.old, self.new, print_program(passed.program))
        assert text != print_program(passed.program)
        return Passed(program=read_program(text), origins=())


@pytest.mark.parametrize(
    ("number", "old", "new", "said"),
    [
        (2, r"wait_group\(0", "wait_group(1", "read before arrival"),
        (2, r"\n +commit_group.*", "", "wait without group"),
        (2, r"B\[k, :\]", "A[k, :]", "are not those of the written kernel"),
        (
            3,
            r"copy\(A\[k, :\], a\[k % 3, :\]",
            "copy(A[k, :], a[0, :]",
            "are not those of the written",
        ),
        (3, r"b: shared.float32\[3,", "b: shared.float32[2,", "outside"),
        (3, r"a\[k % 3, i\]", "a[i]", "a has 2 dimensions"),
        (4, r"wait_group\(1,", "wait_group(2,", "read before arrival"),
        (4, r"wait_group\(1 - k_last", "wait_group(1", "read before arrival"),
        (4, r"\(k \+ 2\) % 3", "(k + 3) % 3", ""),
        (4, r"% 3", "% 2", ""),
        (4, r"serial\(7\)", "serial(6)", "are not those of the written kernel"),
    ],
)
def test_a_mistake_in_a_pass_is_found(number: int, old: str, new: str, said: str) -> None:
    """By the checker, or by the results; and no other pass is blamed."""
    passes = list(PIPELINES["sm_80"])
    passes[number] = Spoiled(passes[number], old, new)
    steps = run_text(TEXT, passes[: number + 1])
    *well, fault = StepChecker(steps[0], ARRAYS).check(steps)
    assert set(well) == {""}
    assert fault
    assert said in fault


@pytest.mark.parametrize(
    ("number", "old", "new", "said"),
    [
        (5, r"% 2 \^ 1", "% 2", "deadlock"),
        (5, r"full: barrier\[1, 1, 1\]", "full: barrier[2, 2, 2]", "deadlock"),
        (5, r"empty: barrier\[32, 32, 32\]", "empty: barrier[16, 16, 16]", "deadlock"),
        (5, r"\n +wait_barrier\(empty.*", "", "deadlock"),
        (5, r"\n +wait_barrier\(full.*", "", "deadlock"),
        (5, r"\n +arrive\(empty.*", "", "deadlock"),
        (5, r"count=0, bytes=16", "count=0, bytes=8", ""),
        (5, r"copy\(A\[k_1, :\], a\[k_1 % 3", "copy(A[k_1, :], a[(k_1 + 1) % 3", ""),
        (5, r"( +for i (?:.*\n)+)( +arrive\(empty.*\n)", r"\2\1", "overwritten"),
        (5, r"k // 3 % 2\)", "(k + 1) // 3 % 2)", ""),
        (5, r"k_1 in serial\(9\)", "k_1 in serial(8)", "deadlock"),
    ],
)
def test_a_mistake_in_roles_is_found(number: int, old: str, new: str, said: str) -> None:
    """Of barriers, phases, bytes and versions."""
    passes = list(PIPELINES["sm_90a"])
    passes[number] = Spoiled(passes[number], old, new)
    steps = run_text(TEXT, passes)
    fault = next(filter(None, StepChecker(steps[0], ARRAYS).check(steps)), "")
    assert fault
    assert said in fault

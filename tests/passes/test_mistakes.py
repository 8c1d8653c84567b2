"""A mistake in a pass is found, and the pass is named."""

import re
from dataclasses import dataclass

import numpy as np
import pytest
from tests.passes.cases import run_text

from tileyard.ir.nodes import Program
from tileyard.ir.text import print_program, read_program
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
        (1, r"wait_group\(0", "wait_group(1", "read before arrival"),
        (1, r"\n +commit_group.*", "", "wait without group"),
        (1, r"B\[k, :\]", "A[k, :]", "are not those of the written kernel"),
        (
            2,
            r"copy\(A\[k, :\], a\[k % 3, :\]",
            "copy(A[k, :], a[0, :]",
            "are not those of the written",
        ),
        (2, r"b: shared.float32\[3,", "b: shared.float32[2,", "outside"),
        (2, r"a\[k % 3, i\]", "a[i]", "a has 2 dimensions"),
        (3, r"wait_group\(1,", "wait_group(2,", "read before arrival"),
        (3, r"wait_group\(1 - k_last", "wait_group(1", "read before arrival"),
        (3, r"\(k \+ 2\) % 3", "(k + 3) % 3", ""),
        (3, r"% 3", "% 2", ""),
        (3, r"serial\(7\)", "serial(6)", "are not those of the written kernel"),
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

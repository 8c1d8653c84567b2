"""Programs held against the one that is written."""

import numpy as np

from tileyard.ir.reader import read_program
from tileyard.passes.pipeline import Step
from tileyard.workers.pass_steps import StepChecker

WRITTEN = """\
def f(A: float32[4], B: inout.float32[4], C: inout.float32[4]):
    copy(A, C)
    for k in serial(0):
        copy(A, B)
"""


def step(text: str) -> Step:
    """A Program in text, as a step of a pipeline."""
    return Step(name="planned", program=read_program(text), lines={})


def test_a_loop_without_iterations_may_be_gone() -> None:
    """Then nothing writes its array any more, which is not an output of that Program."""
    arrays = [np.full(4, number, np.float32) for number in range(3)]
    checker = StepChecker(step(WRITTEN), arrays)
    gone = WRITTEN.partition("    for")[0].replace("B: inout.", "B: ")
    assert checker.find_fault(step(gone)) == ""
    fault = checker.find_fault(step(gone.replace("copy(A, C)", "fill(C, 1.0)")))
    assert fault == "8 bytes of C are not those of the written kernel"


def test_an_array_that_is_only_read_is_not_written() -> None:
    """A plan that writes one has another role for it, which is no reason to leave it out."""
    arrays = [np.full(4, number, np.float32) for number in range(3)]
    checker = StepChecker(step(WRITTEN), arrays)
    spoilt = WRITTEN.replace("A: float32", "A: inout.float32") + "    fill(A, 7.0)\n"
    assert "A is an `in` parameter, and it is written" in checker.find_fault(step(spoilt))

"""Runs a pipeline on a Program, and holds each step against the Program as it is written."""

from collections.abc import Sequence

import numpy as np

from tileyard.ir.dtypes import find_dtype
from tileyard.ir.nodes import Const, For, Issue, Tensor
from tileyard.ir.printer import print_program
from tileyard.ir.reader import read_program
from tileyard.ir.verify import verify
from tileyard.ir.walk import walk
from tileyard.passes.base import Pass
from tileyard.passes.pipeline import Step, run_pipeline
from tileyard.workers.pass_steps import StepChecker

COUNTING = ("annotate-instructions", "infer-shared-layouts")
"""Passes whose notes are about each operation or access."""

Arrays = Sequence[np.ndarray]


def body_of(step: Step) -> str:
    """The statements of a step, as text."""
    return print_program(step.program).partition("\n\n")[2]


def step_of(steps: Sequence[Step], name: str) -> Step:
    """The step behind the pass of this name."""
    return next(step for step in steps if step.name == name)


def faults_of(steps: Sequence[Step], arrays: Arrays, scalars: Sequence[int] = ()) -> list[str]:
    """What is wrong with the steps; each is also printed and read again."""
    for step in steps:
        assert read_program(print_program(step.program)) == step.program
    return [fault for fault in StepChecker(steps[0], arrays, scalars).check(steps) if fault]


def run_text(text: str, pipeline: str | Sequence[Pass] = "sm_80") -> tuple[Step, ...]:
    """The steps of a Program in text."""
    program = read_program(text)
    verify(program)
    return run_pipeline(program, pipeline)


def reasons_of(steps: Sequence[Step]) -> list[str]:
    """Why passes left statements as they were; what they count is no reason."""
    return [note.message for step in steps if step.name not in COUNTING for note in step.notes]


def is_pipelined(step: Step) -> bool:
    """Whether something is asynchronous, and no loop is left that asks for stages."""
    stmts = list(walk(step.program.body))
    return any(isinstance(stmt, Issue) for stmt in stmts) and not any(
        isinstance(stmt, For) and stmt.kind == "pipelined" for stmt in stmts
    )


def make_array(param: Tensor, seed: int) -> np.ndarray:
    """Small numbers for a parameter of constant shape."""
    shape = tuple(int(extent.value) for extent in param.buffer.shape if isinstance(extent, Const))
    numbers = np.random.default_rng(seed).integers(0, 4, shape)
    return numbers.astype(find_dtype(param.buffer.dtype).numpy)

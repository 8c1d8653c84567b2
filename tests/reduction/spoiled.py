"""Pipelines with a mistake in one pass, known by name to authors of kernels that import this module."""

import re
from dataclasses import dataclass

from tileyard.ir.nodes import Program
from tileyard.ir.printer import print_program
from tileyard.ir.reader import read_program
from tileyard.passes.base import Pass, Passed
from tileyard.passes.pipeline import PIPELINES


@dataclass(frozen=True)
class Spoiled:
    """A pass with a mistake in the text of what it makes, where there is something to make it in."""

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
        return Passed(program=read_program(text), origins=())


def spoil(name: str, old: str, new: str) -> tuple[Pass, ...]:
    """The pipeline for sm_80 up to the pass of this name, which has a mistake."""
    passes = PIPELINES["sm_80"]
    number = [one.name for one in passes].index(name)
    return (*passes[:number], Spoiled(passes[number], old, new))


PIPELINES["wrong_versions"] = spoil(
    "version-buffers", r", (\w+)\[t(\w*) % \d+, :, :\]\)", r", \1[0, :, :])"
)
PIPELINES["wrong_waits"] = spoil(
    "inject-pipeline", r"wait_group\((\d+), unit", r"wait_group(\1 + 1, unit"
)

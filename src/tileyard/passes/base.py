"""Defines a pass: from a Program to a Program, with the reasons for what it left as it was."""

from typing import Protocol

from tileyard.base.model import Record
from tileyard.ir.nodes import Program


class Note(Record):
    """Why a pass left its input's statement ``number``, or a count there; ``other`` is a second, or -1."""

    number: int
    text: str
    other: int = -1


class Passed(Record):
    """A pass's result: the Program, its statements' source numbers in pre-order, and the reasons."""

    program: Program
    origins: tuple[int, ...]
    notes: tuple[Note, ...] = ()


class Pass(Protocol):
    """A frozen dataclass, its fields the options. It keeps Programs valid, and their results the same."""

    @property
    def name(self) -> str:
        """The name of the pass, as in ``plan-pipeline``."""

    def run(self, program: Program) -> Passed:
        """Rewrite ``program``."""

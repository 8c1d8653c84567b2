"""Defines a pass: from a Program to a Program, with the reasons for what it left as it was."""

from typing import Protocol

from tileyard.base.model import Record
from tileyard.ir.nodes import Program


class Note(Record):
    """Why a pass left a statement as it was, or what it counted there; ``number`` is the statement's number in the pass's input.

    ``other`` is the number of a second statement that the text is about, -1 for none.
    """

    number: int
    text: str
    other: int = -1


class Passed(Record):
    """The result of a pass: the Program, for each of its statements in pre-order the number of its source, and the reasons."""

    program: Program
    origins: tuple[int, ...]
    notes: tuple[Note, ...] = ()


class Pass(Protocol):
    """A frozen dataclass whose fields are its options. It keeps a valid Program valid, and its result the same."""

    @property
    def name(self) -> str:
        """The name of the pass, as in ``plan-pipeline``."""

    def run(self, program: Program) -> Passed:
        """Rewrite ``program``."""

"""What a pass is: from a Program to a Program, with the reasons for what it left as it was."""

from typing import Protocol

from tileyard.ir.nodes import Program
from tileyard.model import Record


class Note(Record):
    """Why a pass left a statement as it was, or what it counted there; ``number`` is the statement's in the Program that the pass was given.

    ``other`` is the number of a second statement that the text is about, -1 for none.
    """

    number: int
    text: str
    other: int = -1


class Passed(Record):
    """What a pass made, for each of its statements in pre-order the number of the one from which it comes, and the reasons."""

    program: Program
    origins: tuple[int, ...]
    notes: tuple[Note, ...] = ()


class Pass(Protocol):
    """A frozen dataclass whose fields are its options. It leaves a valid Program valid, and its result the same."""

    @property
    def name(self) -> str:
        """Its name, as in ``plan-pipeline``."""

    def run(self, program: Program) -> Passed:
        """Rewrite ``program``."""

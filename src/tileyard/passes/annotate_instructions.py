"""Notes which unit will carry out each tile operation, and why no better one; the Program stays."""

from dataclasses import dataclass

from tileyard.ir.nodes import Copy, Product, Program
from tileyard.ir.walk import number_statements
from tileyard.passes.base import Note, Passed
from tileyard.passes.instructions import (
    Choice,
    choose_load,
    choose_product,
    find_architecture,
    is_load,
)
from tileyard.passes.storage import Storage

PLAIN = Choice(instruction="copy")


@dataclass(frozen=True)
class AnnotateInstructions:
    """Notes on the units that load tiles and that multiply, on one architecture."""

    architecture: str
    name: str = "annotate-instructions"

    def run(self, program: Program) -> Passed:
        """Note which units are used."""
        arch, storage = find_architecture(self.architecture), Storage(program)
        notes = []
        for number, stmt in number_statements(program):
            match stmt:
                case Copy():
                    choice = choose_load(stmt, storage, arch) if is_load(stmt, storage) else PLAIN
                case _ if isinstance(stmt, Product):
                    choice = choose_product(stmt, storage, arch)
                case _:
                    continue
            why = f", because {choice.reason}" if choice.reason else ""
            notes.append(Note(number=number, text=f"by {choice.instruction}{why}"))
        origins = tuple(number for number, _ in number_statements(program))
        return Passed(program=program, origins=origins, notes=tuple(notes))

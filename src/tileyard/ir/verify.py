"""Says what is legal in a Program."""

from tileyard.ir.nodes import Program


def verify(program: Program) -> None:
    """Raise InvalidProgramError for the first rule that ``program`` breaks."""

"""How counted things, files and lines are put into words, the same way in messages and in views."""

from collections.abc import Sequence
from pathlib import Path

VALUE_LENGTH = 60
"""A value of the user's is shown in at most as many characters."""


def count_of(number: int, what: str) -> str:
    """``1 case``, ``2 cases``."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def shorten_path(file: str) -> str:
    """A path as people would type it: relative where it lies below the working directory."""
    try:
        return str(Path(file).relative_to(Path.cwd()))
    except (ValueError, OSError):
        return file


def name_line(file: str, line: int) -> str:
    """``kernels.py:41``."""
    return f"{shorten_path(file)}:{line}"


def show_value(value: object) -> str:
    """A value of the user's in one short line: its ``repr``, or its type's name where that is longer."""
    shown = repr(value)
    if len(shown) <= VALUE_LENGTH and shown.isprintable():
        return shown
    kind = f"a {type(value).__name__}"
    name = getattr(value, "__name__", "")
    return f"{name} ({kind})" if name else kind


def describe_unrecorded(trials: Sequence[str]) -> str:
    """Which trials, at least one, a store has not taken, in the order in which they ended."""
    ids = trials[0] if len(trials) == 1 else f"{trials[0]} to {trials[-1]}"
    return f"{count_of(len(trials), 'trial')} could not be recorded: {ids}"

"""How counted things, files and lines are put into words, the same way in messages and in views."""

from pathlib import Path


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

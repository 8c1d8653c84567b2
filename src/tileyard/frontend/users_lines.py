"""What lines of the user's file say that TIR no longer does."""

import linecache
import re

from tileyard.model import SourceLine

_AXES = re.compile(r"\bas\s*\(?\s*(\w+(?:\s*,\s*\w+)*)\s*,?\s*\)?\s*:")
_STACK = re.compile(r"^\s*at (.+):(\d+) in .*$", re.MULTILINE)
_LONGEST = 12
"""How many lines the head of a launch may have."""


def name_axes(where: SourceLine | None) -> tuple[str, ...]:
    """What the launch on this line calls the dimensions of its grid; empty where that is not found."""
    if where is None:
        return ()
    head = "".join(linecache.getlines(where.file)[where.line - 1 :][:_LONGEST])
    found = _AXES.search(head) if head.lstrip().startswith("with ") else None
    return tuple(re.split(r"\s*,\s*", found[1])) if found else ()


def split_stack(message: str) -> tuple[str, SourceLine | None]:
    """A message of ``device_assert`` without the lines that TileLang adds to it, and the first of these."""
    found = _STACK.search(message)
    said = _STACK.sub("", message).strip()
    return said, SourceLine(file=found[1], line=int(found[2])) if found else None

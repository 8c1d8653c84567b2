"""What lines of the user's file say that TIR no longer does."""

import linecache
import re
from collections.abc import Sequence

from tileyard.model import SourceLine

_AXES = re.compile(r"\bas\s*\(?\s*(\w+(?:\s*,\s*\w+)*)\s*,?\s*\)?\s*:")
_STACK = re.compile(r"^\s*at (.+):(\d+) in .*$", re.MULTILINE)
_LONGEST = 12
"""How many lines the head of a launch may have."""
_REACH = 60
"""How many lines a call of one of TileLang's macros may lie below the statement before it."""


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


def find_call(after: SourceLine, words: Sequence[str]) -> SourceLine | None:
    """The next line below ``after`` that calls something of the first word's name, or of the next one's."""
    lines = linecache.getlines(after.file)[after.line :][:_REACH]
    for word in words:
        for number, text in enumerate(lines, after.line + 1):
            if word and f".{word}" in text:
                return SourceLine(file=after.file, line=number)
    return None

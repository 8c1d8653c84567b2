"""Annotates generated C for readers: lines of the user's files replace the numbers of statements."""

import re
from collections.abc import Mapping

from tileyard.base.model import SourceLine
from tileyard.base.wording import name_line

_NUMBERED = re.compile(r"/\* (\d+): ")


def annotate(text: str, lines: Mapping[int, SourceLine]) -> str:
    """``text`` with ``kernels.py:41`` in comments that name a statement of known line; no line moves."""

    def name(found: re.Match[str]) -> str:
        at = lines.get(int(found[1]))
        return found[0] if at is None else f"/* {name_line(at.file, at.line)}: "

    return _NUMBERED.sub(name, text)

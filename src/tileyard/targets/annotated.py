"""Generated C as people read it: with lines of the user's files in place of the numbers of statements."""

import re
from collections.abc import Mapping

from tileyard.model import SourceLine
from tileyard.wording import name_line

_NUMBERED = re.compile(r"/\* (\d+): ")


def annotate(text: str, lines: Mapping[int, SourceLine]) -> str:
    """``text`` with ``kernels.py:41`` where a comment names a statement whose line is known.

    Nothing moves to another line of the text.
    """

    def name(found: re.Match[str]) -> str:
        at = lines.get(int(found[1]))
        return found[0] if at is None else f"/* {name_line(at.file, at.line)}: "

    return _NUMBERED.sub(name, text)

"""``tile.h`` as artifacts hold it: one file with its parts in it, since each file of an artifact takes time."""

import re
from functools import cache
from pathlib import Path

HEADERS = Path(__file__).with_name("headers")

_INCLUDE = re.compile(r'#include "(\S+)"\n')


@cache
def header_text() -> str:
    """``tile.h`` with all that it includes of ours, each part once."""
    seen: set[str] = set()

    def part(name: str) -> str:
        if name in seen:
            return ""
        seen.add(name)
        text = (HEADERS / name).read_text(encoding="utf-8")
        return _INCLUDE.sub(lambda found: part(found[1]), text)

    return part("tile.h")

"""Suggests a name for one that is not there."""

import itertools
import re
from collections.abc import Iterator
from pathlib import Path

from tileyard.base.wording import find_similar, name_some

FOLDERS = 20
"""Folders whose files are compared with a name that is not there."""
_SIGN = re.compile(r"[*?[]")


def name_nearest(path: Path) -> str:
    """A hint for a missing absolute path or glob: the name most like it, or some of those that are there."""
    above = next(one for one in path.parents if any(True for _ in _find(one)))
    wanted = path.parts[len(above.parts)]
    folders = [one for one in itertools.islice(_find(above), FOLDERS) if one.is_dir()]
    names = sorted({one.name for folder in folders for one in folder.iterdir()})
    if near := find_similar(wanted, names):
        return f"did you mean {near!r}?"
    return f"{above} contains {name_some(names)}" if names else ""


def _find(pattern: Path) -> Iterator[Path]:
    if not _SIGN.search(str(pattern)):
        return iter([pattern] if pattern.exists() else [])
    base = Path(pattern.anchor)
    return base.glob(str(pattern.relative_to(base)))

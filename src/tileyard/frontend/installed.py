"""Telling installed packages and the standard library from everything else, by path alone."""

import os
import sysconfig

SITE_FOLDERS = frozenset({"site-packages", "dist-packages"})
"""What folders are called that hold installed packages."""

_ROOTS = tuple(
    f"{sysconfig.get_path(name)}{os.sep}" for name in ("stdlib", "platstdlib", "purelib", "platlib")
)
_MARKS = tuple(f"{os.sep}{folder}{os.sep}" for folder in SITE_FOLDERS)


def is_installed(path: str) -> bool:
    """Whether a path lies in the standard library or among installed packages; cheap to ask."""
    return path.startswith(_ROOTS) or any(mark in path for mark in _MARKS)

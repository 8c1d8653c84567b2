"""Words for counted things, files and lines, the same in messages and in views."""

import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from pathlib import Path

_IES = re.compile("(?<![aeiou])y$")
NAMED = 5
"""Most names of a list in a message."""
SHORTEST = 3
"""Shortest beginning, in characters, of a word by which it is found."""
TOO_LARGE = "too large"
"""Instead of the outcome of what exceeds a limit of devices, or of its study."""
VALUE_LENGTH = 60
"""Most characters of a user's value in a message."""


def count_of(number: int, what: str) -> str:
    """``1 case``, ``2 cases``; words that end like ``launch`` or ``entry`` get their English plural."""
    if number == 1:
        return f"1 {what}"
    stem = _IES.sub("ie", what)
    return f"{number} {stem}es" if what.endswith(("ch", "sh", "s", "x")) else f"{number} {stem}s"


def say_end(outcome: str, exceeds: str) -> str:
    """How configs ended: their outcome, or ``too large (registers)`` if they exceed a limit."""
    return f"{TOO_LARGE} ({exceeds})" if exceeds else str(outcome)


def find_similar(word: str, known: Iterable[str]) -> str:
    """The known word most like a misspelt one or beginning with it, empty if none; case matters least."""
    folded: dict[str, str] = {}
    for one in known:
        folded.setdefault(one.casefold(), one)
    start = word.casefold()
    near = get_close_matches(start, folded, n=1)
    near = near or [one for one in folded if len(start) >= SHORTEST and one.startswith(start)]
    return folded[near[0]] if near else ""


def name_some(names: Iterable[str], most: int = NAMED, between: str = ", ") -> str:
    """The first names of a list, and the number of the remaining ones."""
    listed = list(names)
    more = f" and {len(listed) - most} more" if len(listed) > most else ""
    return between.join(listed[:most]) + more


def shorten_path(file: str) -> str:
    """A path as people would type it: relative if it is below the working directory."""
    try:
        return str(Path(file).relative_to(Path.cwd()))
    except (ValueError, OSError):
        return file


def name_line(file: str, line: int) -> str:
    """``kernels.py:41``."""
    return f"{shorten_path(file)}:{line}"


def show_value(value: object) -> str:
    """A user's value in one short line: its ``repr``, or its type's name if that is too long."""
    shown = repr(value)
    if len(shown) <= VALUE_LENGTH and shown.isprintable():
        return shown
    kind = f"a {type(value).__name__}"
    name = getattr(value, "__name__", "")
    return f"{name} ({kind})" if name else kind


def install_extra(extras: str) -> str:
    """How to install optional packages; no index has this package, so it is installed from a checkout."""
    return f"pip install './tileyard[{extras}]' beside the checkout"


def describe_unrecorded(trials: Sequence[str]) -> str:
    """A message on the trials, at least one, that a store could not record, in their order."""
    ids = trials[0] if len(trials) == 1 else f"{trials[0]} to {trials[-1]}"
    return f"{count_of(len(trials), 'trial')} could not be recorded: {ids}"

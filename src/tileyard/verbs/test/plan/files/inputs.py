"""Files that steps name: a pattern that matches none is refused, with the nearest files as a hint."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from tileyard.artifacts.digests import find_files
from tileyard.base.places import KeyPath, Place
from tileyard.verbs.test.plan.files.nearest import name_nearest

if TYPE_CHECKING:
    from tileyard.verbs.test.plan.files.steps import Text


class InputFiles:
    """Looks for the ``inputs`` and ``target_inputs`` of a file's steps. A pattern that depends on the case
    may match nothing, as long as one beside it matches.
    """

    def __init__(self) -> None:
        self._known: dict[str, bool] = {}
        self._looked: set[tuple[KeyPath, tuple[str, ...]]] = set()
        self._idle: dict[KeyPath, tuple[Place, str]] = {}
        self._used: set[KeyPath] = set()

    def look(self, texts: "Sequence[Text]", patterns: tuple[str, ...]) -> None:
        """Look for what ``texts`` name for a case. Raises UsageError where that is nothing at all."""
        if not patterns or (key := (texts[0].place.keys, patterns)) in self._looked:
            return
        self._looked.add(key)
        for text, pattern in zip(texts, patterns, strict=True):
            if self._has(pattern):
                self._used.add(text.place.keys)
            elif text.names:
                self._idle.setdefault(text.place.keys, (text.place, pattern))
            else:
                refuse_idle_pattern(pattern, text.place)
        if not any(self._known[one] for one in patterns):
            refuse_idle_pattern(patterns[0], texts[0].place)

    def finish(self) -> None:
        """Raise UsageError for a pattern that matched nothing for any case."""
        for keys, (place, pattern) in self._idle.items():
            if keys not in self._used:
                refuse_idle_pattern(pattern, place)

    def _has(self, pattern: str) -> bool:
        if pattern not in self._known:
            is_there = Path(pattern).is_dir() or any(True for _ in find_files(Path("/"), pattern))
            self._known[pattern] = is_there
        return self._known[pattern]


def refuse_idle_pattern(pattern: str, place: Place) -> NoReturn:
    """Raise UsageError for an absolute path or glob that matches no file."""
    place.fail(f"{pattern} matches no file", name_nearest(Path(pattern)))

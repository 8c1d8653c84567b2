"""What a user's functions read while they run, for results that are kept beyond their process. The
interpreter's audit events show it, as for a footprint, but only while a user's code runs, because
the process may be the user's own.
"""

import os
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tileyard.base.model import Record
from tileyard.frontend.footprint import (
    OWN,
    counts,
    find_read,
    identify_file,
    variables_named_in,
)

_TICK_NS = 20_000_000
"""By at most this a file's time of change is behind the clock."""


class Reads(Record):
    """What a result depends on beyond the code: content of files, empty for an absent one, and variables."""

    files: dict[str, str] = {}
    variables: dict[str, str] = {}

    def is_current(self, code: Iterable[str]) -> bool:
        """Whether functions in the files ``code`` would read the same now; they then count as read here."""
        for path in self.files:
            sys.audit("open", path, "r", os.O_RDONLY)
        return all(
            identify_file(path) == digest for path, digest in self.files.items()
        ) and self.variables == variables_named_in((*code, *self.files), os.environ)


class Watch:
    """Notes what is read in this process, from the first time on: a function may remember it afterwards."""

    def __init__(self) -> None:
        self._opened_ns: dict[str, int] = {}
        self._code: set[str] = set()
        self._is_on = self._has_hook = False

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Note each file that is run or opened to read meanwhile."""
        if not self._has_hook:
            sys.addaudithook(self._hear)
            self._has_hook = True
        before, self._is_on = self._is_on, True
        try:
            yield
        finally:
            self._is_on = before

    @contextmanager
    def importing(self) -> Iterator[None]:
        """Note each file that is opened meanwhile, except code that is imported: a closure contains it."""
        with self.reading():
            yield
        for path in self._code:
            self._opened_ns.pop(path, None)

    def tell(self, code: Iterable[str], apart: Path) -> Reads | None:
        """What was read so far outside ``apart``, and the functions' ``code`` files; None if one
        has changed.
        """
        known = set(code)
        paths = [
            path
            for path in self._opened_ns
            if path not in known and not Path(path).is_relative_to(apart.absolute())
        ]
        if any(_changed_ns(path) > self._opened_ns[path] - _TICK_NS for path in paths):
            return None
        files = {path: identify_file(path) for path in sorted(paths)}
        return Reads(files=files, variables=variables_named_in((*known, *files), os.environ))

    def _hear(self, event: str, arguments: tuple[object, ...]) -> None:
        if not self._is_on:  # also while Python ends, which takes modules away
            return
        given = find_read(event, arguments)
        if not isinstance(given, (str, bytes, os.PathLike)):
            return
        name = os.fsdecode(given)
        if name.startswith("<") or not counts(name):
            return
        path = str(Path(name).absolute())
        if path.startswith(OWN):
            return
        self._opened_ns.setdefault(path, time.time_ns())
        if event != "open":
            self._code.add(path)


def _changed_ns(path: str) -> int:
    """When a file's content or place was last changed; this time cannot be set back."""
    try:
        return Path(path).stat().st_ctime_ns
    except OSError:
        return 0


WATCH = Watch()
"""The watch of this process: an audit hook cannot be removed."""

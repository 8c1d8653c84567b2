"""Which cases a change of files touches: those whose steps name one of them."""

import os
import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from tileyard.errors import UsageError
from tileyard.model import Record
from tileyard.suite.content import NamedFiles
from tileyard.suite.reading import WILDCARDS
from tileyard.suite.records import Suite, SuiteCase

_ESCAPED = re.compile(rb"\\(?:([0-7]{3})|(.?))", re.DOTALL)
_ESCAPES = {
    b"a": b"\a",
    b"b": b"\b",
    b"t": b"\t",
    b"n": b"\n",
    b"v": b"\v",
    b"f": b"\f",
    b"r": b"\r",
    b'"': b'"',
    b"\\": b"\\",
}
"""What git writes behind a backslash in a name between quotes."""


class Change(Record):
    """Files that changed, by their paths below ``root``, the top of the checkout.

    All cases depend on what fits ``always``; what fits ``ignore`` touches none. Both are globs and
    paths from ``root``, as in steps.
    """

    root: Path
    files: tuple[str, ...]
    always: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()


class Touched(Record):
    """The cases that a change touches, by their ids. Where ``why_all`` says something, these are all.

    ``unnamed`` are changed files that nobody names and that no suite holds.
    """

    cases: tuple[str, ...]
    why_all: str = ""
    unnamed: tuple[str, ...] = ()


def find_root(folders: Iterable[Path]) -> Path:
    """The top of the checkout that all folders lie in, else the lowest folder that has them all."""
    lowest = Path(os.path.commonpath([folder.resolve() for folder in folders]))
    return next((one for one in (lowest, *lowest.parents) if (one / ".git").exists()), lowest)


def parse_changed(text: str) -> tuple[str, ...]:
    """Paths as ``git diff --name-only`` prints them, one a line, with or without its quotes."""
    lines = (line.removesuffix("\r") for line in text.split("\n"))
    return tuple(dict.fromkeys(_unquote(line) for line in lines if line))


def find_touched(suite: Suite, change: Change) -> Touched:
    """The cases of a suite that a change touches.

    A file that lies in the suite's folder and that no step names may be what the suite itself is made
    of, as a program that lists its cases: it touches all of them. So do files of ``change.always``, and those in which cases are declared.
    """
    named_files, folder = NamedFiles(), Path(suite.folder)
    patterns = {case.id: named_files.by_case(case, folder) for case in suite.cases}
    files = [_absolute(change.root, file) for file in change.files]
    ignore = [_absolute(change.root, text) for text in change.ignore]
    files = [file for file in files if not any(is_named(file, one) for one in ignore)]
    distinct = {pattern for those in patterns.values() for pattern in those}
    hits = {pattern: [file for file in files if is_named(file, pattern)] for pattern in distinct}
    named = {file for found in hits.values() for file in found}
    why_all, unnamed = _find_reason(suite, change, files, named)
    touched = tuple(
        case for case, those in patterns.items() if why_all or any(hits[one] for one in those)
    )
    return Touched(
        cases=touched,
        why_all=why_all,
        unnamed=tuple(os.path.relpath(file, change.root) for file in unnamed),
    )


def list_filters(cases: Iterable[SuiteCase], folder: Path, root: Path) -> dict[str, list[str]]:
    """For each family the files on which its cases depend, as globs from ``root`` where they lie below.

    A folder stands as ``folder/**``, as filters of paths in workflows have it.
    """
    named_files = NamedFiles()
    found: dict[str, set[str]] = {}
    for case in cases:
        family = case.family or case.testcase
        found.setdefault(family, set()).update(named_files.by_case(case, folder))
    shown: dict[str, str] = {}
    for pattern in {one for those in found.values() for one in those}:
        path = Path(pattern)
        text = str(path.relative_to(root)) if path.is_relative_to(root) else pattern
        shown[pattern] = f"{text}/**" if path.is_dir() else text
    return {family: sorted(shown[one] for one in those) for family, those in found.items()}


def is_named(file: str, pattern: str) -> bool:
    """Whether an absolute pattern of a step names a file: as such, as its folder, or as a glob.

    The file need not be there any more. As in steps ``*`` stays within a folder and ``**`` does not.
    """
    if file == pattern or file.startswith(pattern.rstrip(os.sep) + os.sep):
        return True
    if not any(sign in pattern for sign in WILDCARDS):
        return False
    return _fits(Path(file).parts, Path(pattern).parts)


def _fits(parts: Sequence[str], pattern: Sequence[str]) -> bool:
    if not pattern:
        return not parts
    if pattern[0] == "**":
        return any(_fits(parts[skip:], pattern[1:]) for skip in range(len(parts)))
    return bool(parts) and fnmatchcase(parts[0], pattern[0]) and _fits(parts[1:], pattern[1:])


def _find_reason(
    suite: Suite, change: Change, files: Sequence[str], named: set[str]
) -> tuple[str, list[str]]:
    """Why all cases are touched, if they are; and the changed files that touch nothing."""
    declaring = {suite.path, *(case.where.rpartition(":")[0] for case in suite.cases)}
    always = [_absolute(change.root, text) for text in change.always]
    unnamed = []
    for file in files:
        shown = os.path.relpath(file, change.root)
        if file in declaring:
            return f"{shown} declares them", []
        if any(is_named(file, one) for one in always):
            return f"all depend on {shown}", []
        if file in named:
            continue
        if is_named(file, suite.folder):
            return f"{shown} lies in the suite's folder, and no step names it", []
        unnamed.append(file)
    return "", unnamed


def _absolute(root: Path, text: str) -> str:
    return os.path.normpath(root / text)


def _unquote(line: str) -> str:
    """A path that git put between quotes for its unusual signs, as it is."""
    if len(line) < 2 or not (line[0] == line[-1] == '"'):
        return line

    def put(found: re.Match[bytes]) -> bytes:
        if found[1]:
            return bytes([int(found[1], 8) & 0xFF])
        if found[2] not in _ESCAPES:
            raise UsageError(f"{line}: is no path as git writes it")
        return _ESCAPES[found[2]]

    return _ESCAPED.sub(put, line[1:-1].encode()).decode("utf-8", "surrogateescape")

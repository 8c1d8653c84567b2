"""Identifies a case by its content, and finds the cases that a change of files touches; nothing is built or
run. An identity covers a case's steps and the files that they name, or a kernel's file and what is asked of
it, but no names or places: two jobs with one identity, in any checkouts, would run the same twice.
"""

import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

import msgspec

from tileyard.artifacts.digests import LONGEST, FileDigests
from tileyard.artifacts.objects import canonical_json, digest_parts
from tileyard.base.errors import UsageError
from tileyard.base.model import CommandWork, Digest, KernelWork, Record, Step
from tileyard.targets.command.given import PATH_END
from tileyard.verbs.test.plan.choosing import is_about
from tileyard.verbs.test.plan.reading import WILDCARDS
from tileyard.verbs.test.result.result import Suite, SuiteCase

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
"""The characters that git writes after a backslash in a quoted name."""


class Contents:
    """Identities of the cases of a checkout, whose top is ``root``; each file is read once, and named
    relative to it, so that suites which share files agree.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._files = FileDigests()
        self._named = NamedFiles()
        self._known: dict[tuple[str, ...], str] = {}
        # The interpreter first: it may lie in the checkout, at another place in each.
        self._places = [
            (form, _place_pattern(form), stand)
            for place, stand in ((sys.executable, "{python}"), (str(root), "{root}"))
            for form in dict.fromkeys((place.replace("{", "{{").replace("}", "}}"), place))
            if place not in ("", os.sep)
        ]

    def identify(self, case: SuiteCase, folder: Path, on: str = "") -> Digest:
        """The identity of a case, whose kernels are complete, of a suite in ``folder``. ``on`` is what it
        runs on: a kernel's target, a program's class of devices.
        """
        match case.work:
            case CommandWork() as work:
                steps = [self._describe(step, base) for step, base in _steps_of(work, folder)]
                hot = [one for one in (work.hot, work.check_hot) if one is not None]
                said = "".join(canonical_json((o.began, o.ended, o.verdicts)) for o in hot)
                held = () if work.devices == 1 else (work.devices,)
                judged = canonical_json((work.target, work.part.path, work.outputs, said, *held))
                return digest_parts("case of programs", on, judged, *steps)
            case KernelWork() as work:
                asked = (work.kernel, work.arguments, work.config, work.reference, work.tolerance)
                content = self._digest((work.file,))
                return digest_parts("case of a kernel", on, content, canonical_json(asked))

    def identify_step(self, step: Step, folder: Path) -> Digest:
        """The identity of one step of a case of a suite in ``folder``."""
        return digest_parts("step", self._describe(step, folder))

    def identify_command(self, step: Step, on: str = "") -> Digest:
        """The identity of a command that a job runs; its ``cwd`` and its inputs are absolute."""
        return digest_parts("command", on, self._describe(step, Path(step.cwd)))

    def _describe(self, step: Step | None, base: Path | None) -> str:
        """A step and the content of the files that it names, without their locations."""
        if step is None:
            return ""
        cwd = step.cwd or ("" if base is None else str(base))
        return canonical_json(
            (
                [self._displace(text) for text in step.argv],
                {name: self._displace(text) for name, text in step.env.items()},
                self._displace(cwd),
                [self._displace(pattern) for pattern in step.inputs],
                (step.inherits, step.inherits_all),
                self._digest(self._named.by_step(step, base)),
            )
        )

    def _displace(self, text: str) -> str:
        """A text with marks for the places that differ between checkouts."""
        for place, pattern, stand in self._places:
            if place in text:
                text = pattern.sub(rf"\g<1>{stand}", text)
        return text

    def _digest(self, patterns: tuple[str, ...]) -> str:
        if patterns not in self._known:
            self._known[patterns] = self._files.digest(self._root, patterns)
        return self._known[patterns]


class NamedFiles:
    """Finds the files that steps name. Each folder is listed once, so the files must not change."""

    def __init__(self) -> None:
        self._entries: dict[str, frozenset[str]] = {}
        self._is_file = cache(lambda path: Path(path).is_file())

    def by_case(self, case: SuiteCase, folder: Path) -> tuple[str, ...]:
        """The files, directories and globs on which a case depends. Absolute, sorted, each once."""
        match case.work:
            case KernelWork() as work:
                return (os.path.normpath(work.file),)
            case CommandWork() as work:
                steps = _steps_of(work, folder)
                found = (self.by_step(step, base) for step, base in steps if step is not None)
                return tuple(sorted({pattern for patterns in found for pattern in patterns}))

    def by_step(self, step: Step, base: Path | None) -> tuple[str, ...]:
        """The files that a step names: inputs, and files among its arguments. ``base`` is where it runs if it
        names no directory; None if one is made for it.
        """
        folder = step.cwd or ("" if base is None else str(base))
        named = [*step.inputs, *self._find_files(step.argv, folder)]
        return tuple(sorted({os.path.normpath(text) for text in named}))

    def _find_files(self, argv: Sequence[str], folder: str) -> Iterator[str]:
        """The arguments that are files; those with places are known only when the step runs."""
        for text in argv:
            if "{" in text or "\0" in text or len(text) > LONGEST or text == sys.executable:
                continue
            if text.startswith(os.sep):
                path = text
            elif folder.startswith(os.sep) and self._may_be_in(folder, text):
                path = f"{folder}{os.sep}{text}"
            else:
                continue
            if self._is_file(path):
                yield path

    def _may_be_in(self, folder: str, text: str) -> bool:
        """Whether the folder contains the first part of a path; most arguments are not paths."""
        first = text.partition(os.sep)[0]
        if first in (os.curdir, os.pardir):
            return True
        if folder not in self._entries:
            here = Path(folder)
            entries = here.iterdir() if here.is_dir() else ()
            self._entries[folder] = frozenset(entry.name for entry in entries)
        return first in self._entries[folder]


def _steps_of(work: CommandWork, folder: Path) -> tuple[tuple[Step | None, Path | None], ...]:
    """All steps in their order, each with the directory that it runs in if it names none."""
    hot = None if work.hot is None else work.hot.step
    late = () if work.check_hot is None else (work.check_hot.step,)
    build = work.build
    if build is not None and work.target_part.inputs:
        inputs = (*build.inputs, *work.target_part.inputs)
        build = msgspec.structs.replace(build, inputs=inputs)
    return (
        (build, folder),
        (work.golden, folder),
        (work.run, None),
        (work.check, None),
        (hot, None),
        *((step, None) for step in late),
    )


def _place_pattern(place: str) -> re.Pattern[str]:
    """A place where a path begins: alone, after the letter of an option, or after a sign."""
    return re.compile(rf"(^-[A-Za-z]|^|[=:,;@\"'(\s]){re.escape(place)}{PATH_END}")


# ---- what a change touches ----------------------------------------------------------------------


class Change(Record):
    """Changed files, by their paths below ``root``, the top of the checkout. All cases depend on those that
    match ``always``, none on those that match ``ignore``: globs and paths from ``root``, as in steps.
    """

    root: Path
    files: tuple[str, ...]
    always: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()


class Touched(Record):
    """The ids of the cases that a change touches: all if ``why_all`` says so. ``unnamed`` files are in no
    step, and the suite does not say to which cases they belong.
    """

    cases: tuple[str, ...]
    why_all: str = ""
    unnamed: tuple[str, ...] = ()


def find_root(folders: Iterable[Path]) -> Path:
    """The top of the checkout that contains all folders, otherwise the lowest folder that contains them."""
    lowest = Path(os.path.commonpath([folder.resolve() for folder in folders]))
    return next((one for one in (lowest, *lowest.parents) if (one / ".git").exists()), lowest)


def parse_changed(text: str) -> tuple[str, ...]:
    """Paths as ``git diff --name-only`` prints them, one a line, with or without its quotes."""
    lines = (line.removesuffix("\r") for line in text.split("\n"))
    return tuple(dict.fromkeys(_unquote(line) for line in lines if line))


def find_touched(suite: Suite, change: Change) -> Touched:
    """The cases of a suite that a change touches: all for a file that no step names, unless the suite says
    where it belongs, as it may be a module or source of a step; for files of ``change.always``; and where
    cases are declared.
    """
    named_files = NamedFiles()
    patterns = {case.id: _list_files(suite, case, named_files) for case in suite.cases}
    files = [_absolute(change.root, file) for file in change.files]
    ignore = [_absolute(change.root, text) for text in change.ignore]
    files = [file for file in files if not any(is_named(file, one) for one in ignore)]
    distinct = {pattern for those in patterns.values() for pattern in those}
    hits = {pattern: [file for file in files if is_named(file, pattern)] for pattern in distinct}
    named = {file for found in hits.values() for file in found}
    idle = [text for one in suite.belongs for text in one.files]
    named |= {file for file in files if any(is_named(file, text) for text in idle)}
    why_all, unnamed = _find_reason(suite, change, files, named)
    touched = tuple(
        case for case, those in patterns.items() if why_all or any(hits[one] for one in those)
    )
    return Touched(
        cases=touched,
        why_all=why_all,
        unnamed=tuple(os.path.relpath(file, change.root) for file in unnamed),
    )


def _list_files(suite: Suite, case: SuiteCase, named_files: NamedFiles) -> tuple[str, ...]:
    belonging = (one for one in suite.belongs if any(is_about(text, case) for text in one.cases))
    named = named_files.by_case(case, Path(suite.folder))
    return (*named, *(file for one in belonging for file in one.files))


def touches_step(step: Step, change: Change, also: Iterable[str] = ()) -> str:
    """The changed file, from ``change.root``, that requires a command: one that it names, one of ``also``
    (absolute), or one on which all depends; empty if there is none.
    """
    named = (*NamedFiles().by_step(step, Path(step.cwd)), *also)
    asked = (*named, *(_absolute(change.root, text) for text in change.always))
    ignored = [_absolute(change.root, text) for text in change.ignore]
    for shown in change.files:
        file = _absolute(change.root, shown)
        if any(is_named(file, one) for one in asked) and not any(
            is_named(file, one) for one in ignored
        ):
            return shown
    return ""


def list_filters(suite: Suite, cases: Iterable[SuiteCase], root: Path) -> dict[str, list[str]]:
    """For each family the files on which its cases depend, as globs (``folder/**``, as filters of workflows),
    relative to ``root`` if below it.
    """
    named_files = NamedFiles()
    found: dict[str, set[str]] = {}
    for case in cases:
        family = case.family or case.testcase
        found.setdefault(family, set()).update(_list_files(suite, case, named_files))
    shown: dict[str, str] = {}
    for pattern in {one for those in found.values() for one in those}:
        path = Path(pattern)
        text = str(path.relative_to(root)) if path.is_relative_to(root) else pattern
        shown[pattern] = f"{text}/**" if path.is_dir() else text
    return {family: sorted(shown[one] for one in those) for family, those in found.items()}


def is_named(file: str, pattern: str) -> bool:
    """Whether an absolute pattern of a step names a file, which need not exist: itself, its folder, or a
    glob, in which ``**``, and not ``*``, crosses folders.
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
    """Why all cases are touched, if they are; and the changed files of which nothing says what they touch."""
    declaring = {suite.path, *(case.where.rpartition(":")[0] for case in suite.cases)}
    always = [_absolute(change.root, text) for text in change.always]
    unnamed = []
    for file in files:
        shown = os.path.relpath(file, change.root)
        if file in declaring:
            return f"{shown} declares them", []
        if any(is_named(file, one) for one in always):
            return f"all depend on {shown}", []
        if file not in named:
            unnamed.append(file)
    if not unnamed:
        return "", []
    more = f" and {len(unnamed) - 1} more" if len(unnamed) > 1 else ""
    return f"no step names {os.path.relpath(unnamed[0], change.root)}{more}", unnamed


def _absolute(root: Path, text: str) -> str:
    return os.path.normpath(root / text)


def _unquote(line: str) -> str:
    """A path without the quotes that git adds for unusual characters."""
    if len(line) < 2 or not (line[0] == line[-1] == '"'):
        return line

    def put(found: re.Match[bytes]) -> bytes:
        if found[1]:
            return bytes([int(found[1], 8) & 0xFF])
        if found[2] not in _ESCAPES:
            raise UsageError(f"{line}: is not a path as git writes it")
        return _ESCAPES[found[2]]

    return _ESCAPED.sub(put, line[1:-1].encode()).decode("utf-8", "surrogateescape")

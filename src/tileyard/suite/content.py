"""What a case is by its content: what two jobs would run twice if both ran it.

Nothing is built and nothing is run. An identity is over the steps of a case and the content of the
files that they name, or over the file of a kernel and what is asked of it; not over names, nor over
the place where the files lie, so that it is the same in every checkout.
"""

import os
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from tileyard.artifacts.keys import canonical_json, digest_parts
from tileyard.model import Digest
from tileyard.suite.records import CommandWork, KernelWork, SuiteCase
from tileyard.targets.command.records import Step
from tileyard.workers.file_digests import FileDigests

LONGEST_PATH = 1000
"""A longer argument is not looked for among the files."""


class Contents:
    """Identities of the cases of one checkout, whose top is ``root``; each file is read once.

    Files are named as they are found from ``root``, so suites that share them agree, wherever in the
    checkout each of them lies.
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
        """The identity of a case of a suite in ``folder``, whose kernels are complete.

        ``on`` is what it runs on: the target of a kernel, the class of devices of a program.
        """
        match case.work:
            case CommandWork() as work:
                steps = [self._describe(step, base) for step, base in _steps_of(work, folder)]
                hot = work.hot
                said = "" if hot is None else canonical_json((hot.began, hot.ended, hot.verdicts))
                judged = canonical_json((work.target, work.outputs, said))
                return digest_parts("case of programs", on, str(case.seed), judged, *steps)
            case KernelWork() as work:
                asked = (work.kernel, work.arguments, work.config, work.reference, work.tolerance)
                content = self._digest((work.file,))
                return digest_parts("case of a kernel", on, content, canonical_json(asked))

    def identify_command(self, step: Step, on: str = "") -> Digest:
        """The identity of a command that a job runs; its ``cwd`` and its inputs are absolute."""
        return digest_parts("command", on, self._describe(step, Path(step.cwd)))

    def _describe(self, step: Step | None, base: Path | None) -> str:
        """A step and the content of what it names, without the places where that lies."""
        if step is None:
            return ""
        cwd = step.cwd or ("" if base is None else str(base))
        return canonical_json(
            (
                [self._displace(text) for text in step.argv],
                {name: self._displace(text) for name, text in step.env.items()},
                self._displace(cwd),
                [self._displace(pattern) for pattern in step.inputs],
                self._digest(self._named.by_step(step, base)),
            )
        )

    def _displace(self, text: str) -> str:
        """A text with marks for the places that differ from checkout to checkout."""
        for place, pattern, stand in self._places:
            if place in text:
                text = pattern.sub(rf"\g<1>{stand}", text)
        return text

    def _digest(self, patterns: tuple[str, ...]) -> str:
        if patterns not in self._known:
            self._known[patterns] = self._files.digest(self._root, patterns)[0]
        return self._known[patterns]


class NamedFiles:
    """Finds what steps name. Each folder is looked into once, so the files must stay as they are."""

    def __init__(self) -> None:
        self._entries: dict[str, frozenset[str]] = {}
        self._are_files: dict[str, bool] = {}

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
        """What a step names: its inputs, and the files among its arguments.

        ``base`` is the directory that it runs in where it names none, None for one that is made for it.
        """
        folder = step.cwd or ("" if base is None else str(base))
        named = [*step.inputs, *self._find_files(step.argv, folder)]
        return tuple(sorted({os.path.normpath(text) for text in named}))

    def _find_files(self, argv: Sequence[str], folder: str) -> Iterator[str]:
        """The arguments that are files; those with places are known only when the step runs."""
        for text in argv:
            if "{" in text or "\0" in text or len(text) > LONGEST_PATH or text == sys.executable:
                continue
            if text.startswith(os.sep):
                path = text
            elif folder.startswith(os.sep) and self._may_be_in(folder, text):
                path = f"{folder}{os.sep}{text}"
            else:
                continue
            if path not in self._are_files:
                self._are_files[path] = Path(path).is_file()
            if self._are_files[path]:
                yield path

    def _may_be_in(self, folder: str, text: str) -> bool:
        """Whether the folder has what a path begins with; most arguments are no paths at all."""
        first = text.partition(os.sep)[0]
        if first in (os.curdir, os.pardir):
            return True
        if folder not in self._entries:
            here = Path(folder)
            entries = here.iterdir() if here.is_dir() else ()
            self._entries[folder] = frozenset(entry.name for entry in entries)
        return first in self._entries[folder]


def _steps_of(work: CommandWork, folder: Path) -> tuple[tuple[Step | None, Path | None], ...]:
    """All steps in their order, each with the directory that it runs in where it names none."""
    hot = None if work.hot is None else work.hot.step
    return (
        (work.build, folder),
        (work.golden, folder),
        (work.run, None),
        (work.check, None),
        (hot, None),
    )


def _place_pattern(place: str) -> re.Pattern[str]:
    """A place where a path begins: alone, behind the letter of an option, or behind a sign."""
    return re.compile(rf"(^-[A-Za-z]|^|[=:,;@\"'(\s]){re.escape(place)}(?![\w.-])")

"""What a case is by its content: what two jobs would run twice if both ran it.

Nothing is built and nothing is run. An identity is over the steps of a case and the content of the
files that they name, or over the file of a kernel and what is asked of it; not over names, nor over
the place where the files lie, so that it is the same in every checkout.
"""

import os
import re
import sys
from collections.abc import Iterable, Sequence
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
        self._known: dict[tuple[str, ...], str] = {}
        # The interpreter first: it may lie in the checkout, at another place in each.
        self._places = [
            (_place_pattern(place), stand)
            for place, stand in ((sys.executable, "{python}"), (str(root), "{root}"))
            if place not in ("", os.sep)
        ]

    def identify(self, case: SuiteCase, folder: Path, on: str = "") -> Digest:
        """The identity of a case of a suite in ``folder``, whose kernels are complete.

        ``on`` is what it runs on: the target of a kernel, the class of devices of a program.
        """
        match case.work:
            case CommandWork() as work:
                data = canonical_json((case.seed, case.dtype, case.shape))
                steps = [self._describe(step, base) for step, base in _steps_of(work, folder)]
                hot = work.hot
                said = "" if hot is None else canonical_json((hot.began, hot.ended, hot.verdicts))
                judged = canonical_json((work.target, work.outputs, said))
                return digest_parts("case of programs", on, data, judged, *steps)
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
                self._digest(step_patterns(step, base)),
            )
        )

    def _displace(self, text: str) -> str:
        """A text with marks for the places that differ from checkout to checkout."""
        for pattern, stand in self._places:
            text = pattern.sub(rf"\g<1>{stand}", text)
        return text

    def _digest(self, patterns: tuple[str, ...]) -> str:
        if patterns not in self._known:
            self._known[patterns] = self._files.digest(self._root, patterns)[0]
        return self._known[patterns]


def case_patterns(case: SuiteCase, folder: Path) -> tuple[str, ...]:
    """The files, directories and globs on which a case depends, each absolute and once."""
    match case.work:
        case KernelWork() as work:
            return (os.path.normpath(work.file),)
        case CommandWork() as work:
            steps = _steps_of(work, folder)
            found = (step_patterns(step, base) for step, base in steps if step is not None)
            return tuple(sorted({pattern for patterns in found for pattern in patterns}))


def step_patterns(step: Step, base: Path | None) -> tuple[str, ...]:
    """What a step names: its inputs, and the files among its arguments. Absolute, sorted, each once.

    ``base`` is the directory that it runs in where it names none, None for one that is made for it.
    """
    if step.cwd:
        base = Path(step.cwd)
    named = [*step.inputs, *_find_files(step.argv, base)]
    return tuple(sorted({os.path.normpath(text) for text in named}))


def _find_files(argv: Sequence[str], base: Path | None) -> Iterable[str]:
    """The arguments that are files; those with places are known only when the step runs."""
    for text in argv:
        if "{" in text or "\0" in text or len(text) > LONGEST_PATH:
            continue
        path = Path(text) if base is None else base / text
        if path.is_absolute() and text != sys.executable and path.is_file():
            yield str(path)


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
    doubled = place.replace("{", "{{").replace("}", "}}")
    either = "|".join(dict.fromkeys((re.escape(doubled), re.escape(place))))
    return re.compile(rf"(^-[A-Za-z]|^|[=:,;@\"'(\s])(?:{either})(?![\w.-])")

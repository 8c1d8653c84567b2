"""From the tables of steps to steps: texts filled as far as is known, programs looked for.

In texts with ``{names}`` what is known when a suite is read is filled in, the rest stays for later.
"""

import os
import re
import shutil
import string
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from typing import Literal, TypeVar

from tileyard.model import PLACES, Step
from tileyard.suite.files.places import Place
from tileyard.suite.files.tables import BuildTable, HotTable, RunTable, StepTable, decode
from tileyard.workers.file_digests import find_problem

Kind = Literal["build", "golden", "run", "check", "hot", "list"]

PLACES_OF: dict[Kind, frozenset[str]] = {
    "build": frozenset({"out", "cache", "threads", "toolchain", "targets"}),
    "golden": frozenset({"out", "threads", "toolchain"}),
    "run": frozenset({"work", "golden", "build", "device", "threads", "toolchain"}),
    "check": frozenset({"work", "golden", "build", "threads", "toolchain"}),
    "hot": frozenset({"work", "build", "device", "threads", "toolchain", "cases", "works"}),
    "list": frozenset(),
}
"""What each step is told when it runs. A golden result that knew of a build would depend on it."""
IN_WORK: frozenset[Kind] = frozenset({"run", "check", "hot"})
"""Steps that run in the case's work directory unless they say otherwise."""
ALONE = ("targets", "cases", "works")
"""Places that become several arguments, and so must be arguments of their own."""
OF_TESTCASE = frozenset({"suite", "python", "testcase"})
"""What is the same for all cases of a testcase."""

BRACES = "write a brace that is meant as such twice"
_NOTHING: frozenset[str] = frozenset()
_PLACES = frozenset(PLACES)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
Form = TypeVar("Form", bound=StepTable)


@dataclass(frozen=True, kw_only=True, slots=True)
class Text:
    """A text taken apart: literal pieces, each with the name that follows it, empty for none.

    ``names`` are all that it asks for.
    """

    text: str
    place: Place
    pieces: tuple[tuple[str, str], ...]
    names: frozenset[str]

    @property
    def first(self) -> str:
        """The name that it begins with, empty where it begins with anything else."""
        return self.pieces[0][1] if self.pieces and not self.pieces[0][0] else ""

    @property
    def is_lone(self) -> bool:
        """Whether it is one name and nothing else."""
        return len(self.pieces) == 1 and not self.pieces[0][0]

    def fill_in(self, values: Mapping[str, str], later: frozenset[str]) -> str:
        """The text as a template of the names ``later``, with all else filled in. Raises UsageError.

        Braces that are meant as such stay doubled, also those of values.
        """
        return self.text if self.names <= later else self._join(values, later, double)

    def fill(self, values: Mapping[str, str]) -> str:
        """The finished text, with single braces. Raises UsageError."""
        return self._join(values, _NOTHING, str)

    def _join(
        self, values: Mapping[str, str], later: frozenset[str], write: Callable[[str], str]
    ) -> str:
        parts = []
        for literal, name in self.pieces:
            parts.append(write(literal))
            if name in values:
                parts.append(write(values[name]))
            elif name in later:
                parts.append(f"{{{name}}}")
            elif name:
                known = sorted({*values, *later})
                near = get_close_matches(name, known, n=1)
                meant = f"did you mean {{{near[0]}}}? " if near else ""
                listed = ", ".join(f"{{{one}}}" for one in known)
                self.place.fail(
                    f"{{{name}}} stands for nothing here; {meant}known are {listed}; {BRACES}"
                )
        return "".join(parts)


Env = Mapping[str, Text]
"""Variables of steps."""


def read_text(text: str, place: Place) -> Text:
    """The text that stands at a place, taken apart. Raises UsageError where its braces make no sense."""
    pieces = []
    try:
        for literal, name, form, conversion in string.Formatter().parse(text):
            if name is not None and (form or conversion or not name.isidentifier()):
                place.fail(f"{text!r} is no template; {BRACES}")
            pieces.append((literal, name or ""))
    except ValueError as error:
        place.fail(f"{text!r} is no template: {error}; {BRACES}")
    if "\0" in text:
        place.fail("a NUL character cannot be passed on")
    names = frozenset(name for _, name in pieces if name)
    return Text(text=text, place=place, pieces=tuple(pieces), names=names)


def double(text: str) -> str:
    """A text as a template that stands for it."""
    return text.replace("{", "{{").replace("}", "}}")


class StepPlan:
    """A step whose templates are read, to be filled in for one case after another."""

    def __init__(self, table: StepTable, kind: Kind, place: Place, argv: Place, env: Env) -> None:
        """``env`` are the variables of more general tables: what the step has itself stays, and it gets
        none that asks for what this step is not told. ``argv`` is where its ``argv`` stands.
        """
        self.kind = kind
        self.place = place
        self._later = PLACES_OF[kind]
        self._limit_s = table.limit_s or 0.0
        if not table.argv or not table.argv[0]:
            argv.fail("names no program")
        self._argv = [read_text(text, argv / number) for number, text in enumerate(table.argv)]
        for text in self._argv:
            if text.names.intersection(ALONE) and not text.is_lone:
                text.place.fail("becomes several arguments, so it must stand alone")
        told = {name: text for name, text in env.items() if text.names & _PLACES <= self._later}
        self._env = {**told, **read_env(table.env, place / "env")}
        self._inputs = [
            read_text(text, place / "inputs" / number) for number, text in enumerate(table.inputs)
        ]
        self._cwd = read_text(table.cwd, place / "cwd")
        self._is_same_for_all = self.names <= self._later | OF_TESTCASE
        self._kept: Step | None = None

    @property
    def names(self) -> frozenset[str]:
        """All that its texts ask for."""
        texts = (*self._argv, *self._env.values(), *self._inputs, self._cwd)
        return frozenset(name for text in texts for name in text.names)

    def fill_in(self, values: Mapping[str, str], home: Path) -> Step:
        """The step of a case. ``home`` is the suite's folder, which an empty ``cwd`` stands for."""
        if self._kept is not None:
            return self._kept
        folder = self.place.document.folder
        step = Step(
            argv=self._fill_argv(values, folder),
            env={name: text.fill_in(values, self._later) for name, text in self._env.items()},
            inputs=tuple(self._fill_input(text, values, folder) for text in self._inputs),
            cwd=self._fill_cwd(values, folder, home),
            limit_s=self._limit_s,
        )
        if self._is_same_for_all:
            self._kept = step
        return step

    def _fill_input(self, text: Text, values: Mapping[str, str], folder: Path) -> str:
        pattern = folder / text.fill(values)
        if problem := find_problem(pattern):
            text.place.fail(problem)
        return str(pattern)

    def _fill_argv(self, values: Mapping[str, str], folder: Path) -> tuple[str, ...]:
        program, *rest = self._argv
        argv = [text.fill_in(values, self._later) for text in rest]
        if program.names & self._later:
            return (program.fill_in(values, self._later), *argv)
        search = self._env["PATH"].fill_in(values, self._later) if "PATH" in self._env else ""
        name = program.fill(values)
        found = find_program(name, folder, search)
        if not found:
            program.place.fail(
                f"there is no program {name!r}, neither on PATH nor in {folder}",
                "what a build step makes is found under {build}",
            )
        return (double(found), *argv)

    def _fill_cwd(self, values: Mapping[str, str], folder: Path, home: Path) -> str:
        cwd = self._cwd.fill_in(values, self._later)
        if cwd.startswith("/") or self._cwd.first in self._later:
            return cwd
        if not cwd and (self.kind in IN_WORK or folder == home):
            return ""
        return double(str(folder)) + (f"/{cwd}" if cwd else "")


def read_step(raw: object, kind: Kind, place: Place, env: Env) -> StepPlan:
    """The step that is written at a place; ``env`` is what it gets besides its own."""
    return _read(raw, StepTable, kind, place, env)[1]


def read_build(raw: object, place: Place, env: Env) -> tuple[StepPlan, Text]:
    """A build step, and what of it a case needs."""
    table, plan = _read(raw, BuildTable, "build", place, env)
    if "targets" in plan.names and not table.target:
        place.fail("asks for {targets}, and no `target` says what a case needs")
    return plan, read_text(table.target, place / "target")


def read_run(
    raw: object, place: Place, env: Env
) -> tuple[StepPlan, tuple[HotTable, StepPlan] | None]:
    """A run step, and how several cases of a testcase run in one process."""
    table, plan = _read(raw, RunTable, "run", place, env)
    if table.hot is None:
        return plan, None
    at = place / "hot"
    hot = decode(table.hot, HotTable, at)
    step = StepPlan(hot, "hot", at, at / "argv", env)
    _check_pattern(hot.began, ("case",), at / "began")
    _check_pattern(hot.ended, ("case", "verdict"), at / "ended")
    if "cases" not in step.names:
        (at / "argv").fail("names no {cases}, so no case could be asked for")
    if not hot.verdicts:
        (at / "verdicts").fail("says of no verdict what it means")
    return plan, (hot, step)


def read_env(table: Mapping[str, str], place: Place) -> Env:
    """The variables that a table at a place sets."""
    for variable in table:
        if _VARIABLE.fullmatch(variable) is None:
            (place / variable).fail(f"{variable!r} is not the name of a variable")
    return {name: read_text(text, place / name) for name, text in table.items()}


@lru_cache(maxsize=4096)
def find_program(program: str, folder: Path, search: str) -> str:
    """How a program is to be called: its name if it is on PATH, else its absolute path, else empty.

    A name with a slash, and one that is not on PATH, is a file of ``folder``. ``search`` is what the
    step has for PATH, empty for ours; one that is complete only when the step runs hides nothing.
    """
    if "/" not in program and shutil.which(program, path=search or os.environ.get("PATH")):
        return program
    path = folder / program
    if path.is_file():
        return str(path) if os.access(path, os.X_OK) else ""
    return program if "{" in search else ""


def _read(
    raw: object, form: type[Form], kind: Kind, place: Place, env: Env
) -> tuple[Form, StepPlan]:
    """A step's table, also where only its ``argv`` is written, and what it is to be filled in for."""
    if isinstance(raw, list):
        table = decode({"argv": raw}, form, place)
        return table, StepPlan(table, kind, place, place, env)
    table = decode(raw, form, place)
    return table, StepPlan(table, kind, place, place / "argv", env)


def read_pattern(text: str, place: Place) -> re.Pattern[str]:
    """The regular expression that stands at a place. Raises UsageError where it is none."""
    try:
        return re.compile(text)
    except re.error as error:
        place.fail(f"{text!r} is no regular expression: {error}")


def _check_pattern(text: str, groups: tuple[str, ...], place: Place) -> None:
    known = read_pattern(text, place).groupindex
    for group in groups:
        if group not in known:
            place.fail(f"{text!r} has no group (?P<{group}>...)")

"""Converts tables of steps to steps: fills ``{names}`` whose values are known by now, looks for programs."""

import glob
import itertools
import os
import re
import shutil
import string
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from typing import Literal, TypeVar

from tileyard.artifacts.compat import find_near
from tileyard.artifacts.digests import find_problem
from tileyard.base.model import PLACES, BuildPart, GoldenPart, Step
from tileyard.base.places import Place, Table, decode
from tileyard.base.wording import find_similar, name_some
from tileyard.processes.answers import VARIABLE
from tileyard.verbs.test.plan.files.tables import (
    BuildTable,
    GoldenTable,
    HotTable,
    RunTable,
    StepsTable,
    StepTable,
    VariableTable,
)

FOLDERS = 20
"""Folders whose files are compared with a name that is not there."""
_SIGN = re.compile(r"[*?[]")
Kind = Literal["build", "golden", "run", "check", "hot", "hot check", "list"]
DEVICE = ("device", "device_physical")
PLACES_OF: dict[Kind, frozenset[str]] = {
    "build": frozenset({"out", "cache", "threads", "toolchain", "targets"}),
    "golden": frozenset({"out", "threads", "toolchain"}),
    "run": frozenset({"work", "golden", "build", *DEVICE, "threads", "toolchain"}),
    "check": frozenset({"work", "golden", "build", "threads", "toolchain"}),
    "hot": frozenset({"work", "build", *DEVICE, "threads", "toolchain", "cases", "works"}),
    "hot check": frozenset({"work", "build", "threads", "toolchain", "cases", "works"}),
    "list": frozenset(),
}
"""Values that each kind of step receives when it runs. A golden result must not depend on a build."""
IN_WORK: frozenset[Kind] = frozenset({"run", "check", "hot", "hot check"})
"""Steps that run in the case's work directory unless they say otherwise."""
ALONE = ("targets", "cases", "works")
"""Places that become several arguments, and so must be arguments of their own."""
OF_TESTCASE = frozenset({"suite", "python", "testcase"})
"""Names with the same value for all cases of a testcase."""
INTERPRETER = re.compile(r"python[\d.]*|(ba|da|z|k)?sh|perl|ruby|node|lua")
_IS_CODE = re.compile(r"-\w*c\w*|-m")
"""Options behind which an argument is code, or the name of a module."""
BRACES = "write {{ for a literal brace"
_NOTHING: frozenset[str] = frozenset()
_PLACES = frozenset(PLACES)
Form = TypeVar("Form", bound=StepTable)
ALL = "*"
"""In place of a name: all variables are passed on."""


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


@dataclass(frozen=True, kw_only=True, slots=True)
class Text:
    """A parsed text: literal pieces, each with the name that follows it, empty for none; ``names`` are all.
    One that ``is_passed`` on keeps the value that the variable has. If it is for some ``steps`` alone, the
    others have the ``wider`` one.
    """

    text: str
    place: Place
    pieces: tuple[tuple[str, str], ...] = ()
    names: frozenset[str] = frozenset()
    is_passed: bool = False
    steps: frozenset[str] = frozenset()
    wider: "Text | None" = None

    def for_step(self, kind: "Kind") -> "Text | None":
        """The text that a step of this kind gets; hot runs are runs."""
        name = {"hot": "run", "hot check": "check"}.get(kind, kind)
        if self.steps and name not in self.steps:
            return None if self.wider is None else self.wider.for_step(kind)
        return self

    @property
    def first(self) -> str:
        """The name at its beginning, empty if it begins with anything else."""
        return self.pieces[0][1] if self.pieces and not self.pieces[0][0] else ""

    @property
    def is_lone(self) -> bool:
        """Whether it is one name and nothing else."""
        return len(self.pieces) == 1 and not self.pieces[0][0]

    def fill_in(self, values: Mapping[str, str], later: frozenset[str]) -> str:
        """The text as a template of the names ``later``, the others filled in; literal braces, also those of
        values, stay doubled. Raises UsageError.
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
                    f"{{{name}}} is not defined here; {meant}known are {listed}; {BRACES}"
                )
        return "".join(parts)


Env = Mapping[str, Text]
"""Variables of steps."""


def read_text(text: str, place: Place) -> Text:
    """The text at a place, parsed. Raises UsageError if its braces are invalid."""
    pieces = []
    try:
        for literal, name, form, conversion in string.Formatter().parse(text):
            if name is not None and (form or conversion or not name.isidentifier()):
                opened = "{" + name[:40]
                place.fail(f"{opened!r} does not begin a place such as {{case}}; {BRACES}")
            pieces.append((literal, name or ""))
    except ValueError as error:
        shown = f"{text!r} is not a template: " if "\n" not in text else ""
        place.fail(f"{shown}{error}; {BRACES}")
    if "\0" in text:
        place.fail("a NUL character cannot be passed on")
    names = frozenset(name for _, name in pieces if name)
    return Text(text=text, place=place, pieces=tuple(pieces), names=names)


def double(text: str) -> str:
    """A text as a template that yields it."""
    return text.replace("{", "{{").replace("}", "}}")


class StepPlan:
    """A step whose templates are parsed, to be filled in for one case after another."""

    def __init__(self, table: StepTable, kind: Kind, place: Place, argv: Place, env: Env) -> None:
        """``env`` are variables of more general tables: the step's own win, and those with values that it
        does not receive are left out. ``argv`` is the place of its ``argv``.
        """
        self.kind = kind
        self.place = place
        self._later = PLACES_OF[kind]
        self._limit_s = table.limit_s or 0.0
        if not table.argv or not table.argv[0]:
            argv.fail("names no program")
        self._argv = [read_text(text, argv / number) for number, text in enumerate(table.argv)]
        self._script, self._scripts = _find_script(self._argv[1:], self._later), set[str]()
        for text in self._argv:
            if text.names.intersection(ALONE) and not text.is_lone:
                text.place.fail("becomes several arguments, so it must be an argument of its own")
        given = {name: text.for_step(kind) for name, text in env.items()}
        told = {
            name: text
            for name, text in given.items()
            if text is not None and text.names & _PLACES <= self._later
        }
        env = {**told, **read_env(table, place)}
        self._env = {name: text for name, text in env.items() if not text.is_passed}
        self._passed = {name: text for name, text in env.items() if text.is_passed}
        self._runs = None if table.runs is None else _read_all(table.runs, place / "runs")
        self._versions = _read_versions(table.version, place / "version")
        for key in ("runs", "version", "inherit"):
            if kind == "list" and getattr(table, key) is not None:
                (place / key).fail("belongs to the steps of cases: a list is made anew each time")
        self.inputs = _read_all(table.inputs, place / "inputs")
        self._cwd = read_text(table.cwd, place / "cwd")
        self._is_same_for_all = self.names <= self._later | OF_TESTCASE
        self._kept: Step | None = None

    @property
    def names(self) -> frozenset[str]:
        """All that its texts ask for."""
        texts = (*self._argv, *self._env.values(), *self.inputs, self._cwd, *(self._runs or ()))
        versions = (text for argv in self._versions for text in argv)
        return frozenset(name for text in (*texts, *versions) for name in text.names)

    def fill_in(self, values: Mapping[str, str], home: Path) -> Step:
        """The step of a case. ``home`` is the suite's folder, the meaning of an empty ``cwd``."""
        if self._kept is not None:
            return self._kept
        folder = self.place.document.folder
        argv = self._fill_argv(values, folder, self._argv)
        self._require_script(values, argv[0])
        step = Step(
            argv=argv,
            env={name: text.fill_in(values, self._later) for name, text in self._env.items()},
            inputs=tuple(self.fill_input(text, values) for text in self.inputs),
            cwd=self._fill_cwd(values, folder, home),
            limit_s=self._limit_s,
            inherits=tuple(name for name in self._passed if name != ALL),
            inherits_all=ALL in self._passed and self._passed[ALL].text == str(True),
            runs=self._fill_runs(values, folder),
            versions=tuple(self._fill_argv(values, folder, argv) for argv in self._versions),
        )
        if self._is_same_for_all:
            self._kept = step
        return step

    def fill_input(self, text: Text, values: Mapping[str, str]) -> str:
        """A file, folder or glob, absolute; it is named relative to the step's file."""
        pattern = self.place.document.folder / text.fill(values)
        if problem := find_problem(pattern):
            text.place.fail(problem)
        return str(pattern)

    def _fill_argv(
        self, values: Mapping[str, str], folder: Path, texts: Sequence[Text]
    ) -> tuple[str, ...]:
        program, *rest = texts
        argv = [text.fill_in(values, self._later) for text in rest]
        return (self._fill_program(program, values, folder), *argv)

    def _require_script(self, values: Mapping[str, str], program: str) -> None:
        """Refuse a script of the suite that is not there, where the program is an interpreter."""
        if self._script is None or (path := self._script.fill(values)) in self._scripts:
            return
        if INTERPRETER.fullmatch(Path(program).name) and not Path(path).is_file():
            self._script.place.fail(f"there is no script {path}", name_nearest(Path(path)))
        self._scripts.add(path)

    def _fill_runs(self, values: Mapping[str, str], folder: Path) -> tuple[str, ...] | None:
        if self._runs is None:
            return None
        return tuple(self._fill_program(text, values, folder) for text in self._runs)

    def _fill_program(self, text: Text, values: Mapping[str, str], folder: Path) -> str:
        if text.names & self._later:
            return text.fill_in(values, self._later)
        search = self._env["PATH"].fill_in(values, self._later) if "PATH" in self._env else ""
        name = text.fill(values)
        found = find_program(name, folder, search)
        if not found:
            near = find_near(name, search or os.environ.get("PATH", ""))
            text.place.fail(
                f"there is no program {name!r}, neither on PATH nor in {folder}",
                f"did you mean {near!r}?"
                if near
                else "what a build step makes is found under {build}",
            )
        return double(found)

    def _fill_cwd(self, values: Mapping[str, str], folder: Path, home: Path) -> str:
        cwd = self._cwd.fill_in(values, self._later)
        if cwd.startswith("/") or self._cwd.first in self._later:
            return cwd
        if not cwd and (self.kind in IN_WORK or folder == home):
            return ""
        return double(str(folder)) + (f"/{cwd}" if cwd else "")


def read_step(raw: object, kind: Kind, place: Place, env: Env) -> StepPlan:
    """The step written at a place; ``env`` is its environment besides its own variables."""
    return _read(raw, StepTable, kind, place, env)[1]


class BuildPlan:
    """A build step, the part of it that a case needs, and the files on which that alone depends."""

    def __init__(self, raw: object, place: Place, env: Env) -> None:
        table, self.step = _read(raw, BuildTable, "build", place, env)
        if "targets" in self.step.names and not table.target:
            place.fail("asks for {targets}, and no `target` says what a case needs")
        for key in ("target_inputs", "products"):
            if getattr(table, key) and not table.target:
                (place / key).fail("belongs to a `target`, which says what a case needs")
        if table.products and ("out" in self.step.names or "cache" not in self.step.names):
            (place / "products").fail("are taken from {cache}, and nothing from {out}")
        self.target = read_text(table.target, place / "target")
        self.inputs = _read_all(table.target_inputs, place / "target_inputs")
        self._products = _read_all(table.products, place / "products")

    def find_part(self, values: Mapping[str, str]) -> BuildPart:
        """What a case's target depends on besides the step's inputs, and the files that it becomes."""
        return BuildPart(
            inputs=tuple(self.step.fill_input(text, values) for text in self.inputs),
            products=tuple(_fill_plain(text, values, "cache") for text in self._products),
        )


class GoldenPlan:
    """A golden step, and the part of its result that a case gets."""

    def __init__(self, raw: object, place: Place, env: Env) -> None:
        table, self.step = _read(raw, GoldenTable, "golden", place, env)
        self._part = read_text(table.part, place / "part")
        self._is_linked = bool(table.part) if table.link is None else table.link

    def find_part(self, values: Mapping[str, str]) -> GoldenPart:
        """The part of a case; pattern characters in the values of its names are literal."""
        escaped = {name: glob.escape(value) for name, value in values.items()}
        path = _fill_plain(self._part, escaped, "out") if self._part.text else ""
        return GoldenPart(path=path, is_linked=self._is_linked)


HotPlan = tuple[HotTable, StepPlan]


def read_late_step(
    raw: object, kind: Literal["run", "check"], place: Place, env: Env
) -> tuple[StepPlan, HotPlan | None]:
    """A run or check step, and how one process does it for several cases of a testcase."""
    table, plan = _read(raw, RunTable, kind, place, env)
    if table.hot is None:
        return plan, None
    at = place / "hot"
    hot = decode(table.hot, HotTable, at)
    step = StepPlan(hot, "hot" if kind == "run" else "hot check", at, at / "argv", env)
    _check_pattern(hot.began, ("case",), at / "began")
    _check_pattern(hot.ended, ("case", "verdict"), at / "ended")
    if "cases" not in step.names:
        (at / "argv").fail("does not contain {cases}, so it cannot name the cases")
    if not hot.verdicts:
        (at / "verdicts").fail("says of no verdict what it means")
    return plan, (hot, step)


def join_env(wide: Env, narrow: Env) -> Env:
    """Variables of two tables; those of the narrower one take precedence, for the steps that they are for."""
    joined = {
        name: replace(text, wider=wide.get(name)) if text.steps else text
        for name, text in narrow.items()
    }
    return {**wide, **joined}


def read_env(table: StepTable | StepsTable, place: Place) -> Env:
    """The variables that a table at a place sets, and those that it passes on."""
    at = place / "env"
    texts: dict[str, Text] = {}
    if isinstance(table.env, dict):
        rows = [(n, text, at / n) for n, text in table.env.items() if isinstance(text, str)]
        for name, raw in table.env.items():
            if not isinstance(raw, str):
                texts[name] = _read_variable(name, raw, at / name)
                if isinstance(table, StepTable):
                    (at / name / "steps").fail("belongs to a variable of a suite or testcase")
    else:
        rows = []
        for number, row in enumerate(table.env):
            name, sign, text = row.partition("=")
            if sign:
                rows.append((name, text, at / number))
            else:
                texts[name] = Text(text=name, place=at / number, is_passed=True)
    texts |= {name: read_text(text, where) for name, text, where in rows}
    for name, one in texts.items():
        if VARIABLE.fullmatch(name) is None:
            one.place.fail(f"{name!r} is not the name of a variable")
    if table.inherit is not None:
        texts[ALL] = Text(text=str(table.inherit), place=place / "inherit", is_passed=True)
    return texts


def _read_variable(name: str, raw: Table, place: Place) -> Text:
    table = decode(raw, VariableTable, place)
    passed = Text(text=name, place=place, is_passed=True)
    text = passed if table.value is None else read_text(table.value, place / "value")
    return replace(text, steps=frozenset(table.steps))


def _fill_plain(text: Text, values: Mapping[str, str], root: str) -> str:
    """A path below the folder ``root`` of a step. Raises UsageError if it is not plain."""
    path = text.fill(values)
    if not {"", ".", ".."}.isdisjoint(path.split("/")):
        text.place.fail(f"{path!r} is not a plain path below {{{root}}}")
    return path


def _read_all(texts: Iterable[str], place: Place) -> list[Text]:
    return [read_text(text, place / number) for number, text in enumerate(texts)]


def _read_versions(raw: object, place: Place) -> list[list[Text]]:
    """The commands of ``version``: one, or a list of them."""
    if raw is None:
        return []
    rows = raw if isinstance(raw, list) and raw and isinstance(raw[0], list) else [raw]
    found = []
    for number, row in enumerate(rows):
        at = place / number if rows is raw else place
        if not (isinstance(row, list) and row and all(isinstance(one, str) for one in row)):
            at.fail('is not a command such as ["sim", "--version"], nor a list of commands')
        found.append(_read_all(row, at))
    return found


def _find_script(arguments: Sequence[Text], later: frozenset[str]) -> Text | None:
    """The script of the suite among an interpreter's arguments, if its name is known by now."""
    for text in arguments:
        if text.first == "suite":
            return None if text.names & later else text
        if not text.text.startswith("-") or _IS_CODE.fullmatch(text.text):
            return None
    return None


@lru_cache(maxsize=4096)
def find_program(program: str, folder: Path, search: str) -> str:
    """How to call a program: by its name if on PATH, else its absolute path, else empty. Names with a slash,
    or not on PATH, are files of ``folder``. ``search`` is the step's PATH, empty for ours; one only complete
    at run time hides nothing.
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
    """A step's table, also if only its ``argv`` is written, and its plan."""
    if isinstance(raw, list):
        table = decode({"argv": raw}, form, place)
        return table, StepPlan(table, kind, place, place, env)
    table = decode(raw, form, place)
    return table, StepPlan(table, kind, place, place / "argv", env)


def read_pattern(text: str, place: Place) -> re.Pattern[str]:
    """The regular expression at a place. Raises UsageError if it is invalid."""
    try:
        return re.compile(text)
    except re.error as error:
        place.fail(f"{text!r} is not a regular expression: {error}")


def _check_pattern(text: str, groups: tuple[str, ...], place: Place) -> None:
    known = read_pattern(text, place).groupindex
    for group in groups:
        if group not in known:
            place.fail(f"{text!r} has no group (?P<{group}>...)")

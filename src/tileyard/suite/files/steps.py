"""From the tables of steps to steps: templates filled as far as is known, programs looked for."""

import os
import re
import shutil
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Literal

from tileyard.suite.files.places import Place
from tileyard.suite.files.tables import BuildTable, HotTable, RunTable, StepTable, as_step, decode
from tileyard.suite.files.templates import Template, TemplateError, read_template
from tileyard.targets.command.records import HotRun, Step

Kind = Literal["build", "golden", "run", "check", "hot", "list"]

PLACES_OF: dict[Kind, frozenset[str]] = {
    "build": frozenset({"out", "cache", "threads", "toolchain", "targets"}),
    "golden": frozenset({"out", "threads", "toolchain"}),
    "run": frozenset({"work", "golden", "build", "device", "threads", "toolchain"}),
    "check": frozenset({"work", "golden", "build", "threads", "toolchain"}),
    "hot": frozenset({"work", "build", "device", "threads", "toolchain", "cases"}),
    "list": frozenset(),
}
"""What each step is told when it runs. A golden result that knew of a build would depend on it."""
IN_WORK: frozenset[Kind] = frozenset({"run", "check", "hot"})
"""Steps that run in the case's work directory unless they say otherwise."""
ALONE = ("targets", "cases")
"""Places that become several arguments, and so must be arguments of their own."""
OF_TESTCASE = frozenset({"suite", "testcase"})
"""What is the same for all cases of a testcase."""

Env = Mapping[str, tuple[Template, Place]]
"""Variables, each with the place that says so."""

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class StepPlan:
    """A step whose templates are read, to be filled in for one case after another."""

    def __init__(self, table: StepTable, kind: Kind, place: Place, is_list: bool) -> None:
        """``is_list`` says that the step is written as its ``argv`` alone."""
        self.kind = kind
        self.place = place
        self._argv_place = place if is_list else place / "argv"
        self._later = PLACES_OF[kind]
        self._limit_s = table.limit_s or 0.0
        if not table.argv or not table.argv[0]:
            self._argv_place.fail("names no program")
        self._argv = [
            read_at(text, self._argv_place / number) for number, text in enumerate(table.argv)
        ]
        for number, template in enumerate(self._argv):
            if template.names.intersection(ALONE) and not template.is_lone:
                (self._argv_place / number).fail(
                    "becomes several arguments, so it must stand alone"
                )
        self._env: dict[str, tuple[Template, Place]] = {}
        self.add_env(read_env(table.env, place / "env"))
        self._inputs = [
            read_at(text, place / "inputs" / number) for number, text in enumerate(table.inputs)
        ]
        self._cwd = read_at(table.cwd, place / "cwd")
        self._kept: Step | None = None

    def add_env(self, env: Env) -> None:
        """Take variables from a more general table; what the step has itself stays."""
        self._env = {**env, **self._env}

    @property
    def names(self) -> frozenset[str]:
        """All that its texts ask for."""
        env = (template for template, _ in self._env.values())
        found: frozenset[str] = frozenset()
        return found.union(
            *(one.names for one in (*self._argv, *env, *self._inputs, self._cwd)),
        )

    def fill_in(self, values: Mapping[str, str], home: Path) -> Step:
        """The step of a case. ``home`` is the suite's folder, which an empty ``cwd`` stands for."""
        if self._kept is not None:
            return self._kept
        folder = self.place.document.folder
        step = Step(
            argv=self._fill_argv(values, folder),
            env={
                variable: fill_in_at(template, values, self._later, place)
                for variable, (template, place) in self._env.items()
            },
            inputs=tuple(
                str(folder / fill_at(template, values, self.place / "inputs" / number))
                for number, template in enumerate(self._inputs)
            ),
            cwd=self._fill_cwd(values, folder, home),
            limit_s=self._limit_s,
        )
        if self.names <= self._later | OF_TESTCASE:
            self._kept = step
        return step

    def _fill_argv(self, values: Mapping[str, str], folder: Path) -> tuple[str, ...]:
        argv = [
            fill_in_at(template, values, self._later, self._argv_place / number)
            for number, template in enumerate(self._argv)
        ]
        if not self._argv[0].names & self._later:
            own_path = self._env.get("PATH")
            search = fill_in_at(own_path[0], values, self._later, own_path[1]) if own_path else ""
            program = fill_at(self._argv[0], values, self._argv_place / 0)
            found = find_program(program, folder, search)
            if not found:
                (self._argv_place / 0).fail(
                    f"there is no program {program!r}, neither on PATH nor in {folder}",
                    "what a build step makes is found under {build}",
                )
            argv[0] = _double(found)
        return tuple(argv)

    def _fill_cwd(self, values: Mapping[str, str], folder: Path, home: Path) -> str:
        cwd = fill_in_at(self._cwd, values, self._later, self.place / "cwd")
        if cwd.startswith("/") or self._begins_later(self._cwd):
            return cwd
        if not cwd and (self.kind in IN_WORK or folder == home):
            return ""
        return _double(str(folder)) + (f"/{cwd}" if cwd else "")

    def _begins_later(self, template: Template) -> bool:
        return (
            bool(template.pieces)
            and template.pieces[0][0] == ""
            and (template.pieces[0][1] in self._later)
        )


class HotPlan:
    """How several cases of a testcase run in one process."""

    def __init__(self, raw: object, place: Place, env: Env) -> None:
        table = decode(raw, HotTable, place)
        self._step = StepPlan(table, "hot", place, is_list=False)
        self._step.add_env(env)
        _check_pattern(table.began, ("case",), place / "began")
        _check_pattern(table.ended, ("case", "verdict"), place / "ended")
        if "cases" not in self._step.names:
            (place / "argv").fail("names no {cases}, so no case could be asked for")
        if not table.verdicts:
            (place / "verdicts").fail("says of no verdict what it means")
        self._table = table

    def fill_in(self, values: Mapping[str, str], home: Path) -> HotRun:
        """The hot run of a testcase; ``values`` are what all its cases share."""
        return HotRun(
            step=self._step.fill_in(values, home),
            began=self._table.began,
            ended=self._table.ended,
            verdicts=self._table.verdicts,
        )


def read_step(raw: object, kind: Kind, place: Place, env: Env) -> StepPlan:
    """The step that is written at a place; ``env`` is what it gets besides its own."""
    table = decode(as_step(raw), StepTable, place)
    plan = StepPlan(table, kind, place, isinstance(raw, list))
    plan.add_env(env)
    return plan


def read_build(raw: object, place: Place, env: Env) -> tuple[StepPlan, Template]:
    """A build step, and what of it a case needs."""
    table = decode(as_step(raw), BuildTable, place)
    plan = StepPlan(table, "build", place, isinstance(raw, list))
    plan.add_env(env)
    if "targets" in plan.names and not table.target:
        place.fail("asks for {targets}, and no `target` says what a case needs")
    return plan, read_at(table.target, place / "target")


def read_run(raw: object, place: Place, env: Env) -> tuple[StepPlan, HotPlan | None]:
    """A run step, and how several of them run hot."""
    table = decode(as_step(raw), RunTable, place)
    plan = StepPlan(table, "run", place, isinstance(raw, list))
    plan.add_env(env)
    hot = HotPlan(table.hot, place / "hot", env) if table.hot is not None else None
    return plan, hot


def read_env(table: Mapping[str, str], place: Place) -> Env:
    """The variables that a table at a place sets."""
    for variable in table:
        if _VARIABLE.fullmatch(variable) is None:
            (place / variable).fail(f"{variable!r} is not the name of a variable")
    return {name: (read_at(text, place / name), place / name) for name, text in table.items()}


def read_at(text: str, place: Place) -> Template:
    """A template that stands at a place. Raises UsageError that names it."""
    try:
        return read_template(text)
    except TemplateError as error:
        place.fail(str(error))


def fill_in_at(
    template: Template, values: Mapping[str, str], later: Iterable[str], place: Place
) -> str:
    """A template with what is known filled in. Raises UsageError that names its place."""
    try:
        return template.fill_in(values, later)
    except TemplateError as error:
        place.fail(str(error))


def fill_at(template: Template, values: Mapping[str, str], place: Place) -> str:
    """The finished text of a template. Raises UsageError that names its place."""
    try:
        return template.fill(values)
    except TemplateError as error:
        place.fail(str(error))


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


def _check_pattern(text: str, groups: tuple[str, ...], place: Place) -> None:
    try:
        pattern = re.compile(text)
    except re.error as error:
        place.fail(f"{text!r} is no regular expression: {error}")
    for group in groups:
        if group not in pattern.groupindex:
            place.fail(f"{text!r} has no group (?P<{group}>...)")


def _double(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")

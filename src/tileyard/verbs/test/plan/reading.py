"""Reads a suite: its file, what it includes, and the cases that its commands print. Cases of kernels that it
does not list only an author knows: ``kernel_cases`` asks one.
"""

import os
import re
import shlex
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path

import msgspec
from msgspec.structs import asdict

from tileyard.base.decoding import decode_json
from tileyard.base.errors import UsageError
from tileyard.base.model import KernelWork
from tileyard.base.places import Document, Place, decode, decode_all
from tileyard.base.quarantine import Quarantine
from tileyard.base.settings import Settings
from tileyard.processes import answers
from tileyard.verbs.test.plan.files.drafts import (
    TAKEN,
    CommandPlan,
    Common,
    Draft,
    Given,
    KernelFile,
    find_seed,
    is_of_kernels,
    make_case,
    read_require,
    show_shape,
)
from tileyard.verbs.test.plan.files.parameters import (
    InputFiles,
    Parameters,
    read_parameters,
    refuse_idle_pattern,
    settle,
)
from tileyard.verbs.test.plan.files.steps import (
    Env,
    double,
    find_program,
    join_env,
    name_nearest,
    read_env,
    read_step,
    read_text,
)
from tileyard.verbs.test.plan.files.tables import (
    CaseTable,
    CommonTable,
    ListedCaseTable,
    SuiteTable,
    TestcaseTable,
    check_name,
)
from tileyard.verbs.test.result.result import Belonging, Policy, PolicyTable, Rule, Suite, SuiteCase

_NAMED = re.compile(r"\$(?:(\w+)|\{(\w+)\})")
SUITE_FILE = "suite.toml"
WILDCARDS = "*?["
NOTHING: Mapping[str, str] = {}
Row = tuple[CaseTable, Place]
"""A case as written, and its place."""


def run_program(
    argv: tuple[str, ...], env: dict[str, str], cwd: Path, limit_s: float, place: Place
) -> bytes:
    """The output of a program. Raises UsageError with code or signal, argv, folder and its last words."""
    try:
        return answers.run_program(argv, env, cwd, limit_s or answers.LIMIT_S)
    except UsageError as error:
        place.fail(error.message)


def read_variables(script: str, environ: Mapping[str, str], place: Place) -> dict[str, str]:
    """The variables that a bash script exports or changes when sourced in the suite file's folder; not those
    that it unsets. Its path is relative to that folder and may use ``$NAME`` of ``environ``. Raises
    UsageError.
    """
    folder = place.document.folder
    path = folder / _expand(script, environ, place)
    if not path.is_file():
        place.fail(f"there is no script {path}", name_nearest(path))
    try:
        return answers.find_set(f"source {shlex.quote(str(path))}", environ, folder, str(path))
    except UsageError as error:
        place.fail(error.message)


def _expand(text: str, environ: Mapping[str, str], place: Place) -> str:
    def find(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        if name not in environ:
            near = get_close_matches(name, environ, n=1)
            hint = f"did you mean ${near[0]}?" if near else ""
            place.fail(f"{text!r} names the variable {name}, and that is not set", hint)
        return environ[name]

    return _NAMED.sub(find, text)


def read_suite(
    path: Path,
    settings: Settings,
    variables: Mapping[str, str] = NOTHING,
    parameters: Mapping[str, str] = NOTHING,
) -> Suite:
    """The suite of a file or folder with these parameters. Commands that list cases run with ``variables``
    besides our own. Kernels without listed cases are refused: see ``kernel_cases.read_suite_with_kernels``.
    Raises UsageError naming file, line and key.
    """
    draft = read_draft(path, settings, variables, parameters)
    cases = []
    for case in draft.cases:
        if isinstance(case, KernelFile):
            raise UsageError(
                f"{case.where}: lists no case of {Path(case.work.file).name}, and which kernels it holds"
                " is known only once it is imported",
                "`tileyard test` does that; or name file, kernel and each `case` in a suite.toml",
            )
        cases.append(case)
    return draft.finish(cases)


def read_draft(
    path: Path,
    settings: Settings,
    variables: Mapping[str, str] = NOTHING,
    parameters: Mapping[str, str] = NOTHING,
) -> Draft:
    """The content of a suite's files, before any author is asked about kernels."""
    path = path.resolve()
    reader = _Reader({**os.environ, **variables, **settings.environment()}, parameters)
    draft = _read_files(path, reader)
    for name in parameters:
        if name not in draft.parameters:
            known = draft.parameters
            near = get_close_matches(name, known, n=1)
            listed = f"known are {', '.join(known)}" if known else "it declares none"
            raise UsageError(
                f"{draft.path}: --set {name}: there is no such parameter",
                f"did you mean {near[0]!r}?" if near else listed,
            )
    return draft


def _read_files(path: Path, reader: "_Reader") -> Draft:
    if path.is_dir() and not (path / SUITE_FILE).is_file():
        files = sorted(path.glob(f"*/{SUITE_FILE}"))
        if not files:
            raise UsageError(f"{path}: holds no {SUITE_FILE}, nor does any folder in it")
        draft = Draft(name=path.name, path=path, folder=path)
        for file in files:
            reader.read(file, draft, None)
        return draft
    file = path / SUITE_FILE if path.is_dir() else path
    draft = Draft(name=file.stem, path=file, folder=file.parent)
    draft.name = reader.read(file, draft, None)
    return draft


class _Reader:
    """Reads files into a draft, each once."""

    def __init__(self, environ: Mapping[str, str], wanted: Mapping[str, str]) -> None:
        self._environ = environ
        self._wanted = wanted
        self._open: list[Path] = []
        self._read: set[Path] = set()

    def read(self, path: Path, draft: Draft, place: Place | None) -> str:
        """Read a file, which is named at ``place``, and what it includes; returns its own name."""
        path = path.resolve()
        if path in self._open and place is not None:
            chain = [*self._open[self._open.index(path) :], path]
            place.fail(f"includes itself: {' -> '.join(str(one) for one in chain)}")
        if path in self._read:
            return path.stem
        self._read.add(path)
        if not path.is_file():
            if place is None:
                raise UsageError(f"there is no file {path}")
            place.fail(f"there is no file {path}")
        if path.suffix == ".py":
            work = KernelWork(file=str(path))
            draft.cases.append(KernelFile(where=f"{path}:1", work=work, common=Common()))
            return path.stem
        self._open.append(path)
        name = self._read_table(Document(path), draft)
        self._open.pop()
        return name

    def _read_table(self, document: Document, draft: Draft) -> str:
        top = Place(document=document)
        raw, place = document.table, top / "parameters"
        parameters = read_parameters(raw.get("parameters", {}), place, self._wanted, TAKEN)
        for name, value in parameters.chosen.items():
            if draft.parameters.setdefault(name, value) != value:
                other = draft.parameters[name]
                (place / name).fail(
                    f"is {value!r} here and {other!r} in another file",
                    f"--set {name}=... says one",
                )
        table = decode(settle(raw, parameters, top), SuiteTable, top)
        check_name(table.name, top / "name")
        policies = top / "policies"
        own_policies = {
            name: _read_policy(name, one, policies / name) for name, one in table.policies.items()
        }
        for number, text in enumerate(table.include):
            place = top / "include" / number
            for path in _find_included(text, place):
                self.read(path, draft, place)
        draft.policies.update(own_policies)
        draft.texts.update((n, _texts_of(one, policies / n)) for n, one in own_policies.items())
        first = len(draft.cases)
        draft.cases += _File((table, top), draft.folder, self._environ, parameters).cases()
        draft.skip += decode_all(table.skip, Rule, top / "skip")
        if table.require is not None:
            draft.require = draft.require.joined(read_require(table.require, top / "require"))
        draft.quarantine += decode_all(table.quarantine, Quarantine, top / "quarantine")
        self._read_belongs(table, top, draft)
        allow = decode_all(table.allow, Rule, top / "allow")
        if document.path == draft.path:
            draft.allow += allow
        elif allow:
            (top / "allow").fail("an included file has no say in what else may run; use skip")
        if not table.include and len(draft.cases) == first:
            top.fail("has no testcase")
        return table.name

    def _read_belongs(self, table: SuiteTable, top: Place, draft: Draft) -> None:
        """To which cases files belong, as absolute globs."""
        at, folder = top / "belongs", top.document.folder
        for number, one in enumerate(decode_all(table.belongs, Belonging, at)):
            named = at / number / "cases"
            draft.texts.setdefault(at.where, []).extend(
                (text, named / index) for index, text in enumerate(one.cases)
            )
            files = tuple(os.path.normpath(folder / text) for text in one.files)
            draft.belongs.append(msgspec.structs.replace(one, files=files))


def _read_policy(name: str, raw: object, place: Place) -> Policy:
    table = decode(raw, PolicyTable, place)
    return Policy(**{**asdict(table), "name": name})


def _texts_of(policy: Policy, place: Place) -> list[tuple[str, Place]]:
    """The texts with which a policy names cases, and their places."""
    found = [(text, place / "cases" / number) for number, text in enumerate(policy.cases)]
    found += [(text, place / "exclude" / number) for number, text in enumerate(policy.exclude)]
    rules = enumerate(policy.skip)
    return found + [(rule.cases, place / "skip" / number / "cases") for number, rule in rules]


class _File:
    """The testcases of one file, with their cases, whether declared or listed by a command."""

    def __init__(
        self,
        level: tuple[SuiteTable, Place],
        home: Path,
        environ: Mapping[str, str],
        parameters: Parameters,
    ) -> None:
        self._table, self._top = table, top = level
        self._parameters = parameters
        self._refuse_parameters(table, top)
        self._home = home
        self._environ = environ
        self._common = Common().narrowed(table, top)
        self._shared = {**_shared_values(table, top), **parameters.chosen}
        found = self._read_script()
        self._given = Given(env=found, parameters=frozenset(parameters.chosen), files=InputFiles())
        self._env = join_env(found, read_env(table, top))

    def _read_script(self) -> Env:
        """The variables that the file's script sets; its steps get them unless they set others."""
        if self._table.env_from is None:
            return {}
        at = self._top / "env_from"
        script = read_text(self._table.env_from, at).fill(self._shared)
        variables = read_variables(script, self._environ, at)
        return {name: read_text(double(value), at) for name, value in variables.items()}

    def _refuse_parameters(self, table: CommonTable, place: Place) -> None:
        for name in table.vars:
            if name in self._parameters.values:
                (place / "vars" / name).fail("is a parameter of this file")

    def cases(self) -> Iterator[SuiteCase | KernelFile]:
        """All cases, testcase by testcase: the declared ones, then those that a command lists."""
        listed: dict[str, list[Row]] = {}
        if self._table.list is not None:
            place = self._top / "list"
            for row, at in _list_cases(
                self._table.list, place, self._environ, self._env, self._shared
            ):
                listed.setdefault(row.testcase or self._table.name, []).append((row, at))
        seen: dict[str, Place] = {}
        for number, raw in enumerate(self._table.testcase):
            place = self._top / "testcase" / number
            testcase = decode(raw, TestcaseTable, place)
            if testcase.name in seen:
                first = seen[testcase.name].where
                (place / "name").fail(f"{testcase.name!r} appears twice, also at {first}")
            check_name(testcase.name, place / "name")
            seen[testcase.name] = place
            rows = self._rows(testcase, place) + listed.pop(testcase.name, [])
            yield from self._testcase(testcase, place, rows)
        for name, rows in listed.items():
            place = self._top / "list"
            check_name(name, rows[0][1] / "testcase")
            yield from self._testcase(TestcaseTable(name=name), place, rows)
        self._given.files.finish()

    def _rows(self, testcase: TestcaseTable, place: Place) -> list[Row]:
        rows: list[Row] = []
        for number, raw in enumerate(testcase.case):
            at = place / "case" / number
            rows.append((decode(raw, CaseTable, at), at))
        if testcase.list is not None:
            env = join_env(self._env, read_env(testcase, place))
            known = {**self._shared, "testcase": testcase.name}
            for row, at in _list_cases(testcase.list, place / "list", self._environ, env, known):
                if row.testcase not in ("", testcase.name):
                    (at / "testcase").fail(f"is {row.testcase!r} in a list of {testcase.name!r}")
                rows.append((row, at))
        return rows

    def _testcase(
        self, testcase: TestcaseTable, place: Place, rows: list[Row]
    ) -> Iterator[SuiteCase | KernelFile]:
        self._refuse_parameters(testcase, place)
        common = self._common.narrowed(testcase, place)
        if is_of_kernels(testcase, place):
            yield from self._kernels(testcase, place, rows, common)
            return
        levels = ((testcase, place), (self._table, self._top))
        plan = CommandPlan(*levels, self._home, self._given)
        if not rows:
            if self._table.list is not None:
                place.fail(f"no case of {testcase.name!r} was listed")
            rows = [(CaseTable(name="default"), place)]
        for row, at in rows:
            for key in ("arguments", "config"):
                if getattr(row, key):
                    (at / key).fail("belongs to a case of a kernel")
            if isinstance(row.shape, str):
                (at / "shape").fail("is a list of sizes for a case of programs")
            self._refuse_parameters(row, at)
            own = common.narrowed(row, at)
            seed = find_seed(row)
            values = {
                **own.vars,
                **self._shared,
                "testcase": testcase.name,
                "case": row.name,
                "dtype": own.dtype,
                "shape": show_shape(row.shape),
                "valid_shape": show_shape(row.valid_shape or row.shape),
                "seed": str(seed),
            }
            work = plan.fill_in(values, (row.shape, row.valid_shape), own.tolerance, at)
            work = msgspec.structs.replace(
                work, variant=self._parameters.variant, devices=own.devices
            )
            yield make_case(testcase.name, row, own, work, at)

    def _kernels(
        self,
        testcase: TestcaseTable,
        place: Place,
        rows: list[Row],
        common: Common,
    ) -> Iterator[SuiteCase | KernelFile]:
        _require_one_device(common, place)
        file = place.document.folder / testcase.file
        if not file.is_file():
            (place / "file").fail(f"there is no file {file}")
        shared = KernelWork(
            file=str(file),
            kernel=testcase.kernel,
            arguments=testcase.arguments,
            config=testcase.config,
            reference=testcase.reference,
            tolerance=common.tolerance,
        )
        if not rows:
            yield KernelFile(
                where=place.where,
                testcase=testcase.name,
                work=shared,
                common=common,
            )
        for row, at in rows:
            own = common.narrowed(row, at)
            _require_one_device(own, at)
            if row.shape and not isinstance(row.shape, str):
                (at / "shape").fail("is the name of a set of arguments for a case of a kernel")
            work = KernelWork(
                file=shared.file,
                kernel=shared.kernel,
                arguments={**shared.arguments, **row.arguments},
                shape=row.shape if isinstance(row.shape, str) else "",
                config={**shared.config, **row.config},
                reference=shared.reference,
                tolerance=own.tolerance,
            )
            yield make_case(testcase.name, row, own, work, at)


def _require_one_device(common: Common, place: Place) -> None:
    if common.devices != 1:
        (place / "devices").fail(f"is {common.devices}, and a kernel runs on one device")


def _find_included(text: str, place: Place) -> list[Path]:
    path = place.document.folder / text
    if path.is_dir():
        path = path / SUITE_FILE
    if path.exists() or not set(text) & set(WILDCARDS):
        return [path]
    found = sorted(place.document.folder.glob(text))
    if not found:
        refuse_idle_pattern(str(path), place)
    return found


# ---- cases that a command prints -----------------------------------------------------------------


def _list_cases(
    raw: object,
    place: Place,
    environ: Mapping[str, str],
    env: Env,
    values: Mapping[str, str],
) -> Iterator[tuple[ListedCaseTable, Place]]:
    """Run the command written at a place, with those variables of ``env`` that depend on no case or step;
    each line of its output is a case in JSON, in which null means nothing. Raises UsageError naming how it
    failed, or a line that is no case.
    """
    folder = place.document.folder
    given = {name: text.for_step("list") for name, text in env.items()}
    told = {
        name: text
        for name, text in given.items()
        if text is not None and text.names <= values.keys() and not text.is_passed
    }
    step = read_step(raw, "list", place, told).fill_in(values, folder)
    argv = tuple(read_text(text, place).fill({}) for text in step.argv)
    own = {name: read_text(text, place).fill({}) for name, text in step.env.items()}
    variables = {**environ, **own}
    cwd = Path(read_text(step.cwd, place).fill({})) if step.cwd else folder
    printed = run_program(argv, variables, cwd, step.limit_s, place)
    count = 0
    for number, line in enumerate(printed.splitlines(), start=1):
        if not line.strip():
            continue
        count += 1
        at = replace(place, note=f"line {number} of what it printed")
        try:
            row = decode_json(line, object)
        except msgspec.DecodeError as error:
            at.fail(f"is not JSON: {error}: {line[:200].decode(errors='replace')!r}")
        if isinstance(row, dict):
            row = {key: value for key, value in row.items() if value is not None}
        yield decode(row, ListedCaseTable, at), at
    if not count:
        place.fail(f"printed no case: {shlex.join(argv)} in {cwd}")


def _shared_values(table: SuiteTable, top: Place) -> dict[str, str]:
    """Values for all templates of a file: its folder, and its Python (Tileyard's if it names none)."""
    folder = top.document.folder
    known = {"suite": str(folder)}
    python = sys.executable
    if table.python is not None:
        named = read_text(table.python, top / "python").fill(known)
        python = find_program(named, folder, "")
        if not python:
            (top / "python").fail(f"there is no program {named!r}, neither on PATH nor in {folder}")
    return {**known, "python": python}

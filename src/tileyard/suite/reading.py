"""Reading a suite: its file, those that it includes, and the cases that its commands print.

A testcase of kernels that names no case has one for each kernel and shape, and which these are only
an author can say: ``kernel_cases`` asks one. One module because cases are read in one way, whether a file
declares them or a command lists them.
"""

import os
import shlex
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import msgspec
from msgspec.structs import asdict

from tileyard.decoding import decode_json
from tileyard.errors import UsageError
from tileyard.model import KernelWork
from tileyard.processes.steps import Heard, StepOrder, describe_kind, insist_on
from tileyard.quarantine import Quarantine
from tileyard.settings import Settings
from tileyard.suite.files.drafts import (
    CommandPlan,
    Common,
    Draft,
    KernelFile,
    find_seed,
    is_of_kernels,
    make_case,
    show_shape,
)
from tileyard.suite.files.places import Document, Place
from tileyard.suite.files.steps import Env, read_env, read_step, read_text
from tileyard.suite.files.tables import (
    CaseTable,
    ListedCaseTable,
    SuiteTable,
    TestcaseTable,
    check_name,
    decode,
    decode_all,
)
from tileyard.suite.records import Policy, PolicyTable, Rule, Suite, SuiteCase

SUITE_FILE = "suite.toml"
WILDCARDS = "*?["
LIMIT_S = 120.0
NOTHING: Mapping[str, str] = {}
MOST_BYTES = 256 << 20
"""Most bytes that such a command may print: a suite of a million cases has less."""
Row = tuple[CaseTable, Place]
"""A case as it is written, and where."""


def read_suite(path: Path, settings: Settings, variables: Mapping[str, str] = NOTHING) -> Suite:
    """The suite of a file or folder. Raises UsageError that names file, line and key.

    Commands that list cases are run, with these ``variables`` besides our own. A suite with kernels of which no case is listed is refused:
    ``kernel_cases.read_suite_with_kernels`` reads these.
    """
    draft = read_draft(path, settings, variables)
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


def read_draft(path: Path, settings: Settings, variables: Mapping[str, str] = NOTHING) -> Draft:
    """What the files of a suite say, before anybody is asked about kernels."""
    path = path.resolve()
    reader = _Reader({**os.environ, **variables, **settings.environment()})
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

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._open: list[Path] = []
        self._read: set[Path] = set()

    def read(self, path: Path, draft: Draft, place: Place | None) -> str:
        """Take in a file, which is named at ``place``, and what it includes; its own name."""
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
        table = decode(document.table, SuiteTable, top)
        check_name(table.name, top / "name")
        own_policies = {
            name: Policy(name=name, **asdict(decode(raw, PolicyTable, top / "policies" / name)))
            for name, raw in table.policies.items()
        }
        for number, text in enumerate(table.include):
            place = top / "include" / number
            for path in _find_included(text, place):
                self.read(path, draft, place)
        draft.policies.update(own_policies)
        first = len(draft.cases)
        draft.cases += _File(table, top, draft.folder, self._environ).cases()
        draft.skip += decode_all(table.skip, Rule, top / "skip")
        draft.quarantine += decode_all(table.quarantine, Quarantine, top / "quarantine")
        allow = decode_all(table.allow, Rule, top / "allow")
        if document.path == draft.path:
            draft.allow += allow
        elif allow:
            (top / "allow").fail("an included file has no say in what else may run; use skip")
        if not table.include and len(draft.cases) == first:
            top.fail("has no testcase")
        return table.name


class _File:
    """The testcases of one file, with their cases, whether declared or listed by a command."""

    def __init__(
        self, table: SuiteTable, top: Place, home: Path, environ: Mapping[str, str]
    ) -> None:
        self._table = table
        self._top = top
        self._home = home
        self._environ = environ
        self._common = Common().narrowed(table, top)
        self._env = read_env(table.env, top / "env")

    def cases(self) -> Iterator[SuiteCase | KernelFile]:
        """All cases, testcase by testcase: those that are declared, then those that are only listed."""
        listed: dict[str, list[Row]] = {}
        if self._table.list is not None:
            place = self._top / "list"
            for row, at in _list_cases(self._table.list, place, self._environ, self._env):
                listed.setdefault(row.testcase or self._table.name, []).append((row, at))
        seen: dict[str, Place] = {}
        for number, raw in enumerate(self._table.testcase):
            place = self._top / "testcase" / number
            testcase = decode(raw, TestcaseTable, place)
            if testcase.name in seen:
                first = seen[testcase.name].where
                (place / "name").fail(f"{testcase.name!r} stands twice, also at {first}")
            check_name(testcase.name, place / "name")
            seen[testcase.name] = place
            rows = self._rows(testcase, place) + listed.pop(testcase.name, [])
            yield from self._testcase(testcase, place, rows)
        for name, rows in listed.items():
            place = self._top / "list"
            check_name(name, rows[0][1] / "testcase")
            yield from self._testcase(TestcaseTable(name=name), place, rows)

    def _rows(self, testcase: TestcaseTable, place: Place) -> list[Row]:
        rows: list[Row] = []
        for number, raw in enumerate(testcase.case):
            at = place / "case" / number
            rows.append((decode(raw, CaseTable, at), at))
        if testcase.list is not None:
            env = {**self._env, **read_env(testcase.env, place / "env")}
            for row, at in _list_cases(
                testcase.list, place / "list", self._environ, env, testcase.name
            ):
                if row.testcase not in ("", testcase.name):
                    (at / "testcase").fail(f"is {row.testcase!r} in a list of {testcase.name!r}")
                rows.append((row, at))
        return rows

    def _testcase(
        self, testcase: TestcaseTable, place: Place, rows: list[Row]
    ) -> Iterator[SuiteCase | KernelFile]:
        common = self._common.narrowed(testcase, place)
        if is_of_kernels(testcase, place):
            yield from self._kernels(testcase, place, rows, common)
            return
        plan = CommandPlan((testcase, place), (self._table, self._top), self._home)
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
            own = common.narrowed(row, at)
            seed = find_seed(row)
            values = {
                **own.vars,
                **_shared_values(at.document.folder),
                "testcase": testcase.name,
                "case": row.name,
                "dtype": own.dtype,
                "shape": show_shape(row.shape),
                "valid_shape": show_shape(row.valid_shape or row.shape),
                "seed": str(seed),
            }
            work = plan.fill_in(values, (row.shape, row.valid_shape), own.tolerance, at)
            yield make_case(testcase.name, row, own, work, at)

    def _kernels(
        self,
        testcase: TestcaseTable,
        place: Place,
        rows: list[Row],
        common: Common,
    ) -> Iterator[SuiteCase | KernelFile]:
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
            if row.shape and not isinstance(row.shape, str):
                (at / "shape").fail("is the name of a set of arguments for a case of a kernel")
            own = common.narrowed(row, at)
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


def _find_included(text: str, place: Place) -> list[Path]:
    path = place.document.folder / text
    if path.is_dir():
        path = path / SUITE_FILE
    if path.exists() or not set(text) & set(WILDCARDS):
        return [path]
    found = sorted(place.document.folder.glob(text))
    if not found:
        place.fail(f"there is no file like {path}")
    return found


# ---- cases that a command prints -----------------------------------------------------------------


def _list_cases(
    raw: object, place: Place, environ: Mapping[str, str], env: Env, testcase: str = ""
) -> Iterator[tuple[ListedCaseTable, Place]]:
    """Run the command that is written at a place; each line of its output is a case in JSON.

    It gets those variables of ``env`` that do not depend on a case or a step. Raises UsageError that
    says how it failed, or which of its lines is no case.
    """
    folder = place.document.folder
    values = _shared_values(folder) | ({"testcase": testcase} if testcase else {})
    told = {name: text for name, text in env.items() if text.names <= values.keys()}
    step = read_step(raw, "list", place, told).fill_in(values, folder)
    argv = tuple(read_text(text, place).fill({}) for text in step.argv)
    own = {name: read_text(text, place).fill({}) for name, text in step.env.items()}
    variables = {**environ, **own}
    cwd = Path(read_text(step.cwd, place).fill({})) if step.cwd else folder
    printed = _run(argv, variables, cwd, step.limit_s or LIMIT_S, place)
    count = 0
    for number, line in enumerate(printed.splitlines(), start=1):
        if not line.strip():
            continue
        count += 1
        at = replace(place, note=f"line {number} of what it printed")
        try:
            row = decode_json(line, object)
        except msgspec.DecodeError as error:
            at.fail(f"is no JSON: {error}: {line[:200].decode(errors='replace')!r}")
        yield decode(row, ListedCaseTable, at), at
    if not count:
        place.fail(f"printed no case: {shlex.join(argv)} in {cwd}")


def _shared_values(folder: Path) -> dict[str, str]:
    """What templates of every file know: its folder, and the Python that runs Tileyard."""
    return {"suite": str(folder), "python": sys.executable}


class _Printed(Heard):
    """What a program writes to its standard output."""

    def __init__(self) -> None:
        self.data = bytearray()

    def takes(self, data: bytes) -> bool:
        self.data += data
        return True

    def wants_end(self) -> bool:
        return len(self.data) > MOST_BYTES


def _run(
    argv: tuple[str, ...], env: dict[str, str], cwd: Path, limit_s: float, place: Place
) -> bytes:
    """What a program prints. Raises UsageError with code or signal, argv, folder and its last words."""
    called = f"{shlex.join(argv)} in {cwd}"
    printed = _Printed()
    order = StepOrder(argv=argv, env=env, cwd=str(cwd), log=os.devnull, limit_s=limit_s)
    end = insist_on(order, printed.data.clear, printed)
    if end.refusal:
        why = os.strerror(end.errno) if end.errno else end.refusal
        place.fail(f"cannot be started ({why}): {called}")
    if printed.wants_end():
        place.fail(f"printed more than {MOST_BYTES >> 20} MiB: {called}")
    if not end.ok:
        tail = end.tail.strip()
        said = f"\n{tail}" if tail else "; it wrote nothing to stderr"
        place.fail(f"{describe_kind(end, order)}: {called}{said}")
    return bytes(printed.data)

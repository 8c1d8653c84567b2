"""Reading a suite: its file, those that it includes, and the cases that its commands print.

A testcase of kernels that names no case has one for each kernel and shape, and which these are only
an author can say: ``kernel_cases`` asks one.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

from msgspec.structs import asdict

from tileyard.errors import UsageError
from tileyard.settings import Settings
from tileyard.suite.files.command_cases import CommandPlan, is_of_kernels, show_shape
from tileyard.suite.files.drafts import Common, Draft, KernelFile, find_seed, make_case
from tileyard.suite.files.listing import list_cases, shared_values
from tileyard.suite.files.places import Document, Place
from tileyard.suite.files.steps import read_env
from tileyard.suite.files.tables import (
    CaseTable,
    PolicyTable,
    QuarantineTable,
    RuleTable,
    SuiteTable,
    TestcaseTable,
    check_name,
    decode,
)
from tileyard.suite.records import KernelWork, Policy, Quarantine, Rule, Suite, SuiteCase

SUITE_FILE = "suite.toml"
WILDCARDS = "*?["
Row = tuple[CaseTable, Place]
"""A case as it is written, and where."""


def read_suite(path: Path, settings: Settings) -> Suite:
    """The suite of a file or folder. Raises UsageError that names file, line and key.

    Commands that list cases are run. A suite with kernels of which no case is listed is refused:
    ``kernel_cases.read_suite_with_kernels`` reads these.
    """
    draft = read_draft(path, settings)
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


def read_draft(path: Path, settings: Settings) -> Draft:
    """What the files of a suite say, before anybody is asked about kernels."""
    path = path.resolve()
    reader = _Reader(settings)
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

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
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
        draft.cases += _File(table, top, draft.folder, self._settings).cases()
        draft.skip += _read_rules(table.skip, top / "skip")
        allow = _read_rules(table.allow, top / "allow")
        if document.path == draft.path:
            draft.allow += allow
        elif allow:
            (top / "allow").fail("an included file has no say in what else may run; use skip")
        for number, raw in enumerate(table.quarantine):
            entry = decode(raw, QuarantineTable, top / "quarantine" / number)
            draft.quarantine.append(
                Quarantine(
                    cases=entry.cases,
                    owner=entry.owner,
                    reason=entry.reason,
                    until=entry.until.isoformat(),
                )
            )
        if not table.include and len(draft.cases) == first:
            top.fail("has no testcase")
        return table.name


class _File:
    """The testcases of one file, with their cases, whether declared or listed by a command."""

    def __init__(self, table: SuiteTable, top: Place, home: Path, settings: Settings) -> None:
        self._table = table
        self._top = top
        self._home = home
        self._settings = settings
        self._common = Common().narrowed(table, top)
        self._env = read_env(table.env, top / "env")

    def cases(self) -> Iterator[SuiteCase | KernelFile]:
        """All cases, testcase by testcase: those that are declared, then those that are only listed."""
        listed: dict[str, list[Row]] = {}
        if self._table.list is not None:
            place = self._top / "list"
            for row, at in list_cases(self._table.list, place, self._settings, self._env):
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
            for row, at in list_cases(
                testcase.list, place / "list", self._settings, env, testcase.name
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
                **shared_values(at.document.folder),
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


def _read_rules(rows: Iterable[object], place: Place) -> list[Rule]:
    rules = [decode(raw, RuleTable, place / number) for number, raw in enumerate(rows)]
    return [Rule(cases=rule.cases, reason=rule.reason) for rule in rules]

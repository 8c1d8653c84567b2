"""The testcases of one suite file, with their cases, whether declared or listed by a command."""

from collections.abc import Iterator
from pathlib import Path

from tileyard.settings import Settings
from tileyard.suite.files.command_cases import CommandPlan, is_of_kernels, show_shape
from tileyard.suite.files.drafts import Common, KernelFile, find_seed, make_case
from tileyard.suite.files.listing import list_cases, shared_values
from tileyard.suite.files.places import Place
from tileyard.suite.files.steps import read_env
from tileyard.suite.files.tables import CaseTable, SuiteTable, TestcaseTable, check_name, decode
from tileyard.suite.records import KernelWork, SuiteCase

Row = tuple[CaseTable, Place]
"""A case as it is written, and where."""


class SuiteFile:
    """The testcases of one file."""

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

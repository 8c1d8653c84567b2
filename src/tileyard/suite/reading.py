"""Reading a suite: its file, those that it includes, and the cases that its commands print.

A testcase of kernels that names no case has one for each kernel and shape, and which these are only
an author can say: ``kernel_cases`` asks one.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

from tileyard.errors import UsageError
from tileyard.settings import Settings
from tileyard.suite.files.drafts import Common, Draft, KernelFile
from tileyard.suite.files.places import Document, Place
from tileyard.suite.files.tables import (
    PolicyTable,
    QuarantineTable,
    RuleTable,
    SuiteTable,
    check_name,
    decode,
)
from tileyard.suite.files.testcases import SuiteFile
from tileyard.suite.records import KernelWork, Policy, Quarantine, Rule, Suite

SUITE_FILE = "suite.toml"
WILDCARDS = "*?["


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
            (place.fail if place is not None else _refuse)(f"there is no file {path}")
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
        own_policies = dict(_read_policies(table, top))
        for number, text in enumerate(table.include):
            place = top / "include" / number
            for path in _find_included(text, place):
                self.read(path, draft, place)
        draft.policies.update(own_policies)
        first = len(draft.cases)
        draft.cases += SuiteFile(table, top, draft.folder, self._settings).cases()
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


def _read_policies(table: SuiteTable, top: Place) -> Iterator[tuple[str, Policy]]:
    for name, raw in table.policies.items():
        policy = decode(raw, PolicyTable, top / "policies" / name)
        yield (
            name,
            Policy(name=name, **{key: getattr(policy, key) for key in policy.__struct_fields__}),
        )


def _read_rules(rows: Iterable[object], place: Place) -> list[Rule]:
    rules = [decode(raw, RuleTable, place / number) for number, raw in enumerate(rows)]
    return [Rule(cases=rule.cases, reason=rule.reason) for rule in rules]


def _refuse(problem: str) -> None:
    raise UsageError(problem)

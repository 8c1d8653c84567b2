"""What is known of a suite while it is read: what tables say together, cases, and open questions."""

import binascii
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import msgspec

from tileyard.errors import UsageError
from tileyard.model import Limits, Tolerance
from tileyard.suite.files.command_cases import read_tolerance
from tileyard.suite.files.places import Place
from tileyard.suite.files.tables import CaseTable, CommonTable, ListedCaseTable, check_name
from tileyard.suite.records import (
    CommandWork,
    KernelWork,
    Policy,
    Quarantine,
    Rule,
    Suite,
    SuiteCase,
)
from tileyard.targets.command.records import PLACES

TAKEN = frozenset(
    {*PLACES, "suite", "python", "testcase", "case", "dtype", "shape", "valid_shape", "seed"}
)
"""Names in templates that a case's own ``vars`` cannot have."""


UNSTATED = 0
"""Memory of which a suite says nothing: programs then have no limit, kernels the usual one."""


@dataclass(frozen=True, kw_only=True)
class Common:
    """What tables from wide to narrow say of a case together."""

    family: str = ""
    dtype: str = ""
    tags: tuple[str, ...] = ()
    tolerance: Tolerance | None = None
    limits: Limits = field(default_factory=partial(Limits, memory_bytes=UNSTATED))
    vars: dict[str, str] = field(default_factory=dict)

    def narrowed(self, table: CommonTable, place: Place) -> "Common":
        """With what a narrower table says besides, or instead."""
        for name in table.vars:
            if name in TAKEN or not name.isidentifier():
                (place / "vars" / name).fail(
                    "is no name" if name not in TAKEN else "stands for something else already"
                )
        limits = msgspec.structs.asdict(table.limits)
        stated = {name: value for name, value in limits.items() if value is not None}
        texts = {
            name: str(value).lower() if isinstance(value, bool) else str(value)
            for name, value in table.vars.items()
        }
        return Common(
            family=self.family if table.family is None else table.family,
            dtype=self.dtype if table.dtype is None else table.dtype,
            tags=tuple(dict.fromkeys((*self.tags, *table.tags))),
            tolerance=read_tolerance(table, place) or self.tolerance,
            limits=msgspec.structs.replace(self.limits, **stated),
            vars={**self.vars, **texts},
        )


@dataclass(frozen=True, kw_only=True)
class KernelFile:
    """Kernels whose cases are not listed: one for each kernel, or that of ``work`` alone, and shape.

    ``testcase`` is empty where each kernel is a testcase of its own.
    """

    where: str
    work: KernelWork
    testcase: str = ""
    common: Common


@dataclass(kw_only=True)
class Draft:
    """A suite as far as its files alone say; ``kernel_files`` are still to be asked about."""

    name: str
    path: Path
    folder: Path
    cases: list[SuiteCase | KernelFile] = field(default_factory=list)
    policies: dict[str, Policy] = field(default_factory=dict)
    allow: list[Rule] = field(default_factory=list)
    skip: list[Rule] = field(default_factory=list)
    quarantine: list[Quarantine] = field(default_factory=list)

    def finish(self, cases: Iterable[SuiteCase]) -> Suite:
        """The suite with these cases. Raises UsageError where two of them are called the same."""
        known: dict[str, SuiteCase] = {}
        for case in cases:
            first = known.setdefault(case.id, case)
            if first is not case:
                raise UsageError(
                    f"{case.where}: case {case.id} stands twice, also at {first.where}"
                )
        if not known:
            raise UsageError(f"{self.path}: has no case")
        return Suite(
            name=self.name,
            path=str(self.path),
            folder=str(self.folder),
            cases=tuple(known.values()),
            policies=self.policies,
            allow=tuple(self.allow),
            skip=tuple(self.skip),
            quarantine=tuple(self.quarantine),
        )


def make_case(
    testcase: str, row: CaseTable, common: Common, work: CommandWork | KernelWork, place: Place
) -> SuiteCase:
    """A case out of its row. Raises UsageError for a name that is none."""
    check_name(row.name, place / "name")
    where = row.where if isinstance(row, ListedCaseTable) else ""
    return SuiteCase(
        testcase=testcase,
        name=row.name,
        work=work,
        family=common.family or testcase,
        dtype=common.dtype,
        shape=row.shape if not isinstance(row.shape, str) else (),
        tags=common.tags,
        smoke=row.smoke,
        seed=find_seed(row),
        limits=common.limits if isinstance(work, CommandWork) else limit_kernel(common.limits),
        where=where or place.where,
    )


def limit_kernel(stated: Limits) -> Limits:
    """The limits of a case that is a kernel."""
    if stated.memory_bytes != UNSTATED:
        return stated
    return msgspec.structs.replace(stated, memory_bytes=Limits().memory_bytes)


def find_seed(row: CaseTable) -> int:
    """The seed of a case's data: what it says, else the crc32 of its name."""
    return binascii.crc32(row.name.encode()) if row.seed is None else row.seed

"""Kernels of a side that is already built, and those of the files that are compared with it."""

from collections.abc import AsyncIterator, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from tileyard.artifacts.manifest import Build
from tileyard.base.errors import KernelFileError, UsageError
from tileyard.base.model import Case, CheckPolicy, KernelWork, Limits, Outcome, Work
from tileyard.base.settings import Settings
from tileyard.base.wording import count_of
from tileyard.engine.authors import Authors
from tileyard.show.words import format_config
from tileyard.verbs.regress.options.start import StartRegress
from tileyard.verbs.regress.plan.side_stored import StoredSide
from tileyard.verbs.test.plan.choosing import find_meant
from tileyard.verbs.test.plan.kernel_cases import read_suite_with_kernels
from tileyard.verbs.test.plan.side_suites import choose_cases
from tileyard.verbs.test.result.records import SuiteCase


@dataclass(frozen=True, kw_only=True)
class StoredKernels:
    """The cases of kernels of both sides, and those that a side cannot begin."""

    cases: dict[str, list[Case]]
    refused: dict[str, list[Build]]


async def open_kernels(
    stored: Mapping[str, StoredSide],
    start: StartRegress,
    target: str,
    authors: Authors,
    settings: Settings,
) -> StoredKernels:
    """The kernels of the stored sides, and of the other side's files if there is only one. Raises UsageError
    if two files have a case of one name, or the sides have none in common.
    """
    files = {"base": start.base_files, "head": start.head_files}
    texts = [kernel for own in files.values() for _, kernel in own]
    found = {
        name: {case.id: case for case in one.cases if not texts or _is_meant(case, texts)}
        for name, one in stored.items()
    }
    refused = {
        name: [_refuse(case, stored[name].gone[case]) for case in own if case in stored[name].gone]
        for name, own in found.items()
    }
    for name in files.keys() - stored.keys():
        (beside,) = found.values()
        reader = _Beside(authors, name, settings)
        refused[name] = [failed for file in files[name] async for failed in reader.read(*file)]
        found[name] = reader.choose(beside, start.request.select)
    base, head = found["base"], found["head"]
    if not base.keys() & head.keys() and not any(refused.values()):
        raise UsageError(
            f"nothing can be compared: base has {count_of(len(base), 'case')} and head has "
            f"{count_of(len(head), 'case')}, and none is in both"
        )
    for case in base.keys() & head.keys():
        if difference := _find_difference(base[case].work, head[case].work):
            refused["head"].append(_refuse(case, difference))
    lost = {one.case for own in refused.values() for one in own}
    cases = {
        name: [
            _make_case(case, name, target, start.request.limits)
            for case in found[name].values()
            if case.id not in lost
        ]
        for name in files
    }
    return StoredKernels(cases=cases, refused=refused)


class _Beside:
    """The kernels of a side's files, as ``tileyard bundle`` would build them."""

    def __init__(self, authors: Authors, side: str, settings: Settings) -> None:
        self._authors = authors
        self._side = side
        self._settings = settings
        self._cases: dict[str, SuiteCase] = {}

    async def read(self, file: str, kernel: str) -> AsyncIterator[Build]:
        """Read a file, or only its named kernel; a file that this side cannot read is a failed kernel."""
        try:
            suite = await read_suite_with_kernels(
                Path(file), self._settings, self._authors, self._side
            )
        except KernelFileError as error:
            yield Build(case=Path(file).name, outcome=Outcome.COMPILE_ERROR, message=str(error))
            return
        cases, _ = choose_cases(suite, ())
        found = {case.id: case for case in cases if _is_meant(case, [kernel])}
        if twice := self._cases.keys() & found.keys():
            raise UsageError(f"{file} has a case {min(twice)}, and so has another file")
        self._cases |= found

    def choose(
        self, stored: Mapping[str, SuiteCase], select: tuple[str, ...]
    ) -> dict[str, SuiteCase]:
        """Its selected cases to compare with a stored side's. A kernel without a case of the same name there
        gets that side's cases, with their arguments and configs.
        """
        own = tuple(self._cases.values())
        if select:
            meant = frozenset[str]().union(*(find_meant(text, own) for text in select))
            own = tuple(case for case in own if case.id in meant)
        kernels = {_kernel_of(case): case for case in self._cases.values()}
        named = {_kernel_of(case) for case in own if case.id in stored}
        alike = {
            case.id: msgspec.structs.replace(case, work=_move(case.work, kernels[name].work))
            for case in stored.values()
            if (name := _kernel_of(case)) in kernels.keys() - named
        }
        replaced = {_kernel_of(case) for case in alike.values()}
        return {case.id: case for case in own if _kernel_of(case) not in replaced} | alike


def _make_case(case: SuiteCase, side: str, target: str, limits: Limits) -> Case:
    tolerance = case.work.tolerance if isinstance(case.work, KernelWork) else None
    return Case(
        id=case.id,
        work=case.work,
        target=target,
        side=side,
        check=CheckPolicy(tolerance=tolerance),
        limits=limits,
    )


def _refuse(case: str, message: str) -> Build:
    return Build(case=case, outcome=Outcome.NOT_RUN, message=message)


def _kernel_of(case: SuiteCase) -> str:
    return case.work.kernel if isinstance(case.work, KernelWork) else ""


def _is_meant(case: SuiteCase, texts: Collection[str]) -> bool:
    """Whether one of these texts is empty, or names the kernel or the kernel and shape of a case."""
    kernel = _kernel_of(case)
    return not {"", kernel, f"{kernel}/{case.name}"}.isdisjoint(texts)


def _move(work: Work, own: Work) -> Work:
    """The kernel of ``own`` with the arguments and the config of ``work``."""
    if not (isinstance(work, KernelWork) and isinstance(own, KernelWork)):
        return work
    return msgspec.structs.replace(
        work, file=own.file, tolerance=own.tolerance or work.tolerance, reference=own.reference
    )


def _find_difference(base: Work, head: Work) -> str:
    """Why head's case is not base's, empty if it is."""
    if not (isinstance(base, KernelWork) and isinstance(head, KernelWork)):
        return ""
    if base.arguments == head.arguments:
        return ""
    return (
        f"cannot be compared: it has {format_config(head.arguments)}, "
        f"and on base {format_config(base.arguments)}"
    )

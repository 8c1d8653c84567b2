"""Lists the ids of the cases that a run of a suite would begin: nothing is built or run."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from tileyard.base.errors import UsageError
from tileyard.base.model import Side
from tileyard.base.settings import Settings
from tileyard.engine.authors import Author, Authors, WorkerAuthor
from tileyard.engine.hosting import KIND
from tileyard.store.base import RunTime
from tileyard.targets.registry import COMMAND, find_needs
from tileyard.verbs.test.options import StartTest, TestOptions, start_test
from tileyard.verbs.test.plan.budget import Bounds, expect_all, look_ahead, target_of
from tileyard.verbs.test.plan.durations import learn_imported
from tileyard.verbs.test.plan.imports import read_times
from tileyard.verbs.test.plan.kernel_cases import read_suite_with_kernels
from tileyard.verbs.test.plan.lanes import read_memory
from tileyard.verbs.test.plan.pieces import parse_shard
from tileyard.verbs.test.result.result import Expected, Suite


def list_cases(
    suite: str,
    given: TestOptions,
    settings: Settings,
    read_run_times: Callable[[], Sequence[RunTime]],
) -> tuple[str, ...]:
    """The ids of the selected cases in the suite's order, before ``--changed`` decides. Runs commands that
    list cases, asks authors. Raises UsageError.
    """
    start = start_test(suite, given)
    if start.is_bundle:
        raise UsageError(
            "--list is of a suite, and not of a bundle", "`tileyard bundle --inspect` shows one"
        )
    settings = msgspec.structs.replace(settings, python_limit_s=start.python_limit_s)
    read = read_whole(Path(start.path), settings, start.parameters)
    memory = read_memory(settings.home, read.remembered_as)
    wish = start.wish
    if start.rerun_failed:
        wish = msgspec.structs.replace(wish, rerun=memory.failing)
    told = read_times(Path(start.durations), start.durations_pattern) if start.durations else ()
    imported = learn_imported(told, read.cases)

    def expect(times: Sequence[RunTime]) -> dict[str, Expected]:
        classes = _find_classes(start)
        return expect_all(read, times, classes, lambda c: target_of(c, start.target), imported)

    bounds = Bounds(
        shard=parse_shard(start.shard) if start.shard else None,
        budget_s=start.budget_s,
        slots=start.slots or len(start.devices) or len(settings.cores),
        costs=memory.costs(settings.lanes, has_devices=bool(start.devices)),
    )
    outlook = look_ahead(read, wish, expect, bounds, read_run_times())
    return tuple(case.id for case in outlook.selection.cases)


def read_whole(path: Path, settings: Settings, parameters: Mapping[str, str]) -> Suite:
    """A suite with its kernels, asked of authors' processes. Raises UsageError and KernelFileError."""

    def make_author(side: Side, file: str) -> Author:
        side = msgspec.structs.replace(side, python_limit_s=settings.python_limit_s)
        return WorkerAuthor(Path(file), settings.home, settings.cores, side)

    async def read() -> Suite:
        authors = Authors((Side(),), settings.cores, make_author)
        try:
            return await read_suite_with_kernels(path, settings, authors, parameters=parameters)
        finally:
            await authors.close()

    return asyncio.run(read())


def _find_classes(start: StartTest) -> dict[str, str]:
    named = next((name.partition(":")[0] for name in start.devices), "")
    kernels = find_needs(start.target).device_class
    return {COMMAND: named or KIND, start.target: named or kernels}

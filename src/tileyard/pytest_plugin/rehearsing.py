"""Runs tests ahead, without a device, so that caches contain what they compile until they hold one.
For compilations that were neither declared nor found. Each copy ends when the test asks for a
device or launches a kernel.
"""

import asyncio
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Final, NoReturn, Protocol

import pytest
from _pytest.runner import runtestprotocol

from tileyard.artifacts.manifest import find_artifact
from tileyard.artifacts.objects import ObjectStore
from tileyard.base.model import BuildKey, Outcome, Record
from tileyard.frontend.no_device import on_import
from tileyard.pytest_plugin.active import Active
from tileyard.pytest_plugin.declared import DeclaredSteps
from tileyard.pytest_plugin.far_records import StepResult
from tileyard.pytest_plugin.forked import (
    Forked,
    Teller,
    allow_threads,
    follow,
    make_lane,
    out_log,
    run_loop,
)
from tileyard.pytest_plugin.running import log_of, take_place
from tileyard.pytest_plugin.tilelang_jit import is_tilelangs, watch_compiles, watch_tilelang

AHEAD: Final = "ahead"
"""Name of such a step, and of the folder of such logs."""
DEVICE_FIXTURE: Final = "tile_device"
BLOCK, LAUNCH, TOUCH = (
    "its first device block",
    "its first launch of a kernel",
    "its first use of a GPU",
)
OURS, GPU = "tileyard.api.kernels", "torch.cuda"
"""The modules in which our kernels are loaded, and in which torch first touches a GPU."""


class CompileBegan(Record):
    """The test has begun to compile a kernel, under this key."""

    kernel: str
    build: BuildKey


class CompileDone(Record):
    """The compilation succeeded, as far as is known."""


class Arrived(Record):
    """The test reached the point where it would hold a device, or ended before: then ``where`` is empty."""

    where: str


def choose_tests(
    items: Iterable[pytest.Item], declared: DeclaredSteps, results: Mapping[str, StepResult]
) -> list[pytest.Item]:
    """The tests that may compile something not found, in the same order in every process.
    ``results`` are those of all other steps, by name.
    """
    read: dict[str, list[StepResult]] = {}
    for name, result in results.items():
        head, mark, tail = name.partition("#body:")
        read.setdefault(f"{head}{mark}{tail.partition(':')[0]}", []).append(result)
    chosen = []
    for item in sorted(items, key=lambda item: item.nodeid):
        name = item.nodeid
        if name in declared.refusals or name in declared.kernels or name in declared.functions:
            continue
        bodies = declared.bodies.get(name, [])
        own = [result for body in bodies for result in read.get(body, [])]
        may_compile = bodies or DEVICE_FIXTURE in getattr(item, "fixturenames", ())
        if may_compile and (not own or any(result.is_partial for result in own)):
            chosen.append(item)
    return chosen


class Rehearsal:
    """The plugin of a test's copy that runs ahead."""

    def __init__(self, teller: Teller) -> None:
        self._teller = teller

    def run(self, item: pytest.Item, active: Active, outer: object) -> None:
        """Run the test until it stops; ``outer`` is the plugin of the process that has copied itself."""
        take_place(item.config, outer, self, _log_of(item, active))
        allow_threads(1, 1)
        holdings = active.enter(self._teller)
        holdings.hold = partial(self._stop, BLOCK)  # type: ignore[method-assign]  # in this process alone
        watch_compiles(self._begin, lambda: self._teller.tell(CompileDone()))
        watch_tilelang(run=partial(self._stop, LAUNCH))
        on_import(OURS, self._keep_from_launching)
        on_import(GPU, self._keep_from_touching)
        runtestprotocol(item, log=False, nextitem=None)
        self._teller.tell(Arrived(where=""))

    def _begin(self, kernel: str, build: str) -> None:
        self._teller.tell(CompileBegan(kernel=kernel, build=BuildKey(build)))

    def _stop(self, where: str, *_: object, **__: object) -> NoReturn:
        self._teller.tell(Arrived(where=where))
        os._exit(0)  # nothing of the test goes on, teardown included

    def _keep_from_launching(self, module: ModuleType) -> None:
        module.make_target = lambda *_: _Unloaded(partial(self._stop, LAUNCH))  # type: ignore[attr-defined]

    def _keep_from_touching(self, module: ModuleType) -> None:
        # what all first touches of a GPU call
        module._lazy_init = partial(self._stop, TOUCH)  # type: ignore[attr-defined]  # noqa: SLF001


class _Unloaded:
    """Replaces a target: its kernels are built, and not loaded."""

    def __init__(self, launch: Callable[..., NoReturn]) -> None:
        self._launch = launch

    def load(self, *_: object) -> "_Unloaded":
        """Load nothing."""
        return self

    def as_callable(self) -> Callable[..., NoReturn]:
        """A function that ends the rehearsal."""
        return self._launch


class Share(Protocol):
    """Has ``make`` make the results of some of the tests here; returns the results of all."""

    def __call__(
        self,
        steps: Sequence[pytest.Item],
        *,
        make: Callable[[Sequence[pytest.Item]], list[StepResult]],
    ) -> list[StepResult]:
        """Called by every process of a run with the same tests."""


def run_ahead(
    items: Sequence[pytest.Item], active: Active, outer: object, share: Share | None = None
) -> None:
    """Run tests ahead if asked, shared among processes; add what they compiled and how far they got."""
    if active.options.dynamic != "prepare":
        return

    cores = len(active.settings.cores)
    at_once = cores if share is None else max(1, cores // active.processes)

    def make(chosen: Sequence[pytest.Item]) -> list[StepResult]:
        return run_loop(_rehearse_all(chosen, active, outer, at_once))

    chosen = choose_tests(items, active.declared, active.results)
    results = make(chosen) if share is None else share(chosen, make=make)
    active.results |= {result.step: result for result in results}


async def _rehearse_all(
    items: Sequence[pytest.Item], active: Active, outer: object, at_once: int
) -> list[StepResult]:
    free = asyncio.Semaphore(at_once)

    async def one(item: pytest.Item) -> list[StepResult]:
        async with free:
            return await _rehearse(item, active, outer)

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(item)) for item in items]
    return [result for task in tasks for result in task.result()]


async def _rehearse(item: pytest.Item, active: Active, outer: object) -> list[StepResult]:
    def work(_: int, teller: Teller) -> None:
        Rehearsal(teller).run(item, active, outer)

    at = time.monotonic()
    log = _log_of(item, active)
    copy = Forked(make_lane(work), 0, active.options.build_limit_s, log, goes_on=True)
    begun: dict[BuildKey, str] = {}
    open_builds: set[BuildKey] = set()
    arrived: Arrived | None = None
    async for message in follow(copy):
        match message:
            case CompileBegan(kernel=kernel, build=build):
                begun[build] = kernel
                open_builds.add(build)
            case CompileDone():
                open_builds.clear()
            case Arrived():
                arrived = message
            case _:
                pass  # of devices, of which it gets none
    for file in (log, out_log(log)):
        file.unlink(missing_ok=True)
    objects = ObjectStore(active.settings.home / "objects")
    failed = {
        build: kernel
        for build, kernel in begun.items()
        if (build in open_builds if is_tilelangs(build) else find_artifact(build, objects) is None)
    }
    if arrived is None:  # what it was doing when it died is for its own run
        failed = {}
    result = StepResult(
        step=f"{item.nodeid}#{AHEAD}",
        at=at,
        seconds=time.monotonic() - at,
        why=_describe(arrived, copy, [begun[build] for build in begun.keys() - failed]),
    )
    return [
        result,
        *(
            StepResult(
                step=f"{result.step}:{number}",
                outcome=Outcome.COMPILE_ERROR,
                message=f"{kernel} could not be compiled ahead; its test tells why",
                at=at,
                build=build,
            )
            for number, (build, kernel) in enumerate(failed.items())
        ),
    ]


def _describe(arrived: Arrived | None, copy: Forked, kernels: Iterable[str]) -> str:
    done = f"compiled {', '.join(sorted(set(kernels))) or 'nothing'} ahead"
    if arrived is None:
        how = copy.end.describe(copy.limit_s) if copy.end is not None else "was ended"
        return f"{done}, then {how}, which counts for nothing"
    return f"{done}, up to {arrived.where}" if arrived.where else f"{done}, and held no device"


def _log_of(item: pytest.Item, active: Active) -> Path:
    return active.folder / AHEAD / log_of(item, active).name

"""One part of a suite's run: the cases of one target, driven through the engine."""

import asyncio
import contextlib
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tileyard.artifacts.copying import remove_folder
from tileyard.artifacts.objects import ObjectStore
from tileyard.clock import SystemClock
from tileyard.engine.anonymous import KIND, AnonymousSlots
from tileyard.engine.authors import Author, WorkerAuthor
from tileyard.engine.driver import Driver
from tileyard.engine.foreign_queue.slots import Lenders
from tileyard.engine.hosting import StepHost
from tileyard.engine.ledger import ANY_RUN
from tileyard.engine.provider import LeaseProvider
from tileyard.engine.remembered import RememberedAuthor
from tileyard.engine.shelf import Shelf
from tileyard.engine.yard import Listener, Yard
from tileyard.model import WELL, Device, Trial
from tileyard.service.choosing import choose_queues
from tileyard.service.messages import StartTest
from tileyard.service.stopping import stop_when
from tileyard.settings import Settings
from tileyard.store.events import EventLog
from tileyard.store.trials import TrialStore
from tileyard.suite.achieved import Achieved, Span
from tileyard.suite.author import WORK, SuiteAuthor
from tileyard.suite.choosing import find_policy
from tileyard.suite.outlook import COMMAND
from tileyard.suite.packed import PackedCases, PackedSuite
from tileyard.suite.records import Plan, Suite, SuiteCase
from tileyard.suite.site import SuiteSite
from tileyard.suite.source import SuiteSource
from tileyard.workers.protocol import RunEntry


@dataclass(frozen=True, kw_only=True)
class Part:
    """The cases of one target, the devices on which they run, and in what pieces."""

    run: str
    target: str
    cases: tuple[SuiteCase, ...]
    devices: tuple[Device, ...]
    expected_s: dict[str, float]
    plan: Plan


@dataclass(frozen=True, kw_only=True)
class Driven:
    """What a part came to: trials by case, when each ran, and when the part was begun.

    ``lead_from`` is that time too, None where something was built, which a later run need not do.

    ``entries`` is what was packed instead, by case.
    """

    trials: dict[str, list[Trial]]
    spans: list[Span]
    began: float
    lead_from: float | None
    entries: dict[str, RunEntry] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Ways:
    """What all parts of a run share. ``packed`` is the suite where it came out of a bundle."""

    store: TrialStore
    log: EventLog
    listeners: Sequence[Listener]
    toolchain: str
    packed: PackedSuite | None


class PartDriver:
    """Drives the parts of one run, one after another."""

    def __init__(self, start: StartTest, settings: Settings, suite: Suite, ways: Ways) -> None:
        self._start = start
        self._settings = settings
        self._suite = suite
        self._ways = ways
        self._clock = SystemClock()

    async def drive(self, part: Part, stopping: asyncio.Event) -> Driven:
        """Run a part to its end; once ``stopping`` is set nothing new is started.

        Where it is cancelled besides, everything is ended, and what is known by then is returned.
        """
        began, achieved = self._clock.wall_s(), Achieved()
        retries = find_retries(self._start, self._suite)
        source = SuiteSource(part.cases, part.plan.pieces, part.expected_s, retries)
        shelf = Shelf(part.devices) if self._start.pack_to else None
        async with AsyncExitStack() as stack:
            stack.push(_survive_cancelling)
            site = self._site(part)
            host = StepHost(site.home, self._settings.cores, site.threads)
            stack.push_async_callback(host.close)
            make = partial(make_author, self._settings)
            author = SuiteAuthor(part.cases, site, host, make)
            stack.push_async_callback(author.close)
            folders = WorkFolders(author, site.home / WORK)
            stack.push_async_callback(folders.close)
            yard = self._make_yard(part, author)
            yard.listeners += [*self._ways.listeners, achieved]
            yard.flushes.append(self._ways.log.flush)
            provider = shelf or self._make_provider(part, yard, host)
            driver = Driver(source, yard, part.run, provider)
            await driver.open()
            stack.push_async_callback(driver.close)
            watching = asyncio.create_task(stop_when(stopping, driver, yard.emit))
            stack.callback(watching.cancel)
            async for trial in driver.trials():
                if trial.outcome in WELL and not self._start.keep_work:
                    folders.drop(trial)
        return Driven(
            trials=source.trials,
            spans=achieved.spans,
            began=began,
            lead_from=None if achieved.has_built else began,
            entries=shelf.entries if shelf is not None else {},
        )

    def _site(self, part: Part) -> SuiteSite:
        """Programs answer in as many lanes as there are cores; kernels' authors keep off the devices."""
        cores = self._settings.cores
        owned = {core for device in part.devices for core in device.cores}
        lanes = len(cores) if part.target == COMMAND else 1
        return SuiteSite(
            home=self._settings.home,
            run=part.run,
            folder=Path(self._suite.folder),
            cores=tuple(core for core in cores if core not in owned) or cores,
            lanes=lanes,
            threads=self._start.golden_threads or max(1, len(cores) // lanes),
            toolchain=self._ways.toolchain,
        )

    def _make_provider(self, part: Part, yard: Yard, host: StepHost) -> LeaseProvider:
        slots = [device for device in part.devices if device.kind == KIND]
        others = (AnonymousSlots(host, slots, part.target),) if slots else ()
        return Lenders(yard, choose_queues(self._start.devices, self._settings), *others)

    def _make_yard(self, part: Part, author: SuiteAuthor) -> Yard:
        start, settings, packed = self._start, self._settings, self._ways.packed
        policy = find_policy(self._suite, start.wish.policy)
        return Yard(
            settings=settings,
            store=self._ways.store,
            objects=ObjectStore(settings.home / "objects"),
            author=author,
            target=part.target,
            devices=part.devices,
            reuse=False,
            proven_by=start.changed or (ANY_RUN if policy.changed else ""),
            packed=PackedCases(packed, author).find if packed is not None else None,
            queue_limit_s=start.queue_limit_s,
            compile_workers=start.compile_workers,
            build_threads=len(settings.cores) if part.target == COMMAND else 0,
            clock=self._clock,
        )


def _survive_cancelling(kind: type[BaseException] | None, *_: object) -> bool:
    """Go on after a block that was cancelled."""
    task = asyncio.current_task()
    is_cancelled = kind is not None and issubclass(kind, asyncio.CancelledError)
    if is_cancelled and task is not None:
        task.uncancel()
    return is_cancelled


class WorkFolders:
    """Removes the folders of cases of programs that ended well, beside the run; others stay.

    A trial is dropped once it is recorded, so a run that is killed leaves folders, and never a case
    without an outcome. ``root`` holds the folders of all runs.
    """

    def __init__(self, author: SuiteAuthor, root: Path) -> None:
        self._author = author
        self._root = root
        self._parents: set[Path] = set()
        self._late: list[Path] = []
        self._removing: set[asyncio.Task[None]] = set()

    def drop(self, trial: Trial) -> None:
        """Remove the folder of a trial: soon, or at the end where other cases' process began in it."""
        folder = self._author.find_folder(trial)
        if folder is None:
            return
        self._parents.add(folder.parent)
        if self._author.is_hot(trial):
            self._late.append(folder)
            return
        task = asyncio.create_task(asyncio.to_thread(_remove, folder))
        self._removing.add(task)
        task.add_done_callback(self._removing.discard)

    async def close(self) -> None:
        """Wait for what goes on, and remove the rest. Nothing of the run may go on any more."""
        await asyncio.gather(*self._removing)
        await asyncio.to_thread(self._clear)

    def _clear(self) -> None:
        for folder in self._late:
            _remove(folder)
        for folder in self._parents:
            _remove_empty(folder, self._root)


def _remove(folder: Path) -> None:
    """Remove a folder; what other users' processes have left in it waits for ``tileyard cache gc``."""
    with contextlib.suppress(OSError):
        remove_folder(folder)


def _remove_empty(folder: Path, root: Path) -> None:
    """Remove a folder below ``root`` and those above it, as far as they are empty."""
    with contextlib.suppress(OSError):
        while folder != root:
            folder.rmdir()
            folder = folder.parent


def find_retries(start: StartTest, suite: Suite) -> int:
    """How often a case that fails is run again."""
    asked = start.retries
    return find_policy(suite, start.wish.policy).retries if asked is None else asked


def make_author(settings: Settings, file: str) -> Author:
    """The author of a file of kernels; what it answered before is known."""
    author = WorkerAuthor(Path(file), settings.home, settings.cores)
    objects = ObjectStore(settings.home / "objects")
    return RememberedAuthor(author, Path(file), objects, recall=True)

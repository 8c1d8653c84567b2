"""One tuning run inside the engine process: opens the yard, drives the study, judges it."""

import secrets
import time
from contextlib import AsyncExitStack
from pathlib import Path

from tileyard.artifacts.objects import ObjectStore
from tileyard.clock import SystemClock
from tileyard.devices.locks import prepare_locks
from tileyard.devices.registry import parse_device
from tileyard.engine.authors import Author, WorkerAuthor
from tileyard.engine.driver import Driver
from tileyard.engine.yard import Yard
from tileyard.model import Device, Note, RunEnded, RunStarted, StopReason
from tileyard.service.conversation import ClientAuthor, Conversation
from tileyard.service.messages import StartTune
from tileyard.settings import Settings
from tileyard.store.events import EventLog
from tileyard.store.trials import TrialStore
from tileyard.tuning.request import StudyResult
from tileyard.tuning.space import open_space
from tileyard.tuning.study import Study


class Tuning:
    """A tuning run that can be stopped from outside."""

    def __init__(self, start: StartTune, settings: Settings, conversation: Conversation) -> None:
        self._start = start
        self._settings = settings
        self._conversation = conversation
        self._driver: Driver | None = None
        self._interrupted = False
        self._clock = SystemClock()

    def stop(self) -> None:
        """Start nothing new; what runs is finished."""
        self._interrupted = True
        if self._driver is not None:
            self._driver.stop()

    async def run(self) -> StudyResult:
        """Carry the run out. Raises TileyardError where the request makes no sense."""
        device = parse_device(self._start.device, self._settings)
        run = new_run_name()
        async with AsyncExitStack() as stack:
            author = self._open_author(device)
            stack.push_async_callback(author.close)
            space = await open_space(author, self._start.request)
            prepare_locks(device)
            store = stack.enter_context(TrialStore.open(self._settings.home))
            yard = Yard(
                settings=self._settings,
                store=store,
                objects=ObjectStore(self._settings.home / "objects"),
                author=author,
                target=self._start.target,
                devices=(device,),
                reuse=self._start.reuse,
                overlap=self._start.overlap,
                reference=self._start.request.reference,
                clock=self._clock,
            )
            study = Study(self._start.request, space, run, self._clock)
            driver = Driver(study, yard, run)
            await driver.open()
            log = stack.enter_context(EventLog(self._settings.home, run))
            stack.push_async_callback(driver.close)
            yard.listeners += [log.append, self._conversation.tell_event]
            yard.emit(
                RunStarted(
                    run=run,
                    at=self._clock.wall_s(),
                    title=f"tune {space.kernel}",
                    target=yard.target,
                    devices=yard.devices,
                    cases=len(space.configs),
                    flops=space.flops,
                )
            )
            if len(space.configs) < space.size:
                text = f"{len(space.configs)} of {space.size} points of the space are tried"
                yard.emit(Note(text=text))
            return await self._drive(driver, study, yard, run)

    async def _drive(self, driver: Driver, study: Study, yard: Yard, run: str) -> StudyResult:
        self._driver = driver
        if self._interrupted:
            driver.stop()
        async for _ in driver.trials():
            pass
        reason: StopReason = "done"
        if self._interrupted:
            reason = "interrupted"
        elif study.is_out_of_budget:
            reason = "budget"
        yard.emit(RunEnded(run=run, at=self._clock.wall_s(), reason=reason))
        return study.result(reason, yard.devices[0].name)

    def _open_author(self, device: Device) -> Author:
        """The author, kept off the device's cores where there are others."""
        if not self._start.file:
            return ClientAuthor(self._conversation, self._settings.cores)
        free = tuple(core for core in self._settings.cores if core not in device.cores)
        return WorkerAuthor(
            Path(self._start.file), self._settings.home, free or self._settings.cores
        )


def new_run_name() -> str:
    """A short name that sorts by time: month, day, hour, minute, and four random digits."""
    return f"{time.strftime('%m%d-%H%M')}-{secrets.token_hex(2)}"

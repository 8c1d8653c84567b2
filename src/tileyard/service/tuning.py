"""One tuning run inside the engine process: opens the yard, drives the study, judges it."""

import asyncio
from collections import Counter
from contextlib import AsyncExitStack

from tileyard.artifacts.objects import ObjectStore
from tileyard.clock import SystemClock
from tileyard.devices.locks import prepare_locks
from tileyard.engine.authors import Author
from tileyard.engine.driver import Driver
from tileyard.engine.foreign_queue.slots import Lenders
from tileyard.engine.yard import Yard
from tileyard.events import Note, RunEnded, RunStarted, StopReason
from tileyard.service.choosing import choose_devices, choose_queues
from tileyard.service.conversation import Conversation
from tileyard.service.messages import StartTune
from tileyard.service.naming import claim_run_name
from tileyard.service.stopping import stop_when
from tileyard.settings import Settings
from tileyard.store.events import EventLog
from tileyard.store.trials import TrialQuery, TrialStore
from tileyard.tuning.finals import judge_finals
from tileyard.tuning.request import StudyResult
from tileyard.tuning.space import open_space
from tileyard.tuning.study import FINALS, Study
from tileyard.wording import count_of


class Tuning:
    """A tuning run that can be stopped from outside."""

    def __init__(
        self, start: StartTune, settings: Settings, author: Author, conversation: Conversation
    ) -> None:
        self._start = start
        self._settings = settings
        self._author = author
        self._conversation = conversation
        self._clock = SystemClock()

    async def run(self, stopping: asyncio.Event) -> StudyResult:
        """Carry the run out; once ``stopping`` is set nothing new is started.

        Raises TileyardError where the request makes no sense.
        """
        start = self._start
        devices = choose_devices(start.devices, start.target, self._settings)
        async with AsyncExitStack() as stack:
            space = await open_space(self._author, start.request)
            for device in devices:
                prepare_locks(device)
            store = stack.enter_context(TrialStore.open(self._settings.make_home()))
            run = claim_run_name(self._settings.home, store)
            yard = Yard(
                settings=self._settings,
                store=store,
                objects=ObjectStore(self._settings.home / "objects"),
                author=self._author,
                target=start.target,
                devices=devices,
                reuse=start.reuse,
                overlap=start.overlap,
                reference=start.request.reference,
                queue_limit_s=start.queue_limit_s,
                compile_workers=start.compile_workers,
                group_size=start.group_size,
                clock=self._clock,
            )
            study = Study(start.request, space, run, self._clock)
            queues = choose_queues(start.devices, self._settings)
            driver = Driver(study, yard, run, Lenders(yard, queues))
            await driver.open()
            log = stack.enter_context(EventLog(self._settings.home, run))
            stack.push_async_callback(driver.close)
            yard.listeners += [log.add, self._conversation.tell_event]
            yard.flushes.append(log.flush)
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
            if len({device.identity for device in devices}) > 1:
                text = "the devices differ, so times of configs that ran on different ones do too"
                yard.emit(Note(text=text, level="warning"))
            if 1 < len(space.configs) < space.size:
                text = f"{len(space.configs)} of {space.size} points of the space are tried"
                yard.emit(Note(text=text))
            watching = asyncio.create_task(stop_when(stopping, driver))
            stack.callback(watching.cancel)
            budget_s = start.request.budget_s
            if budget_s is not None:
                left_s = max(budget_s - study.elapsed_s, 0.0)
                reason = f"the budget of {budget_s:g} s was spent before this case was reached"
                loop = asyncio.get_running_loop()
                timer = loop.call_later(left_s, _cut_short, study, driver, reason)
                stack.callback(timer.cancel)
            async for _ in driver.trials():
                pass
            ended: StopReason = "budget" if study.is_cut_short else "done"
            if stopping.is_set():
                ended = "interrupted"
            result = study.result(ended, devices[0])
            _tell_end(yard, result, start.request.timing.confidence)
            return result


def _doubt_busy_runs(yard: Yard, result: StudyResult, confidence: float) -> None:
    """Say which times are known from runs whose A/A control was wide. Reused finals say so themselves."""
    if result.control is not None and result.control.reused:
        return
    known = Counter(trial.run for trial in result.trials if trial.reused and trial.measurement)
    for run, count in known.items():
        trials = yard.store.list_trials(TrialQuery(run=run))
        finals = [trial for trial in trials if trial.batch == FINALS]
        control = judge_finals(finals, finals, confidence).control
        if control is not None and control.is_wide:
            times = f"{count_of(count, 'time')} known from run {run}"
            text = f"{times}, in which the machine was busy; --fresh measures again"
            yard.emit(Note(text=text, level="warning"))


def _tell_end(yard: Yard, result: StudyResult, confidence: float) -> None:
    _doubt_busy_runs(yard, result, confidence)
    if skipped := yard.store.describe_skipped():
        yard.emit(Note(text=skipped, level="warning"))
    yard.emit(RunEnded(run=result.run, at=yard.clock.wall_s(), reason=result.reason))


def _cut_short(study: Study, driver: Driver, reason: str) -> None:
    """What was asked of the finals is not the budget's to end."""
    if study.is_screening:
        driver.trim(reason)

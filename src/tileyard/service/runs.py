"""The loop that carries out every verb inside the engine process."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Generic, TypeVar

import msgspec

from tileyard.artifacts.manifest import Build
from tileyard.base.errors import HomeError
from tileyard.base.events import (
    HostLost,
    Note,
    RunEnded,
    RunStarted,
    StepEnded,
    StepKind,
    StopReason,
)
from tileyard.base.model import WELL, Case, Device, Outcome
from tileyard.base.wording import count_of, describe_unrecorded
from tileyard.devices.locks import prepare_locks
from tileyard.engine.authors import Authors
from tileyard.engine.driver import Driver, make_pool
from tileyard.engine.foreign_queue.slots import Lenders
from tileyard.engine.hosting import KIND, AnonymousSlots, StepHost
from tileyard.engine.programs import Programs, ProgramSite
from tileyard.engine.provider import CaseSource, LeaseProvider
from tileyard.engine.yard import Listener, Rank, Workplace, Yard
from tileyard.service.bench import Bench
from tileyard.service.choosing import choose_queues
from tileyard.store.events import EventLog
from tileyard.store.results import keep_result
from tileyard.workers.protocol import RunEntry

ResultT = TypeVar("ResultT")
TIMER_S = 0.001
"""Seconds after a moment at which its timer runs, so that every clock is past it."""
STOPPING = "stopping: running cases finish, no new ones start; press Ctrl-C again to stop at once"
HALTING = "stopping: {} failed; running cases finish, no new ones start"


@dataclass(frozen=True, kw_only=True)
class Ending:
    """How a run ended: why, when begun, after how many ``seconds``, and by case how what was only
    built ended (``builds``) and what a runner would need for it (``shelf``). ``tell`` sends to the
    run's listeners; ``unrecorded``: trials that the store could not take; ``lost_hosts``: in their order.
    """

    run: str
    reason: StopReason
    began_at: float
    seconds: float
    shelf: Mapping[str, RunEntry]
    builds: Mapping[str, Build]
    tell: Listener
    unrecorded: Sequence[str] = ()
    lost_hosts: Sequence[HostLost] = ()

    def build_of(self, case: Case, name: str) -> Build:
        """How a case was built, under its name for people."""
        never = Build(outcome=Outcome.NOT_RUN, message="never begun")
        built = self.builds.get(case.key, never)
        return msgspec.structs.replace(built, case=name, config=case.config)


@dataclass(frozen=True, kw_only=True)
class Plan(Generic[ResultT]):
    """The plan of a verb: a source of cases, and the fold to its result, which ``finish`` completes
    unless cut short.
    ``grounds`` are the devices per target, ``named`` those requested. ``programs`` is where
    programs run, whose passed folders are removed unless ``keep_work``; ``packed`` finds what was
    built elsewhere, ``rank`` orders what is built. Once ``find_excess`` gives a reason, cases not begun
    are dropped for it: that is asked after each trial, and after ``trim_after_s``, or the whole
    ``budget_s``. ``find_reason`` says why the run ended, if nothing else ended it. ``begun`` is the first
    event, to be filled in.
    """

    source: CaseSource
    fold: Callable[[Ending], ResultT]
    finish: Callable[[ResultT], Awaitable[ResultT]] | None = None
    authors: Authors
    grounds: Mapping[str, Sequence[Device]]
    begun: RunStarted
    named: Sequence[str] = ()
    notes: Sequence[Note] = ()
    listeners: Sequence[Listener] = ()
    workplace: Workplace = field(default_factory=Workplace)
    programs: ProgramSite | None = None
    keep_work: bool = False
    packed: Callable[[Programs | None, Case], RunEntry | None] | None = None
    rank: Rank | None = None
    find_reason: Callable[[], StopReason] = lambda: "done"
    budget_s: float | None = None
    trim_after_s: float | None = None
    find_excess: Callable[[], str] = str  # which is empty


async def drive(plan: Plan[ResultT], bench: Bench) -> ResultT:
    """Drive a plan's source to its end; return the result. If cancelled while cases run, all is ended, and
    the result is of what is known.
    """
    for device in (one for devices in plan.grounds.values() for one in devices):
        prepare_locks(device)  # before there is a store: a refused run leaves no trace
    began_at = bench.clock.wall_s()
    with EventLog(bench.settings.home, bench.run) as log:
        yard = _open_yard(plan, bench, log)
        driver: Driver | None = None
        async with AsyncExitStack() as stack:
            stack.push(partial(_survive_cancelling, bench.stopping))
            driver = await _open_driver(plan, bench, yard, stack)
            stack.push_async_callback(driver.close)
            _tell_start(plan, bench, yard, driver)
            watching = asyncio.create_task(_stop_when(bench.stopping, driver, yard.emit))
            stack.callback(watching.cancel)
            trim_after_s = plan.budget_s if plan.trim_after_s is None else plan.trim_after_s
            if trim_after_s is not None:
                left_s = max(trim_after_s - bench.elapsed_s, 0.0) + TIMER_S
                timer = asyncio.get_running_loop().call_later(left_s, _trim, plan, driver)
                stack.callback(timer.cancel)
            async for trial in driver.trials():
                _trim(plan, driver)
                if yard.programs is not None and not plan.keep_work and trial.outcome in WELL:
                    yard.programs.drop(trial)
                if driver.halted_by == trial.id:
                    yard.emit(Note(text=HALTING.format(trial.case)))
        reason = plan.find_reason()
        if driver is not None and driver.halted_by:
            reason = "first_failure"
        if bench.stopping.is_set():
            reason = "interrupted"
        ending = Ending(
            run=bench.run,
            reason=reason,
            began_at=began_at,
            seconds=bench.elapsed_s,
            shelf=yard.shelf,
            builds=yard.builds,
            tell=yard.emit,
            unrecorded=() if driver is None else driver.unrecorded,
            lost_hosts=() if bench.hosts is None else bench.hosts.lost,
        )
        result = plan.fold(ending)
        if plan.finish is not None and reason in ("done", "gain"):
            result = await plan.finish(result)
        _end(result, ending, bench, yard)
    return result


def _end(result: object, ending: Ending, bench: Bench, yard: Yard) -> None:
    """The run's last events; the result is kept for reports, and without that the run is as good."""
    if ending.unrecorded:
        yard.emit(Note(text=describe_unrecorded(ending.unrecorded), level="warning"))
    if yard.sync_unchecked:
        yard.emit(Note(text=_describe_unchecked([*yard.sync_unchecked.values()])))
    if skipped := bench.store.describe_skipped():
        yard.emit(Note(text=skipped, level="warning"))
    try:
        keep_result(bench.settings.home, bench.run, result)
    except HomeError as error:
        text = f"no report of this run can be made later: {error.message}"
        yard.emit(Note(text=text, level="warning"))
    yard.emit(RunEnded(run=bench.run, at=bench.clock.wall_s(), reason=ending.reason))
    yard.flush()


def _describe_unchecked(reasons: Sequence[str]) -> str:
    return (
        f"{count_of(len(reasons), 'config')} not checked for races and undefined accesses: {reasons[0]} "
        "(--check-sync allows ten minutes)"
    )


def _open_yard(plan: Plan[ResultT], bench: Bench, log: EventLog) -> Yard:
    return Yard(
        settings=bench.settings,
        store=bench.store,
        objects=bench.objects,
        authors=plan.authors,
        compilers=bench.compilers,
        grounds={target: tuple(devices) for target, devices in plan.grounds.items()},
        listeners=[log.add, bench.conversation.tell_event, *plan.listeners],
        flushes=[log.flush],
        clock=bench.clock,
        title=f"tileyard {plan.begun.title}, run {bench.run}",
        **vars(plan.workplace),
    )


async def _open_driver(
    plan: Plan[ResultT], bench: Bench, yard: Yard, stack: AsyncExitStack
) -> Driver:
    others: list[LeaseProvider] = []
    hosted: set[str] = set()
    if bench.hosts is not None:
        bench.hosts.append_log = yard.append_log
        hosted = {slot.device.name for slot in bench.hosts.slots}
        others.append(bench.hosts)
        if yard.compilers is None:
            asked = yard.compile_workers, yard.group_size
            opening = bench.hosts.open_builders(make_pool(yard), yard.authors.sides, *asked)
            yard.compilers = await opening
    if plan.programs is not None:
        host = StepHost(bench.settings.home, bench.settings.cores)
        stack.push_async_callback(host.aclose)
        tell = partial(_tell_step, yard)
        yard.programs = Programs(plan.programs, bench.settings.home, bench.run, host, tell)
        stack.push_async_callback(yard.programs.close)
        own = [device for device in yard.devices if device.name not in hosted]
        if slots := [device for device in own if device.kind == KIND]:
            others.append(AnonymousSlots(host, slots, yard.programs.share_cores(len(slots))))
    if plan.packed is not None:
        yard.packed = partial(plan.packed, yard.programs)
    yard.rank = plan.rank
    queues = choose_queues(plan.named, bench.settings)
    driver = Driver(plan.source, yard, bench.run, Lenders(yard, queues, *others))
    await driver.open()
    if bench.hosts is not None:
        driver.follow(partial(bench.hosts.await_hosts, yard.grounds))
    return driver


def _tell_step(yard: Yard, case: Case, kind: StepKind, seconds: float) -> None:
    yard.emit(StepEnded(case=case.key, step=kind, at=yard.clock.wall_s(), seconds=seconds))


def _tell_start(plan: Plan[ResultT], bench: Bench, yard: Yard, driver: Driver) -> None:
    yard.emit(
        msgspec.structs.replace(
            plan.begun,
            run=bench.run,
            at=bench.clock.wall_s(),
            target=plan.begun.target or " and ".join(yard.grounds),
            devices=tuple(one for one in yard.devices if not one.members),
            undecided=driver.window,
            budget_left_s=plan.budget_s and max(plan.budget_s - bench.elapsed_s, 0.0),
        )
    )
    if bench.hosts is not None:
        bench.hosts.begin(yard.emit)
    for note in plan.notes:
        yard.emit(note)


async def _stop_when(stopping: asyncio.Event, driver: Driver, tell: Listener) -> None:
    await stopping.wait()
    driver.stop()
    tell(Note(text=STOPPING))


def _trim(plan: Plan[ResultT], driver: Driver) -> None:
    if not driver.is_trimmed and (reason := plan.find_excess()):
        driver.trim(f"{reason} before this case was reached")


def _survive_cancelling(
    stopping: asyncio.Event, kind: type[BaseException] | None, *_: object
) -> bool:
    """Continue after a block that was cancelled: the run was interrupted."""
    task = asyncio.current_task()
    is_cancelled = kind is not None and issubclass(kind, asyncio.CancelledError)
    if is_cancelled and task is not None:
        task.uncancel()
        stopping.set()
    return is_cancelled

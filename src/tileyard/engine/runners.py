"""Runs cases on this host's devices: a runner for each, warm for as long as its lease is held. What
happens in it becomes an outcome of the one case it had turned to.
"""

import asyncio
import contextlib
import logging
import secrets
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from tileyard.base.clock import Clock
from tileyard.base.errors import WorkerLostError
from tileyard.base.model import QUEUE_LIMIT_S, Batch, BuildKey, Device, Outcome
from tileyard.base.modes import make_folder, open_file
from tileyard.base.settings import Settings
from tileyard.devices.classes import find_class
from tileyard.engine.judge import HandedOver
from tileyard.engine.provider import (
    LeaseLostError,
    Slot,
    UnrecoveredSlot,
    Waiting,
    Watch,
    case_limit_s,
)
from tileyard.processes.records import SUSPECT, judge_end
from tileyard.processes.supervise import LeaseRequest, Place, Worker, WorkerCommand, time_limit
from tileyard.workers.command_runs import worker_environment
from tileyard.workers.protocol import (
    BatchRan,
    CaseBegan,
    CaseRan,
    OutputsJudged,
    RunBatch,
    RunEntry,
    RunnerReady,
    RunnerReply,
    RunnerSpent,
    StopBatch,
)

GENERAL = "logs/runner.log"
"""The log for output that belongs to no case."""
log = logging.getLogger(__name__)
START_LIMIT_S = 60.0


class RunnerOutput:
    """The output of one runner, in a file of its own below ``home``."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self.path = home / "logs" / f"runner-{secrets.token_hex(4)}.log"

    def close(self, rest: str = GENERAL) -> None:
        """Append what is left to a log below ``home`` and remove the file, if possible. Repeatable."""
        try:
            with self.path.open("rb") as output:
                if self.path.stat().st_size:
                    path = self._home / rest
                    make_folder(path.parent)
                    with open(path, "ab", opener=open_file) as file:
                        shutil.copyfileobj(output, file)
            self.path.unlink()
        except FileNotFoundError:
            pass  # it never began
        except OSError as error:
            log.warning("what a runner printed stays in %s: %s", self.path, error)


@dataclass(kw_only=True)
class RunnerSite:
    """What a runner must know about its place of work. ``grounds`` are the devices for each target,
    as far as known ahead. ``queue_limit_s`` bounds the wait for a device; ``handed_over`` takes
    outputs; ``title`` names the run for others who wait.
    """

    settings: Settings
    grounds: Mapping[str, tuple[Device, ...]]
    queue_limit_s: float = QUEUE_LIMIT_S
    clock: Clock = field(default_factory=Clock)
    handed_over: HandedOver = field(default_factory=HandedOver)
    title: str = ""

    @property
    def home(self) -> Path:
        """The directory with objects and logs."""
        return self.settings.home


class LocalDevices:
    """A provider of devices that this host's own locks protect."""

    def __init__(self, site: RunnerSite, devices: Sequence[Device]) -> None:
        self._slots = tuple(RunnerSlot(site, device) for device in devices)
        self.slots: Sequence[Slot] = self._slots

    async def open(self) -> None:
        """Do nothing: the locks were prepared when the devices were named."""

    def withdraw(self) -> None:
        """Begin no further case. The engine itself releases devices that are asked for and not held."""
        for slot in self._slots:
            slot.withdraw()

    async def close(self) -> None:
        """End every runner."""
        await asyncio.gather(*(slot.release() for slot in self.slots))


class RunnerSlot(UnrecoveredSlot):
    """The runner of one device, held for as long as that process tree lives. It starts before its lease, so
    that none is held during imports; not if the device owns cores, on which others may be timing.
    """

    appetite = 0

    def __init__(self, site: RunnerSite, device: Device) -> None:
        self.device = device
        self._site = site
        self._memory = site.handed_over.open(device.name)
        self._is_early = bool(device.locks) and not device.cores
        self._worker: Worker | None = None
        self._output: RunnerOutput | None = None
        self._starting = asyncio.Lock()
        self._is_running = False
        self.is_suspect = False  # until the next runner starts
        self._ran: set[BuildKey] = set()
        self._telling: asyncio.Future[None] | None = None

    async def warm(self) -> None:
        """Start the runner ahead of its lease, if allowed, up to that. ``acquire`` reports failures."""
        if self._is_early:
            async with self._starting:
                with contextlib.suppress(LeaseLostError, WorkerLostError):
                    await self._find_warm()

    async def acquire(self, memory_bytes: int, waiting: Callable[[Waiting], None]) -> int:
        """Wait for the device, with a runner that is already warm or starts now."""
        limit_s = self._site.queue_limit_s
        memory_bytes = memory_bytes if find_class(self.device.kind).limits_memory else 0

        def tell(place: Place) -> None:
            waiting(Waiting(place=place.position, holder=place.holder))

        try:
            async with self._starting:
                if not self._is_early:
                    return (await self._start(memory_bytes, limit_s, tell)).lease
                worker = await self._find_warm()
            await worker.take_lease(memory_bytes, limit_s=limit_s, waiting=tell)
        except TimeoutError:
            self._forget()
            message = f"ran into the queue limit of {limit_s:g} s: {self.device.name} did not come"
            raise LeaseLostError(message, Outcome.QUEUE_TIMEOUT) from None
        except WorkerLostError as error:
            self._forget()
            raise LeaseLostError(f"the runner did not start: {error}") from error
        return worker.lease

    async def _find_warm(self) -> Worker:
        if self._worker is not None and self._worker.is_over:
            self._forget()
        return self._worker or await self._start(0)

    async def _start(
        self,
        memory_bytes: int,
        limit_s: float | None = None,
        waiting: Callable[[Place], None] | None = None,
    ) -> Worker:
        """Start the runner; return once it has imported what it needs, with its lease unless ``early``."""
        self._forget()
        self.is_suspect = False
        worker = self._worker = await Worker.start(
            self._command(memory_bytes), lock_limit_s=limit_s, waiting=waiting
        )
        try:
            async with time_limit(START_LIMIT_S):
                await worker.receive(RunnerReady)
        except (TimeoutError, WorkerLostError):
            end = judge_end(await worker.kill("time limit"), limit=f"limit of {START_LIMIT_S:g} s")
            self._forget()
            raise LeaseLostError(f"the runner did not start: it {end.message}") from None
        return worker

    async def run(self, batch: Batch, entries: Sequence[RunEntry], watch: Watch) -> bool:
        """Run entries until all are answered, or one has ended the runner. See ``Slot``."""
        if self._worker is None:
            raise AssertionError(f"a batch was to run on {self.device.name}, which is not held")
        is_single = batch.process == "fresh" and batch.order != "interleaved"
        left = {entry.case: entry for entry in (entries[:1] if is_single else entries)}
        builds = {entry.build for entry in left.values()}
        if batch.process == "fresh" and self._ran and (is_single or self._ran & builds):
            await self.release()
            return False
        self._ran |= builds
        self._is_running = True
        try:
            culprit = await self._run(self._worker, batch, left, watch)
        finally:
            self._is_running = False
        if culprit is not None:
            self.is_suspect = culprit.outcome in SUSPECT
            watch.ran(culprit, self.device.name, culprit.lease)
        elif is_single:
            await self.release()
        return self._worker is not None

    def withdraw(self) -> None:
        """Withdraw from a runner at work; it finishes the case that it has begun."""
        if self._worker is not None and self._is_running:
            self._telling = asyncio.ensure_future(self._tell_to_stop(self._worker))

    async def _tell_to_stop(self, worker: Worker) -> None:
        with contextlib.suppress(WorkerLostError):  # the reader of its answers reports the loss
            await worker.send(StopBatch())

    async def release(self) -> None:
        """End the process, which gives the lease back."""
        async with self._starting:
            if self._worker is not None:
                # Forgotten only once it is gone: if this call is cancelled, the next one ends it.
                await self._worker.kill("lease over")
            self._forget()

    def _forget(self, rest: str = GENERAL) -> None:
        """Forget the runner, which is gone. The rest of its output goes to a log below the home directory."""
        self._worker = None
        self._ran = set()
        if self._output is not None:
            self._output.close(rest)
            self._output = None

    async def _run(
        self, worker: Worker, batch: Batch, left: dict[str, RunEntry], watch: Watch
    ) -> CaseRan | None:
        """Run what is left until all is answered, or until the process ends: then blame a case."""
        cases = {case.key: case for case in batch.cases}
        clock = self._site.clock
        current, since = "", clock.monotonic_s()
        limit_s = silence_s = _silence_s(batch, left.values())
        try:
            # One limit for the whole, moved on with each case: a timer for each message costs more.
            async with time_limit(limit_s) as limit:
                await worker.send(self._request(batch, left))
                while True:
                    reply = await self._hear(worker)
                    match reply:
                        case CaseBegan(case=case):
                            current, since = case, clock.monotonic_s()
                            limit_s = case_limit_s(batch, cases[case])
                            limit.reset(limit_s)
                            watch.began(case)
                        case CaseRan(case=case):
                            del left[case]
                            limit_s = silence_s
                            limit.reset(limit_s)
                            watch.ran(reply, self.device.name, reply.lease)
                        case BatchRan():
                            return None
                        case RunnerSpent():
                            limit.reset(None)
                            # Its device is probed before its next use.
                            self.is_suspect = True
                            await worker.kill("it is spent", is_suspect=True)
                            self._forget()
                            return None
                        case RunnerReady():
                            raise AssertionError("a runner began twice")
        except (TimeoutError, WorkerLostError) as error:
            is_late = isinstance(error, TimeoutError)
            end, _ = await worker.judge_silence(error, f"run limit of {limit_s:g} s")
        if not left:  # all are answered, so no case is to blame
            self._forget()
            return None
        if not current or (is_late and current not in left):
            self._forget()
            silence = f"was silent for {limit_s:g} s"
            raise LeaseLostError(f"the runner {silence if is_late else end.message}")
        blamed = current if current in left else next(iter(left))
        self._forget(left[blamed].log)
        return CaseRan(
            case=blamed,
            outcome=end.outcome,
            seconds=clock.monotonic_s() - since,
            message=end.message,
            lease=worker.lease,
        )

    async def _hear(self, worker: Worker) -> RunnerReply:
        """The runner's next reply; before that, tell it which outputs were judged meanwhile."""
        if judged := self._site.handed_over.take_judged(self.device.name):
            await worker.send(OutputsJudged(cases=judged))
        reply: RunnerReply = await worker.receive(RunnerReply)
        return reply

    def _request(self, batch: Batch, left: dict[str, RunEntry]) -> RunBatch:
        cases = tuple(case for case in batch.cases if case.key in left)
        self._site.handed_over.take_judged(self.device.name)  # none of it is in ``taken`` any more
        return RunBatch(
            batch=msgspec.structs.replace(batch, cases=cases),
            entries=tuple(left[case.key] for case in cases),
            plugins=self._site.settings.plugins,
            device=self.device,
            taken=self._site.handed_over.taken(self.device.name),
        )

    def _command(self, memory_bytes: int) -> WorkerCommand:
        home, plugins = self._site.home, self._site.settings.plugins
        self._output = RunnerOutput(home)
        argv = (sys.executable, "-P", "-m", "tileyard.workers.runner", str(home), str(self._memory))
        targets = [
            f"{target}={plugins.get(target, '')}"
            for target, devices in self._site.grounds.items()
            if self.device in devices
        ]
        return WorkerCommand(
            argv=(*argv, *targets),
            env={**worker_environment(threads=1), **self.device.env},
            cwd=str(Path.cwd()),
            log=str(self._output.path),
            memory_bytes=memory_bytes,
            cores=self.device.cores,
            lease=LeaseRequest(
                choices=self.device.members or (self.device,), count=self.device.count
            ),
            early=self._is_early,
            fds=(self._memory,),
            title=self._site.title,
        )


def _silence_s(batch: Batch, entries: Iterable[RunEntry]) -> float:
    """Seconds that a runner may spend between cases; the start and the gaps of a hot process are apart."""
    hot = [e.command.hot for e in entries if e.command is not None and e.command.hot is not None]
    if not hot:
        return START_LIMIT_S
    runs_s = max(case.limits.run_s for case in batch.cases)
    return START_LIMIT_S + max(runs_s, *(one.step.limit_s for one in hot))

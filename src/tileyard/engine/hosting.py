"""The engine's side of the step host: asks it to run programs, many at the same time."""

import asyncio
import contextlib
import itertools
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from pathlib import Path

from tileyard.base.errors import HomeError, TileyardError, UsageError, WorkerLostError
from tileyard.base.model import Batch, Device
from tileyard.engine.provider import LeaseLostError, Slot, UnheldSlot, Watch, infra_error
from tileyard.processes.records import judge_end
from tileyard.processes.supervise import Worker, WorkerCommand
from tileyard.workers.command_protocol import Asked, HostFailed, HostReply, StopBatches, Told
from tileyard.workers.command_runs import worker_environment
from tileyard.workers.protocol import (
    AnswerT,
    BatchRan,
    CaseBegan,
    CaseRan,
    Question,
    RunBatch,
    RunEntry,
)

ATTEMPTS = 3
"""Number of times a request is made if the host dies."""
KIND = "slot"


class StepHost:
    """One process, started at its first use, and again if it dies."""

    def __init__(self, home: Path, cores: tuple[int, ...]) -> None:
        self._home = home
        self._cores = cores
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Queue[HostReply | None]] = {}
        self._starting = asyncio.Lock()
        self._worker: Worker | None = None
        self._reading: asyncio.Task[None] | None = None
        self._lost = ""

    async def ask(self, request: Question[AnswerT]) -> AnswerT:
        """The single answer to a request. Raises HomeError, UsageError if the user's files are the cause, or
        WorkerLostError if every host died. A request that was running when a host died gets its own host.
        """
        try:
            return await _ask(self, request)
        except WorkerLostError:
            for _ in range(ATTEMPTS - 2):
                with contextlib.suppress(WorkerLostError):
                    return await self._ask_another(request)
            return await self._ask_another(request)

    async def _ask_another(self, request: Question[AnswerT]) -> AnswerT:
        async with contextlib.aclosing(self.another()) as host:
            return await _ask(host, request)

    def another(self) -> "StepHost":
        """Another host, for a request that may have caused the death of this one. The caller closes it."""
        return StepHost(self._home, self._cores)

    async def follow(self, request: Question[AnswerT] | RunBatch) -> AsyncIterator[HostReply]:
        """All answers to a request; a batch has several. Raises as ``ask``."""
        worker = await self._start()
        number = next(self._numbers)
        answers: asyncio.Queue[HostReply | None] = asyncio.Queue()
        self._answers[number] = answers
        try:
            await worker.send(Asked(number=number, request=request))  # type: ignore[arg-type]  # any question
            while (reply := await answers.get()) is not None:
                if isinstance(reply, HostFailed):
                    raise (UsageError if reply.is_users else HomeError)(reply.message)
                yield reply
                if not isinstance(reply, CaseBegan | CaseRan):
                    return
        finally:
            del self._answers[number]
        raise WorkerLostError(f"the step host {self._lost}")

    async def stop_batches(self) -> None:
        """Begin no further case of the batches that run; harmless if none runs."""
        if self._worker is not None:
            with contextlib.suppress(TileyardError):  # a host that is gone runs nothing
                await self.ask(StopBatches())

    async def aclose(self) -> None:
        """End the process and everything that it runs."""
        worker, self._worker = self._worker, None
        if worker is not None:
            await worker.kill("run ended")
        if self._reading is not None:
            await self._reading

    async def _start(self) -> Worker:
        async with self._starting:
            if self._worker is None:
                self._worker = await Worker.start(self._command())
                self._reading = asyncio.create_task(self._read(self._worker))
        return self._worker

    async def _read(self, worker: Worker) -> None:
        """Distribute answers until the process has ended; then no request gets one."""
        try:
            while True:
                told: Told = await worker.receive(Told)
                if told.number in self._answers:
                    self._answers[told.number].put_nowait(told.reply)
        except WorkerLostError:
            self._lost = judge_end(await worker.ended()).message
        if self._worker is worker:
            self._worker = None
        for answers in self._answers.values():
            answers.put_nowait(None)

    def _command(self) -> WorkerCommand:
        log = self._home / "logs" / "steps.log"
        return WorkerCommand(
            argv=(sys.executable, "-P", "-m", "tileyard.workers.step_host", str(self._home)),
            env=worker_environment(threads=1),
            cwd=str(Path.cwd()),
            log=str(log),
            cores=self._cores,
        )


async def _ask(host: StepHost, request: Question[AnswerT]) -> AnswerT:
    async for reply in host.follow(request):
        return request.check(reply)
    raise AssertionError("a request to the step host ended without an answer")


def make_slots(count: int, cpu: str = "") -> tuple[Device, ...]:
    """Return ``count`` slots as devices that own nothing, on a ``cpu`` where several hosts have some."""
    identity = ", ".join(filter(None, ("anonymous slot", cpu)))
    return tuple(
        Device(name=f"{KIND}:{number}", kind=KIND, identity=identity) for number in range(count)
    )


class AnonymousSlots:
    """A provider of anonymous slots. One host, which it does not own, serves all of them."""

    def __init__(
        self, host: StepHost, devices: Sequence[Device], places: asyncio.Semaphore
    ) -> None:
        """``places`` limit the programs that run at once, steps beside the slots included."""
        self._host = host
        self._places = places
        self._suspects: set[str] = set()  # the cases that were running when a host died
        self._stopping: asyncio.Future[None] | None = None
        self.slots: Sequence[Slot] = tuple(_Slot(self, device) for device in devices)

    async def open(self) -> None:
        """Do nothing: there is nothing to ask for."""

    def withdraw(self) -> None:
        """Begin no further case of the batches that run."""
        self._stopping = asyncio.ensure_future(self._host.stop_batches())

    async def close(self) -> None:
        """Do nothing: the host ends what still runs."""
        if self._stopping is not None:
            await asyncio.wait({self._stopping})

    async def run(self, batch: RunBatch, watch: Watch) -> bool:
        """Run a batch once there is a place; see ``Slot``. A suspect gets a host of its own."""
        stopping = self._stopping
        async with self._places:
            if self._stopping is not stopping:  # withdrawn while it waited; later batches still run
                return True
            if self._suspects.isdisjoint(entry.case for entry in batch.entries):
                return await self._run(self._host, batch, watch)
            async with aclosing(self._host.another()) as host:
                return await self._run(host, batch, watch)

    async def _run(self, host: StepHost, batch: RunBatch, watch: Watch) -> bool:
        name, current = batch.device.name, ""
        try:
            async for reply in host.follow(batch):
                match reply:
                    case CaseBegan(case=case):
                        current = case
                        watch.began(case)
                    case CaseRan():
                        current = ""
                        watch.ran(reply, name, 0)
                    case BatchRan():
                        return True
                    case _:
                        raise AssertionError(f"a step host answered a batch with {reply}")
        except TileyardError as error:
            if not current:
                raise LeaseLostError(str(error)) from error
            self._suspects.add(current)
            watch.ran(infra_error(current, str(error)), name, 0)
            return True
        raise AssertionError("a step host ended a batch without saying so")


class _Slot(UnheldSlot):
    appetite = 0

    def __init__(self, slots: AnonymousSlots, device: Device) -> None:
        self.device = device
        self._slots = slots

    async def run(self, batch: Batch, entries: Sequence[RunEntry], watch: Watch) -> bool:
        """Run all entries; see ``Slot``."""
        request = RunBatch(batch=batch, entries=tuple(entries), plugins={}, device=self.device)
        return await self._slots.run(request, watch)

"""The engine's side of the step host: asks it to run programs, many at the same time."""

import asyncio
import contextlib
import itertools
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from tileyard.base.errors import HomeError, TileyardError, UsageError, WorkerLostError
from tileyard.processes.outcomes import judge_end
from tileyard.processes.supervise import Worker, WorkerCommand
from tileyard.workers.command_protocol import (
    Asked,
    HostFailed,
    HostReply,
    StopBatches,
    Told,
)
from tileyard.workers.environment import worker_environment
from tileyard.workers.protocol import CaseBegan, CaseRan, RunBatch
from tileyard.workers.question import AnswerT, Question

ATTEMPTS = 3
"""Number of times a request is made if the host dies."""


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

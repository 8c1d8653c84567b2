"""The engine's runners: one process per leased device, warm from batch to batch.

Whatever happens inside a runner becomes an outcome of exactly one case: the one it had turned to.
The rest of the batch goes on in a fresh process.
"""

import asyncio
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from tileyard.engine.yard import Yard
from tileyard.errors import WorkerLostError
from tileyard.model import Batch, Case, Device, Outcome
from tileyard.processes.outcomes import judge_end
from tileyard.processes.supervise import LeaseRequest, Worker, WorkerCommand
from tileyard.workers.environment import worker_environment
from tileyard.workers.protocol import BatchRan, CaseBegan, CaseRan, RunBatch, RunEntry, RunnerReply

START_LIMIT_S = 60.0

Began = Callable[[str], None]
Ran = Callable[[CaseRan, int], None]


class RunnerSlot:
    """The runner of one device, started when first needed and replaced after an abnormal end."""

    def __init__(self, yard: Yard, device: Device) -> None:
        self.device = device
        self._yard = yard
        self._worker: Worker | None = None
        self._memory_bytes = 0

    async def run(self, batch: Batch, entries: Sequence[RunEntry], began: Began, ran: Ran) -> None:
        """Run a batch to its end: ``ran`` is called exactly once for each entry."""
        left = {entry.case: entry for entry in entries}
        while left:
            culprit = await self._run_some(batch, left, began, ran)
            if culprit is not None:
                left.pop(culprit.case, None)
                ran(culprit, self._lease)
            if batch.process == "fresh":
                await self.close()

    async def close(self) -> None:
        """End the process, which gives the lease back."""
        if self._worker is not None:
            worker, self._worker = self._worker, None
            await worker.kill("lease over")

    @property
    def _lease(self) -> int:
        return self._worker.lease if self._worker is not None else 0

    async def _run_some(
        self, batch: Batch, left: dict[str, RunEntry], began: Began, ran: Ran
    ) -> CaseRan | None:
        """Run what is left until all is answered, or until the process ends: then say whose fault."""
        cases = {case.id: case for case in batch.cases}
        first = next(iter(left))
        try:
            worker = await self._start(cases[first].limits.memory_bytes)
        except TimeoutError:
            await self.close()
            limit = self._yard.queue_limit_s
            return _verdict(first, Outcome.QUEUE_TIMEOUT, f"no device within {limit:g} s")
        except WorkerLostError as error:
            await self.close()
            return _verdict(first, Outcome.INFRA_ERROR, f"the runner did not start: {error}")
        clock = self._yard.clock
        current, since = "", clock.monotonic_s()
        limit_s = START_LIMIT_S
        try:
            await worker.send(self._request(batch, left))
            while True:
                async with asyncio.timeout(limit_s):
                    reply: RunnerReply = await worker.receive(RunnerReply)
                match reply:
                    case CaseBegan(case=case):
                        current, since = case, clock.monotonic_s()
                        limit_s = _limit_s(batch, cases[case])
                        began(case)
                    case CaseRan(case=case):
                        del left[case]
                        ran(reply, worker.lease)
                    case BatchRan():
                        return None
        except TimeoutError:
            self._worker = None
            ended = await worker.kill("time limit")
            if not current:
                silent = f"the runner was silent for {limit_s:g} s"
                return _verdict(first, Outcome.INFRA_ERROR, silent)
            end = judge_end(ended, limit=f"run limit of {limit_s:g} s")
        except WorkerLostError:
            self._worker = None
            end = judge_end(await worker.ended())
            if not current:
                return _verdict(first, Outcome.INFRA_ERROR, f"the runner {end.message}")
        blamed = current if current in left else next(iter(left))
        return _verdict(blamed, end.outcome, end.message, clock.monotonic_s() - since)

    async def _start(self, memory_bytes: int) -> Worker:
        """The runner, once it holds the device. Raises TimeoutError, or WorkerLostError."""
        if self._worker is not None and self._memory_bytes != memory_bytes:
            await self.close()
        if self._worker is None:
            command = self._command(memory_bytes)
            self._worker = await Worker.start(command, lock_limit_s=self._yard.queue_limit_s)
            self._memory_bytes = memory_bytes
        return self._worker

    def _request(self, batch: Batch, left: dict[str, RunEntry]) -> RunBatch:
        cases = tuple(case for case in batch.cases if case.id in left)
        return RunBatch(
            batch=msgspec.structs.replace(batch, cases=cases),
            entries=tuple(left[case.id] for case in cases),
            target=self._yard.target,
            plugins=self._yard.settings.plugins,
            device=self.device,
        )

    def _command(self, memory_bytes: int) -> WorkerCommand:
        log = self._yard.home / "logs" / "runner.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        return WorkerCommand(
            argv=(sys.executable, "-m", "tileyard.workers.runner", str(self._yard.home)),
            env=worker_environment(threads=1),
            cwd=str(Path.cwd()),
            log=str(log),
            memory_bytes=memory_bytes,
            cores=self.device.cores,
            lease=LeaseRequest(choices=(self.device,)),
        )


def _limit_s(batch: Batch, case: Case) -> float:
    """A member of an interleaved batch is timed while the others are: their limits add up."""
    if batch.order == "interleaved":
        return sum(member.limits.run_s for member in batch.cases)
    return case.limits.run_s


def _verdict(case: str, outcome: Outcome, message: str, seconds: float = 0.0) -> CaseRan:
    return CaseRan(case=case, outcome=outcome, seconds=seconds, message=message)

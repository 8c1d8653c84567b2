"""The engine's side of the judge: asks it to compare outputs, and replaces it if it dies."""

import asyncio
import contextlib
import mmap
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from tileyard.base.errors import WorkerLostError
from tileyard.base.model import Outcome
from tileyard.processes.records import judge_end
from tileyard.processes.supervise import Worker, WorkerCommand, time_limit
from tileyard.workers.command_runs import worker_environment
from tileyard.workers.handing_over import IN_MESSAGE_BYTES, ROOM_BYTES
from tileyard.workers.protocol import (
    CaseRan,
    CaseToJudge,
    Extent,
    Failed,
    JudgeCases,
    Judged,
    JudgeReady,
    JudgeReply,
    Verdicts,
)

READY = 4
"""Outputs with memory allocated beforehand: one being written, one being judged, and two waiting."""
_TOUCHED_BYTES = 1 << 20
JUDGE = "tileyard.workers.judge"
START_LIMIT_S = 60.0
ATTEMPTS = 3
"""Times that a judge is asked the same question: its death may be chance, and is never the kernel's doing."""


class HandedOver:
    """The memory of a run's runners, one part per device, so that it outlives the runner that wrote it."""

    def __init__(self, room_bytes: int = ROOM_BYTES) -> None:
        """``room_bytes`` are shared by all devices; ``peak_bytes`` is the maximum that waited at once."""
        self._room_bytes = room_bytes
        self._ready_bytes = 0
        self._memories: dict[str, int] = {}
        self._taken: dict[str, dict[str, tuple[Extent, ...]]] = {}
        self._judged: dict[str, list[str]] = {}
        self.peak_bytes = 0

    @property
    def descriptors(self) -> tuple[int, ...]:
        """The descriptors that the judge inherits."""
        return tuple(self._memories.values())

    def open(self, device: str) -> int:
        """The descriptor of a device's memory, which is created at the first call."""
        if device not in self._memories:
            self._memories[device] = os.memfd_create("tileyard-outputs", os.MFD_CLOEXEC)
            self._taken[device], self._judged[device] = {}, []
        return self._memories[device]

    def room_bytes(self, device: str) -> int:
        """Bytes of a device's outputs that may wait for the judge; 0 for a device that hands none over."""
        return self._room_bytes // len(self._memories) if device in self._memories else 0

    async def make_ready(self, output_bytes: int, count: int) -> None:
        """Allocate memory for ``count`` outputs before a device is held; without any, a runner says so."""
        if output_bytes <= IN_MESSAGE_BYTES or output_bytes * count <= self._ready_bytes:
            return
        ready, self._ready_bytes = self._ready_bytes, output_bytes * count
        for device, memory in self._memories.items():
            end = min(self._ready_bytes, max(self.room_bytes(device), output_bytes))
            if ready < end:
                with contextlib.suppress(OSError):
                    await asyncio.to_thread(_touch, memory, ready, end)

    def taken(self, device: str) -> tuple[Extent, ...]:
        """The parts of a device's memory that must not be overwritten."""
        return tuple(extent for each in self._taken[device].values() for extent in each)

    def take(self, device: str, ran: CaseRan) -> int:
        """Keep the outputs of a case until it is judged; return their size in bytes."""
        extents = tuple(output.extent for output in ran.outputs if output.extent is not None)
        if extents:
            self._taken[device][ran.case] = extents
            waiting = (
                one for each in self._taken.values() for ones in each.values() for one in ones
            )
            self.peak_bytes = max(self.peak_bytes, sum(extent.size for extent in waiting))
        return sum(extent.size for extent in extents)

    def free(self, case: str) -> None:
        """Free the outputs of a case, if it has any."""
        for device, taken in self._taken.items():
            if taken.pop(case, None) is not None:
                self._judged[device].append(case)

    def take_judged(self, device: str) -> tuple[str, ...]:
        """The cases whose memory is free again and whose device does not know it yet."""
        judged, self._judged[device] = tuple(self._judged[device]), []
        return judged

    def close(self) -> None:
        """Free the memory. No runner and no judge may still need it."""
        for descriptor in self._memories.values():
            os.close(descriptor)
        self._memories.clear()
        self._taken.clear()


def _touch(memory: int, start: int, end: int) -> None:
    """Have the system allocate and clear pages; their content stays. Raises OSError."""
    os.posix_fallocate(memory, start, end - start)
    flags = mmap.MAP_SHARED | mmap.MAP_POPULATE
    # In steps, since each one blocks the interpreter.
    for at in range(start - start % mmap.PAGESIZE, end, _TOUCHED_BYTES):
        mmap.mmap(memory, min(_TOUCHED_BYTES, end - at), flags=flags, offset=at).close()


class JudgeProcess:
    """One process, started at its first use, and again if it dies. It answers one question at a time."""

    def __init__(
        self,
        home: Path,
        cores: tuple[int, ...],
        handed_over: HandedOver,
        program: str = JUDGE,
    ) -> None:
        """``home`` contains the object store; ``program`` is the module that is run."""
        self.cores = cores
        self._home = home
        self._handed_over = handed_over
        self._asking = asyncio.Lock()
        self._worker: Worker | None = None
        self._program = program

    async def warm(self) -> None:
        """Start the process unless it runs; return once it is loaded. ``ask`` reports a failure."""
        if self._worker is None and not self._asking.locked():
            async with self._asking:
                with contextlib.suppress(WorkerLostError):
                    await self._start()

    async def ask(self, cases: Sequence[CaseToJudge], limit_s: float) -> tuple[Judged, ...]:
        """A verdict for each case. If the judge dies over several cases, they are asked one by one."""
        async with self._asking:
            reply = await self._try(cases, limit_s) if len(cases) > 1 else ""
            if isinstance(reply, str):
                return tuple([await self._insist(case, limit_s) for case in cases])
            each = zip(cases, reply.verdicts, strict=True)
            return tuple([await self._insist(c, limit_s) if _is_lost(v) else v for c, v in each])

    async def close(self) -> None:
        """End the process."""
        if self._worker is not None:
            await self._worker.kill("run ended")
            self._worker = None

    async def _insist(self, case: CaseToJudge, limit_s: float) -> Judged:
        verdict = Judged(outcome=Outcome.INFRA_ERROR)
        for _ in range(ATTEMPTS):
            reply = await self._try((case,), limit_s)
            if isinstance(reply, str):
                verdict = msgspec.structs.replace(verdict, message=f"the judge {reply}")
            elif not _is_lost(verdict := reply.verdicts[0]):
                break
        return verdict

    async def _try(self, cases: Sequence[CaseToJudge], limit_s: float) -> Verdicts | str:
        """The answer to a question, or how the judge ended."""
        request = JudgeCases(cases=tuple(cases))
        try:
            worker = await self._start()
        except WorkerLostError as error:
            return str(error)
        try:
            async with time_limit(limit_s):
                await worker.send(request)
                return request.check(await worker.receive(JudgeReply))
        except (TimeoutError, WorkerLostError) as error:
            end, _ = await worker.judge_silence(error, f"limit of {limit_s:g} s")
            self._worker = None
            return end.message

    async def _start(self) -> Worker:
        """Raises WorkerLostError if it cannot start."""
        if self._worker is None:
            worker = self._worker = await Worker.start(self._command())
            try:
                async with time_limit(START_LIMIT_S):
                    await worker.receive(JudgeReady)
            except (TimeoutError, WorkerLostError):
                limit = f"limit of {START_LIMIT_S:g} s"
                end = judge_end(await worker.kill("time limit"), limit=limit)
                self._worker = None
                raise WorkerLostError(f"did not start: it {end.message}") from None
        return self._worker

    def _command(self) -> WorkerCommand:
        log = self._home / "logs" / "judge.log"
        return WorkerCommand(
            argv=(sys.executable, "-P", "-m", self._program, str(self._home)),
            env=worker_environment(threads=1),
            cwd=str(Path.cwd()),
            log=str(log),
            cores=self.cores,
            fds=self._handed_over.descriptors,
        )


def _is_lost(verdict: Judged) -> bool:
    return verdict.outcome is Outcome.INFRA_ERROR


def conclude(ran: CaseRan, verdict: Judged | Failed) -> CaseRan:
    """The result of a judged case. Wrong ones have no time; if a further run changed it: ``mismatch``."""
    if verdict.outcome is Outcome.PASSED and ran.mismatch is not None:
        return msgspec.structs.replace(ran, outcome=Outcome.MISMATCH, measurement=None, outputs=())
    is_right = verdict.outcome is Outcome.PASSED
    said = (ran.message, verdict.message) if is_right else (verdict.message,)
    return msgspec.structs.replace(
        ran,
        outcome=verdict.outcome,
        message="; ".join(filter(None, said)),
        measurement=ran.measurement if is_right else None,
        mismatch=verdict.mismatch if isinstance(verdict, Judged) else None,
        outputs=(),
    )

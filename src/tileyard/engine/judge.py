"""The engine's side of the judge: asks it to compare outputs, and replaces it if it dies."""

import asyncio
import contextlib
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from tileyard.base.errors import WorkerLostError
from tileyard.base.model import Outcome
from tileyard.engine.handed_over import HandedOver
from tileyard.processes.limits import time_limit
from tileyard.processes.outcomes import judge_end
from tileyard.processes.supervise import Worker, WorkerCommand
from tileyard.workers.environment import worker_environment
from tileyard.workers.protocol import (
    CaseRan,
    CaseToJudge,
    Failed,
    JudgeCases,
    Judged,
    JudgeReady,
    JudgeReply,
    Verdicts,
)

JUDGE = "tileyard.workers.judge"
START_LIMIT_S = 60.0
ATTEMPTS = 3
"""Times that a judge is asked the same question: its death may be chance, and is never the kernel's doing."""


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

"""Judges the outputs of cases that ran and are not decided, while the device continues with other cases."""

from collections.abc import AsyncIterator, Sequence

import msgspec

from tileyard.base.events import JudgeAnswered
from tileyard.base.model import CommandWork, Outcome
from tileyard.engine.judge import JudgeProcess, conclude
from tileyard.engine.ledger import Ledger, Progress, RanOn
from tileyard.engine.yard import Yard
from tileyard.workers.protocol import CaseToJudge, Failed, Judged


class Judging:
    """Has kernels judged by the judge on ``cores``, several per question, and programs by their own steps."""

    def __init__(self, yard: Yard, ledger: Ledger, cores: tuple[int, ...]) -> None:
        self._yard = yard
        self._ledger = ledger
        self._judge = JudgeProcess(yard.home, cores, yard.handed_over, yard.judge)
        self._ran: dict[str, RanOn] = {}

    async def warm(self) -> None:
        """Start the judge for the kernels that are being prepared."""
        await self._judge.warm()

    def take(self, ran: RanOn) -> int:
        """Keep how a case ran until it is judged; return the bytes of memory that its outputs take."""
        self._ran[ran.reply.case] = ran
        return self._yard.handed_over.take(ran.slot, ran.reply)

    async def judge(self, cases: Sequence[str]) -> AsyncIterator[str]:
        """Judge the outputs of cases that ran well and end them; yield the key of each once it has ended."""
        members = [self._ledger.progress(case) for case in cases]
        verdicts: Sequence[Judged | Failed]
        if members[0].command is not None:
            verdicts = [await self._ask_programs(member) for member in members]
        else:
            limit_s = max(member.case.limits.golden_s for member in members)
            began_s = self._yard.clock.monotonic_s()
            verdicts = await self._judge.ask([self._question(m) for m in members], limit_s)
            seconds = self._yard.clock.monotonic_s() - began_s
            at = self._yard.clock.wall_s()
            self._yard.emit(JudgeAnswered(cases=tuple(cases), at=at, seconds=seconds))
        for member, verdict in zip(members, verdicts, strict=True):
            case = member.case.key
            self._yard.handed_over.free(case)
            self._end(member, self._ran.pop(case), verdict)
            yield case

    async def close(self) -> None:
        """End the judge."""
        await self._judge.close()

    def _question(self, progress: Progress) -> CaseToJudge:
        if progress.golden is None:
            raise AssertionError(f"case {progress.case.key} has no reference to check against")
        return CaseToJudge(
            outputs=self._ran[progress.case.key].reply.outputs,
            golden=progress.golden.outputs,
            check=progress.case.check,
        )

    async def _ask_programs(self, progress: Progress) -> Judged | Failed:
        case = progress.case
        if not isinstance(case.work, CommandWork) or self._yard.programs is None:
            raise AssertionError(f"nobody judges case {case.key}")
        while True:
            verdict = await self._yard.programs.judge(case, case.work, progress.keys.build)
            if not isinstance(verdict, Failed) or verdict.is_final:
                return verdict
            is_lost = verdict.outcome is Outcome.INFRA_ERROR
            if not (is_lost and self._ledger.may_retry(progress, verdict.message)):
                return verdict

    def _end(self, progress: Progress, ran: RanOn, verdict: Judged | Failed) -> None:
        reply = conclude(ran.reply, verdict)
        ended = msgspec.structs.replace(ran, reply=reply)
        self._ledger.finish(progress, reply.outcome, reply.message, ended)


def is_judged(progress: Progress, ran: RanOn) -> bool:
    """Whether the outputs of this case are still to be judged."""
    if ran.reply.outcome is not Outcome.UNCHECKED:
        return False
    return bool(ran.reply.outputs) or (progress.command is not None and progress.command.is_judged)

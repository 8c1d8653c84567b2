"""What follows the run of a case of programs: its outputs are looked at, while the device goes on."""

import msgspec

from tileyard.engine.ledger import Ledger, Progress, RanOn
from tileyard.engine.yard import Yard
from tileyard.model import Outcome
from tileyard.workers.protocol import Failed, Judged, JudgeOutputs


class Judging:
    """Has the author judge cases, each as soon as it ran; how many at a time is the author's to say."""

    def __init__(self, yard: Yard, ledger: Ledger) -> None:
        self._yard = yard
        self._ledger = ledger

    async def judge(self, progress: Progress, ran: RanOn) -> None:
        """End a case that ran well with what its outputs are worth."""
        case = progress.case
        request = JudgeOutputs(
            kernel=case.kernel, arguments=case.arguments, build=progress.keys.build
        )
        reply = await self._yard.author.ask(request, case.limits.golden_s)
        if not isinstance(reply, Judged | Failed):
            raise AssertionError(f"an author answered a question for a verdict with {reply}")
        if reply.log:
            self._ledger.write_log(progress, reply.log)
        outcome, message = reply.outcome, reply.message
        if outcome is Outcome.PASSED:
            message = "; ".join(said for said in (ran.reply.message, message) if said)
        mismatch = reply.mismatch if isinstance(reply, Judged) else None
        judged = msgspec.structs.replace(
            ran.reply, outcome=outcome, message=message, mismatch=mismatch
        )
        self._ledger.finish(progress, outcome, message, msgspec.structs.replace(ran, reply=judged))


def is_judged(progress: Progress) -> bool:
    """Whether somebody looks at what this case has put out, once it has run."""
    return progress.command is not None and progress.command.is_judged

"""Checks the synchronization of kernels before they are built: a config whose check has findings is not run."""

from tileyard.artifacts.keys import canonical_json
from tileyard.draws import USUAL_DRAW
from tileyard.engine.ledger import Ledger, Progress
from tileyard.engine.yard import Yard
from tileyard.model import INFRASTRUCTURE, KernelWork, Outcome
from tileyard.wording import count_of, name_line
from tileyard.workers.program_replies import SyncChecked
from tileyard.workers.protocol import CheckSync, Failed

LIMIT_S = 1.0
"""Seconds that a check may run if nobody asked for it."""
ASK_LIMITS_S = {True: 600.0, None: 60.0}
"""Seconds that an author may take to answer, if a check was asked for and if it was not."""


class SyncChecks:
    """Asks authors of cases that have inputs, each config once per run.

    If nobody asked for checks, the first one that takes too long is the last one of its kernel with these arguments.
    """

    def __init__(self, yard: Yard, ledger: Ledger) -> None:
        self._yard = yard
        self._ledger = ledger
        self._known: dict[str, SyncChecked | Failed] = {}
        self._slow: set[str] = set()

    async def passes(self, progress: Progress) -> bool:
        """Whether a case may continue; otherwise it has ended."""
        wanted, case, elaborated = self._yard.check_sync, progress.case, progress.elaborated
        work, golden = case.work, progress.golden
        if wanted is False or case.until == "built" or not isinstance(work, KernelWork):
            return True
        if work.draw != USUAL_DRAW:  # checked on the usual inputs
            return True
        if elaborated is None or golden is None or not elaborated.is_asynchronous:
            return True
        kernel = canonical_json((case.side, work.file, work.kernel, work.arguments))
        if kernel in self._slow:
            return self._leave(kernel, progress)
        request = CheckSync(
            kernel=work.kernel,
            arguments=work.arguments,
            config=work.config,
            inputs=golden.inputs,
            limit_s=0.0 if wanted else LIMIT_S,
        )
        key = canonical_json((case.side, work.file, request))
        if key not in self._known:
            author = self._yard.authors.of(case.side, work.file)
            answer = await author.ask(request, ASK_LIMITS_S[wanted])
            self._known[key] = answer
        reply = self._known[key]
        if isinstance(reply, SyncChecked):
            return self._judge(reply, progress)
        if wanted or reply.usage:
            lost = reply.outcome in INFRASTRUCTURE
            outcome = reply.outcome if lost else Outcome.RUNTIME_ERROR
            self._ledger.finish(progress, outcome, f"its synchronization: {reply.message}")
            return False
        self._ledger.write_log(progress, f"its synchronization is not checked: {reply.message}")
        return self._leave(kernel, progress)

    def _judge(self, checked: SyncChecked, progress: Progress) -> bool:
        if not checked.blocks:
            self._count(progress)
        if not checked.findings:
            return True
        for finding in checked.findings:
            self._ledger.write_log(progress, f"{finding.message}\n    {finding.fix}")
        self._ledger.finish(progress, Outcome.RUNTIME_ERROR, describe_first(checked))
        return False

    def _leave(self, kernel: str, progress: Progress) -> bool:
        self._slow.add(kernel)
        self._count(progress)
        return True

    def _count(self, progress: Progress) -> None:
        """Count a config that is not checked, once, even if it returns in the finals."""
        case = progress.case
        self._yard.sync_unchecked.add(canonical_json((case.side, case.work)))


def describe_first(checked: SyncChecked) -> str:
    """The first finding of a check, with its kind and place, and the number of further ones."""
    first, more = checked.findings[0], len(checked.findings) - 1
    place = "" if first.access is None else f"{name_line(first.access.file, first.access.line)}: "
    rest = f" (and {count_of(more, 'further mistake')})" if more else ""
    return f"{first.kind}: {place}{first.message}{rest}"

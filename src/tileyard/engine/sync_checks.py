"""Checks kernels for races, undefined accesses and wrong synchronization before they are built."""

import asyncio
from collections import defaultdict

from tileyard.artifacts.objects import canonical_json
from tileyard.base.model import INFRASTRUCTURE, USUAL_DRAW, Case, KernelWork, Outcome
from tileyard.base.wording import count_of, name_line
from tileyard.engine.ledger import Ledger, Progress
from tileyard.engine.yard import Yard
from tileyard.workers.protocol import CheckSync, Failed, SyncChecked

LIMIT_S = 1.0
"""Seconds that a check may run if nobody asked for it."""
ASK_LIMITS_S = {True: 600.0, None: 60.0}
"""Seconds that an author may take to answer, if a check was asked for and if it was not."""


class SyncChecks:
    """Asks authors about cases, each config once per run. By default: configs with asynchronous operations,
    each other kernel's first config per arguments, all further ones once one has findings, and cases that run
    until ``checked``. The first check that takes too long is the last of its kernel with these arguments.
    """

    def __init__(self, yard: Yard, ledger: Ledger) -> None:
        self._yard = yard
        self._ledger = ledger
        self._known: dict[str, SyncChecked | Failed] = {}
        self._first: dict[str, str] = {}
        self._firsts: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._wrong: set[str] = set()
        self._slow: dict[str, str] = {}

    async def passes(self, progress: Progress) -> bool:
        """Whether a case may continue; otherwise it has ended, also if it runs only until it is checked."""
        is_well = await self._is_well(progress)
        if is_well and progress.case.until == "checked":
            self._ledger.finish(progress, Outcome.PASSED, "")
        return is_well and progress.case.until != "checked"

    async def _is_well(self, progress: Progress) -> bool:
        wanted, case, work = self._yard.check_sync, progress.case, progress.case.work
        if wanted is False or case.until == "built" or not isinstance(work, KernelWork):
            return True
        if work.draw != USUAL_DRAW or progress.elaborated is None:  # checked with the usual inputs
            return True
        kernel = canonical_json((case.side, work.file, work.kernel, work.arguments))
        config = canonical_json(work.config)
        if wanted:
            return await self._check(kernel, progress, case, work)
        is_first = self._first.setdefault(kernel, config) == config
        async with self._firsts[kernel]:  # what the first one shows decides about the others
            if is_first:
                return await self._check(kernel, progress, case, work)
        is_chosen = kernel in self._wrong or case.until == "checked"
        if not (is_chosen or progress.elaborated.is_asynchronous):
            return True
        return await self._check(kernel, progress, case, work)

    async def _check(self, kernel: str, progress: Progress, case: Case, work: KernelWork) -> bool:
        wanted = self._yard.check_sync
        if kernel in self._slow and not wanted:
            return self._leave(kernel, progress, self._slow[kernel])
        reply = await self._ask(case, work)
        if isinstance(reply, SyncChecked):
            return self._judge(kernel, reply, progress)
        if wanted or reply.usage:
            lost = reply.outcome in INFRASTRUCTURE
            outcome = reply.outcome if lost else Outcome.RUNTIME_ERROR
            self._ledger.finish(progress, outcome, f"its check: {reply.message}")
            return False
        self._ledger.write_log(progress, f"not checked: {reply.message}")
        return self._leave(kernel, progress, f"{work.kernel}: {reply.message}")

    async def _ask(self, case: Case, work: KernelWork) -> SyncChecked | Failed:
        """The author's answer about a config, or the known one."""
        wanted = self._yard.check_sync
        request = CheckSync(
            kernel=work.kernel,
            arguments=work.arguments,
            config=work.config,
            reference=work.reference,
            make_inputs=work.inputs,
            limit_s=0.0 if wanted else LIMIT_S,
            is_unasked=not wanted,
            is_compared=case.check.enabled,
            until_first=True,
        )
        key = canonical_json((case.side, work.file, request))
        if key not in self._known:
            author = self._yard.authors.of(case.side, work.file)
            answer = await author.ask(request, ASK_LIMITS_S[wanted])
            self._known[key] = answer
        return self._known[key]

    def _judge(self, kernel: str, checked: SyncChecked, progress: Progress) -> bool:
        if checked.findings:
            self._wrong.add(kernel)
            for finding in checked.findings:
                self._ledger.write_log(progress, f"{finding.message}\n    {finding.fix}")
            self._ledger.finish(progress, Outcome.RUNTIME_ERROR, describe_first(checked))
            return False
        if not checked.blocks:
            self._ledger.write_log(progress, f"not checked: {'; '.join(checked.unchecked)}")
            first = next(iter(checked.unchecked), "no block of it runs")
            return self._leave(kernel, progress, f"{checked.kernel}: {first}")
        return True

    def _leave(self, kernel: str, progress: Progress, reason: str) -> bool:
        """Let a case continue unchecked, and count its config once, even if it returns in the finals."""
        self._slow.setdefault(kernel, reason)
        case = progress.case
        self._yard.sync_unchecked.setdefault(canonical_json((case.side, case.work)), reason)
        return True


def describe_first(checked: SyncChecked) -> str:
    """The first finding: its kind, place and the sizes that show it, and the number of further ones."""
    first, more = checked.findings[0], len(checked.findings) - 1
    place = "" if first.access is None else f"{name_line(first.access.file, first.access.line)}: "
    rest = f" (and {count_of(more, 'further mistake')})" if more else ""
    sizes = f" ({first.instance})" if first.instance else ""
    return f"{first.kind}: {place}{first.message}{sizes}{rest}"

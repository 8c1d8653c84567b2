"""Derives what is known of one task in a foreign queue from its client's output and end. Pure. A
verdict needs a whole result line and a sign that the far side continued: a further line, or a
fitting exit code. A line without such an end, or the reverse, is an ``infra_error``.
"""

import re
from collections.abc import Sequence
from typing import Final

from tileyard.base.model import Outcome
from tileyard.devices.foreign import ExitMeaning, ForeignQueue
from tileyard.engine.provider import infra_error
from tileyard.processes.records import describe_signal
from tileyard.workers.protocol import CaseRan
from tileyard.workers.submitter import SubmitEnded
from tileyard.workers.task_lines import (
    CaseResult,
    CaseTurnedTo,
    Side,
    TaskEnded,
    TaskStarted,
    TokenRead,
    exit_code,
    try_read_line,
)

TAIL_CHARS: Final = 4096
SHORT_TAIL_CHARS: Final = 160


class ClientEnd(SubmitEnded, kw_only=True):
    """How a call of the queue's client ended; ``limit`` names our limit that ended it, empty for none."""

    argv: tuple[str, ...]
    cwd: str
    limit: str = ""

    def describe(self) -> str:
        """How it ended, in a few words."""
        client = self.argv[0]
        if self.error:
            return self.error
        if self.limit:
            how = f"ran past its {self.limit} and was ended"
        elif self.signal is not None:
            how = f"died of {describe_signal(self.signal)}"
        elif self.code is not None:
            how = f"ended with code {self.code}"
        else:
            how = "was lost"
        return f"{client} {how}" + (f" ({self.cancelled})" if self.cancelled else "")


class Submission:
    """One task: ``read`` what its client prints, then ``conclude`` from its end."""

    def __init__(self, token: str, cases: Sequence[str]) -> None:
        """``cases`` are the cases of the task."""
        self.token = token
        self.started: TaskStarted | None = None
        self.ended: TaskEnded | None = None
        self.token_read: TokenRead | None = None
        self.current = ""
        self.tails: dict[Side, str] = {"stdout": "", "stderr": ""}
        self._partial: dict[Side, str] = {"stdout": "", "stderr": ""}
        self._cases = frozenset(cases)
        self._turned_to: list[str] = []
        self._results: dict[str, CaseResult] = {}
        self._held: CaseResult | None = None

    def read(self, side: Side, text: str) -> list[CaseTurnedTo | CaseResult]:
        """Take in output; return the new events: cases turned to, and results that are now certain."""
        self.tails[side] = (self.tails[side] + text)[-TAIL_CHARS:]
        *lines, self._partial[side] = (self._partial[side] + text).split("\n")
        return [news for line in lines for news in self._take(line)]

    def take_over(self, text: str) -> list[CaseResult]:
        """Restart with all lines of the far side, of which the client may lose some; return sure results."""
        self._turned_to, self._results, self._held = [], {}, None
        news = [one for line in text.split("\n") for one in self._take(line)]
        return [one for one in news if isinstance(one, CaseResult)]

    def conclude(self, end: ClientEnd) -> tuple[list[CaseResult], list[CaseRan]]:
        """The last certain results, and an ``infra_error`` for each case that was begun and has none."""
        # The last line may lack its end if the client was cut off.
        certain = [
            news
            for side in self._partial
            for news in self._take(self._partial[side])
            if isinstance(news, CaseResult)
        ]
        faults: list[CaseRan] = []
        held, self._held = self._held, None
        if held is not None:
            if self._fits(end):
                certain.append(held)
            else:
                said = f"it printed {held.outcome.value}, but {self._describe(end)}"
                faults.append(infra_error(held.case, self.explain(said, end)))
        for case in self._turned_to:
            if case not in self._results:
                said = f"{self._describe(end)}; no result line came for this case"
                faults.append(infra_error(case, self.explain(said, end)))
        return certain, faults

    def find_loss(self, end: ClientEnd, queue: ForeignQueue) -> tuple[Outcome, str]:
        """Why no case was begun: ``queue_timeout`` or ``infra_error``, and a message."""
        meaning = self._find_meaning(end, queue)
        if self.ended is not None and self.ended.message:
            return Outcome.INFRA_ERROR, f"the far side refused the task: {self.ended.message}"
        if self.started is None and (end.limit or meaning == "timed_out"):
            waited = end.limit or f"limits: {self._describe(end)}"
            return Outcome.QUEUE_TIMEOUT, f"the queue gave no device within its {waited}"
        if meaning is not None and not end.limit:
            said = f"the queue's client says that the task was {meaning.replace('_', ' ')}"
            return Outcome.INFRA_ERROR, self.explain(f"{said}: {self._describe(end)}", end)
        said = f"{self._describe(end)}; no result line came"
        return Outcome.INFRA_ERROR, self.explain(said, end)

    def explain(self, said: str, end: ClientEnd) -> str:
        """One line with everything that is known of the call."""
        tails = "; ".join(
            f"{side} ends {self.tails[side].strip()[-SHORT_TAIL_CHARS:]!r}" for side in self.tails
        )
        code = "no exit code" if end.code is None else f"code {end.code}"
        number = "no signal" if end.signal is None else f"signal {end.signal}"
        return f"{said} [{code}, {number}; {tails}; in {end.cwd}, argv {list(end.argv)}]"

    # ---- inside -----------------------------------------------------------------------------

    def _find_meaning(self, end: ClientEnd, queue: ForeignQueue) -> ExitMeaning | None:
        """What the client itself has reported, by its exit code or else by its words."""
        if not end.code:
            return None
        said = (m for m, text in queue.messages.items() if re.search(text, self.tails["stderr"]))
        return queue.exit_codes.get(end.code) or next(said, None)

    def _describe(self, end: ClientEnd) -> str:
        lines = self.tails["stderr"].split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
        return end.describe() + (f": {last[-SHORT_TAIL_CHARS:]}" if last else "")

    def _take(self, text: str) -> list[CaseTurnedTo | CaseResult]:
        line = try_read_line(text)
        if line is None or line.token != self.token:
            return []
        match line:
            case TaskStarted():
                self.started = self.started or line
            case TaskEnded():
                self.ended = self.ended or line
            case TokenRead():
                self.token_read = line
            case CaseTurnedTo(case=case):
                if case in self._cases and case not in self._turned_to:
                    self._turned_to.append(case)
                    self.current = case
                    return [*self._release(), line]
            case CaseResult(case=case):
                if case in self._cases and case not in self._results:
                    self._results[case] = line
                    self.current = "" if self.current == case else self.current
                    released = self._release()
                    self._held = line
                    return released
        return []

    def _release(self) -> list[CaseTurnedTo | CaseResult]:
        held, self._held = self._held, None
        return [] if held is None else [held]

    def _fits(self, end: ClientEnd) -> bool:
        """Whether the client's end agrees with the lines. If a case failed but the code is 0, it was lost."""
        if end.limit or end.error:
            return False
        return end.code in (0, exit_code({line.outcome for line in self._results.values()}))

"""Reads from the output of a hot process which of its cases it is running, and how each one went."""

import math
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tileyard.base.model import WELL, Case, HotRun, Outcome
from tileyard.processes.steps import Heard, note_in
from tileyard.workers.protocol import CommandRun, RunEntry

LONGEST = 300
"""Most characters of a line that become part of a message."""


@dataclass(frozen=True, kw_only=True)
class Member:
    """A case with what a runner received for it, and the path of its log."""

    case: Case
    entry: RunEntry
    command: CommandRun
    log: Path


@dataclass(kw_only=True)
class HotOutput(Heard):
    """Reports ``members``, by their names, as the process reaches them: ``tell_began`` gets a case,
    ``tell_ended`` one with its outcome, message, and start. ``limits_cases``: each case has its own
    limit; ``limit_s`` is for the start, each gap, and the end. Logs begin with ``heading``.
    """

    hot: HotRun
    members: Mapping[str, Member]
    tell_began: Callable[[Member], None]
    tell_ended: Callable[[Member, Outcome, str, float], None]
    is_stopped: Callable[[], bool]
    heading: str
    limit_s: float
    limits_cases: bool
    reads_lines = True
    answered: set[str] = field(default_factory=set)
    current: Member | None = None
    since_s: float = 0.0

    def __post_init__(self) -> None:
        self._began = re.compile(self.hot.began)
        self._ended = re.compile(self.hot.ended)
        self._headed: set[str] = set()
        self._last: Member | None = None

    @property
    def due_s(self) -> float:
        """The limit that applies now, in seconds."""
        return self.limit_s if self.current is None else self.current.case.limits.run_s

    def log_of(self, text: str) -> str:
        """The log of the case that begins or ends in this line, else of the one that is running."""
        news = self._find_news(text)
        return self.log() if news is None else self.head(news[0])

    def log(self) -> str:
        """The log of the running case, else of the next one, else of the last."""
        member = self.current
        if member is None:
            left = (m for m in self.members.values() if m.case.key not in self.answered)
            member = next(left, self._last)
        return "" if member is None else self.head(member)

    def head(self, member: Member) -> str:
        """The log of a case, with its heading written."""
        if member.case.key not in self._headed:
            self._headed.add(member.case.key)
            note_in(member.log, self.heading)
        return str(member.log)

    def line(self, text: str) -> None:
        """Take a line as the begin or the end of a case, if that case is still to come."""
        news = self._find_news(text)
        if news is not None:
            member, verdict = news
            if verdict is None:
                self._begin(member)
            else:
                self._end(member, verdict, text.strip()[:LONGEST])

    def deadline_s(self, since_s: float, limit_s: float) -> float:
        """When the present phase must be over: a case, or the time before, between and after cases."""
        if self.current is not None and not self.limits_cases:
            return math.inf
        return (self.since_s or since_s) + self.due_s

    def wants_end(self) -> bool:
        """Whether the process may end: between two cases, once no further one is to be begun."""
        return self.current is None and bool(self.answered) and self.is_stopped()

    def note_end(self, how: str) -> None:
        """Write into the log of the last reported case how the process ended after it."""
        if self._last is not None:
            note_in(self._last.log, f"after this case its process {how}; nobody is blamed")

    def _find_news(self, text: str) -> tuple[Member, str | None] | None:
        """The case that a line reports, with its verdict, or None if the case only begins."""
        for form in (self._ended, self._began):
            found = form.search(text)
            member = self.members.get(found["case"]) if found is not None else None
            if found is not None and member is not None and member.case.key not in self.answered:
                return member, found["verdict"] if form is self._ended else None
        return None

    def _begin(self, member: Member) -> None:
        self.current, self.since_s = member, time.monotonic()
        self.tell_began(member)

    def _end(self, member: Member, verdict: str, said: str) -> None:
        if self.current is not member:
            self._begin(member)
        outcome = self.hot.verdicts.get(verdict)
        message = "" if outcome in WELL else f"its process said: {said}"
        if outcome is None:
            message = f"{verdict!r} is not one of the suite's verdicts; {message}"
        self.answered.add(member.case.key)
        if outcome is Outcome.PASSED and member.command.is_judged:
            outcome = Outcome.UNCHECKED
        since_s, self.since_s = self.since_s, time.monotonic()
        self.current, self._last = None, member
        self.tell_ended(member, outcome or Outcome.INFRA_ERROR, message, since_s)

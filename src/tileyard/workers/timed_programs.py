"""Compares runs of programs: what each of them took or printed, in which order, and when that is enough."""

import math
import random
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from tileyard.base.errors import UsageError
from tileyard.base.model import (
    WELL,
    Case,
    CommandWork,
    HotRun,
    Measure,
    Measurement,
    Outcome,
    TimingPolicy,
)
from tileyard.measure.statistics import median_interval
from tileyard.processes.steps import Heard, StepEnd, note_in
from tileyard.workers.protocol import CommandRun, RunEntry

LONGEST = 300
"""Most characters of a line that become part of a message."""
MOST_S: Final = 2.0
"""Seconds of a batch after which no further round of runs begins."""
CLOSE: Final = 1.01
"""A best run is confirmed by another one that is at most this factor worse."""
FEWEST: Final = 4
"""Number of runs of each member before a best run can be confirmed."""


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


class Ran(NamedTuple):
    """A run that ended well; ``message`` is a warning for people."""

    end: StepEnd
    message: str


class PrintedNumber(Heard):
    """Finds the number that a program prints, by its measure."""

    reads_lines = True

    def __init__(self, measure: Measure) -> None:
        self._pattern = re.compile(measure.pattern)
        self._text: str | None = None

    def line(self, text: str) -> None:
        """Keep the number of a line that has one: the last one counts."""
        found = self._pattern.search(text)
        if found is not None:
            self._text = found[1] or ""

    def read(self) -> float:
        """The number. Raises UsageError if no number was printed that has a ratio to another one."""
        if self._text is None:
            raise UsageError(f"printed no line like its measure {self._pattern.pattern!r}")
        try:
            number = float(self._text)
        except ValueError:
            number = math.nan
        if not (math.isfinite(number) and number > 0):
            raise UsageError(
                f"printed {self._text[:40]!r} as its measure, which is not a number above 0"
            )
        return number


@dataclass(kw_only=True)
class Runs:
    """The runs of one member of a batch, until it is ``answered``; ``message``: the last warning."""

    member: Member
    samples_ns: list[float] = field(default_factory=list)
    printed: list[float] = field(default_factory=list)
    message: str = ""
    answered: bool = False

    @property
    def measure(self) -> Measure | None:
        """The measure that is compared."""
        work = self.member.case.work
        return work.measure if isinstance(work, CommandWork) else None

    def hear(self) -> PrintedNumber | None:
        """The reader for the output of the next run; None if only its time counts."""
        measure = self.measure
        return PrintedNumber(measure) if measure and measure.of == "printed" else None

    def take(self, ran: Ran, heard: PrintedNumber | None) -> None:
        """Add a run. Raises UsageError if it did not print its number."""
        is_cpu = self.measure is not None and self.measure.of == "cpu_time"
        # CPU time has a granularity: a run that took less than one unit still took something.
        self.samples_ns.append(float(max(ran.end.cpu_ns if is_cpu else ran.end.ran_ns, 1_000)))
        self.message = ran.message
        if heard is not None:
            self.printed.append(heard.read())

    @property
    def is_exact(self) -> bool:
        """Whether it prints the same number each time: more runs would add nothing."""
        return len(set(self.printed)) == 1

    @property
    def is_confirmed(self) -> bool:
        """Whether two runs agree on the best possible result: no other work has disturbed them."""
        if len(self.samples_ns) < FEWEST:
            return False
        best, second, *_ = sorted(self.printed or self.samples_ns, reverse=self._is_more_better)
        return max(best, second) <= CLOSE * min(best, second)

    @property
    def _is_more_better(self) -> bool:
        return self.measure is not None and self.measure.better == "higher"

    def summarize(self, policy: TimingPolicy) -> Measurement:
        """The measurement from all runs."""
        interval = median_interval(self.samples_ns, policy.confidence)
        return Measurement(
            median_ns=interval.median,
            low_ns=interval.low,
            high_ns=interval.high,
            confidence=policy.confidence,
            samples_ns=tuple(self.samples_ns),
            printed=tuple(self.printed),
        )


def draw_orders(members: int, rounds: int, seed: str) -> Iterator[tuple[int, ...]]:
    """The order of the members in each round: a random one, and then the reverse of it."""
    draw = random.Random(seed)
    for _ in range(rounds):
        order = draw.sample(range(members), members)
        yield (*order, *reversed(order))


def is_enough(runs: Sequence[Runs], spent_s: float) -> bool:
    """Whether a batch is over: time is used up, a member failed, or the best runs of all are known."""
    has_failed = any(one.answered for one in runs)
    is_known = all(one.is_exact or one.is_confirmed for one in runs)
    return spent_s >= MOST_S or has_failed or is_known

"""Compares runs of programs: what each of them took or printed, in which order, and when that is enough."""

import math
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from tileyard.base.errors import UsageError
from tileyard.base.measures import Measure
from tileyard.base.model import CommandWork, Measurement, TimingPolicy
from tileyard.measure.statistics import median_interval
from tileyard.processes.steps import Heard, StepEnd
from tileyard.workers.hot_output import Member

MOST_S: Final = 2.0
"""Seconds of a batch after which no further round of runs begins."""
CLOSE: Final = 1.01
"""A best run is confirmed by another one that is at most this factor worse."""
FEWEST: Final = 4
"""Number of runs of each member before a best run can be confirmed."""


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

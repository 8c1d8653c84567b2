"""What two builds of the same kernels or programs come to in time, row by row."""

from typing import Literal

from tileyard.events import StopReason
from tileyard.measures import Better
from tileyard.model import Record
from tileyard.quarantine import Quarantine
from tileyard.regression.figures import BuildTimes, Change

Verdict = Literal[
    "failed",
    "missing",
    "regressed",
    "not_run",
    "inconclusive",
    "changed",
    "new",
    "improved",
    "equivalent",
    "unchanged",
]
"""How a row ended, those that need a look first. Only kernels that were built and not run are ``changed``: in their figures."""
Worse = Literal["failed", "missing", "regressed", "new", "over_limit"]
"""What fails a comparison unless it is allowed: verdicts, and figures of the binary beyond their limits."""


class Ratio(Record):
    """Head's time or number as a multiple of base's, of ``processes`` in which both were timed.

    Its interval is None where these are too few.
    """

    ratio: float
    low: float | None
    high: float | None
    processes: int


class Allowance(Quarantine):
    """Cases that do not fail a comparison by one of these ``verdicts``."""

    verdicts: tuple[Worse, ...]


class TimedRow(Record):
    """A kernel or program on both sides. ``message`` says what is doubtful about it; the others are those of sides that failed.

    ``ratio`` is None where the two were not timed together, ``control`` is base against itself. ``disturbed``
    processes count for nothing, since somebody else was at work. ``base`` and ``head`` are times of a launch or run, or numbers in another ``unit``, of which the one that is
    ``better`` is the better one. ``shifted`` are ratios with the code of both at other places in memory, where it seems to have changed. ``smallest`` is the smallest change, as a share of base's, that could have been seen, None where there are too few processes to say it.
    ``margin`` is its own where that is not the one
    of all. ``changes`` are figures of the binary that differ, as far as the target reports them, ``broken`` a line for each
    limit of these that is broken. Build times are those of the rounds that count. The row fails the comparison by what it ``gates``; ``allowed`` is why it does not by others.
    """

    case: str
    verdict: Verdict
    message: str = ""
    base_message: str = ""
    head_message: str = ""
    ratio: Ratio | None = None
    control: Ratio | None = None
    shifted: tuple[float, ...] = ()
    disturbed: int = 0
    base: float = 0.0
    head: float = 0.0
    unit: str = "ns"
    better: Better = "lower"
    smallest: float | None = None
    margin: float | None = None
    changes: tuple[Change, ...] = ()
    base_build_s: tuple[float, ...] = ()
    head_build_s: tuple[float, ...] = ()
    broken: tuple[str, ...] = ()
    gates: tuple[Worse, ...] = ()
    allowed: tuple[Allowance, ...] = ()

    @property
    def worse(self) -> float:
        """How many times as bad head is: its ratio, or the inverse of that where more is better; 1 without a ratio."""
        if self.ratio is None:
            return 1.0
        return 1 / self.ratio.ratio if self.better == "higher" else self.ratio.ratio


def describe_row(row: TimedRow) -> str:
    """``gemm/default: regressed, +4.12 % (+3.20 .. +5.04)``, or why there is no such figure."""
    ratio = row.ratio
    if ratio is None:
        sides = (("base", row.base_message), ("head", row.head_message))
        why = "; ".join(f"{side}: {message}" for side, message in sides if message)
        return f"{row.case}: {row.verdict}" + (f", {why}" if why else "")
    return f"{row.case}: {row.verdict}, {format_ratio(ratio)}"


def format_ratio(ratio: Ratio) -> str:
    """``+4.12 % (+3.20 .. +5.04)``."""
    interval = ""
    if ratio.low is not None and ratio.high is not None:
        interval = f" ({format_change(ratio.low)} .. {format_change(ratio.high)})"
    return f"{format_change(ratio.ratio)} %{interval}"


def format_change(ratio: float) -> str:
    """``+4.12`` for a ratio of 1.0412: percent."""
    return f"{100 * (ratio - 1):+.2f}"


class Control(Record):
    """Base against itself on one device, over all rows. ``is_alarm`` says that the whole interval is beyond the margin."""

    device: str
    ratio: Ratio
    is_alarm: bool


class Mean(Record):
    """The geometric mean of the ratios of so many rows; where more is better, of their inverse."""

    ratio: float
    rows: int


class Regression(Record):
    """What two sides have come to in time. ``rows`` have the worst first.

    ``margin`` is the smallest change that matters, as a share, and ``fail_over`` what a kernel may be slower by, 0 where
    that is its margin. ``false_alarms`` are rows whose base differs from itself, and ``controls`` say the same of devices.
    ``mean`` is None where no pair was timed. ``seconds`` are those of the run, and ``timed_s`` those in which kernels or
    programs ran. ``compared`` is what a row is. ``run`` is empty where others have measured. ``notes`` say how
    far their reports agree, and what there is to say of the gate.
    """

    run: str
    target: str
    device: str
    silicon: str
    base: str
    head: str
    margin: float
    rows: tuple[TimedRow, ...]
    fail_over: float = 0.0
    compared: Literal["kernel", "case"] = "kernel"
    of: Literal["time", "figures"] = "time"
    build: BuildTimes | None = None
    broken: tuple[str, ...] = ()
    false_alarms: tuple[str, ...] = ()
    controls: tuple[Control, ...] = ()
    mean: Mean | None = None
    reason: StopReason = "done"
    seconds: float = 0.0
    timed_s: float = 0.0
    notes: tuple[str, ...] = ()
    unrecorded: tuple[str, ...] = ()

    @property
    def exit_status(self) -> int:
        """1 where something gates, 3 where only infrastructure has failed, 130 where it was interrupted."""
        if self.reason == "interrupted":
            return 130
        if self.broken or any(row.gates for row in self.rows):
            return 1
        return 3 if self.unrecorded or any(row.verdict == "not_run" for row in self.rows) else 0

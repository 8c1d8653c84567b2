"""The records of a comparison in time of two builds of the same kernels or programs."""

from typing import Literal

from tileyard.base.events import StopReason
from tileyard.base.measures import Better
from tileyard.base.model import Record
from tileyard.base.quarantine import Quarantine
from tileyard.verbs.regress.result.figures import BuildTimes, Change

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
"""The result of a row, in the order of attention. ``changed``: figures of kernels that were only built."""
Worse = Literal["failed", "missing", "regressed", "new", "over_limit"]
"""Faults that fail a comparison unless allowed: verdicts, and figures of the binary beyond their limits."""


class Ratio(Record):
    """Head's time or number over base's; no interval if too few ``processes`` timed both."""

    ratio: float
    low: float | None
    high: float | None
    processes: int


class Allowance(Quarantine):
    """Cases that do not fail a comparison with one of these ``verdicts``."""

    verdicts: tuple[Worse, ...]


class TimedRow(Record):
    """A kernel or program on both sides. ``message`` is a doubt, ``base_message`` and ``head_message`` are
    failures. ``ratio`` is None if the two were not timed together; ``control`` is base against itself;
    ``disturbed`` counts the processes that do not count. ``base`` and ``head`` are times, or numbers in
    ``unit``; ``better`` says which is better. ``shifted`` are ratios with the code at other places, if it
    seems changed. ``smallest`` is the smallest detectable change, a share of base's value, None for too few
    processes. ``margin`` is set if the row's own. ``changes`` are figures that differ, ``broken`` the limits
    that they break. Build times are of the rounds that count. ``gates`` are the faults that fail the
    comparison, ``allowed`` the reasons for others.
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
        """How much worse head is: its ratio, or the inverse of it if more is better; 1 without a ratio."""
        if self.ratio is None:
            return 1.0
        return 1 / self.ratio.ratio if self.better == "higher" else self.ratio.ratio


def describe_row(row: TimedRow) -> str:
    """``gemm/default: regressed, +4.12 % (+3.20 .. +5.04)``, or the reason why there is no ratio."""
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
    """A ratio in percent: ``+4.12`` for 1.0412."""
    return f"{100 * (ratio - 1):+.2f}"


class Control(Record):
    """Base against itself on one device. ``is_alarm``: the whole interval is beyond the margin."""

    device: str
    ratio: Ratio
    is_alarm: bool


class Mean(Record):
    """The geometric mean of the ratios of ``rows`` rows; of their inverse if more is better."""

    ratio: float
    rows: int


class Regression(Record):
    """The comparison of two sides in time; ``rows`` has the worst first. ``margin`` is the smallest change
    that matters, a share; ``fail_over`` how much slower a kernel may be, 0 for its margin. ``false_alarms``
    are rows whose base differs from itself, ``controls`` the same per device. ``mean`` is None if nothing was
    timed. ``seconds`` is the run's time, ``timed_s`` that in which kernels or programs ran. ``compared`` is
    the kind of a row. ``run`` is empty for numbers from elsewhere, ``notes`` say how far their reports agree,
    and what the gate remarks.
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
        """1 if something gates, 3 for infrastructure only or unrecorded trials, 130 if interrupted."""
        if self.reason == "interrupted":
            return 130
        if self.broken or any(row.gates for row in self.rows):
            return 1
        return 3 if self.unrecorded or any(row.verdict == "not_run" for row in self.rows) else 0

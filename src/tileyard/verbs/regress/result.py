"""The records of a comparison in time of two builds of the same kernels or programs."""

import datetime
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Literal, NoReturn, get_args

import msgspec

from tileyard.artifacts.manifest import Build
from tileyard.base.decoding import Text
from tileyard.base.errors import UsageError
from tileyard.base.events import StopReason
from tileyard.base.model import Better, Outcome, Record
from tileyard.base.quarantine import Quarantine, find_idle, find_quarantined, fits_entry
from tileyard.targets.own_sources import Resources, read_reported
from tileyard.targets.registry import find_needs

BUILD = "build"
MIX = "mix."
METRICS = (
    *("registers", "spills", "stack", "shared", "threads", "occupancy", "code", "instructions"),
    BUILD,
)
"""The compared figures, besides ``mix.KIND`` for the instructions of each kind.

Bytes for spills, stack, shared and code; percent for occupancy; seconds for build.
"""
TELLING_ROUNDS = 3
"""Fewest rounds for judging a single kernel's build time."""
TELLING_RATIO = 1.1
"""Smallest change of a build time that is reported."""
MISSING = "missing"
_FORM = re.compile(
    r"(?P<metric>[a-z][a-z. ]*):(?P<sign>[+-])(?P<amount>\d+(?:\.\d+)?)(?P<percent>%?)"
)
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


class Change(Record):
    """A figure that differs, None where it depends on the call. An empty ``function`` is the only one."""

    metric: str
    base: float | None
    head: float | None
    function: str = ""


class BuildTimes(Record):
    """Build times of the kernels that both sides built, in seconds per round. ``ratio`` is the median of head
    over base, with its extremes. ``is_first``: this was the only round, in which caches were filled.
    """

    base_s: tuple[float, ...]
    head_s: tuple[float, ...]
    ratio: float
    low: float
    high: float
    is_first: bool


def find_changes(base: Build, head: Build) -> Iterator[Change]:
    """The figures that differ, without build times; none if one of the two was not built."""
    if not base.outcome == head.outcome == Outcome.PASSED:
        return
    here, there = _functions_of(base), _functions_of(head)
    names = dict.fromkeys([*here, *there])
    for name in names:
        before, after = here.get(name, {}), there.get(name, {})
        for metric in dict.fromkeys([*before, *after]):
            old, new = before.get(metric), after.get(metric)
            # A kind of instructions that one side lacks counts as 0; other missing figures are unknown.
            if metric.startswith(MIX) and before and after:
                old, new = old or 0.0, new or 0.0
            if old != new:
                function = name if len(names) > 1 else ""
                yield Change(metric=metric, base=old, head=new, function=function)


def list_metrics(builds: Iterable[Build]) -> set[str]:
    """The figures that any of these builds has, without build times."""
    functions = (one for build in builds for one in _functions_of(build).values())
    return {metric for figures in functions for metric in figures}


def _functions_of(build: Build) -> dict[str, dict[str, float]]:
    """Figures of each device function by its name, without the part that makes the name unique."""
    seen: Counter[str] = Counter()
    found: dict[str, dict[str, float]] = {}
    for taken in read_reported(build.details).resources:
        name = taken.symbol.rpartition("_")[0] or taken.symbol
        seen[name] += 1
        found[name if seen[name] == 1 else f"{name}#{seen[name]}"] = _figures_of(taken)
    return found


def _figures_of(taken: Resources) -> dict[str, float]:
    dynamic, occupancy = taken.dynamic_shared_bytes, taken.occupancy
    figures: dict[str, float | None] = {
        "registers": taken.registers,
        "spills": taken.spilled_bytes,
        "stack": taken.stack_bytes,
        "shared": None if dynamic is None else taken.shared_bytes + dynamic,
        "threads": taken.threads,
        "occupancy": None if occupancy is None else 100 * occupancy,
        "code": taken.code_bytes,
        "instructions": sum(taken.mix.values()),
        **{f"{MIX}{kind}": count for kind, count in taken.mix.items()},
    }
    return {name: figure for name, figure in figures.items() if figure is not None}


class Limit(Record):
    """``metric`` may grow (or fall, if ``falls``) by ``amount``, or by so many percent of base's figure."""

    metric: str
    amount: float
    is_percent: bool
    falls: bool

    def __str__(self) -> str:
        sign, percent = "-" if self.falls else "+", "%" if self.is_percent else ""
        return f"{self.metric}:{sign}{self.amount:g}{percent}"

    def is_broken(self, base: float, head: float) -> bool:
        """Whether the figure has changed by more than it may."""
        allowed = abs(base) * self.amount / 100 if self.is_percent else self.amount
        return (base - head if self.falls else head - base) > allowed


def parse_limits(text: str) -> tuple[Limit, ...]:
    """Parse ``registers:+5%,spills:+0,occupancy:-10%``; ``missing`` adds nothing. Raises UsageError."""
    limits: list[Limit] = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        if part == MISSING:
            continue
        found = _FORM.fullmatch(part)
        if found is None:
            raise UsageError(
                f"{part!r} is not a limit such as registers:+5%, spills:+0 or occupancy:-10%"
            )
        metric = found["metric"]
        if metric not in METRICS and not metric.startswith(MIX):
            known = ", ".join((*METRICS, f"{MIX}KIND", MISSING))
            raise UsageError(f"there is no figure {metric!r}", f"there are: {known}")
        limits.append(
            Limit(
                metric=metric,
                amount=float(found["amount"]),
                is_percent=bool(found["percent"]),
                falls=found["sign"] == "-",
            )
        )
    return tuple(limits)


def require_figures(limits: Sequence[Limit], target: str) -> None:
    """Raise UsageError for limits on figures that builds for the target are known never to have."""
    known = find_needs(target).figures
    for limit in limits:
        if known is not None and limit.metric not in (*known, BUILD):
            _refuse(limit, target, known)


def require_reported(limits: Sequence[Limit], target: str, builds: Sequence[Build]) -> None:
    """Raise UsageError for a limit on a figure that none of these builds has; failed ones say nothing."""
    passed = [build for build in builds if build.outcome is Outcome.PASSED]
    known = list_metrics(passed)
    for limit in limits if passed else ():
        is_mix = limit.metric.startswith(MIX) and bool(known)  # a kind that nothing has counts as 0
        if limit.metric not in (*known, BUILD) and not is_mix:
            _refuse(limit, target, sorted(known))


def _refuse(limit: Limit, target: str, known: Sequence[str]) -> NoReturn:
    """Raise the UsageError for a limit that could never be broken."""
    if known:
        has = ", ".join(known)
        raise UsageError(
            f"--fail-on {limit}: builds for {target} have no such figure", f"they have: {has}"
        )
    raise UsageError(
        f"--fail-on {limit}: the compilers of the target {target} report no figures of a binary",
        "name a target of which they do, such as --target cuda:sm_90a of `tileyard static`; "
        "--fail-over limits times",
    )


def find_broken_builds(build: BuildTimes | None, limits: Sequence[Limit]) -> Iterator[str]:
    """One line per limit that the build time of all kernels breaks, even in the mildest round."""
    for limit in limits:
        if limit.metric == BUILD and build is not None and not build.is_first:
            base = sum(build.base_s) / len(build.base_s)
            mildest = build.high if limit.falls else build.low
            if limit.is_broken(base, base * mildest):
                yield (
                    f"all kernels: build x {build.ratio:.2f} [{build.low:.2f}, "
                    f"{build.high:.2f}], allowed {limit}"
                )


def find_broken(changes: Sequence[Change], limits: Sequence[Limit]) -> Iterator[str]:
    """One line per limit that one of a kernel's figures breaks, without build times."""
    for change, limit in list_breaking(changes, limits):
        yield f"{describe_change(change)}, allowed {limit}"


def list_breaking(
    changes: Sequence[Change], limits: Sequence[Limit]
) -> Iterator[tuple[Change, Limit]]:
    """The figures that break limits, in the order of the limits, without build times."""
    yield from ((one, limit) for limit in limits for one in changes if _breaks(one, limit))


def _breaks(change: Change, limit: Limit) -> bool:
    if change.metric != limit.metric or change.metric == BUILD:
        return False
    if change.base is None or change.head is None:
        return False
    return limit.is_broken(change.base, change.head)


def describe_change(change: Change) -> str:
    """``registers of scale 32 -> 40``; an unknown figure is ``?``."""
    what = f"{change.metric} of {change.function}" if change.function else change.metric
    base, head = ("?" if one is None else f"{one:g}" for one in (change.base, change.head))
    return f"{what} {base} -> {head}"


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
    ends = format_ends(ratio)
    return f"{format_change(ratio.ratio)} %" + (f" ({ends})" if ends else "")


def format_ends(ratio: Ratio) -> str:
    """``+3.20 .. +5.04``; empty if the interval is unknown."""
    if ratio.low is None or ratio.high is None:
        return ""
    return f"{format_change(ratio.low)} .. {format_change(ratio.high)}"


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


class CaseMargin(Record):
    """The margin of the cases that match the glob ``cases``, in percent of base's time."""

    cases: Text
    percent: Annotated[float, msgspec.Meta(gt=0, lt=100)]


class Gate(Record):
    """The rules that fail a comparison, in shares of base's time. ``margin`` is the smallest change that
    matters; the first match in ``margins`` overrides it. A kernel fails if known to be slower by more than
    its margin and ``fail_over``. ``limits`` are on compilers' figures. ``allow`` lists exceptions up to their
    last days. ``faults`` is ``all``, or ``lost`` for those in head: not new kernels, nor those that base does
    not build either.
    """

    margin: float
    fail_over: float = 0.0
    limits: tuple[Limit, ...] = ()
    margins: tuple[CaseMargin, ...] = ()
    allow: tuple[Allowance, ...] = ()
    today: datetime.date = datetime.date.min
    faults: Literal["all", "lost", "none"] = "all"

    def margin_of(self, case: str) -> float:
        """The smallest change that matters for a case."""
        own = (entry.percent / 100 for entry in self.margins if fits_entry(entry, case))
        return next(own, self.margin)

    def limit_of(self, case: str) -> float:
        """The share by which a case may be slower."""
        return max(self.fail_over, self.margin_of(case))

    def judge(self, rows: Sequence[TimedRow]) -> tuple[tuple[TimedRow, ...], tuple[str, ...]]:
        """The rows with their results at the gate, and notes for the user."""
        broken = {row.case: tuple(find_broken(row.changes, self.limits)) for row in rows}
        faults = {row.case: self._find_faults(row, broken[row.case]) for row in rows}
        allowed: dict[str, dict[Worse, Allowance]] = {row.case: {} for row in rows}
        notes: list[str] = []
        for kind in get_args(Worse):
            entries = [entry for entry in self.allow if kind in entry.verdicts]
            cases = [case for case, kinds in faults.items() if kind in kinds]
            found, ended = find_quarantined(entries, cases, self.today, "allowance")
            notes += ended
            for case, entry in found.items():
                allowed[case][kind] = entry
        judged = tuple(
            msgspec.structs.replace(
                row,
                broken=broken[row.case],
                gates=tuple(kind for kind in faults[row.case] if kind not in allowed[row.case]),
                allowed=tuple(dict.fromkeys(allowed[row.case].values())),
                margin=None if (own := self.margin_of(row.case)) == self.margin else own,
            )
            for row in rows
        )
        return judged, (*notes, *self._find_notes(judged))

    def _find_faults(self, row: TimedRow, broken: Sequence[str]) -> tuple[Worse, ...]:
        is_lost = row.verdict != "new" and not row.base_message
        if self.faults == "none" or (self.faults == "lost" and not is_lost):
            return ()
        return tuple(
            kind
            for kind in get_args(Worse)
            if (kind == row.verdict and not self._is_tolerable(row))
            or (kind == "over_limit" and broken)
        )

    def _is_tolerable(self, row: TimedRow) -> bool:
        """Whether a kernel is slower, but not known to be slower than it may be."""
        limit = self.limit_of(row.case)
        if row.verdict != "regressed" or limit == self.margin_of(row.case):
            return False
        ratio = row.ratio
        if ratio is None or ratio.low is None or ratio.high is None:
            return False
        return (ratio.low if row.better == "lower" else 1 / ratio.high) - 1 <= limit

    def _find_notes(self, rows: Sequence[TimedRow]) -> Iterator[str]:
        names = [row.case for row in rows]
        yield from find_idle("allow", self.allow, names)
        yield from find_idle("margin", self.margins, names)
        spared = sum(self._is_tolerable(row) for row in rows)
        if spared:
            yield (
                f"{spared} regressed, not known to be beyond {100 * self.fail_over:g} %: "
                f"{'does' if spared == 1 else 'do'} not gate"
            )


def describe_gating(rows: Sequence[TimedRow]) -> str:
    """``1 missing, 2 regressed``: the number of rows that gate, by kind; empty if none does."""
    counts = Counter(kind for row in rows for kind in row.gates)
    return ", ".join(f"{counts[one]} {one}" for one in get_args(Worse) if counts[one])

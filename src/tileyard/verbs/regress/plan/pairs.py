"""Compares two builds of kernels or programs: pairs of cases that meet in batches until they are decided.
Only if the binaries differ, base, head and base again (as A/A control) are timed in turn. A batch gives one
value per pair: the median of the calm rounds' log-ratios of kernels, timed in a new process, or the log-ratio
of programs' best runs. A changed pair is then timed with its code at other places.
"""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, get_args

import msgspec
import numpy as np

from tileyard.artifacts.manifest import Build
from tileyard.base.model import (
    INFRASTRUCTURE,
    WELL,
    Batch,
    Better,
    Case,
    CommandWork,
    KernelWork,
    Measurement,
    Outcome,
    TimingPolicy,
    Trial,
)
from tileyard.measure.looks import LOOKS, MeanInterval, mean_interval
from tileyard.measure.paired import find_calm
from tileyard.verbs.regress.result import (
    Control,
    Gate,
    Mean,
    Ratio,
    TimedRow,
    Verdict,
    format_change,
)

FALSE_DISCOVERIES: Final = 0.05
"""Share of the rows reported as changed that may be wrong."""
ROUNDS: Final = 120
"""Most rounds in one process: some of them are calm even on a machine with other work."""
ENOUGH_ROUNDS: Final = 40
"""Number of calm rounds that suffice: with three times as many, processes differ as much from each other."""
RUN_CALM: Final = 1.05
FEWEST_ROUNDS: Final = 8
"""Fewest calm rounds of a process: with fewer it counts as disturbed, and another one follows."""
MOST_SHIFTED: Final = 3
"""Most processes to confirm a change with its code at one other place: one, if it is undisturbed."""
SLOTS: Final = ("base", "head", "control")
TIMING: Final = TimingPolicy(min_sample_ns=200_000)
"""The timing of kernels: a sample lasts at least 0.2 ms."""
PROGRAM_ROUNDS: Final = 10
"""Most rounds in a batch of programs."""
TIME: Final[tuple[str, Better]] = ("ns", "lower")
CPU_TIME: Final[tuple[str, Better]] = ("CPU ns", "lower")


@dataclass
class Pair:
    """A kernel or program that both sides have, and its state."""

    name: str
    base: Case
    head: Case
    built: dict[str, Trial] = field(default_factory=dict)
    batches: list[dict[str, float]] = field(default_factory=list)
    devices: list[str] = field(default_factory=list)
    """The names of the devices on which the batches were timed."""
    typical: dict[str, list[float]] = field(default_factory=dict)
    spent_s: float = 0.0
    asked: int = 0
    told: int = 0
    disturbed: int = 0
    failure: dict[str, Trial] = field(default_factory=dict)
    is_decided: bool = False
    shifted: list["Pair"] = field(default_factory=list)
    """This pair with its code at other places, each timed in one process, once it seems to have changed."""
    parent: "Pair | None" = None
    """The pair that this one confirms, if any."""

    @property
    def is_over(self) -> bool:
        """Whether it needs no more timing."""
        return self.is_decided and all(one.is_decided for one in self.shifted)

    @property
    def is_same(self) -> bool:
        """Whether both sides have the same binary."""
        base, head = (self.built[side].keys for side in ("base", "head"))
        return (base.binary or base.build) == (head.binary or head.build)

    @property
    def measure(self) -> tuple[str, Better]:
        """The unit of head's measurements, and which of two numbers is better."""
        return measure_of(self.head)

    @property
    def refusal(self) -> str:
        """Why its sides cannot be compared; empty if they can."""
        base, head = measure_of(self.base), measure_of(self.head)
        if base == head:
            return ""
        told = " and ".join(
            f"{side} in {unit} ({better} is better)"
            for side, (unit, better) in (("base", base), ("head", head))
        )
        return f"cannot be compared: it is measured on {told}"

    def values(self, slot: str) -> list[float]:
        """ln(slot / base) of each batch."""
        return [batch[slot] for batch in self.batches]

    def median(self, slot: str) -> float:
        """The median over batches of the times of a launch or run, or of numbers; 0 if none was timed."""
        return statistics.median(self.typical[slot]) if self.typical else 0.0

    def take(self, measured: Mapping[str, Measurement]) -> bool:
        """Record a batch's measurements; False if it was disturbed, or its device was not well."""
        if any(one.device_state.get("disturbed") for one in measured.values()):
            return False
        if isinstance(self.head.work, KernelWork):
            ratios = compare_rounds({slot: one.samples_ns for slot, one in measured.items()})
            typical = {s: float(np.quantile(one.samples_ns, 0.1)) for s, one in measured.items()}
        else:
            best = max if self.measure[1] == "higher" else min
            typical = {s: best(one.printed or one.samples_ns) for s, one in measured.items()}
            ratios = {s: math.log(typical[s] / typical["base"]) for s in ("head", "control")}
            if any(_is_disturbed(one) for one in measured.values()):
                ratios = None
        if ratios is None:
            return False
        self.batches.append(ratios)
        for slot, one in typical.items():
            self.typical.setdefault(slot, []).append(one)
        return True


def _is_disturbed(measured: Measurement) -> bool:
    """Whether no second run of a program took about as long as its best; printed numbers are not checked."""
    best, *others = sorted(measured.samples_ns)
    return not measured.printed and bool(others) and others[0] > RUN_CALM * best


def measure_of(case: Case) -> tuple[str, Better]:
    """The unit of a case's measurements, and which of two numbers is better."""
    measure = case.work.measure if isinstance(case.work, CommandWork) else None
    if measure is None:
        return TIME
    return CPU_TIME if measure.of == "cpu_time" else (measure.unit, measure.better)


def compare_rounds(samples: Mapping[str, Sequence[float]]) -> dict[str, float] | None:
    """ln(slot / base) for head and control over the calm rounds of a process; None if these are too few."""
    calm = find_calm(list(samples.values()))
    if calm.sum() < FEWEST_ROUNDS:
        return None
    logs = {slot: np.log(np.asarray(own)[calm]) for slot, own in samples.items()}
    return {slot: float(np.median(logs[slot] - logs["base"])) for slot in ("head", "control")}


class Pairs:
    """A CaseSource: builds both sides of each pair, then times those that differ until they are decided.
    Equal ids in the ``cases`` of both sides are a pair; ``gate`` has the margins. ``case_s`` limits the
    timing per pair without its confirmation, for which ``shifts`` are targets that place the code elsewhere.
    ``is_out_of_time``: no batch may begin.
    """

    def __init__(
        self,
        cases: Mapping[str, Sequence[Case]],
        gate: Gate,
        case_s: float,
        shifts: Sequence[str] = (),
        is_out_of_time: Callable[[], bool] = bool,
    ) -> None:
        heads = {case.id: case for case in cases["head"]}
        bases = {case.id: case for case in cases["base"]}
        self.pairs = [
            Pair(name, base, heads[name]) for name, base in bases.items() if name in heads
        ]
        self.missing = tuple(name for name in bases if name not in heads)
        self.new = tuple(name for name in heads if name not in bases)
        self._gate = gate
        self._case_s = case_s
        self._is_out_of_time = is_out_of_time
        self._shifts = shifts
        self.watch: Callable[[Pair], None] = lambda pair: None
        """Called with each pair that was timed."""
        self._to_build = [
            (pair, side) for pair in reversed(self.pairs) for side in ("head", "base")
        ]
        self._pending: dict[str, tuple[Pair, str]] = {}
        self._under_way: dict[str, dict[str, Trial]] = {}
        self.timed_s = 0.0

    async def ask(self, limit: int) -> Sequence[Batch]:
        """Builds as long as there are any; then one batch per undecided pair, the least timed first."""
        batches: list[Batch] = []
        while self._to_build and len(batches) < limit:
            pair, side = self._to_build.pop()
            case = as_built(pair.base if side == "base" else pair.head, side)
            case = _rename(case, case.id, pair)
            self._pending[case.key] = (pair, side)
            batches.append(Batch(id=case.id, cases=(case,)))
        if self._is_out_of_time():
            return batches
        ready = [pair for pair in self._list_all() if self._may_time(pair)]
        ready.sort(key=lambda pair: pair.asked)
        return [*batches, *map(self._time, ready[: limit - len(batches)])]

    def tell(self, trial: Trial) -> None:
        """Record a build, or the trial of a member of a timed batch."""
        pair, slot = self._pending.pop(trial.key)
        if trial.batch == trial.case:
            if trial.outcome is Outcome.NOT_RUN:  # the time ran out before it
                return
            pair.built[slot] = trial
            # A case that is built but not run ends as skipped.
            if trial.outcome not in WELL:
                pair.failure[slot] = trial
            is_settled = len(pair.built) == 2 and (pair.is_same or bool(pair.refusal))
            pair.is_decided = bool(pair.failure) or is_settled
            return
        batch = self._under_way[trial.batch]
        batch[slot] = trial
        if len(batch) < len(SLOTS):
            return
        del self._under_way[trial.batch]
        self._take(pair, batch)
        self.watch(pair.parent or pair)

    def done(self) -> bool:
        """Whether nothing is pending, and nothing more will be requested."""
        if self._pending or self._to_build:
            return False
        return self._is_out_of_time() or not any(map(self._may_time, self._list_all()))

    def count_left(self) -> int:
        """Estimated number of batches left to time, if pairs take as many as the decided ones took."""
        told = [pair.told for pair in self.pairs if pair.is_decided and pair.told]
        usual = max(round(sum(told) / len(told)), LOOKS[0]) if told else LOOKS[0]
        undecided = [pair for pair in self._list_all() if not pair.is_decided]
        return sum(1 if pair.parent else max(usual - pair.told, 1) for pair in undecided)

    def _list_all(self) -> list[Pair]:
        return [one for pair in self.pairs for one in (pair, *pair.shifted)]

    def _may_time(self, pair: Pair) -> bool:
        is_built = len(pair.built) == 2
        is_pending = pair.told < pair.asked
        return is_built and not pair.is_decided and not is_pending

    def _time(self, pair: Pair) -> Batch:
        pair.asked += 1
        name = _rename(pair.base, f"{pair.name}/{pair.asked}", pair).id
        cases = []
        for slot, case in zip(SLOTS, (pair.base, pair.head, pair.base), strict=True):
            own = _rename(case, f"{pair.name}/{pair.asked}/{slot}", pair)
            own = msgspec.structs.replace(own, control=slot == "control")
            self._pending[own.key] = (pair, slot)
            cases.append(own)
        self._under_way[name] = {}
        is_kernel = isinstance(pair.head.work, KernelWork)
        return Batch(
            id=name,
            cases=tuple(cases),
            order="interleaved",
            process="fresh" if is_kernel else "warm",  # each run of a program is a new process
            rounds=ROUNDS if is_kernel else PROGRAM_ROUNDS,
            calm=ENOUGH_ROUNDS if is_kernel else 0,
        )

    def _take(self, pair: Pair, batch: dict[str, Trial]) -> None:
        pair.told += 1
        if any(trial.outcome is Outcome.NOT_RUN for trial in batch.values()):
            return
        measured = {slot: t.measurement for slot, t in batch.items() if t.measurement}
        for slot, trial in batch.items():
            if trial.outcome not in WELL or slot not in measured:
                pair.failure["base" if slot == "control" else slot] = trial
                pair.is_decided = True
        if pair.is_decided:
            if pair.parent and not all(t.outcome in INFRASTRUCTURE for t in pair.failure.values()):
                pair.parent.failure.update(pair.failure)
            return
        seconds = batch["base"].run_s
        self.timed_s += seconds
        pair.spent_s += seconds
        if not pair.take(measured):
            pair.disturbed += 1
        else:
            pair.devices.append(batch["base"].device)
            pair.is_decided = pair.parent is not None or self._is_decided(pair)
        most = MOST_SHIFTED if pair.parent else LOOKS[-1]
        pair.is_decided |= pair.spent_s >= self._case_s or pair.told >= most
        if pair.is_decided and pair.batches and not pair.parent and self._seems_changed(pair):
            self._confirm(pair)

    def _seems_changed(self, pair: Pair) -> bool:
        """Whether the pair may end as changed, at any level at which it may be judged."""
        edge = math.log1p(self._gate.margin_of(pair.name))
        return mean_interval(pair.values("head"), FALSE_DISCOVERIES).is_beyond(edge)

    def _confirm(self, pair: Pair) -> None:
        for target in self._shifts:
            base, head = (
                msgspec.structs.replace(case, target=target) for case in (pair.base, pair.head)
            )
            pair.shifted.append(Pair(pair.name, base, head, parent=pair))
            self._to_build += [(pair.shifted[-1], side) for side in ("head", "base")]

    def _is_decided(self, pair: Pair) -> bool:
        """Whether the interval, if checked now, is clear of the margin, and of the gate's limit if worse."""
        if len(pair.batches) not in LOOKS:
            return False
        found = mean_interval(pair.values("head"), FALSE_DISCOVERIES / len(self.pairs))
        edges = [self._gate.margin_of(pair.name)]
        if (found.mean > 0) == (pair.measure[1] == "lower"):
            edges.append(self._gate.limit_of(pair.name))
        logs = map(math.log1p, edges)
        return all(found.is_beyond(edge) or found.is_within(edge) for edge in logs)


def _rename(case: Case, name: str, pair: Pair) -> Case:
    """The case with this name; if the pair confirms another, with the target that moves its code."""
    name = f"{name}/{case.target}" if pair.parent else name
    return msgspec.structs.replace(case, id=name)


def as_built(case: Case, side: str) -> Case:
    """The case that builds a side of a pair; programs also need what their run step uses."""
    until: Literal["built", "packed"] = "built" if isinstance(case.work, KernelWork) else "packed"
    return msgspec.structs.replace(case, id=f"{case.id}/{side}", until=until, timing=None)


def fold_pairs(
    source: Pairs, refused: Mapping[str, Sequence[Build]], gate: Gate
) -> tuple[tuple[TimedRow, ...], tuple[str, ...], Mean | None]:
    """All rows, the worst first; rows whose control differs from base; the mean of timed rows. Benjamini and
    Hochberg: R of N rows are changed if R intervals at level ``q R / N`` are beyond the margin, for the
    largest such R. All intervals are shown at that level. ``refused`` are kernels that a side could not plan.
    """
    timed = [pair for pair in source.pairs if pair.batches and not pair.failure]
    edges = [math.log1p(gate.margin_of(pair.name)) for pair in timed]
    level = find_level([pair.values("head") for pair in timed], edges)
    control_level = find_level([pair.values("control") for pair in timed], edges)
    rows = [describe_pair(pair, level, gate.margin_of(pair.name)) for pair in source.pairs]
    rows += _describe_refused(refused)
    told = {row.case for row in rows}
    rows += [TimedRow(case=name, verdict="missing") for name in source.missing if name not in told]
    rows += [TimedRow(case=name, verdict="new") for name in source.new if name not in told]
    alarms = (
        pair.name
        for pair, edge in zip(timed, edges, strict=True)
        if mean_interval(pair.values("control"), control_level).is_beyond(edge)
    )
    return sort_rows(rows), tuple(alarms), find_mean(rows)


def find_controls(source: Pairs, margin: float) -> tuple[Control, ...]:
    """The controls, base against itself, per device, in the order of names."""
    values: dict[str, list[float]] = {}
    for pair in source.pairs:
        for device, value in zip(pair.devices, pair.values("control"), strict=True):
            values.setdefault(device, []).append(value)
    level = FALSE_DISCOVERIES / max(len(values), 1)
    found = {device: mean_interval(own, level) for device, own in sorted(values.items())}
    return tuple(
        Control(
            device=device,
            ratio=as_ratio(one, len(values[device])),
            is_alarm=one.is_beyond(math.log1p(margin)),
        )
        for device, one in found.items()
    )


def sort_rows(rows: Sequence[TimedRow]) -> tuple[TimedRow, ...]:
    """Rows in order, the worst first."""
    return tuple(sorted(rows, key=_badness))


def find_mean(rows: Sequence[TimedRow]) -> Mean | None:
    """The geometric mean of the ratios of rows that are not missing; None if there is none."""
    ratios = [row.worse for row in rows if row.ratio and row.verdict != "missing"]
    return Mean(ratio=statistics.geometric_mean(ratios), rows=len(ratios)) if ratios else None


def _badness(row: TimedRow) -> tuple[int, float]:
    return get_args(Verdict).index(row.verdict), -row.worse if row.ratio else 0.0


def _describe_refused(refused: Mapping[str, Sequence[Build]]) -> list[TimedRow]:
    messages: dict[str, dict[str, str]] = {}
    for side, builds in refused.items():
        for build in builds:
            messages.setdefault(build.case, {})[side] = build.message
    return [
        TimedRow(
            case=case,
            verdict="failed",
            base_message=found.get("base", ""),
            head_message=found.get("head", ""),
        )
        for case, found in messages.items()
    ]


def find_level(
    all_values: Sequence[Sequence[float]],
    edges: Sequence[float],
    all_earlier: Sequence[Sequence[float]] | None = None,
) -> float:
    """The level of all intervals by Benjamini and Hochberg, see ``fold_pairs``; ``edges`` are log margins."""
    count = len(all_values)
    known = all_earlier or [()] * count
    for changed in range(count, 1, -1):
        level = FALSE_DISCOVERIES * changed / count
        beyond = sum(
            mean_interval(values, level, earlier).is_beyond(edge)
            for values, edge, earlier in zip(all_values, edges, known, strict=True)
        )
        if beyond >= changed:
            return level
    return FALSE_DISCOVERIES / max(count, 1)


def describe_pair(pair: Pair, level: float, margin: float) -> TimedRow:
    """The row of a pair, with intervals at this level."""
    messages = {
        side: f"{pair.failure[side].outcome}: {pair.failure[side].message}"
        if side in pair.failure
        else ""
        for side in ("base", "head")
    }
    if pair.failure:
        is_ours = {t.outcome for t in pair.failure.values()} <= INFRASTRUCTURE | {Outcome.NOT_RUN}
        return TimedRow(
            case=pair.name,
            verdict="not_run" if is_ours else "failed",
            base_message=messages["base"],
            head_message=messages["head"],
        )
    if len(pair.built) == 2 and pair.is_same:
        return TimedRow(case=pair.name, verdict="unchanged")
    if pair.refusal:
        return TimedRow(case=pair.name, verdict="failed", message=pair.refusal)
    if not pair.batches:  # no time was left, or other work disturbed all batches
        return TimedRow(case=pair.name, verdict="inconclusive", disturbed=pair.disturbed)
    found = mean_interval(pair.values("head"), level)
    half = (found.high - found.low) / 2
    unit, better = pair.measure
    verdict, message = judge_interval(found, math.log1p(margin), better), ""
    shifted = [one.values("head")[0] for one in pair.shifted if one.batches]
    if verdict in ("regressed", "improved") and pair.shifted:
        there = statistics.median([found.mean, *shifted]) * math.copysign(1.0, found.mean)
        others = ", ".join(format_change(math.exp(one)) for one in shifted)
        if there <= math.log1p(margin):
            verdict = "inconclusive"
            message = f"not with its code at other places in memory: {others} % there"
        elif len(shifted) < len(pair.shifted):
            message = f"confirmed at {len(shifted)} of {len(pair.shifted)} other places in memory"
    return TimedRow(
        case=pair.name,
        verdict=verdict,
        message=message,
        shifted=tuple(map(math.exp, shifted)),
        ratio=as_ratio(found, len(pair.batches)),
        control=as_ratio(mean_interval(pair.values("control"), level), len(pair.batches)),
        disturbed=pair.disturbed,
        base=pair.median("base"),
        head=pair.median("head"),
        unit=unit,
        better=better,
        smallest=math.expm1(math.log1p(margin) + half) if math.isfinite(half) else None,
    )


def judge_interval(found: MeanInterval, margin: float, better: Better = "lower") -> Verdict:
    """The verdict for an interval of ln(head / base); ``margin`` is a logarithm as well."""
    if found.is_beyond(margin):
        return "regressed" if (found.mean > 0) == (better == "lower") else "improved"
    return "equivalent" if found.is_within(margin) else "inconclusive"


def as_ratio(found: MeanInterval, processes: int) -> Ratio:
    """An interval of logarithms as an interval of ratios."""
    is_known = math.isfinite(found.high)
    return Ratio(
        ratio=math.exp(found.mean),
        low=math.exp(found.low) if is_known else None,
        high=math.exp(found.high) if is_known else None,
        processes=processes,
    )

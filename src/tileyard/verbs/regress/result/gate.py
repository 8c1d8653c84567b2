"""Which rows fail a comparison in time: how much slower is too much, and what is allowed until a date."""

import datetime
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Annotated, Literal, get_args

import msgspec

from tileyard.base.decoding import Text
from tileyard.base.model import Record
from tileyard.base.quarantine import find_idle, find_quarantined, fits_entry
from tileyard.verbs.regress.result.limits import Limit, find_broken
from tileyard.verbs.regress.result.timed import Allowance, TimedRow, Worse


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

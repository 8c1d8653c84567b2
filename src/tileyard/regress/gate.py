"""Which rows of a comparison in time fail it: how much slower is too much, and what is allowed until a day."""

import datetime
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Final, get_args

import msgspec

from tileyard.decoding import Text
from tileyard.model import Record
from tileyard.quarantine import find_idle, find_quarantined, fits, fits_entry
from tileyard.regress.timed import Allowance, TimedRow, Verdict, Worse

GATING: Final = frozenset(get_args(Worse))


class CaseMargin(Record):
    """The margin of the cases that fit the glob ``cases``, in percent of base's time."""

    cases: Text
    percent: Annotated[float, msgspec.Meta(gt=0, lt=100)]


class Gate(Record):
    """``margin`` is the smallest change that matters, of the cases of the first of ``margins`` that fits its own; shares of
    base's time.

    A kernel that is slower fails where it is known to be slower by more than ``fail_over``, which no margin exceeds; 0 is
    its margin. ``allow`` says what else fails nothing, ``today`` decides which of these entries still count.
    """

    margin: float
    fail_over: float = 0.0
    margins: tuple[CaseMargin, ...] = ()
    allow: tuple[Allowance, ...] = ()
    today: datetime.date = datetime.date.min

    def margin_of(self, case: str) -> float:
        """The smallest change of a case that matters."""
        own = (entry.percent / 100 for entry in self.margins if fits_entry(entry, case))
        return next(own, self.margin)

    def limit_of(self, case: str) -> float:
        """What a case may be slower by."""
        return max(self.fail_over, self.margin_of(case))

    def judge(self, rows: Sequence[TimedRow]) -> tuple[tuple[TimedRow, ...], tuple[str, ...]]:
        """The rows with what is known of each at the gate, and what people should see besides."""
        worse = {row.case: row for row in rows if self._is_worse(row)}

        def applies(entry: Allowance, case: str) -> bool:
            return worse[case].verdict in entry.verdicts and fits(entry.cases, case)

        allowed, ended = find_quarantined(self.allow, worse, self.today, applies, "allowance")
        judged = tuple(self._mark(row, allowed, row.case in worse) for row in rows)
        return judged, (*ended, *self._find_notes(judged))

    def _is_worse(self, row: TimedRow) -> bool:
        if row.verdict != "regressed":
            return row.verdict in GATING
        low = row.ratio.low if row.ratio else None
        limit = self.limit_of(row.case)
        return low is None or limit == self.margin_of(row.case) or low - 1 > limit

    def _mark(self, row: TimedRow, allowed: Mapping[str, Allowance], is_worse: bool) -> TimedRow:
        own = self.margin_of(row.case)
        return msgspec.structs.replace(
            row,
            gates=is_worse and row.case not in allowed,
            allowed=allowed.get(row.case),
            margin=None if own == self.margin else own,
        )

    def _find_notes(self, rows: Sequence[TimedRow]) -> Iterator[str]:
        names = [row.case for row in rows]
        yield from find_idle("allow", self.allow, names)
        yield from find_idle("margin", self.margins, names)
        spared = sum(
            row.verdict == "regressed" and not row.gates and not row.allowed for row in rows
        )
        if spared:
            yield (
                f"{spared} regressed, not known to be beyond {100 * self.fail_over:g} %: "
                f"{'does' if spared == 1 else 'do'} not gate"
            )


def describe_gating(rows: Sequence[TimedRow]) -> str:
    """``1 missing, 2 regressed``: how many rows gate, by their verdicts; empty where none does."""
    counts = Counter(row.verdict for row in rows if row.gates)
    return ", ".join(f"{counts[one]} {one}" for one in get_args(Verdict) if counts[one])

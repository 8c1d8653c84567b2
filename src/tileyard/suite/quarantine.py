"""Cases that run and do not gate, for as long as somebody answers for it."""

import datetime
from collections.abc import Iterable, Sequence

from tileyard.suite.globs import fits
from tileyard.suite.records import Quarantine


def is_over(entry: Quarantine, today: datetime.date) -> bool:
    """Whether its last day has passed."""
    return datetime.date.fromisoformat(entry.until) < today


def find_quarantined(
    entries: Sequence[Quarantine], cases: Iterable[str], today: datetime.date
) -> tuple[dict[str, Quarantine], tuple[str, ...]]:
    """The cases that do not gate today, each with the entry that says so, and what to tell people.

    Where several entries fit a case, the one that lasts longest counts.
    """
    known = tuple(cases)
    lasting = sorted(entries, key=lambda entry: entry.until, reverse=True)
    current = [entry for entry in lasting if not is_over(entry, today)]
    found: dict[str, Quarantine] = {}
    for case in known:
        entry = next((one for one in current if fits(one.cases, case)), None)
        if entry is not None:
            found[case] = entry
    return found, tuple(_tell_of_ended(entries, known, found, today))


def _tell_of_ended(
    entries: Sequence[Quarantine],
    cases: Sequence[str],
    still: dict[str, Quarantine],
    today: datetime.date,
) -> Iterable[str]:
    for entry in entries:
        if is_over(entry, today):
            freed = sum(fits(entry.cases, case) and case not in still for case in cases)
            if freed:
                yield (
                    f"the quarantine of {entry.cases} ended on {entry.until}: {freed} "
                    f"{'case gates' if freed == 1 else 'cases gate'} again "
                    f"(owner {entry.owner}: {entry.reason})"
                )

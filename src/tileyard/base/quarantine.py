"""Cases that do not gate until a date: owner and reason, and the entry of a list that matches a case."""

import datetime
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import translate
from functools import lru_cache
from typing import Protocol, TypeVar

from tileyard.base.decoding import Text
from tileyard.base.model import Record
from tileyard.base.wording import name_some


class Quarantine(Record):
    """Cases that run and do not gate: their owner, the reason, and the last day (inclusive)."""

    cases: Text
    owner: Text
    reason: Text
    until: datetime.date


class Listed(Protocol):
    """An entry of a list of cases."""

    @property
    def cases(self) -> str:
        """A glob on ids of cases."""


Entry = TypeVar("Entry", bound=Quarantine)
NAMED = 8
"""Entries that a note names before it counts the others."""
NO_OTHERS: Mapping[str, str] = {}


def fits(glob: str, case: str) -> bool:
    """Whether a case's id equals the text, or matches it as a glob."""
    return glob == case or _compiled(glob).match(case) is not None


def fits_entry(entry: Listed, case: str) -> bool:
    """Whether an entry matches a case."""
    return fits(entry.cases, case)


def find_quarantined(
    entries: Sequence[Entry],
    cases: Iterable[str],
    today: datetime.date,
    name: str = "quarantine",
    others: Mapping[str, str] = NO_OTHERS,
) -> tuple[dict[str, Entry], tuple[str, ...]]:
    """The cases that do not gate today with their entries (of the latest end), and notes on entries
    that ended. ``name`` is the word for an entry, ``others`` further names that entries may use.
    """

    def is_about(entry: Entry, case: str) -> bool:
        return fits_entry(entry, case) or (case in others and fits_entry(entry, others[case]))

    names = tuple(cases)
    lasting = sorted(entries, key=lambda entry: entry.until, reverse=True)
    current = [entry for entry in lasting if entry.until >= today]
    fitting = {case: [one for one in current if is_about(one, case)] for case in names}
    found = {case: those[0] for case, those in fitting.items() if those}
    notes = []
    for entry in (one for one in entries if one.until < today):
        freed = sum(is_about(entry, case) and case not in found for case in names)
        if freed:
            notes.append(
                f"the {name} of {entry.cases} ended on {entry.until}: {freed} "
                f"{'case gates' if freed == 1 else 'cases gate'} again "
                f"(owner {entry.owner}: {entry.reason})"
            )
    return found, tuple(notes)


def find_idle(kind: str, entries: Iterable[Listed], cases: Sequence[str]) -> Iterator[str]:
    """A line for the entries that match no case, for instance after a case was renamed."""
    idle = [one.cases for one in entries if not any(fits_entry(one, case) for case in cases)]
    if idle:
        yield f"{kind}: {name_some(idle, NAMED)} {'matches' if len(idle) == 1 else 'match'} no case"


@lru_cache(maxsize=1024)
def _compiled(glob: str) -> re.Pattern[str]:
    return re.compile(translate(glob))

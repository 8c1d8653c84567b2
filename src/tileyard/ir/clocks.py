"""Happens-before: the views of the actors, and the history of accesses to each element. Actors are
the roles of a block, each with a time that advances where others can learn of it. An asynchronous
operation is one event, after its issuer's past and before all that follows the wait that covers it.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import groupby

import msgspec
import numpy as np
from numpy.typing import NDArray

Places = tuple[int | slice | NDArray[np.integer], ...]
"""Elements of an array, as NumPy indexes them."""

Marks = NDArray[np.int32]

READ_ONLY, WHOLE = 1, 2
"""How far an operation is known to be over: it has read its sources, or its writes are visible, too."""


_BYTE = 256


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """A statement, by number, with the values of the loops around it."""

    number: int
    loops: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Event:
    """An access, or all accesses of the operation with this number (0 for none), by ``actor``,
    issued at its ``time``. ``is_async`` marks those through the asynchronous proxy.
    """

    actor: int
    time: int
    moment: Moment
    operation: int = 0
    is_atomic: bool = False
    is_async: bool = False

    @property
    def is_ordinary(self) -> bool:
        """Whether it is neither an atomic update nor part of an operation."""
        return not (self.is_atomic or self.operation)


@dataclass(slots=True)
class View:
    """What an actor knows: the ``times`` of others, and which operations are ``over``, and how far.
    ``fenced`` is the part that asynchronous operations see, too; ``own_fence`` counts for the
    actor's own: a fence by one of its threads does not cover what the others wrote.
    """

    times: dict[int, int] = field(default_factory=dict)
    over: dict[int, int] = field(default_factory=dict)
    fenced: "View | None" = None
    own_fence: "View | None" = None

    def copy(self) -> "View":
        """An independent copy."""
        fenced = None if self.fenced is None else self.fenced.copy()
        return View(dict(self.times), dict(self.over), fenced, self.own_fence)

    def join(self, other: "View") -> None:
        """Learn all that ``other`` knows."""
        for mine, theirs in ((self.times, other.times), (self.over, other.over)):
            for key, value in theirs.items():
                if mine.get(key, 0) < value:
                    mine[key] = value
        if other.fenced is not None:
            self.fenced = self.fenced or View()
            self.fenced.join(other.fenced)

    def fence(self, actor: int, *, is_whole: bool) -> None:
        """Make all that ``actor``, the owner of this view, knows now visible to asynchronous operations."""
        seen = View(dict(self.times), dict(self.over))
        if is_whole:
            self.fenced = seen.copy()  # it grows separately
        self.own_fence = seen
        self.times[actor] += 1

    def fence_own(self, actor: int) -> None:
        """Make what ``actor``, the owner of this view, has done itself visible to asynchronous operations."""
        self.fenced = self.fenced or View()
        self.fenced.times[actor] = self.times[actor]

    def has_fenced(self, event: Event) -> bool:
        """Whether an asynchronous operation sees ``event``."""
        return any(one is not None and one.knows(event) for one in (self.fenced, self.own_fence))

    def knows(self, event: Event, least: int = WHOLE) -> bool:
        """Whether ``event`` has happened before; for an operation, whether it is over up to ``least``."""
        if event.operation:
            return self.over.get(event.operation, 0) >= least
        return self.times.get(event.actor, 0) >= event.time


@dataclass(frozen=True, kw_only=True, slots=True)
class Conflict:
    """An earlier event that nothing orders before an access; or one that is ordered, but ``lacks_fence``."""

    event: Event
    was_write: bool
    lacks_fence: bool = False


class History:
    """The last ordinary write of each element of a buffer's storage, and its readers and atomic updates
    since. Events are positions in ``events``, 0 for none. The first update of an element that nobody wrote
    counts as its write, too. ``excused`` counts unordered writes that change nothing.
    """

    def __init__(self, shape: tuple[int, ...], events: list[Event]) -> None:
        self._events = events
        self.excused = 0
        self.writers: Marks = np.zeros(shape, np.int32)
        self.readers: Marks = np.zeros(shape, np.int32)
        self._sets: list[tuple[int, ...]] = [()]
        self._numbers: dict[tuple[int, ...], int] = {(): 0}

    def read(
        self, marks: tuple[Marks, Marks], where: Places, number: int, view: View
    ) -> list[Conflict]:
        """Note that event ``number`` reads ``where`` in this history's ``marks``; returns the conflicts."""
        writers, readers = marks
        updates = (one for one in self._members(readers[where]) if self._events[one].is_atomic)
        found = self._conflicts([*_present(writers[where]), *updates], number, view, was_write=True)
        self._add_member(readers, where, number, view)
        return found

    def write(
        self,
        marks: tuple[Marks, Marks],
        where: Places,
        number: int,
        view: View,
        changes: Callable[[NDArray[np.bool_]], bool] = lambda _: True,
    ) -> list[Conflict]:
        """Note that event ``number`` writes or updates the elements; returns the conflicts. Unless the write
        ``changes`` some of their values, the order of two ordinary writes makes no difference.
        """
        writers, readers = marks
        before = writers[where]
        found = []
        for one in _present(before):
            conflict = self._conflict(one, number, view, was_write=True)
            are_ordinary = self._events[one].is_ordinary and self._events[number].is_ordinary
            if conflict is not None and are_ordinary and not changes(before == one):
                self.excused += 1
                continue
            found += [conflict] if conflict is not None else []
        for is_update, some in groupby(
            self._members(readers[where]), lambda one: self._events[one].is_atomic
        ):
            found += self._conflicts(some, number, view, was_write=is_update)
        if self._events[number].is_atomic:
            writers[where] = np.where(before == 0, number, before)
            self._add_member(readers, where, number, view)
        else:
            writers[where] = number
            readers[where] = 0
        return found

    def numbers(self) -> set[int]:
        """The events recorded for at least one element."""
        return {*_present(self.writers), *self._members(self.readers)}

    def renamed(self, names: Marks) -> tuple[bytes, bytes, list[list[int]]]:
        """The marks with all events renamed; readers by position among the sets of readers, the last part."""
        sets = {
            one: sorted(int(names[each]) for each in self._sets[one])
            for one in _present(self.readers)
        }
        known = sorted(sets.values())
        places = np.zeros(len(self._sets), np.int32)
        for one, members in sets.items():
            places[one] = 1 + known.index(members)
        kind = np.uint8 if len(known) + int(names.max()) < _BYTE else np.int32
        return (
            names.astype(kind)[self.writers].tobytes(),
            places.astype(kind)[self.readers].tobytes(),
            known,
        )

    def _conflicts(
        self, numbers: Iterable[int], number: int, view: View, *, was_write: bool
    ) -> list[Conflict]:
        found = [self._conflict(one, number, view, was_write=was_write) for one in numbers]
        return [one for one in found if one is not None]

    def _members(self, readers: Marks) -> list[int]:
        return sorted({member for one in _present(readers) for member in self._sets[one]})

    def _add_member(self, readers: Marks, where: Places, number: int, view: View) -> None:
        before = readers[where]
        with_number = {
            one: self._with_member(one, number, view) for one in _present(before, least=0)
        }
        names = np.zeros(len(self._sets), np.int32)
        names[list(with_number)] = list(with_number.values())
        readers[where] = names[before]

    def _conflict(self, other: int, number: int, view: View, *, was_write: bool) -> Conflict | None:
        before, now = self._events[other], self._events[number]
        if other == number or (before.is_atomic and now.is_atomic):
            return None
        if not view.knows(before, WHOLE if was_write else READ_ONLY):
            return Conflict(event=before, was_write=was_write)
        is_ordinary = was_write and now.is_async and not before.is_async
        if is_ordinary and before.actor != now.actor and not view.has_fenced(before):
            return Conflict(event=before, was_write=True, lacks_fence=True)
        return None

    def _with_member(self, known: int, number: int, view: View) -> int:
        """The number of the set ``known`` with one more reader or update, less those of its kind before."""
        members, is_atomic = self._sets[known], self._events[number].is_atomic
        if number in members:
            return known
        kept = [
            one
            for one in members
            if self._events[one].is_atomic is not is_atomic
            or not view.knows(self._events[one], WHOLE if is_atomic else READ_ONLY)
        ]
        wanted = (*kept, number)
        if wanted not in self._numbers:
            self._numbers[wanted] = len(self._sets)
            self._sets.append(wanted)
        return self._numbers[wanted]


def _present(marks: Marks, least: int = 1) -> list[int]:
    if not marks.size:
        return []
    first = int(marks.flat[0])
    found = [first] if (marks == first).all() else np.flatnonzero(np.bincount(marks.reshape(-1)))
    return [int(one) for one in found if one >= least]

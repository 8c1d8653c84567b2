"""Records a late run's state at heads of loops: all that decides how it continues, iterations
relative. It has each role's place, barriers, groups and operations in progress, the last accesses
to elements in possible conflict, and who knows of them; values only if they decide what runs.
``recurrence.py`` decides when runs continue alike from equal states.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from tileyard.base.model import Record
from tileyard.ir.asynchronous import Operation
from tileyard.ir.clocks import Event, View
from tileyard.ir.nodes import Expr, Var
from tileyard.ir.trace import TracedRun
from tileyard.sync.control import Control


class Head(Record):
    """A role begins iteration ``index`` of ``loop``; roles are ``inside`` loops, in ``low`` to ``high``."""

    loop: int
    index: int
    low: int
    high: int
    inside: frozenset[int]
    state: bytes


class HeadRun(TracedRun):
    """A late run; with ``control``, ``heads`` has each block's heads of the outermost loops that wait."""

    control: Control | None = None

    def grid(self) -> None:
        """Run all chosen blocks."""
        self.heads: list[list[Head]] = []
        super().grid()

    def _block(self) -> None:
        self.heads.append([])
        super()._block()

    def _iterate(self, var: Var, start: Expr, extent: Expr) -> Iterator[None]:
        control = self.control
        loop = None if control is None else control.loops.get(var.name)
        for _ in super()._iterate(var, start, extent):
            if control is not None and loop is not None:
                head = self._head(loop, int(self._values[var.name]), control)
                self.heads[-1] += [head] if head is not None else []
            yield

    def _head(self, loop: int, index: int, control: Control) -> Head | None:
        """The head; None if another role is in an earlier iteration: that role has heads itself."""
        at = {
            actor: (-1, True) if wait is None else (self._numbers[id(wait.stmt)], wait.is_over())
            for actor, wait in self._waiting.items()
        }
        at[self._actor] = (loop, True)
        names = {name for number, _ in at.values() for name in self._loops.get(number, ())}
        values = {name: int(self._values[name]) for name in names}
        values |= {name: index for name, number in control.loops.items() if number == loop}
        known = {name: value for name, value in values.items() if name in control.loops}
        if index > min(known.values()):
            return None
        places = sorted((actor - self._first, *place) for actor, place in at.items())
        offsets = sorted((name, value - index * (name in known)) for name, value in values.items())
        hasher = hashlib.blake2b(repr((places, offsets)).encode(), digest_size=16)
        for part in self._state(control):
            hasher.update(part if isinstance(part, bytes) else repr(part).encode())
        return Head(
            loop=loop,
            index=index,
            low=min(known.values()),
            high=max(known.values()),
            inside=frozenset(control.loops[name] for name in known),
            state=hasher.digest(),
        )

    def _state(self, control: Control) -> Iterator[object]:
        """The state without roles' places; events and operations are ranked among those that still matter."""
        histories = {
            name: self._histories[name] for name in sorted(self._histories.keys() & control.tracked)
        }
        groups = sorted(self._groups.items())
        numbers = set().union(*(history.numbers() for history in histories.values()))
        numbers |= {
            self._at_operation[one.number]
            for one in self._operations
            if not one.is_done and one.number in self._at_operation
        }
        ranks = {number: rank for rank, number in enumerate(sorted(numbers), 1)}
        names = np.zeros(len(self._events), np.int32)
        names[list(ranks)] = list(ranks.values())
        for name, history in histories.items():
            yield from (name, *history.renamed(names))
        live = [self._events[number] for number in ranks]
        barriers = (*self._barriers.values(), *self._named.values())
        for event in live:
            yield event.actor - self._first, event.moment.number, event.is_atomic, event.is_async
            yield event.operation and self._known[event.operation].is_done
        live += [
            Event(actor=actor, time=time, moment=moment)
            for barrier in barriers
            for actor, time, moment in barrier.passed
        ]
        stmt, last = self._event
        now = (self._actor, self._views[self._actor].times[self._actor])
        is_now = (self._events[last].actor, self._events[last].time) == now
        yield stmt is not None and self._numbers.get(id(stmt)), ranks.get(last), is_now

        def find_ranks(some: Iterable[Operation]) -> list[int]:
            """Ranks; 0 for one in progress that touches nothing relevant; finished ones are left out."""
            known = ((ranks.get(self._at_operation.get(o.number, 0)), o.is_done) for o in some)
            return [rank or 0 for rank, is_done in known if rank or not is_done]

        for (actor, unit), own in groups:
            yield actor - self._first, unit, [*map(find_ranks, (own.open, *own.groups))]
        for ending in self._pending:
            if isinstance(ending, Operation):
                yield find_ranks([ending]), ending.bytes, ending.barrier and ending.barrier.name
            else:
                yield find_ranks(ending.ahead), ending.count, ending.barrier.name
            yield _knowledge(ending.view, live)
        for actor in sorted(actor for actor in self._views if actor >= self._first):
            yield actor - self._first, _knowledge(self._views[actor], live)
        for one in barriers:
            passed = [(actor - self._first, moment.number) for actor, _, moment in one.passed]
            yield one.name, one.expected, one.arrived, one.pending, one.phase % 2, passed
            yield _knowledge(one.gathered, live), _knowledge(one.published, live), bool(one.missed)
        excused = sum(history.excused for history in histories.values())
        yield sorted(self._registers), len(self.hazards), self.conflicts, excused
        yield [(one, self._raw.array(one).tobytes()) for one in sorted(control.counters)]
        yield [
            (name, repr(self._values[name])) for name in sorted(control.held & self._values.keys())
        ]


def _knowledge(view: View | None, live: Sequence[Event]) -> object:
    """What a view knows of each event, and, by its fences, of asynchronous operations."""
    if view is None:
        return None
    knows = [
        view.over.get(one.operation, 0)
        if one.operation
        else view.times.get(one.actor, 0) >= one.time
        for one in live
    ]
    return knows, _knowledge(view.fenced, live), _knowledge(view.own_fence, live)

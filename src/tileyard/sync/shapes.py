"""Chooses small shapes for a check: trip counts to a few more than stages, one long run, ragged
edges. Sizes' effects are found by trying ``measure``. A *driver* is a size, or several that only
change together, that trip counts or the grid depend on; a size that changes tiles is the kernel's
parameter. Plain values only.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

from tileyard.base.model import Record

Sizes = Mapping[str, int]

FAR = 16
"""Factor for a size to find what depends on it: a multiple keeps its divisors."""

MOST_MEASURED = 48
"""Most choices of sizes that are measured for a plan."""

PLAIN_TRIPS = (0, 1, 6)
"""Trip counts of a loop whose iterations do not overlap, besides the two of all loops at rest."""

LONG = 4
"""Iterations of the long run per stage, plus a few more: two roles then return to an earlier state."""

BLOCKS = 2

DEARER = 4
"""The given sizes are checked as well, unless they cost more than this factor times the rest of the plan."""


class Loop(Record):
    """A loop whose iterations wait or overlap: the ``copy``-th of its ``line``. ``trips`` is None
    if data decides; at most ``stages`` iterations are in flight, 0 if none overlap.
    """

    line: int
    copy: int = 0
    trips: int | None = None
    stages: int = 1


class Measured(Record):
    """A kernel at some sizes: ``tiles`` are its own buffers' shapes, ``cost`` a run's in any unit."""

    loops: tuple[Loop, ...]
    grid: tuple[int, ...]
    tiles: tuple[tuple[int, ...], ...] = ()
    cost: float = 1.0

    @property
    def depths(self) -> tuple[int, ...]:
        """Number of stages of each loop."""
        return tuple(loop.stages for loop in self.loops)

    def counts(self) -> dict[object, int]:
        """Trip counts by loop, and extents of the grid by axis."""
        trips = {(loop.line, loop.copy): loop.trips for loop in self.loops}
        known: dict[object, int] = {key: n for key, n in trips.items() if n is not None}
        return {**dict(enumerate(self.grid)), **known}

    def lines_of(self, other: "Measured") -> frozenset[int]:
        """The lines of the loops that run more or less often than in ``other``."""
        before, after = other.counts(), self.counts()
        return frozenset(
            loop.line
            for loop in self.loops
            if before.get((loop.line, loop.copy)) != after.get((loop.line, loop.copy))
        )


Measure = Callable[[dict[str, int]], Measured | None]
"""Measures the kernel at some sizes; None if it refuses them."""


class Instance(Record):
    """Sizes to check. ``shown`` are those that distinguish instances."""

    sizes: dict[str, int]
    shown: dict[str, int]
    cost: float

    @property
    def text(self) -> str:
        """``M=32, K=96``; empty if no size can vary."""
        return ", ".join(f"{name}={value}" for name, value in self.shown.items())


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The instances to check, the cheapest first; ``refused`` are wanted sizes that the kernel does not
    accept. ``is_cut``: more were wanted than could be measured. ``stretches`` are for further trip counts.
    """

    instances: tuple[Instance, ...]
    refused: tuple[Instance, ...] = ()
    is_cut: bool = False
    stretches: tuple["Stretch", ...] = ()


@dataclass(frozen=True, kw_only=True)
class Stretch:
    """One loop, and those that run as often: planned ``trips``; ``at`` gives sizes for any count, or None."""

    trips: tuple[int, ...]
    at: Callable[[int], Instance | None]


def plan_instances(sizes: Sizes, measure: Measure, *, are_given: bool = True) -> Plan:
    """Plans small sizes, perhaps these if they ``are_given``; ValueError if the kernel refuses ``sizes``."""
    return _Planner(sizes, measure).plan(are_given=are_given)


@dataclass(frozen=True, kw_only=True)
class _Driver:
    """``names`` change together. ``units`` has the growth that adds one to each count."""

    names: tuple[str, ...]
    value: int
    units: dict[object, int] = field(default_factory=dict)

    def at(self, value: int) -> dict[str, int]:
        return dict.fromkeys(self.names, value)


class _Planner:
    def __init__(self, sizes: Sizes, measure: Measure) -> None:
        self._measure = measure
        self._known: dict[tuple[tuple[str, int], ...], Measured | None] = {}
        self._refused: list[dict[str, int]] = []
        self._is_cut = False
        self._most = MOST_MEASURED
        self._sizes = dict(sizes)
        found = self._at(self._sizes)
        if found is None:
            raise ValueError("the kernel does not take its own sizes")
        self._base = found

    def plan(self, *, are_given: bool) -> Plan:
        drivers = list(self._drivers())
        rest = dict(self._sizes)
        for driver in drivers:
            rest |= self._rest(driver, rest)
        chosen = [rest]
        for driver in drivers:
            varied = [{**rest, **driver.at(value)} for value in self._values(driver, rest)]
            chosen += [*varied, *self._ragged(driver, [rest, *varied[:-1]][-1])]
        names = [name for driver in drivers for name in driver.names]
        instances = sorted(self._instances(chosen, names), key=lambda one: one.cost)
        affordable = DEARER * sum(one.cost for one in instances)
        if are_given and (self._base.cost <= affordable or not instances):
            chosen.append(self._sizes)
            instances = sorted(self._instances(chosen, names), key=lambda one: one.cost)
        refused = tuple(self._instances(self._refused, names))
        stretches = tuple(self._stretches(drivers, rest, names))
        return Plan(
            instances=tuple(instances), refused=refused, is_cut=self._is_cut, stretches=stretches
        )

    def _stretches(
        self, drivers: list[_Driver], rest: dict[str, int], names: list[str]
    ) -> Iterator[Stretch]:
        for driver in drivers:
            key = next((key for key in driver.units if self._stages(key)), None)
            if key is not None:
                yield Stretch(
                    trips=self._trips(key), at=partial(self._instance, driver, key, rest, names)
                )

    def _instance(
        self, driver: _Driver, key: object, rest: dict[str, int], names: list[str], trips: int
    ) -> Instance | None:
        self._most = sys.maxsize  # there are only a few of these
        value = self._solve(driver, key, trips, rest)
        sizes = [] if value is None else [{**rest, **driver.at(value)}]
        return next(self._instances(sizes, names), None)

    def _instances(self, chosen: list[dict[str, int]], names: list[str]) -> Iterator[Instance]:
        """Each of the sizes once, without those that have no block to run."""
        for sizes in {tuple(one.items()): one for one in chosen}.values():
            found = self._at(sizes)
            if found is None or 0 not in found.grid:
                cost = 0.0 if found is None else found.cost
                shown = {name: sizes[name] for name in names}
                yield Instance(sizes=sizes, shown=shown, cost=cost)

    def _at(self, sizes: dict[str, int]) -> Measured | None:
        key = tuple(sorted(sizes.items()))
        if key not in self._known:
            if len(self._known) >= self._most:
                self._is_cut = True
                return None
            self._known[key] = self._measure(sizes)
        return self._known[key]

    # ---- what depends on what ---------------------------------------------------------------

    def _drivers(self) -> Iterator[_Driver]:
        alone: dict[int, list[str]] = {}
        for name, value in self._sizes.items():
            driver = self._probe((name,), value)
            if driver is None and value:
                alone.setdefault(value, []).append(name)
            elif driver is not None and driver.units:
                yield driver
        for value, names in alone.items():
            together = self._probe(tuple(names), value) if len(names) > 1 else None
            if together is not None and together.units:
                yield together

    def _probe(self, names: tuple[str, ...], value: int) -> _Driver | None:
        """The driver ``names``; None if they cannot change, without units if they are not sizes."""
        units: dict[object, int] = {}
        can_change = False
        for other in (value * FAR if value else FAR, 2 * value, value // FAR):
            found = None
            if other != value and (other < value or not can_change):
                found = self._at({**self._sizes, **dict.fromkeys(names, other)})
            if found is None:
                continue
            can_change = True
            before, after = self._base.counts(), found.counts()
            if found.tiles != self._base.tiles or before.keys() != after.keys():
                return _Driver(names=names, value=value)
            for key, count in before.items():
                grows = (after[key] - count) * (other - value) > 0
                if grows and key not in units:
                    units[key] = max(1, round((other - value) / (after[key] - count)))
        return _Driver(names=names, value=value, units=units) if can_change else None

    # ---- which values -----------------------------------------------------------------------

    def _stages(self, key: object) -> int | None:
        """The stages of a loop; None if the key is an axis of the grid."""
        known = {(loop.line, loop.copy): loop.stages for loop in self._base.loops}
        return known.get(key)  # type: ignore[call-overload,no-any-return]

    def _rest(self, driver: _Driver, others: dict[str, int]) -> dict[str, int]:
        """The smallest values that give two blocks and two trips of each loop, or a few more."""
        for count in (BLOCKS, 2 * BLOCKS, 4 * BLOCKS):
            values = [self._solve(driver, key, count, others) for key in driver.units]
            known = [value for value in values if value is not None]
            if known:
                return driver.at(max(known))
        return {}

    def _values(self, driver: _Driver, rest: dict[str, int]) -> Iterator[int]:
        """The values that give each loop each trip count up to a few above its stages, and one long run."""
        for key in driver.units:
            for trips in self._trips(key):
                value = self._solve(driver, key, trips, rest, wanted=True)
                if value is not None:
                    yield value

    def _trips(self, key: object) -> tuple[int, ...]:
        stages = self._stages(key)
        if stages is None:
            return ()
        return (*range(stages + 3), LONG * stages + 2) if stages else PLAIN_TRIPS

    def _solve(
        self,
        driver: _Driver,
        key: object,
        count: int,
        others: dict[str, int],
        *,
        wanted: bool = False,
    ) -> int | None:
        """The value of ``driver`` for this count of a loop or axis; None if none is found. Guesses
        follow from known counts, then from the last one's error, in smaller steps.
        """
        unit = driver.units[key]
        value = driver.value // unit * unit + (count - self._base.counts()[key]) * unit
        for attempt in range(3):
            value = max(value, 0)
            sizes = {**others, **driver.at(value)}
            found = self._at(sizes)
            if found is None:
                if wanted and not self._is_cut:
                    self._refused.append(sizes)
                return None
            off = count - found.counts().get(key, count)
            if not off:
                return value
            value += off * max(unit >> attempt, 1)
        return None

    def _ragged(self, driver: _Driver, sizes: dict[str, int]) -> Iterator[dict[str, int]]:
        """Sizes with the last tile partly outside, if the kernel then has the same number of tiles."""
        unit = max(driver.units.values())
        before = self._at(sizes)
        smaller = {**sizes, **driver.at(sizes[driver.names[0]] - unit // 2)}
        found = self._at(smaller) if unit > 1 and before is not None else None
        if found is not None and before is not None and found.counts() == before.counts():
            yield smaller

"""The base of strategies that learn: which points are left, which are under way, how others ended; and
features, samples and neighbours of places in a space, of which no list is made.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tileyard.base.model import INFRASTRUCTURE, WELL, Outcome, Trial, Value
from tileyard.verbs.tune.plan.strategies.base import Config, Points, unique

Places = NDArray[np.int64]
"""Places of points, one per row, as ``Points.split`` returns them."""
Floats = NDArray[np.float64]

MOST_INDICATORS: Final = 16
"""Values of a non-numeric parameter that have a feature each; more share as many random features."""
MOST_MOVES: Final = 48
"""Moves per dimension and place that neighbours are made of."""
SAME_SCALE: Final = 0.05
"""Logarithms that differ by less from the ranks of their values are no feature of their own."""


@dataclass(frozen=True, kw_only=True)
class _Parameter:
    """The values of one parameter: features per value, and whether they have an order."""

    codes: dict[tuple[type, object], int]
    features: tuple[Floats, ...]
    is_ordered: bool


class _Dimension:
    """One index of a place: its features, and which indexes are near each other."""

    def __init__(self, parameters: Sequence[_Parameter], codes: Places) -> None:
        tables = [
            (one, features[column])
            for one, column in zip(parameters, codes.T, strict=True)
            for features in one.features
        ]
        self.length = len(codes)
        self.features = np.hstack([np.empty((len(codes), 0)), *(table for _, table in tables)])
        self.widths = [table.shape[1] for _, table in tables]
        self._codes = codes
        self._moves: dict[int, tuple[Places, Places, Places]] = {}
        self._is_ordered = np.array([one.is_ordered for one in parameters], dtype=bool)

    @property
    def parameters(self) -> list[tuple[int, bool]]:
        """The number of values of each parameter, and whether they have an order."""
        counts = self._codes.max(axis=0, initial=0) + 1
        return list(zip(map(int, counts), map(bool, self._is_ordered), strict=True))

    def codes_of(self, index: int) -> list[int]:
        """The code of each parameter's value: its rank, if values have an order."""
        return list(map(int, self._codes[index]))

    def index_near(self, codes: Sequence[int]) -> int:
        """The index whose codes differ least from these; an order's ends are as far apart as two others."""
        away = np.abs(self._codes - np.array(codes, dtype=np.int64))
        spans = np.maximum(self._codes.max(axis=0, initial=0), 1)
        return int(np.where(self._is_ordered, away / spans, away != 0).sum(axis=1).argmin())

    def moves_from(self, index: int) -> tuple[Places, Places, Places]:
        """Indexes that differ by one step in one parameter, by more in one, and by one step in two."""
        if index not in self._moves:
            self._moves[index] = self._find_moves(index)
        return self._moves[index]

    def _find_moves(self, index: int) -> tuple[Places, Places, Places]:
        away = np.abs(self._codes - self._codes[index])
        steps = np.where(self._is_ordered, np.minimum(away, 2), away != 0)
        changed, total = (away != 0).sum(axis=1), steps.sum(axis=1)
        near = np.flatnonzero((changed == 1) & (total == 1))
        far = np.flatnonzero((changed == 1) & (total == 2))
        return near, far, np.flatnonzero((changed == 2) & (total == 2))


class Encoding:
    """Features of the places of a space, each between 0 and 1; ``groups`` numbers those of one scale."""

    def __init__(self, points: Points) -> None:
        self._points = points
        self._dimensions = [_make_axis(values) for values in points.axes.values()]
        if points.listed:
            self._dimensions.insert(0, _make_listed(points.listed))
        widths = [width for one in self._dimensions for width in one.widths]
        self.groups = np.repeat(np.arange(len(widths)), widths)

    @property
    def parameters(self) -> list[tuple[int, bool]]:
        """The number of values of each parameter, and whether they have an order."""
        return [one for dimension in self._dimensions for one in dimension.parameters]

    def codes_of(self, number: int) -> list[int]:
        """A code for the value of each parameter of a point: its rank, if the values have an order."""
        (place,) = self.places_of([number])
        pairs = zip(self._dimensions, place, strict=True)
        return [code for one, index in pairs for code in one.codes_of(int(index))]

    def number_near(self, codes: Sequence[int]) -> int:
        """The number of a valid point whose values have these codes, or are near."""
        place, start = [], 0
        for one in self._dimensions:
            stop = start + len(one.parameters)
            place.append(one.index_near(codes[start:stop]))
            start = stop
        return self._points.join(place)

    def features_of(self, places: Places) -> Floats:
        """One row of features per place."""
        columns = [
            one.features[column] for one, column in zip(self._dimensions, places.T, strict=True)
        ]
        return np.hstack([np.empty((len(places), 0)), *columns])

    def numbers_of(self, places: Places) -> list[int]:
        """The numbers of the points at these places, or of valid ones near them."""
        return self._points.join_all(places)

    def places_of(self, numbers: Sequence[int]) -> Places:
        """The places of the points with these numbers."""
        return self._points.split_all(numbers)

    def sample(self, generator: np.random.Generator, count: int) -> list[int]:
        """The numbers of random points, which may repeat."""
        size = self._points.size
        if size <= np.iinfo(np.int64).max:
            return list(map(int, generator.integers(0, size, size=count)))
        bits = -(-size.bit_length() // 8) + 8  # so many that the remainder is as good as uniform
        return [int.from_bytes(generator.bytes(bits)) % size for _ in range(count)]

    def find_neighbours(self, place: Places, generator: np.random.Generator) -> list[Places]:
        """Places near one, by kind: one step in one parameter, any other value of one, one step in two."""
        moves = [one.moves_from(int(at)) for one, at in zip(self._dimensions, place, strict=True)]
        kept = [[_thin(indexes, generator) for indexes in three] for three in moves]
        near, far, double = (
            [_move(place, [(at, three[kind])]) for at, three in enumerate(kept)]
            for kind in range(3)
        )
        pairs = combinations([(at, three[0]) for at, three in enumerate(kept)], 2)
        double += [_move(place, pair) for pair in pairs]
        return [
            np.vstack([place[:0].reshape(0, len(place)), *kind]) for kind in (near, far, double)
        ]


def _thin(indexes: Places, generator: np.random.Generator) -> Places:
    if len(indexes) <= MOST_MOVES:
        return indexes
    return generator.choice(indexes, MOST_MOVES, replace=False)


def _move(place: Places, changes: Sequence[tuple[int, Places]]) -> Places:
    """The place with each combination of other indexes in these dimensions."""
    grids = np.meshgrid(*(indexes for _, indexes in changes), indexing="ij")
    moved = np.repeat(place[None], grids[0].size, axis=0)
    for (dimension, _), grid in zip(changes, grids, strict=True):
        moved[:, dimension] = grid.ravel()
    return moved


def _make_axis(values: Sequence[Value]) -> _Dimension:
    parameter = _describe(values)
    codes = [parameter.codes[type(value), value] for value in values]
    return _Dimension([parameter], np.array(codes, dtype=np.int64)[:, None])


def _make_listed(listed: Sequence[Config]) -> _Dimension:
    """All parameters of the listed configs; one that a config lacks counts as a value of its own."""
    names = unique([name for config in listed for name in config])
    columns = [[config.get(str(name)) for config in listed] for name in names]
    parameters = [_describe(column) for column in columns]
    codes = [
        [one.codes[type(value), value] for value in column]
        for one, column in zip(parameters, columns, strict=True)
    ]
    return _Dimension(
        parameters, np.array(codes, dtype=np.int64).reshape(len(names), len(listed)).T
    )


def _describe(values: Sequence[Value | None]) -> _Parameter:
    """Numbers have their rank and, where it says more, their logarithm; others an indicator per value."""
    distinct = list({(type(value), value): value for value in values}.values())
    numbers = [one for one in distinct if isinstance(one, int | float) and type(one) is not bool]
    is_ordered = len(numbers) == len(distinct)
    if is_ordered:
        distinct = [*sorted(numbers)]
    codes: dict[tuple[type, object], int] = {
        (type(value), value): code for code, value in enumerate(distinct)
    }
    count = len(distinct)
    features: list[Floats] = []
    if is_ordered or count == 2:
        ranks = np.arange(count) / max(1, count - 1)
        features = [ranks[:, None]] if count > 1 else []
        if is_ordered and count > 2 and min(numbers) > 0:
            logs = np.log2(np.array(sorted(numbers), dtype=float))
            logs = (logs - logs[0]) / (logs[-1] - logs[0] or 1.0)
            features += [logs[:, None]] if np.abs(logs - ranks).max() > SAME_SCALE else []
    elif count <= MOST_INDICATORS:
        features = [np.eye(count) * math.sqrt(0.5)]
    else:
        spread = np.random.default_rng(0).normal(size=(count, MOST_INDICATORS))
        features = [spread / math.sqrt(2 * MOST_INDICATORS)]
    return _Parameter(codes=codes, features=tuple(features), is_ordered=is_ordered)


MOST_PROPOSED: Final = 1 << 20
"""Proposals after which a strategy is exhausted, however large the space is."""
MOST_HINTS: Final = 5
"""Points that earlier runs found best and this study tries first."""
UNKNOWN: Final = INFRASTRUCTURE | {Outcome.NOT_RUN, Outcome.SKIPPED}
"""Outcomes, if nothing was measured, that show nothing about a config."""


class Proposing:
    """Proposes points one by one, as ``_choose`` does, and remembers them.

    ``_times`` are logarithms of times in ns by number of a point, ``_failed`` the points that have none:
    those that failed, and those that the kernel's ``where`` rejects.
    """

    learns = True

    def __init__(self, points: Points, *, seed: int) -> None:
        self._points = points
        self._encoding = Encoding(points)
        self._generator = np.random.default_rng(seed)
        self._times: dict[int, float] = {}
        self._failed: dict[int, None] = {}
        self._under_way: dict[int, None] = {}
        self._proposed: set[int] = set()
        self._most = min(points.size, MOST_PROPOSED)
        self._is_small = points.size <= 2 * MOST_PROPOSED
        self._left: NDArray[np.int64] = np.arange(points.size if self._is_small else 0)
        self._is_left = np.ones(len(self._left), dtype=bool)
        self._hinted: dict[int, None] = {}
        self._hints = MOST_HINTS

    @property
    def expected_gain(self) -> float | None:
        """Not known, unless there is a model."""
        return None

    @property
    def is_exhausted(self) -> bool:
        """Whether all points of the space, or of a large one very many, were proposed."""
        return len(self._proposed) >= self._most

    def ask(self, limit: int) -> Sequence[Config]:
        """The next configs, at most ``limit``: first those that earlier runs found best."""
        numbers: list[int] = []
        while len(numbers) < limit and not self.is_exhausted:
            number = self._next_hint()
            number = self._choose() if number is None else number
            self._proposed.add(number)
            self._under_way[number] = None
            if self._is_small:
                self._is_left[number] = False
            numbers.append(number)
        return [self._points.config_at(number) for number in numbers]

    def tell(self, trial: Trial) -> None:
        """Learn a time, or that there is none."""
        number = self._points.find(trial.config)
        if number is None:
            return
        self._under_way.pop(number, None)
        if trial.outcome in WELL and trial.measurement is not None:
            self._failed.pop(number, None)
            self._times[number] = math.log(max(trial.measurement.median_ns, 1e-3))
            if number not in self._proposed:
                self._hinted[number] = None
        elif trial.outcome not in UNKNOWN:
            self._times.pop(number, None)
            self._failed[number] = None
        self._notice(number)

    def reject(self, config: Config) -> None:
        """Learn that a config cannot be tried."""
        number = self._points.find(config)
        if number is not None:
            self._under_way.pop(number, None)
            self._failed[number] = None
            self._notice(number)

    def _choose(self) -> int:
        """The number of the next point, one that is left."""
        raise NotImplementedError

    def _notice(self, number: int) -> None:
        """The result of this point is new."""

    def _draw(self, count: int) -> list[int]:
        """At most ``count`` different points that are left, at random; at least one unless exhausted."""
        if self._is_small:
            self._left = self._left[self._is_left[self._left]]
            count = min(count, len(self._left))
            return list(map(int, self._generator.choice(self._left, count, replace=False)))
        found: list[int] = []
        while not found:
            found = self._keep_left(self._encoding.sample(self._generator, count))
        return found

    def _keep_left(self, numbers: Sequence[int]) -> list[int]:
        """Those that were not proposed, each once."""
        return [number for number in dict.fromkeys(numbers) if number not in self._proposed]

    def _next_hint(self) -> int | None:
        """The best point that only an earlier run has tried, as long as there were few of them."""
        hinted = [one for one in self._hinted if one in self._times and one not in self._proposed]
        if not hinted or not self._hints:
            self._hinted.clear()
            return None
        self._hints -= 1
        return min(hinted, key=self._times.__getitem__)

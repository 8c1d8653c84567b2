"""Bayesian optimisation of what a model of costs leaves open: a Program says what it costs before it runs. In
the model each amount of ``ir/work.py`` has a time of its own.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from tileyard.base.model import Value
from tileyard.verbs.tune.plan.strategies.base import OF_BINARIES, Config, Points, Subject, Work
from tileyard.verbs.tune.plan.strategies.bayes import CENTRES, FIRST, GROWTH, Bayes
from tileyard.verbs.tune.plan.strategies.gaussian import Floats

CACHES_BYTES: Final = {"beyond_first": 32 << 10, "beyond_second": 512 << 10}
"""Bytes of the caches of a core, by the name of the accesses to tiles that exceed them."""
STEEPNESS: Final = 2.0
"""How fast their share rises with the logarithm of the bytes of all tiles."""
USUAL_NS: Final = {
    "product_flops": 0.004,
    "products": 10.0,
    "left": 0.02,
    "right": 0.02,
    "sums": 0.02,
    "operations": 0.01,
    "functions": 0.1,
    "conversions": 0.03,
    "steps": 2.0,
    "rows": 1.0,
    "lines": 0.3,
    "evicted": 2.0,
    "guarded": 0.1,
    "accesses": 0.005,
    "strided": 0.1,
    "blocks": 10.0,
    "beyond_first": 0.005,
    "beyond_second": 0.02,
    "spills": 0.01,
    "waits": 0.02,
}
"""What each amount costs, as a guess that no trial has changed."""
USUAL: Final[Floats] = np.log(list(USUAL_NS.values()))
LARGEST: Final = 1e30
"""A larger amount, or one below its inverse, is none of a launch, but of a foreign tuner's file."""
CERTAINTY: Final = 0.02
"""Weight of this guess beside the squared errors of logarithms of times."""


def list_amounts(work: Mapping[str, Value], units: int) -> list[float]:
    """Amounts that cost time, in the order of USUAL_NS, of the core or multiprocessor with most blocks; none
    if that is not known. Threads of a binary write and read its ``spilled_bytes`` each, and with a low
    ``occupancy`` fewer lines are waited for at once.
    """
    known = {
        name: float(value)
        for name, value in work.items()
        if isinstance(value, int | float) and 1 / LARGEST < value < LARGEST
    }
    tiles = known.get("shared_tile_bytes", 0.0) + known.get("private_tile_bytes", 0.0)
    for name, cache in CACHES_BYTES.items():
        known[name] = known.get("accesses", 0.0) / (1 + (cache / max(tiles, 1.0)) ** STEEPNESS)
    spilled_bytes = known.get("spilled_bytes", 0.0)
    known["spills"] = known.get("blocks", 0.0) * known.get("threads", 0.0) * spilled_bytes
    known["waits"] = known.get("lines", 0.0) * (1 / min(known.get("occupancy", 1.0), 1.0) - 1)
    if (blocks := known.get("blocks", 0.0)) < 1:
        return []
    share = math.ceil(blocks / units) / blocks
    return [share * known.get(name, 0.0) for name in USUAL_NS]


def predict(amounts: Floats, costs: Floats) -> Floats:
    """The logarithms of times in ns, from rows of amounts and the logarithms of what they cost."""
    result: Floats = np.log(np.maximum(amounts @ np.exp(costs), 1.0))
    return result


def learn(spaces: Sequence[tuple[Floats, Floats]], usual: Floats = USUAL) -> Floats:
    """The logarithms of what amounts cost, ``usual`` before anything is known, from amounts and logarithms of
    times of each space: how its configs differ counts, not how long all take. One that takes twice the best
    time counts half.
    """
    weights = [np.exp(times.min() - times) for _, times in spaces]
    weights = [one / one.sum() for one in weights]

    def loss(costs: Floats) -> tuple[float, Floats]:
        value, slope = 0.0, np.zeros_like(costs)
        for (amounts, times), weight in zip(spaces, weights, strict=True):
            parts = amounts * np.exp(costs)
            totals = parts.sum(axis=1)
            away = np.log(totals) - times
            away -= weight @ away
            shares = parts / totals[:, None]
            value += float(weight @ (away * away))
            slope += 2 * ((weight * away) @ (shares - weight @ shares))
        beyond = costs - usual
        return value + CERTAINTY * float(beyond @ beyond), slope + 2 * CERTAINTY * beyond

    found: Floats = minimize(loss, usual, jac=True, method="L-BFGS-B").x
    return found


MOST_FORESEEN: Final = 2000
"""Configs whose work is known, at most."""
MOST_ASKED: Final = 4 * MOST_FORESEEN
"""Configs whose work is asked for, at most: ``where`` may reject many."""
MOST_SPREAD: Final = 500
"""Random ones among them; the others are near the best."""
NEAREST: Final = 3
"""Configs of known work from which that of another one is guessed."""


class Model(Bayes):
    """Proposes as ``bayes``, which learns only the difference from what a model of costs expects.

    The work of each config's Program is counted while others are tried. What its amounts cost is learnt from
    results, of this study and of other arguments and devices. A config whose work is not known yet is
    expected to take as long as those most alike. With a second measure nothing is expected.
    """

    def __init__(self, points: Points, *, trials: int, seed: int, costs: Floats = USUAL) -> None:
        """``costs`` are those in which it believes before it learns any, as logarithms."""
        super().__init__(points, trials=trials, seed=seed)
        self._units = 1
        self._foreseer = np.random.default_rng((seed, 1))  # other draws than the search
        self._asked: set[int] = set()
        self._works: dict[int, Work] = {}
        self._rows: dict[int, int] = {}
        """By the numbers of points whose work is known, their rows in what follows."""
        self._waiting: list[int] = []
        """Those that have no rows yet."""
        self._binaries: dict[int, dict[str, float]] = {}
        """What is known of built ones beside their work."""
        self._known = np.empty((0, len(USUAL)))
        self._features = self._features_of([])
        self._expected = np.empty(0)
        self._elsewhere: list[tuple[Floats, Floats]] = []
        self._usual = self._costs = costs
        self._learn_at = FIRST

    def begin_with(self, units: int, subjects: Sequence[Subject]) -> None:
        """See ``Foresees``."""
        self._units = units
        for own, timed in subjects:
            pairs = [(list_amounts(work, own), time_ns) for work, time_ns in timed]
            known = [(one, math.log(max(time_ns, 1e-3))) for one, time_ns in pairs if one]
            if len(known) >= FIRST:
                amounts, times = zip(*known, strict=True)
                self._elsewhere.append((np.array(amounts), np.array(times)))
        if self._elsewhere:
            self._costs = learn(self._elsewhere, self._usual)

    def list_unforeseen(self, limit: int) -> Sequence[Config]:
        """First neighbours of the best, then others at random. See ``Foresees``."""
        numbers: dict[int, None] = {}
        is_over = len(self._rows) >= MOST_FORESEEN or len(self._asked) >= MOST_ASKED
        room = 0 if is_over or self._amount else limit
        known = self._asked | self._proposed | self._failed.keys() | self._rows.keys()
        for find in (self._list_near, self._list_random):
            if len(numbers) < room:
                numbers |= dict.fromkeys(one for one in find() if one not in known)
        chosen = list(numbers)[:room]
        self._asked.update(chosen)
        return [self._points.config_at(number) for number in chosen]

    def foresee(self, config: Config, work: Work) -> None:
        """See ``Foresees``."""
        number = self._points.find(config)
        if number is None or not list_amounts(work, self._units):
            return
        given = {name: work.get(name) for name in OF_BINARIES}
        binary = {k: v for k, v in given.items() if isinstance(v, int | float) and 0 <= v < LARGEST}
        if binary:
            self._binaries[number] = OF_BINARIES | binary
        self._works[number] = work
        if number not in self._rows:
            self._waiting.append(number)
            self._rows[number] = len(self._rows)

    def rank(self, work: Work) -> float | None:
        """By the time that is expected. See ``Foresees``."""
        amounts = list_amounts(work, self._units)
        return float(predict(np.array([amounts]), self._costs)[0]) if amounts else None

    def _list_amounts(self, numbers: Sequence[int]) -> Floats:
        """One row per point of known work; what is not known of its binary is guessed from others."""
        guessed = self._guess_binaries([one for one in numbers if one not in self._binaries])
        binaries = self._binaries | guessed
        works = ({**self._works[one], **binaries.get(one, {})} for one in numbers)
        return np.array([list_amounts(work, self._units) for work in works])

    def _list_near(self) -> list[int]:
        best = sorted(self._times, key=self._times.__getitem__)[:CENTRES]
        places = [
            place
            for one in self._encoding.places_of(best)
            for place in self._encoding.find_neighbours(one, self._foreseer)
        ]
        return self._encoding.numbers_of(np.vstack(places)) if places else []

    def _list_random(self) -> list[int]:
        size = self._points.size
        if size <= MOST_SPREAD:
            return list(map(int, self._foreseer.permutation(size)))
        if len(self._rows) >= MOST_SPREAD:
            return []
        return self._encoding.sample(self._foreseer, MOST_SPREAD)

    def _choose(self) -> int:
        if self._waiting:
            self._known = np.vstack([self._known, self._list_amounts(self._waiting)])
            self._features = np.vstack([self._features, self._features_of(self._waiting)])
            self._waiting.clear()
            self._expected = predict(self._known, self._costs)
        timed = [one for one in self._times if one in self._rows]
        if len(timed) >= self._learn_at:
            self._learn_at = math.ceil(len(timed) * GROWTH)
            if self._binaries:
                self._known = self._list_amounts(list(self._rows))
            rows = self._known[[self._rows[one] for one in timed]]
            times = np.array([self._times[one] for one in timed])
            self._costs = learn([*self._elsewhere, (rows, times)], self._usual)
            self._expected = predict(self._known, self._costs)
        return super()._choose()

    def _expect(self, numbers: Sequence[int]) -> Floats:
        if self._amount is not None or not len(self._expected):
            return super()._expect(numbers)
        expected = np.empty(len(numbers))
        rows = np.array([self._rows.get(number, -1) for number in numbers])
        is_known = (rows >= 0) & (rows < len(self._expected))
        expected[is_known] = self._expected[rows[is_known]]
        others = [number for number, known in zip(numbers, is_known, strict=True) if not known]
        expected[~is_known] = self._guess(others)
        return expected

    def _guess(self, numbers: Sequence[int]) -> Floats:
        """The mean of what is expected of those most alike."""
        nearest = _find_nearest(self._features_of(numbers), self._features)
        result: Floats = self._expected[nearest].mean(axis=1)
        return result

    def _guess_binaries(self, numbers: Sequence[int]) -> dict[int, dict[str, float]]:
        """The means of what is known of the built ones most alike; nothing if nothing is."""
        built = list(self._binaries)
        if not built or not numbers:
            return {}
        nearest = _find_nearest(self._features_of(numbers), self._features_of(built))
        known = np.array([list(self._binaries[one].values()) for one in built])
        means = known[nearest].mean(axis=1).tolist()
        rows = (dict(zip(OF_BINARIES, row, strict=True)) for row in means)
        return dict(zip(numbers, rows, strict=True))


def _find_nearest(features: Floats, known: Floats) -> NDArray[np.int64]:
    """For each row the NEAREST known rows that are most alike, or all."""
    away = np.square(known).sum(axis=1) - 2 * features @ known.T  # up to a constant per row
    count = min(NEAREST, len(known))
    return np.argpartition(away, count - 1, axis=1)[:, :count]

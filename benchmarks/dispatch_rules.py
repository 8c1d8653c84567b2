"""How often a shape that was never tuned gets a config within 1 % of its best, by the rule that chooses it.

    python benchmarks/dispatch_rules.py [TABLE]

TABLE is as in dispatch_cover.py: the configs that are fast enough, for each shape. Some shapes are left out,
the others are tuned, and each rule chooses configs for those left out. A tuned shape has one config: a random
one of its list, as if it had won; or that of a dispatch table, the one of the table that serves most shapes.

Columns: one shape is left out; a quarter of all; a half; all shapes with one value of an argument
(--argument); the same with a dispatch table; and how often a rule is the best one if it is chosen on a half
of the shapes, each left out in turn.
"""

import argparse
import csv
import gzip
import math
import random
import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from dispatch_cover import CONFIG, MEASURED, TABLE
from numpy.typing import NDArray

from tileyard.show.values import parse_value
from tileyard.store.choices import measure_distance
from tileyard.verbs.tune.plan.table import choose_greedily

WEIGHTS = (0.5, 1.0, 2.0)
"""What an argument's logarithm is multiplied by, where weights are learnt."""
QUARTERS = 5
"""Random divisions of the shapes into four parts, and into halves."""


@dataclass(frozen=True)
class Shapes:
    """Shapes, the names of configs that serve each, and the distances of all pairs.

    ``ours`` are those of Tileyard. ``apart`` has one matrix per number: the difference of its logarithms to
    base 2; ``barred`` is infinite where other values differ.
    """

    arguments: list[dict[str, object]]
    served: list[frozenset[str]]
    ours: NDArray[np.float64]
    apart: NDArray[np.float64]
    barred: NDArray[np.float64]


@dataclass(frozen=True)
class Fold:
    """The shapes that are tuned, by number, each with its config; and those that are left out."""

    tuned: list[int]
    configs: list[str]
    left: list[int]


Rule = Callable[[Shapes, Fold], list[str]]
"""The configs for the shapes that are left out."""


def read_shapes(path: Path) -> Shapes:
    """The shapes of a table."""
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as lines:
        rows = list(csv.DictReader(lines))
    keys = [key for key in rows[0] if key not in (*CONFIG, *MEASURED)]
    found: dict[tuple[str, ...], set[str]] = {}
    for row in rows:
        config = ",".join(f"{key}={row[key]}" for key in CONFIG)
        found.setdefault(tuple(row[key] for key in keys), set()).add(config)
    arguments = [dict(zip(keys, map(parse_value, shape), strict=True)) for shape in found]
    names = [key for key in keys if not isinstance(arguments[0][key], str)]
    logs = np.log2([[one[key] for key in names] for one in arguments]).T
    others = [tuple(one[key] for key in keys if key not in names) for one in arguments]
    return Shapes(
        arguments=arguments,
        served=list(map(frozenset, found.values())),
        ours=np.array([[measure_distance(one, other) for other in arguments] for one in arguments]),
        apart=np.abs(logs[:, :, None] - logs[:, None, :]),
        barred=np.array([[0.0 if a == b else math.inf for b in others] for a in others]),
    )


# ---- rules -------------------------------------------------------------------------------------


def follow(distances: NDArray[np.float64], fold: Fold, count: int = 1) -> list[str]:
    """The config that most of the ``count`` nearest shapes have; of equally many the nearer one's."""
    chosen = []
    for shape in fold.left:
        order = np.argsort(distances[shape, fold.tuned], kind="stable")[:count]
        chosen.append(Counter(fold.configs[place] for place in order).most_common(1)[0][0])
    return chosen


def nearest(shapes: Shapes, fold: Fold) -> list[str]:
    """Tileyard's rule."""
    return follow(shapes.ours, fold)


def nearest_squared(shapes: Shapes, fold: Fold) -> list[str]:
    """By the Euclidean distance of logarithms."""
    return follow(np.sqrt((shapes.apart**2).sum(axis=0)) + shapes.barred, fold)


def nearest_linear(shapes: Shapes, fold: Fold) -> list[str]:
    """By the Euclidean distance of sizes, each divided by its deviation."""
    sizes = np.array(
        [[v for v in one.values() if not isinstance(v, str)] for one in shapes.arguments]
    )
    scaled = sizes / sizes[fold.tuned].std(axis=0)
    apart = np.sqrt(((scaled[:, None] - scaled[None]) ** 2).sum(axis=2))
    return follow(apart + shapes.barred, fold)


def majority(count: int) -> Rule:
    """Of some nearest shapes."""
    return lambda shapes, fold: follow(shapes.ours, fold, count)


def lists(count: int) -> Rule:
    """The config in the lists of most of some nearest shapes; of equally many that of the nearest shapes."""

    def choose(shapes: Shapes, fold: Fold) -> list[str]:
        chosen = []
        for shape in fold.left:
            order = np.argsort(shapes.ours[shape, fold.tuned], kind="stable")[:count]
            near = [fold.tuned[place] for place in order]
            votes = Counter(name for one in near for name in sorted(shapes.served[one]))
            most = max(votes.values())
            names = sorted(name for name, number in votes.items() if number == most)
            own = fold.configs[order[0]]
            chosen.append(own if own in names else names[0])
        return chosen

    return choose


def weighted(shapes: Shapes, fold: Fold) -> list[str]:
    """By a weighted sum, with the weights that serve most of the tuned shapes, each left out in turn."""
    weights = np.ones(len(shapes.apart))
    serves = np.array(
        [[config in shapes.served[shape] for config in fold.configs] for shape in fold.tuned]
    )
    inside = np.ix_(range(len(weights)), fold.tuned, fold.tuned)
    apart, barred = shapes.apart[inside], shapes.barred[np.ix_(fold.tuned, fold.tuned)]
    barred = barred + np.diag(np.full(len(fold.tuned), math.inf))

    def count(tried: NDArray[np.float64]) -> int:
        chosen = (np.tensordot(tried, apart, 1) + barred).argmin(axis=1)
        return int(serves[range(len(chosen)), chosen].sum())

    for axis in range(len(weights)):
        options = [np.where(np.arange(len(weights)) == axis, w, weights) for w in WEIGHTS]
        weights = max([weights, *options], key=count)
    return follow(np.tensordot(weights, shapes.apart, 1) + shapes.barred, fold)


def most_covering(shapes: Shapes, fold: Fold) -> list[str]:
    """The config that serves most of the tuned shapes, for all: the best fixed default."""
    counts = Counter(name for shape in fold.tuned for name in sorted(shapes.served[shape]))
    return [counts.most_common(1)[0][0]] * len(fold.left)


RULES: dict[str, Rule] = {
    "nearest, sum of logarithms (Tileyard's)": nearest,
    "nearest, Euclidean distance of logarithms": nearest_squared,
    "nearest, Euclidean distance of scaled sizes": nearest_linear,
    "nearest, weights learnt per argument": weighted,
    "majority of the 3 nearest": majority(3),
    "majority of the 5 nearest": majority(5),
    "majority of the 9 nearest": majority(9),
    "in most lists of the 5 nearest": lists(5),
    "in most lists of the 9 nearest": lists(9),
    "the config that serves most shapes": most_covering,
}


# ---- folds -------------------------------------------------------------------------------------

Tune = Callable[[Shapes, Sequence[int], random.Random], list[str]]


def tune_each(shapes: Shapes, tuned: Sequence[int], generator: random.Random) -> list[str]:
    """Each shape has a random one of its configs."""
    return [generator.choice(sorted(shapes.served[shape])) for shape in tuned]


def tune_table(shapes: Shapes, tuned: Sequence[int], _generator: random.Random) -> list[str]:
    """A few configs serve all shapes."""
    names = sorted({name for shape in tuned for name in shapes.served[shape]})
    places = {
        name: [at for at, s in enumerate(tuned) if name in shapes.served[s]] for name in names
    }
    table = choose_greedily(
        {name: frozenset(at) for name, at in places.items()}, [1.0] * len(tuned)
    )
    table = sorted(table, key=lambda name: -len(places[name]))
    return [next(name for name in table if name in shapes.served[shape]) for shape in tuned]


def leave_out(
    shapes: Shapes, parts: Sequence[Sequence[int]], tune: Tune, seed: int
) -> Iterator[Fold]:
    """One fold per part that is left out."""
    generator = random.Random(seed)
    everything = sorted(shape for part in parts for shape in part)
    for part in parts:
        left = set(part)
        tuned = [shape for shape in everything if shape not in left]
        yield Fold(tuned=tuned, configs=tune(shapes, tuned, generator), left=list(part))


def rate(shapes: Shapes, rule: Rule, folds: Sequence[Fold]) -> float:
    """The share of shapes left out whose config is in their list."""
    hits = [
        config in shapes.served[shape]
        for fold in folds
        for shape, config in zip(fold.left, rule(shapes, fold), strict=True)
    ]
    return statistics.mean(hits)


def deal(shapes: Sequence[int], parts: int, seed: int) -> list[list[int]]:
    """The shapes in random parts of about equal size."""
    mixed = random.Random(seed).sample(list(shapes), len(shapes))
    return [mixed[part::parts] for part in range(parts)]


def choose_in_halves(shapes: Shapes) -> Counter[str]:
    """How often a rule is the best one in a random half of the shapes, each left out in turn."""
    best: Counter[str] = Counter()
    for seed in range(QUARTERS):
        for half in deal(range(len(shapes.served)), 2, seed):
            inside = list(leave_out(shapes, [[shape] for shape in half], tune_each, seed))
            found = {name: rate(shapes, rule, inside) for name, rule in RULES.items()}
            best[max(found, key=lambda name: found[name])] += 1
    return best


def main() -> None:
    """Print a row for each rule."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("table", nargs="?", type=Path, default=TABLE)
    parser.add_argument(
        "--argument", default="M", help="all shapes with a value of it are left out"
    )
    options = parser.parse_args()
    shapes = read_shapes(options.table)
    numbers = range(len(shapes.served))
    values: dict[object, list[int]] = {}
    for number, one in enumerate(shapes.arguments):
        values.setdefault(one[options.argument], []).append(number)

    def divide(parts: int, tune: Tune) -> list[Fold]:
        seeds = range(QUARTERS)
        return [f for s in seeds for f in leave_out(shapes, deal(numbers, parts, s), tune, s)]

    valued = list(values.values())
    columns = {
        "one": list(leave_out(shapes, [[number] for number in numbers], tune_each, 0)),
        "quarter": divide(4, tune_each),
        "half": divide(2, tune_each),
        f"one {options.argument}": list(leave_out(shapes, valued, tune_each, 0)),
        "table: quarter": divide(4, tune_table),
        "half ": divide(2, tune_table),
        f"one {options.argument} ": list(leave_out(shapes, valued, tune_table, 0)),
    }
    best = choose_in_halves(shapes)
    print(f"{len(numbers)} shapes; left out:")
    print(f"{'rule':45} {'  '.join(columns)}  best of {2 * QUARTERS} halves", flush=True)
    for name, rule in RULES.items():
        cells = [f"{rate(shapes, rule, folds):{len(title)}.1%}" for title, folds in columns.items()]
        print(f"{name:45} {'  '.join(cells)}  {best[name]}", flush=True)


if __name__ == "__main__":
    main()

"""How the times of configs depend on their parameters: the effect of each, and a map of two."""

import math
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence

from tileyard.base.model import Record, Value
from tileyard.verbs.tune.plan.recorded.space import list_parameters

Values = Mapping[str, Sequence[Value]]
"""The values of each parameter by its name."""
MOST_LEVELS = 8
"""Values of a parameter that are shown singly; more are joined to as many groups."""


class Tried(Record):
    """A config, and its time, which is None if it failed."""

    config: dict[str, Value]
    time_ns: float | None


class Level(Record):
    """Neighbouring values of a parameter, one if there are few: the number of configs with them that were
    ``tried``, and the times of those that are right.
    """

    name: str
    tried: int
    times_ns: tuple[float, ...]


class Effect(Record):
    """A parameter with several values. ``share`` is what it explains alone of the variance of the logarithm
    of times, from 0 to 1, adjusted for the number of its levels (adjusted R squared).
    """

    parameter: str
    share: float
    levels: tuple[Level, ...]


class Cell(Record):
    """Configs with one level of each of two parameters: how many were ``tried``, and the best time if any."""

    tried: int
    best_ns: float | None


class Map(Record):
    """The levels of two parameters, and a row of cells for each of ``rows``."""

    columns: tuple[str, ...]
    rows: tuple[str, ...]
    cells: tuple[tuple[Cell, ...], ...]


def list_values(tried: Sequence[Tried]) -> Values:
    """The values of each parameter."""
    return list_parameters([one.config for one in tried])


def find_effects(tried: Sequence[Tried], all_values: Values) -> list[Effect]:
    """The effect of each parameter that has several values, the largest first."""
    effects = []
    for name, values in all_values.items():
        if len(values) > 1:
            groups = _group(tried, name, values)
            effects.append(
                Effect(
                    parameter=name,
                    share=_explain([_list_times(own) for own in groups.values()]),
                    levels=tuple(
                        Level(name=level, tried=len(own), times_ns=_list_times(own))
                        for level, own in groups.items()
                    ),
                )
            )
    return sorted(effects, key=lambda one: -one.share)


def map_parameters(tried: Sequence[Tried], values: Values, across: str, up: str) -> Map:
    """The best time for each combination of levels of two parameters."""
    columns, rows = name_levels(values[across]), name_levels(values[up])
    times: defaultdict[tuple[str, str], list[float | None]] = defaultdict(list)
    for one in tried:
        x, y = one.config.get(across), one.config.get(up)
        if x is not None and y is not None:
            times[rows[type(y), y], columns[type(x), x]].append(one.time_ns)

    def show(own: Sequence[float | None]) -> Cell:
        known = [one for one in own if one is not None]
        return Cell(tried=len(own), best_ns=min(known, default=None))

    across_all, up_all = tuple(dict.fromkeys(columns.values())), tuple(dict.fromkeys(rows.values()))
    cells = tuple(tuple(show(times[row, column]) for column in across_all) for row in up_all)
    return Map(columns=across_all, rows=up_all, cells=cells)


def _group(tried: Sequence[Tried], name: str, values: Sequence[Value]) -> dict[str, list[Tried]]:
    """The configs by levels of a parameter, in the order of its values."""
    level_of = name_levels(values)
    groups: dict[str, list[Tried]] = {level: [] for level in level_of.values()}
    for one in tried:
        if (value := one.config.get(name)) is not None:
            groups[level_of[type(value), value]].append(one)
    return groups


def name_levels(values: Sequence[Value]) -> dict[tuple[type, Value], str]:
    """The level of each value of a parameter; levels have about as many values each."""
    found: dict[tuple[type, Value], str] = {}
    count = min(len(values), MOST_LEVELS)
    for level in range(count):
        joined = values[level * len(values) // count : (level + 1) * len(values) // count]
        name = str(joined[0]) if len(joined) == 1 else f"{joined[0]}..{joined[-1]}"
        found |= {(type(value), value): name for value in joined}
    return found


def _list_times(tried: Sequence[Tried]) -> tuple[float, ...]:
    return tuple(one.time_ns for one in tried if one.time_ns is not None)


def _explain(groups: Sequence[Sequence[float]]) -> float:
    """The adjusted share of the variance of logarithms that is between these groups."""
    logs = [[math.log(time_ns) for time_ns in group] for group in groups if group]
    every = [one for group in logs for one in group]
    spare = len(every) - len(logs)
    if spare < 1 or len(logs) < 2:
        return 0.0
    within = sum(_spread(group) for group in logs) / spare
    overall = _spread(every) / (len(every) - 1)
    return max(1 - within / overall, 0.0) if overall else 0.0


def _spread(numbers: Sequence[float]) -> float:
    mean = statistics.fmean(numbers)
    return sum((one - mean) ** 2 for one in numbers)

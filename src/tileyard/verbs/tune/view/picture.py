"""What pictures and pages show of a study or a recorded space, whatever draws it: also how the times of
configs depend on their parameters, the effect of each, and a map of two.
"""

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, islice

from tileyard.base.model import WELL, Measurement, Record, Trial, Value
from tileyard.verbs.tune.plan.recorded.space import list_parameters
from tileyard.verbs.tune.result import Final as Finalist
from tileyard.verbs.tune.result import Replay, StudyResult
from tileyard.verbs.tune.view.study import rank_trials

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


WINNER = "winner"


class Row(Record):
    """A config with its times, and how it compares with the winner if it took part in the finals."""

    trial: Trial
    measured: Measurement
    final: Finalist | None


@dataclass(frozen=True, kw_only=True)
class Picture:
    """A study, or a replay and the configs of its space, below the lines of its ``title``. ``failures`` says
    of how many configs there is no time, by the reason.
    """

    title: tuple[str, ...]
    tried: tuple[Tried, ...]
    failures: Counter[str]
    study: StudyResult | None = None
    replay: Replay | None = None

    @cached_property
    def effects(self) -> list[Effect]:
        """The effect of each parameter, the largest first."""
        return find_effects(self.tried, self.values)

    @cached_property
    def values(self) -> Values:
        """The values of each parameter."""
        return list_values(self.tried)

    @cached_property
    def rows(self) -> list[Row]:
        """The finalists, or all configs with a time if there were no finals; the best one first."""
        return [] if self.study is None else list(_list_rows(self.study))

    @cached_property
    def best_ns(self) -> float:
        """The best time, 1 if there is none."""
        return min((one.time_ns for one in self.tried if one.time_ns), default=1.0)

    @cached_property
    def marked(self) -> dict[str, int]:
        """The places in ``tried`` of a study's winner and of the incumbents, by what they are."""
        if self.study is None:
            return {}
        winner = f"{WINNER} of the finals" if self.study.finals else WINNER
        configs = {} if self.study.best is None else {winner: self.study.best.config}
        configs |= {one.name: one.config for one in self.study.incumbents}
        names: dict[int, list[str]] = {}
        for name, config in configs.items():
            own = (place for place, one in enumerate(self.tried) if one.config == config)
            for place in islice(own, 1):
                names.setdefault(place, []).append(name)
        return {" and ".join(own): place for place, own in names.items()}

    @property
    def winner(self) -> str:
        """The name in ``marked`` of the winner, if there is one."""
        return next((name for name in self.marked if name.startswith(WINNER)), "")

    def find_cell(self, found: Map, name: str, across: str, up: str) -> tuple[int, int] | None:
        """The row and column of a marked config's cell in the map of two parameters."""
        level, row = self.find_level(name, across), self.find_level(name, up)
        if level not in found.columns or row not in found.rows:
            return None
        return found.rows.index(row), found.columns.index(level)

    def find_level(self, name: str, parameter: str) -> str:
        """The level of a parameter in a marked config; empty if it has none."""
        value = self.tried[self.marked[name]].config.get(parameter)
        return "" if value is None else name_levels(self.values[parameter])[type(value), value]

    @property
    def best_so_far_ns(self) -> list[float]:
        """The best time after each config, infinite before the first one that has a time."""
        return list(accumulate((one.time_ns or math.inf for one in self.tried), min))


def list_tried(trials: Sequence[Trial]) -> tuple[Tried, ...]:
    """The configs of trials, each with its time if it is right."""
    return tuple(
        Tried(config=one.config, time_ns=_time_of(one) if one.outcome in WELL else None)
        for one in trials
    )


def _time_of(trial: Trial) -> float | None:
    return (trial.measurement.median_ns or None) if trial.measurement is not None else None


def _list_rows(result: StudyResult) -> Iterator[Row]:
    finals = {final.trial: final for final in result.finals}
    for trial in rank_trials(result):
        if trial.outcome in WELL and (trial.id in finals or not finals):
            measured = result.measurement_of(trial)
            if measured is not None:
                yield Row(trial=trial, measured=measured, final=finals.get(trial.id))


def judge_row(row: Row, result: StudyResult) -> str:
    """``best``, ``tied``, how many times as long as the best it takes, or nothing without finals."""
    if result.best is not None and row.trial.id == result.best.id:
        return "best"
    if row.final is None:
        return ""
    return "tied" if row.final.tied else f"{row.final.ratio:.3f} x"


def find_shared(configs: Sequence[dict[str, Value]]) -> dict[str, Value]:
    """The parameters that have the same value in all configs."""
    first = configs[0] if configs else {}
    return {
        key: value for key, value in first.items() if all(one.get(key) == value for one in configs)
    }

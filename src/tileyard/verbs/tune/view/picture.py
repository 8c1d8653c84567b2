"""What pictures and pages show of a study or a recorded space, whatever draws it."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, islice

from tileyard.base.model import WELL, Measurement, Record, Trial, Value
from tileyard.verbs.tune.result import Final as Finalist
from tileyard.verbs.tune.result import Replay, StudyResult
from tileyard.verbs.tune.view.landscape import (
    Effect,
    Map,
    Tried,
    Values,
    find_effects,
    list_values,
    name_levels,
)
from tileyard.verbs.tune.view.study import rank_trials

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

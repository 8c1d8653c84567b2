"""Compares strategies on recorded spaces: the work, and its results."""

import statistics
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from inspect import getdoc
from pkgutil import resolve_name

from tileyard.base.model import Record
from tileyard.verbs.tune.options import TuneRequest
from tileyard.verbs.tune.plan.recorded.files import read_space
from tileyard.verbs.tune.plan.recorded.replaying import Arena
from tileyard.verbs.tune.plan.strategies.base import (
    FOREIGN,
    STRATEGIES,
    check_strategy,
    make_strategy,
    require_gain,
)
from tileyard.verbs.tune.result import Replay


class Known(Record):
    """A strategy, and what it does in one sentence; ``is_default``: a study has it if none is named."""

    name: str
    description: str
    is_default: bool


class Standing(Record):
    """A strategy over all spaces: the mean of its scores, and on how many spaces its score is the best.
    ``score`` is None if no space has one.
    """

    strategy: str
    score: float | None
    wins: int
    spaces: int


class Comparison(Record):
    """The replays, space by space, and the strategies, the best first."""

    replays: tuple[Replay, ...]
    standings: tuple[Standing, ...]


OWN = tuple(name for name in STRATEGIES if name not in FOREIGN)
"""The strategies that are compared if none is named."""


def list_strategies() -> list[Known]:
    """All strategies, each with the first paragraph of its documentation."""
    usual = TuneRequest().strategy
    return [
        Known(
            name=name,
            description=" ".join((getdoc(resolve_name(where)) or "").split("\n\n")[0].split()),
            is_default=name == usual,
        )
        for name, where in STRATEGIES.items()
    ]


def open_arenas(files: Iterable[str]) -> list[Arena]:
    """The spaces in these files. Raises UsageError for the first that cannot be read."""
    return [Arena(read_space(file), file) for file in files]


def replay_all(  # noqa: PLR0913 - bounds, by keyword only
    arenas: Sequence[Arena],
    names: Sequence[str],
    *,
    repetitions: int,
    in_flight: int,
    until_gain: float | None,
    begin: Callable[[str, str], None],
) -> list[Replay]:
    """A replay of each strategy on each space, one after another, as by ``Arena.replay``. Raises UsageError
    for unknown names, and for strategies that do not know when to end.
    """
    for name in names:
        (check_strategy if until_gain is None else require_gain)(name)
    return [
        arena.replay(
            name,
            partial(make_strategy, name),
            repetitions=repetitions,
            in_flight=in_flight,
            until_gain=until_gain,
            begin=begin,
        )
        for arena in arenas
        for name in names
    ]


def compare(replays: Sequence[Replay]) -> Comparison:
    """What these replays say of each strategy."""
    best: dict[str, float] = {}
    scores: dict[str, dict[str, float]] = {one.strategy: {} for one in replays}
    for one in replays:
        if one.score is not None:
            scores[one.strategy][one.file] = one.score.score
            best[one.file] = max(best.get(one.file, one.score.score), one.score.score)
    standings = [
        Standing(
            strategy=name,
            score=statistics.fmean(own.values()) if own else None,
            wins=sum(score == best[file] for file, score in own.items()),
            spaces=len({one.file for one in replays}),
        )
        for name, own in scores.items()
    ]
    standings.sort(key=lambda one: (one.score is None, -(one.score or 0.0)))
    return Comparison(replays=tuple(replays), standings=tuple(standings))

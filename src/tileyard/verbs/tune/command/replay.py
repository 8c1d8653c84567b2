"""``tileyard tune --replay``: a strategy on a recorded space, in this process, with no device."""

import math
from collections import Counter
from functools import partial
from typing import Any

from tileyard.show.opening import open_picture, present
from tileyard.verbs.tune.plan.goals import Goals, check_facts
from tileyard.verbs.tune.plan.recorded.files import read_space
from tileyard.verbs.tune.plan.recorded.replaying import Arena
from tileyard.verbs.tune.plan.strategies.base import check_strategy, make_strategy, require_gain
from tileyard.verbs.tune.view.progress import show_replays
from tileyard.verbs.tune.view.replay import print_replay


def replay(values: dict[str, Any], *, as_json: bool) -> int:
    """Replay what the options say, show it, and return the exit status."""
    name = values["strategy"]
    (check_strategy if values["until_gain"] is None else require_gain)(name)
    draw = open_picture(values["png"], "tileyard.verbs.tune.view.figure:render_replay")
    space, second = read_space(values["replay"]), values["pareto"]
    goals = Goals(bounds=values["bound"], second=second)
    check_facts(goals.options, space.measures, space.name or values["replay"])
    arena = Arena(space.within(goals.bounds), values["replay"], second)
    with show_replays(Counter({name: values["repetitions"]})) as begin:
        found = arena.replay(
            name,
            partial(make_strategy, name),
            repetitions=values["repetitions"],
            in_flight=values["in_flight"],
            trials=values["trials"],
            budget_s=_or_any(values["budget"]),
            device_budget_s=_or_any(values["device_budget"]),
            until_gain=values["until_gain"],
            begin=begin,
        )
    present(found, as_json, print_replay)
    draw(found, arena.space)
    return 0


def _or_any(budget_s: float | None) -> float:
    return math.inf if budget_s is None else budget_s

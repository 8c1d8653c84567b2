"""``tileyard tune --replay``: a strategy on a recorded space, in this process, with no device."""

from functools import partial
from typing import Any

from tileyard.show.opening import present
from tileyard.verbs.tune.plan.recorded.files import read_space
from tileyard.verbs.tune.plan.recorded.replaying import Arena
from tileyard.verbs.tune.plan.strategies.base import check_strategy, make_strategy
from tileyard.verbs.tune.view.replay import print_replay


def replay(values: dict[str, Any], *, as_json: bool) -> int:
    """Replay what the options say, show it, and return the exit status."""
    name = values["strategy"]
    check_strategy(name)
    arena = Arena(read_space(values["replay"]), values["replay"])
    found = arena.replay(
        name,
        partial(make_strategy, name),
        repetitions=values["repetitions"],
        in_flight=values["in_flight"],
        trials=values["trials"],
        **({} if values["budget"] is None else {"budget_s": values["budget"]}),
    )
    present(found, as_json, print_replay)
    return 0

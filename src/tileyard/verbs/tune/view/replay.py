"""Prints how a strategy did on a recorded space."""

import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence

from rich.console import Console

from tileyard.base.wording import count_of
from tileyard.show.console import new_table, print_table, say
from tileyard.show.words import format_time
from tileyard.verbs.tune.result import End, Regret, Replay, Score


def print_replay(console: Console, found: Replay) -> None:
    """Print a table of regret by trials, and the score."""
    by_end = Counter(found.failures).most_common()
    failed = ", ".join(f"{count} {end}" for end, count in by_end)
    failed = f", of which failed: {failed}" if failed else ""
    of = f"{count_of(found.configs, 'config')}{failed}; the best takes {format_time(found.best_ns)}"
    say(console, f"{found.space}: {of}")
    flight = f", {found.in_flight} trials in flight" if found.in_flight > 1 else ""
    times = f"repeated {found.repetitions} times" if found.repetitions > 1 else "once"
    say(console, f"strategy {found.strategy}, {times}{flight}, with no device")
    if found.regrets:
        heading = "hypervolume missing" if found.second else "regret"
        table = new_table(("trials", heading, "95 %"), left=())
        for one in found.regrets:
            table.add_row(str(one.trials), format_regret(one), format_bounds(one))
        print_table(console, table)
    if found.ends:
        print_ends(console, {found.strategy: found.ends})
    if not found.second:
        say(console, f"score of autotuning-methodology: {format_score(found.score)}")
        if found.score is None:
            say(console, f"no score: {found.unscored}", style="yellow")
    if found.is_short:
        text = f"the score takes about {found.needed} trials"
        later = "" if found.score is None else ": its later moments repeat what was found"
        say(console, text + later, style="yellow")
    if found.note:
        say(console, found.note, style="yellow")


def print_ends(console: Console, found: Mapping[str, Sequence[End]]) -> None:
    """Print a line for each strategy: what it expected when it ended, and what was really left."""
    heads = ("trials", "expected gain", "regret left", "90 % below")
    table = new_table(("strategy", *heads), left=("strategy",))
    for name, ends in found.items():
        regrets = sorted(math.inf if one.regret is None else one.regret for one in ends)
        gains = [one.gain for one in ends if one.gain is not None]
        table.add_row(
            name,
            f"{statistics.median(one.trials for one in ends):g}",
            _percent(statistics.median(gains)) if gains else "",
            _percent(statistics.median_high(regrets)),
            _percent(regrets[math.ceil(0.9 * len(regrets)) - 1]),
        )
    print_table(console, table)


def format_regret(found: Regret) -> str:
    """The median, as ``4.0 %``."""
    return _percent(found.median)


def format_bounds(found: Regret) -> str:
    """Its interval, as ``[3.1 %, 5.2 %]``."""
    return f"[{_percent(found.low)}, {_percent(found.high)}]"


def format_score(found: Score | None) -> str:
    """A score with its interval, ``0.12 [0.03, 0.20]``."""
    if found is None:
        return "none"
    return f"{found.score:.3f} [{found.low:.3f}, {found.high:.3f}]"


def _percent(share: float | None) -> str:
    return "none right" if share is None or math.isinf(share) else f"{100 * share:.1f} %"

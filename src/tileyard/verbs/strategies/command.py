"""``tileyard strategies``: lists what can choose the configs of a study, and compares it."""

from collections import Counter
from pathlib import Path
from typing import Annotated, TypedDict, Unpack

import typer

from tileyard.show.kernel_options import Picture
from tileyard.show.options import NamesOption, complete, read_options
from tileyard.show.typed import AsJson, typed
from tileyard.show.values import Names
from tileyard.verbs.tune.options import STRATEGY, InFlight, Repetitions, UntilGain


class CompareOptions(TypedDict, total=False):
    """The options of ``strategies compare``."""

    strategy: Annotated[Names, NamesOption(f"{STRATEGY}; again for more of them.", metavar="NAME")]
    repetitions: Repetitions
    in_flight: InFlight
    png: Picture
    until_gain: UntilGain


app = typer.Typer(rich_markup_mode=None)


@app.callback(invoke_without_command=True)
def strategies(context: typer.Context, *, json: AsJson = False) -> int:
    """List the strategies that tune --strategy takes, with a line about each."""
    if context.invoked_subcommand is not None:
        return 0
    from tileyard.show.opening import present
    from tileyard.verbs.strategies.plan import list_strategies
    from tileyard.verbs.strategies.view import print_strategies

    present(list_strategies(), json, print_strategies)
    return 0


@app.command("compare")
@typed
def compare(
    files: Annotated[list[str], typer.Argument(metavar="FILE...", help="Recorded spaces.")],
    *,
    json: AsJson = False,
    **options: Unpack[CompareOptions],
) -> int:
    """Compare strategies on recorded spaces, with no device: score, regret, and how often each is the best.

    The files are as for tune --replay. Each strategy, or each that --strategy names, searches each space
    several times, for as long as the score of autotuning-methodology 1.1.0 takes and at least 200 trials, or
    with --until-gain until it expects less; then the table says what was really left. With --png regret over
    the number of trials is drawn, a plot for each space.

    Exit status: 0, 2 for bad usage or a file that cannot be read.
    """
    from tileyard.show.opening import open_picture, present
    from tileyard.verbs.strategies import plan
    from tileyard.verbs.strategies.view import print_comparison
    from tileyard.verbs.tune.plan.strategies.base import EXPECTING
    from tileyard.verbs.tune.view.progress import show_replays

    values = read_options(CompareOptions, complete(CompareOptions, options))
    draw = open_picture(values["png"], "tileyard.verbs.tune.view.figure:render_replays")
    names = values["strategy"] or (plan.OWN if values["until_gain"] is None else EXPECTING)
    arenas = plan.open_arenas({Path(one).resolve(): one for one in files}.values())
    bounds = {name: values[name] for name in ("repetitions", "in_flight", "until_gain")}
    each = len(arenas) * bounds["repetitions"]
    left = Counter({name: count * each for name, count in Counter(names).items()})
    with show_replays(left) as begin:
        found = plan.replay_all(arenas, names, **bounds, begin=begin)
    present(plan.compare(found), json, print_comparison)
    draw(found)
    return 0

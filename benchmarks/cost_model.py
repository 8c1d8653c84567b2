"""Rates a model of what the work of a Program costs, on recorded spaces of different families of kernels.

    python benchmarks/cost_model.py [FOLDER] [--repetitions 50] [--trials 25] [--only NAME]

Each amount of ``ir/work.py`` costs a time of its own, as USUAL_NS has it, or as it is learnt from the
spaces of all other families. The table has the rank correlation of predicted and recorded times, and the
regret of the best of the 5 configs that are predicted to be fastest; then the median regret of `bayes` after
25 trials and of `model`, which begins with either, with 95 % intervals. With 0 repetitions nothing is
searched.

    python benchmarks/cost_model.py --h100

The same for the GEMMs that `make gpu-check` timed on an H100, by USUAL_NS and its number of multiprocessors,
of their Programs alone and with what is known of their binaries, which are built here.
"""

import argparse
import json
import math
import tempfile
from functools import partial
from pathlib import Path

import numpy as np
from scipy.stats import spearmanr

import tileyard
from tileyard.artifacts.objects import ObjectStore
from tileyard.show.console import Console, new_table, print_table
from tileyard.verbs.tune.plan.foresight import count_built
from tileyard.verbs.tune.plan.recorded.files import read_space
from tileyard.verbs.tune.plan.recorded.replaying import Arena
from tileyard.verbs.tune.plan.strategies.base import OF_BINARIES, Points
from tileyard.verbs.tune.plan.strategies.bayes import Bayes
from tileyard.verbs.tune.plan.strategies.model import (
    USUAL,
    Floats,
    Model,
    learn,
    list_amounts,
    predict,
)

FIRST = 5
"""Predicted configs, of which the best is rated."""
CORES = 1
"""Cores on which the spaces were recorded."""
H100 = Path(__file__).parents[1] / "docs/figures/gpu-nvidia-h100-80gb-hbm3.json"
H100_GEMM = Path(__file__).parents[1] / "examples/gemm.py"
H100_CORES = 132


def rate(predicted: Floats, times: Floats) -> list[str]:
    """The rank correlation with logarithms of times, and the regret of the best of the first."""
    best = times[np.argsort(predicted)[:FIRST]].min() - times.min()
    return [f"{spearmanr(predicted, times)[0]:.2f}", f"{100 * math.expm1(best):.0f} %"]


def rate_h100() -> None:
    """Print the rating of predictions for the GEMMs that were timed on an H100, without their binaries, which
    are built here, and with them.
    """
    trials = json.loads(H100.read_bytes())["kernels"]["tune --from"]["trials"]
    times = np.log([one["measurement"]["median_ns"] for one in trials])
    works = []
    with tempfile.TemporaryDirectory() as folder:
        for trial in trials:
            config = {name: (value,) for name, value in trial["config"].items()}
            built = tileyard.compile(
                f"{H100_GEMM}::gemm",
                arg=trial["arguments"],
                config=config,
                target=trial["target"],
                home=folder,
                progress=False,
            )
            build = built.configs[0].build
            works.append(
                count_built(build, trial["arguments"], ObjectStore(Path(folder) / "objects"))
            )
    for what, left_out in (("Program alone", OF_BINARIES), ("Program and binary", {})):
        known = [{k: v for k, v in work.items() if k not in left_out} for work in works]
        amounts = np.array([list_amounts(work, H100_CORES) for work in known])
        rank, regret = rate(predict(amounts, USUAL), times)
        print(f"{what}: rank {rank}; the best of the first {FIRST} has a regret of {regret}")
    for trial, work in zip(trials, works, strict=True):
        print(*trial["config"].values(), *(f"{name} {work.get(name)}" for name in OF_BINARIES))


class Rated:
    """A recorded space, with the amounts and the logarithms of the times of the configs that have one."""

    def __init__(self, file: Path) -> None:
        self.arena = Arena(read_space(file), str(file))
        self.timed = [one for one in self.arena.space.configs if one.is_timed]
        self.amounts = np.array([list_amounts(one.facts, CORES) for one in self.timed])
        self.times = np.log([one.time_ns or math.nan for one in self.timed])

    def search(self, costs: Floats | None, repetitions: int, trials: int) -> str:
        """The median regret of ``bayes``, or of ``model``, which begins with these costs."""
        make = Bayes if costs is None else partial(self._make, costs)
        found = self.arena.replay("", make, repetitions=repetitions, trials=trials).regrets[-1]
        shares = [100 * (one or 0.0) for one in (found.median, found.low, found.high)]
        return "{:.1f} % [{:.1f}, {:.1f}]".format(*shares)

    def _make(self, costs: Floats, points: Points, *, trials: int, seed: int) -> Model:
        strategy = Model(points, trials=trials, seed=seed, costs=costs)
        strategy.begin_with(CORES, ())
        return strategy


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "folder", nargs="?", type=Path, default=Path(__file__).with_name("spaces_cpu")
    )
    parser.add_argument("--repetitions", type=int, default=50)
    parser.add_argument("--trials", type=int, default=25)
    parser.add_argument("--only", default="")
    parser.add_argument("--h100", action="store_true")
    given = parser.parse_args()
    if given.h100:
        rate_h100()
        return
    spaces = [Rated(file) for file in sorted(given.folder.glob("*.gz"))]
    names = ["space", "usual: rank", f"first {FIRST}", "learnt: rank", f"first {FIRST}"]
    heads = ["bayes", "model", "model, learnt"] if given.repetitions else []
    table = new_table([*names, *heads], left=names[:1])
    for one in spaces:
        name = one.arena.space.header.kernel
        if given.only not in ("", name):
            continue
        learnt = learn([(other.amounts, other.times) for other in spaces if other is not one])
        searched = (None, USUAL, learnt) if given.repetitions else ()
        table.add_row(
            name,
            *rate(predict(one.amounts, USUAL), one.times),
            *rate(predict(one.amounts, learnt), one.times),
            *(one.search(costs, given.repetitions, given.trials) for costs in searched),
        )
    print_table(Console(), table)


if __name__ == "__main__":
    main()

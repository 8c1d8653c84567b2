"""Rates a model of what the work of a Program costs, on recorded spaces of different families of kernels.

    python benchmarks/cost_model.py [FOLDER] [--repetitions 50] [--trials 25] [--only NAME]

Each amount of ``ir/work.py`` costs a time of its own, as USUAL_NS has it, or as it is learnt from the
spaces of all other families. The table has the rank correlation of predicted and recorded times, and the
regret of the best of the 5 configs that are predicted to be fastest; then the median regret of `bayes` after
25 trials, with 95 % intervals: alone, and with each model, of which it learns only the error. With 0
repetitions nothing is searched.

    python benchmarks/cost_model.py --h100

The same for the GEMMs that `make gpu-check` timed on an H100, by USUAL_NS and its number of multiprocessors.
"""

import argparse
import json
import math
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.stats import spearmanr

from tileyard.artifacts.objects import ObjectStore, canonical_json
from tileyard.base.model import Value
from tileyard.frontend.found import lower_config
from tileyard.ir.work import count_work
from tileyard.show.console import Console, new_table, print_table
from tileyard.verbs.tune.plan.recorded.files import read_space
from tileyard.verbs.tune.plan.recorded.replaying import Arena
from tileyard.verbs.tune.plan.strategies.base import Config
from tileyard.verbs.tune.plan.strategies.bayes import Bayes
from tileyard.workers.author import Author

Floats = NDArray[np.float64]

FIRST = 5
"""Predicted configs, of which the best is rated."""
CORES = 2
"""Cores on which the spaces were recorded."""
H100 = Path(__file__).parents[1] / "docs/figures/gpu-nvidia-h100-80gb-hbm3.json"
H100_GEMM = Path(__file__).parents[1] / "examples/gemm.py"
H100_CORES = 132
CACHES_BYTES = {"beyond_first": 32 << 10, "beyond_second": 512 << 10}
"""Bytes of the caches of a core, by the name of the accesses to tiles that exceed them."""
STEEPNESS = 2.0
"""How fast their share rises with the logarithm of the bytes of all tiles."""
USUAL_NS = {
    "product_flops": 0.02,
    "products": 50.0,
    "left": 0.2,
    "right": 0.2,
    "sums": 0.1,
    "operations": 0.1,
    "functions": 1.0,
    "conversions": 0.3,
    "steps": 20.0,
    "rows": 5.0,
    "lines": 2.0,
    "accesses": 0.05,
    "strided": 1.0,
    "blocks": 200.0,
    "beyond_first": 0.05,
    "beyond_second": 0.2,
}
"""What each amount costs, as a guess that no trial has changed."""
CERTAINTY = 0.02
"""Weight of this guess beside the squared errors of logarithms of times."""


def list_amounts(facts: Sequence[Mapping[str, Value]], cores: int = CORES) -> Floats:
    """Amounts that cost time, a row per config and a column per name of USUAL_NS, of the core that has most
    blocks.
    """
    rows = []
    for one in facts:
        known = {name: float(value) for name, value in one.items()}
        tiles = known.get("shared_tile_bytes", 0.0) + known.get("private_tile_bytes", 0.0)
        for name, cache in CACHES_BYTES.items():
            known[name] = known.get("accesses", 0.0) / (1 + (cache / max(tiles, 1.0)) ** STEEPNESS)
        blocks = known["blocks"]
        share = math.ceil(blocks / cores) / blocks
        rows.append([share * known.get(name, 0.0) for name in USUAL_NS])
    return np.array(rows)


def predict(amounts: Floats, costs: Floats) -> Floats:
    """The logarithms of times in ns, from the logarithms of what amounts cost."""
    result: Floats = np.log(amounts @ np.exp(costs))
    return result


def learn(spaces: Sequence[tuple[Floats, Floats]]) -> Floats:
    """The logarithms of what amounts cost, from amounts and logarithms of times of each space: how its
    configs differ counts, not how long all take.
    """
    usual = np.log(list(USUAL_NS.values()))

    def loss(costs: Floats) -> tuple[float, Floats]:
        value, slope = 0.0, np.zeros_like(costs)
        for amounts, times in spaces:
            parts = amounts * np.exp(costs)
            totals = parts.sum(axis=1)
            away = np.log(totals) - times
            away -= away.mean()
            shares = parts / totals[:, None]
            value += float(away @ away) / len(times)
            slope += 2 * (away @ (shares - shares.mean(axis=0))) / len(times)
        beyond = costs - usual
        return value + CERTAINTY * float(beyond @ beyond), slope + 2 * CERTAINTY * beyond

    found: Floats = minimize(loss, usual, jac=True, method="L-BFGS-B").x
    return found


def rate(predicted: Floats, times: Floats) -> list[str]:
    """The rank correlation with logarithms of times, and the regret of the best of the first."""
    best = times[np.argsort(predicted)[:FIRST]].min() - times.min()
    return [f"{spearmanr(predicted, times)[0]:.2f}", f"{100 * math.expm1(best):.0f} %"]


def predict_as_usual(amounts: Floats) -> Floats:
    """What is predicted before anything is learnt."""
    return predict(amounts, np.log(list(USUAL_NS.values())))


def rate_h100() -> list[str]:
    """The rating of predictions for the GEMMs that were timed on an H100."""
    with tempfile.TemporaryDirectory() as folder:
        kernel = Author.of_file(H100_GEMM, ObjectStore(Path(folder))).kernels["gemm"]
    facts, times_ns = [], []
    for trial in json.loads(H100.read_bytes())["kernels"]["tune --from"]["trials"]:
        made = lower_config(kernel, trial["arguments"], trial["config"])
        facts.append(count_work(made.signature, made.integers))
        times_ns.append(trial["measurement"]["median_ns"])
    return rate(predict_as_usual(list_amounts(facts, H100_CORES)), np.log(times_ns))


class Rated:
    """A recorded space, with the amounts and the logarithms of the times of the configs that have one."""

    def __init__(self, file: Path) -> None:
        self.arena = Arena(read_space(file), str(file))
        self.timed = [one for one in self.arena.space.configs if one.is_timed]
        self.amounts = list_amounts([one.facts for one in self.timed])
        self.times = np.log([one.time_ns or math.nan for one in self.timed])

    def search(self, predicted: Floats | None, repetitions: int, trials: int) -> str:
        """The median regret of ``bayes``, with what is predicted as its prior."""
        make: Any = Bayes
        if predicted is not None:
            texts = (canonical_json(one.config) for one in self.timed)
            known = dict(zip(texts, predicted.tolist(), strict=True))

            def prior(configs: Sequence[Config]) -> list[float]:
                return [known.get(canonical_json(config), 0.0) for config in configs]

            make = partial(Bayes, prior=prior)
        found = self.arena.replay("", make, repetitions=repetitions, trials=trials).regrets[-1]
        shares = [100 * (one or 0.0) for one in (found.median, found.low, found.high)]
        return "{:.1f} % [{:.1f}, {:.1f}]".format(*shares)


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
        rank, regret = rate_h100()
        print(f"rank {rank}; the best of the first {FIRST} has a regret of {regret}")
        return
    spaces = [Rated(file) for file in sorted(given.folder.glob("*.gz"))]
    names = ["space", "usual: rank", f"first {FIRST}", "learnt: rank", f"first {FIRST}"]
    searched = ["bayes", "with usual", "with learnt"] if given.repetitions else []
    table = new_table([*names, *searched], left=names[:1])
    for one in spaces:
        name = one.arena.space.header.kernel
        if given.only not in ("", name):
            continue
        usual = predict_as_usual(one.amounts)
        others = [(other.amounts, other.times) for other in spaces if other is not one]
        learnt = predict(one.amounts, learn(others))
        priors = (None, usual, learnt) if given.repetitions else ()
        table.add_row(
            name,
            *rate(usual, one.times),
            *rate(learnt, one.times),
            *(one.search(prior, given.repetitions, given.trials) for prior in priors),
        )
    print_table(Console(), table)


if __name__ == "__main__":
    main()

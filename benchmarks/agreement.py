"""How often do fresh runs of ``tune`` name a winner as good as the best config, quiet and beside a busy core?

    python benchmarks/agreement.py [--runs 30] [--bundle FILE] [--seconds S]

The configs are those of the GEMM example, or of a bundle that ``tileyard compile --all-configs -o`` has
built, for a GPU say. ``tileyard tune --fresh`` runs again and again in processes of its own, with the same
builds; in every second run another process computes on one core. Before each run all configs meet in one more
process: which of two close ones is faster changes within seconds, so ratings are spread over the whole time.
A config's rating is its median ratio to the best one's time over all these meetings. The regret of a run is
the rating of its winner. No pair of runs begins after ``--seconds``.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

from msgspec.structs import replace

from tileyard.api.kernels import carry_on, settings_for
from tileyard.artifacts.objects import canonical_json
from tileyard.base.model import Value, median_ns
from tileyard.verbs.tune.options import TuneRequest, start_tune
from tileyard.verbs.tune.view.progress import StudyLayout

FILE = str(Path(__file__).parent.parent / "examples/gemm.py")
OVERRIDES: dict[str, tuple[Value, ...]] = {"block_K": (64, 128)}
SHOWN = 5
HOG = [sys.executable, "-c", "while True: pass"]


def rate_all(
    home: str, bundle: str, overrides: dict[str, tuple[Value, ...]] = OVERRIDES
) -> dict[str, float]:
    """Each config's time over the best one's: in a meeting of all, or if clearly slower in the screening."""
    request = TuneRequest(finalists=1000, meetings=1)
    start = replace(start_tune(FILE, "", {"resume": False}), request=request)
    if bundle:
        start = replace(start, file="", bundle=bundle)
    else:
        start = replace(start, request=replace(request, shape="small", overrides=overrides))
    result = carry_on(None)(start, settings_for(home), StudyLayout())
    timed = [one for one in result.trials if one.measurement is not None]
    least_ns = min(median_ns(one) for one in timed)
    screened = {canonical_json(one.config): median_ns(one) / least_ns for one in timed}
    return screened | {canonical_json(one.config): one.ratio for one in result.finals}


def choose(command: list[str], home: str, *, busy: bool) -> str:
    """The config that a fresh run names."""
    with ExitStack() as stack:
        if busy:
            hog = stack.enter_context(subprocess.Popen(HOG))
            stack.callback(hog.kill)
        done = subprocess.run(
            command, env={**os.environ, "TILEYARD_HOME": home}, capture_output=True, check=True
        )
    return canonical_json(json.loads(done.stdout)["best"]["config"])


def main() -> None:
    """Print what was chosen, and the share of runs within 1 % of the best."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--bundle", default="")
    parser.add_argument("--seconds", type=float, default=math.inf)
    given = parser.parse_args()
    end_s = time.monotonic() + given.seconds
    subject = (
        ["--from", given.bundle]
        if given.bundle
        else [FILE, "--shape", "small", "--config", "block_K=64,128"]
    )
    command = [sys.executable, "-m", "tileyard", "tune", *subject, "--fresh", "--json"]
    chosen: dict[str, list[str]] = {"quiet": [], "one core busy": []}
    with tempfile.TemporaryDirectory() as home:
        ratings: list[dict[str, float]] = []
        runs = 0
        while not runs or (runs < given.runs and time.monotonic() < end_s):
            runs += 1
            for name, found in chosen.items():
                ratings.append(rate_all(home, given.bundle))
                found.append(choose(command, home, busy=name != "quiet"))
    medians = {key: statistics.median(one[key] for one in ratings) for key in ratings[0]}
    ratios = {key: ratio / min(medians.values()) for key, ratio in medians.items()}
    print(f"{len(ratios)} configs, up to {max(ratios.values()):.2f} x the best one's time")
    for config in sorted(ratios, key=lambda key: ratios[key])[:SHOWN]:
        low, _, high = statistics.quantiles(one[config] for one in ratings)
        print(f"{ratios[config]:.4f}, half of all processes {low:.4f} to {high:.4f}: {config}")
    for name, found in chosen.items():
        regrets = [ratios[config] for config in found]
        near = sum(one <= 1.01 for one in regrets)
        print(
            f"{name}: {near} of {len(found)} within 1 % of the best; regret: "
            f"mean {statistics.mean(regrets):.4f}, "
            f"median {statistics.median(regrets):.4f}, most {max(regrets):.4f}"
        )
        for config, count in Counter(found).most_common():
            print(f"{count:3} x {config}: {ratios[config]:.4f}")


if __name__ == "__main__":
    main()

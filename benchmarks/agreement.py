"""How often do fresh runs of ``tune`` name a winner as good as the best config, quiet and beside a busy core?

    python benchmarks/agreement.py [--runs 30] [--busy]

First all configs meet in finals of many rounds, which say how much slower than the best each of them is. Then ``tileyard tune --fresh`` runs
again and again in processes of its own, with the same builds. The regret of a run is its winner's time over the best one's, as the long finals have it;
``--busy`` has another process compute on one core while it runs.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from contextlib import nullcontext
from pathlib import Path

from tileyard.api.running import settings_for
from tileyard.api.tune import carry_study
from tileyard.artifacts.keys import canonical_json
from tileyard.service.verbs import StartTune
from tileyard.tuning.request import TuneRequest, median_ns

FILE = str(Path(__file__).parent.parent / "examples/gemm.py")
OVERRIDES = {"block_K": (64, 128)}
ROUNDS = 300
HOG = [sys.executable, "-c", "while True: pass"]


def rate_all(home: str) -> dict[bytes, float]:
    """Each config's time over the best one's: in the finals, or in the screening for what was clearly slower there."""
    request = TuneRequest(shape="small", overrides=OVERRIDES, finalists=1000, rounds=ROUNDS)
    start = StartTune(request=request, target="cpu", file=FILE, reuse=False)
    result = carry_study(start, settings_for(home), None, None)
    timed = [one for one in result.trials if one.measurement is not None]
    least_ns = min(median_ns(one) for one in timed)
    screened = {canonical_json(one.config): median_ns(one) / least_ns for one in timed}
    return screened | {canonical_json(one.config): one.ratio for one in result.finals}


def main() -> None:
    """Print what was chosen, and the share of runs within 1 % of the best."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--busy", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        ratios = rate_all(home)
        print(
            f"{len(ratios)} configs, up to {max(ratios.values()):.2f} x the best one's time",
            flush=True,
        )
        command = [
            sys.executable,
            "-m",
            "tileyard",
            "tune",
            FILE,
            "--shape",
            "small",
            "--fresh",
            "--json",
        ]
        command += ["--config", "block_K=64,128"]
        regrets, names = [], Counter[str]()
        for _ in range(given.runs):
            with subprocess.Popen(HOG) if given.busy else nullcontext() as hog:
                done = subprocess.run(command, env={**os.environ, "TILEYARD_HOME": home}, capture_output=True, check=True)  # fmt: skip
                if hog is not None:
                    hog.kill()
            config = json.loads(done.stdout)["best"]["config"]
            regrets.append(ratios[canonical_json(config)])
            names[json.dumps(config)] += 1
    near = sum(one <= 1.01 * min(ratios.values()) for one in regrets)
    for name, count in names.most_common():
        print(f"{count:3} x {name}: {ratios[canonical_json(json.loads(name))]:.4f}")
    print(
        f"{near} of {given.runs} within 1 % of the best; regret: mean {statistics.mean(regrets):.4f}, median "
        f"{statistics.median(regrets):.4f}, most {max(regrets):.4f}"
    )


if __name__ == "__main__":
    main()

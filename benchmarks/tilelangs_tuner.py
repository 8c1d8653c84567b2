"""The same chain with TileLang's AutoTuner and with ours: the whole study's wall time, side by side.

    python benchmarks/tilelangs_tuner.py [--rounds 3] [--size 128] [--many]

``chain_gemm.py`` tunes a matrix product in 16 configs, with ``--many`` in 216; for ours its import is
changed, and nothing else. Each study is a process with caches of its own, so that nothing is known before,
and the two take turns. TileLang compiles in threads and calls kernels in that process, unchecked, since its
check asks for CUDA; ours builds them side by side, runs each in a process of its own, checks it, and ends in
finals. Imports are not in the times. The ideal of ours is the longer one of all building shared by all cores
and all running on the one device, or, since that device owns all cores, the sum of both. Building and running
are sums over the trials of the study; building includes TileLang's elaboration, timed by its thread.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tileyard.base.events import is_final
from tileyard.store.base import TrialQuery
from tileyard.store.trials import open_store

CHAIN = Path(__file__).with_name("chain_gemm.py")
TILELANG, OURS = "from tilelang.autotuner import AutoTuner", "from tileyard import AutoTuner"


def run(line: str, size: int, space: str) -> dict[str, Any]:
    """One study with this import, in a process that knows nothing."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "chain.py")
        text = CHAIN.read_text()
        if TILELANG not in text:
            raise SystemExit(f"{CHAIN} does not import the tuner as it should")
        script.write_text(text.replace(TILELANG, line))
        caches = {"TILEYARD_HOME": f"{folder}/home", "TILELANG_CACHE_DIR": f"{folder}/cache"}
        check = "unchecked" if line == TILELANG else "checked"
        done = subprocess.run(
            [sys.executable, str(script), str(size), check, space],
            env={**os.environ, **caches},
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise SystemExit(done.stderr)
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        if line == OURS:
            with open_store(Path(folder, "home")) as store:
                trials = store.list_trials(TrialQuery(limit=0))
            found["built"] = sum(trial.build_s for trial in trials if not is_final(trial))
            # The configs of a meeting run together: each of its trials has the time of all.
            found["ran"] = sum({trial.batch: trial.run_s for trial in trials}.values())
    return found


def main() -> None:
    """The rounds, and the median ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--size", type=int, default=128)
    parser.add_argument("--many", action="store_true")
    given = parser.parse_args()
    ratios = []
    for number in range(given.rounds):
        order = (TILELANG, OURS) if number % 2 else (OURS, TILELANG)
        found = {line: run(line, given.size, "many" if given.many else "") for line in order}
        ratios.append(found[OURS]["seconds"] / found[TILELANG]["seconds"])
        for line in (TILELANG, OURS):
            one = found[line]
            name = "tileyard" if line == OURS else "tilelang"
            print(f"{name}: {one['seconds']:.2f} s, {one['latency']:.3f} ms, {one['config']}")
        ours, cores = found[OURS], len(os.sched_getaffinity(0))
        building_s = (ours["elaborating"] + ours["built"]) / cores
        apart = ours["seconds"] / max(building_s, ours["ran"])
        shared = ours["seconds"] / (building_s + ours["ran"])
        print(
            f"building {building_s:.1f} s a core ({ours['elaborating']:.1f} s of "
            f"elaboration in all), running {ours['ran']:.1f} s, "
            f"{apart:.2f} x ideal, {shared:.2f} x with shared cores"
        )
    low, high = min(ratios), max(ratios)
    print(f"tileyard / tilelang: {statistics.median(ratios):.2f} ({low:.2f} to {high:.2f})")


if __name__ == "__main__":
    main()

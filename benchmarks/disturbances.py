"""What a foreign process on the cores does to ``tune``, while it screens or while it holds finals: what is said, and what is named wrongly.

    python benchmarks/disturbances.py [--runs 10] [--rated 5]

Nine configs of the GEMM example are tuned. One process per core computes while the configs are screened, or from the
first finals to the end. The phases are those of the run's own events. A config's rating is its median ratio to the best one's
time over ``--rated`` quiet meetings of all. A run calls a config clearly slower than its winner if it lost the finals untied, or if it was left out of
them by its screening. That is wrong if its rating is more than 1 % below the winner's.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from agreement import FILE, HOG, rate_all

from tileyard.artifacts.keys import canonical_json
from tileyard.model import Value

SPACE: dict[str, tuple[Value, ...]] = {"block_M": (16, 64, 256), "block_N": (16, 64, 256), "block_K": (64,)}  # fmt: skip
TUNE = [sys.executable, "-m", "tileyard", "tune", FILE, "--shape", "small", "--fresh", "--json"]
TUNE += [f"--config={key}={','.join(map(str, values))}" for key, values in SPACE.items()]
POLL_S = 0.05
NEAR = 0.99


class Phase:
    """The phase of the run that begins next, from the events in its file."""

    def __init__(self, home: Path) -> None:
        self._folder = home / "runs"
        self._known = set(self._folder.glob("*.jsonl"))
        self._read = 0
        self._is_final = False

    def are_finals_on(self) -> bool:
        """Whether the finals have begun."""
        for path in set(self._folder.glob("*.jsonl")) - self._known:
            with path.open(encoding="utf-8") as file:
                file.seek(self._read)
                self._is_final |= '"batch":"finals"' in file.read()
                self._read = file.tell()
        return self._is_final


def tune(home: Path, *, in_finals: bool) -> dict[str, Any]:
    """The result of a fresh run, on cores that are busy during its screening or its finals."""
    phase, hogs = Phase(home), list[subprocess.Popen[bytes]]()
    env = {**os.environ, "TILEYARD_HOME": str(home)}
    with tempfile.TemporaryFile() as out:
        run = subprocess.Popen(TUNE, env=env, stdout=out, stderr=subprocess.DEVNULL)
        try:
            while run.poll() is None:
                if phase.are_finals_on() != in_finals:
                    end(hogs)
                elif not hogs:
                    hogs += [subprocess.Popen(HOG) for _ in os.sched_getaffinity(0)]
                time.sleep(POLL_S)
        finally:
            end([*hogs, run])
        out.seek(0)
        found: dict[str, Any] = json.load(out)
    return found


def end(processes: list[subprocess.Popen[bytes]]) -> None:
    """Kill processes, and forget them."""
    while processes:
        process = processes.pop()
        process.kill()
        process.wait()


def list_slower(result: dict[str, Any]) -> list[str]:
    """The configs that a run calls clearly slower than its winner."""
    finals = {one["trial"]: one for one in result["finals"]}
    binaries = {t["keys"]["binary"] for t in result["trials"] if t["id"] in finals}
    lost = [canonical_json(one["config"]) for one in finals.values() if not one["tied"]]
    return lost + [
        canonical_json(t["config"])
        for t in result["trials"]
        if t["measurement"] and t["id"] not in {*finals, *result.get("unmet", ()), result["best"]["id"]}
        and t["keys"]["binary"] not in binaries
    ]  # fmt: skip


def main() -> None:
    """Print for each disturbance how runs end, and the wrong statements."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--rated", type=int, default=5)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rated = [rate_all(folder, "", SPACE) for _ in range(given.rated)]
        ratings = {key: statistics.median(one[key] for one in rated) for key in rated[0]}
        for name, in_finals in (("the screening", False), ("the finals", True)):
            said, slower, regrets, excess = Counter[str](), 0, [], list[float]()
            for _ in range(given.runs):
                result = tune(Path(folder), in_finals=in_finals)
                word = "disturbed, no order" if result["best"] is None else "a winner"
                said[
                    word
                    + (
                        ", a disturbance named"
                        if result.get("disturbances") or result.get("busy")
                        else ""
                    )
                ] += 1
                if result["best"] is None:
                    continue
                best = ratings[canonical_json(result["best"]["config"])]
                regrets.append(best / min(ratings.values()))
                claims = list_slower(result)
                slower += len(claims)
                excess += [best / ratings[key] for key in claims if ratings[key] < NEAR * best]
            print(f"{name} disturbed: {dict(said)}")
            most = f", by up to {max(excess):.3f} x" if excess else ""
            print(f"  {len(excess)} of {slower} 'clearly slower' wrong{most}; winners up to {max(regrets, default=1):.3f} x the best", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()

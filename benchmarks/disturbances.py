"""What a foreign process on the cores does to ``tune``, while it screens or while it holds finals: what is
said, and what is named wrongly.

    python benchmarks/disturbances.py [--runs 10]

Nine configs of the GEMM example are tuned. One process per core computes while the configs are screened, or
from the first finals to the end. The phases are those of the run's own events. Before each run all configs
meet, undisturbed: which of two close ones is faster changes within minutes. A config's rating is its median
ratio to the best one's time over all these meetings. A run calls a config clearly slower than its winner if
it lost the finals untied, or if it was left out of them by its screening. That is wrong if its rating is more
than 1 % below the winner's.
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

from tileyard.artifacts.objects import canonical_json
from tileyard.base.model import Value

SPACE: dict[str, tuple[Value, ...]] = {
    "block_M": (16, 64, 256),
    "block_N": (16, 64, 256),
    "block_K": (64,),
}
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
    given = parser.parse_args()
    rated: list[dict[str, float]] = []
    results: dict[str, list[dict[str, Any]]] = {"the screening": [], "the finals": []}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(given.runs):
            for name, found in results.items():
                rated.append(rate_all(folder, "", SPACE))
                found.append(tune(Path(folder), in_finals=name == "the finals"))
    ratings = {key: statistics.median(one[key] for one in rated) for key in rated[0]}
    for name, found in results.items():
        print(f"{name} disturbed: {dict(Counter(map(describe, found)))}")
        claims = [
            (ratings[canonical_json(one["best"]["config"])], list_slower(one))
            for one in found
            if one["best"] is not None
        ]
        slower = [(best, ratings[key]) for best, keys in claims for key in keys]
        wrong = [best / rating for best, rating in slower if rating < NEAR * best]
        most = f", by up to {max(wrong):.3f} x" if wrong else ""
        worst = max((best for best, _ in claims), default=1) / min(ratings.values())
        print(
            f"  {len(wrong)} of {len(slower)} 'clearly slower' wrong{most}; winners up to "
            f"{worst:.3f} x the best"
        )
    print(
        "ratings:",
        *(f"{key} {rating:.3f}" for key, rating in sorted(ratings.items(), key=lambda one: one[1])),
        sep="\n  ",
    )


def describe(result: dict[str, Any]) -> str:
    """How a run ends: with a winner or without an order, and whether it says that something disturbed it."""
    said = "disturbed, no order" if result["best"] is None else "a winner"
    named = result.get("disturbances") or result.get("busy")
    return f"{said}, a disturbance named" if named else said


if __name__ == "__main__":
    main()

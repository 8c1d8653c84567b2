"""The engine is killed at random moments of a study, and the study is gone on with each time."""

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from tileyard.store.base import TrialQuery
from tileyard.store.trials import open_store

KILLS = int(os.environ.get("TILEYARD_KILLS", "2"))
"""How often the engine is killed; 20 for the figures."""
CONFIGS = 12 * KILLS
"""So many that the last kill still hits a study that has something to do."""
ROOT = Path(__file__).parents[2]
DEADLINE_S = 120.0

pytestmark = pytest.mark.slow


def start(folder: Path) -> subprocess.Popen[str]:
    """Begin the study, or go on with it."""
    folder.mkdir(exist_ok=True)
    return subprocess.Popen(
        [sys.executable, "-m", "tests.faults.study_engine", str(folder), str(CONFIGS)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )


def finish(folder: Path) -> dict[str, Any]:
    """Let the study come to its end."""
    output, _ = start(folder).communicate(timeout=DEADLINE_S)
    decoded: dict[str, Any] = json.loads(output)
    return decoded


def count_recorded(folder: Path) -> int:
    """The trials that the study has recorded so far."""
    with open_store(folder / "home") as store:
        return len(store.list_trials(TrialQuery(limit=0)))


def test_a_study_killed_at_random_moments_comes_to_the_same(tmp_path: Path) -> None:
    """Keys, outcomes, finals and winner equal an undisturbed run's, and no process is left."""
    expected = finish(tmp_path / "undisturbed")
    generator = random.Random(KILLS)
    disturbed = tmp_path / "disturbed"
    killed = 0
    family: list[psutil.Process] = []
    for _ in range(KILLS):
        awaited = count_recorded(disturbed) + generator.randrange(CONFIGS // KILLS)
        with start(disturbed) as engine:
            while engine.poll() is None and count_recorded(disturbed) < awaited:
                time.sleep(0.02)
            try:
                engine.wait(generator.uniform(0.0, 0.2))
            except subprocess.TimeoutExpired:
                family += psutil.Process(engine.pid).children(recursive=True)
                engine.kill()
                killed += 1
    assert killed > 0
    _, alive = psutil.wait_procs(family, timeout=DEADLINE_S)
    assert alive == []
    recorded = count_recorded(disturbed)
    resumed = finish(disturbed)
    for name in ("outcomes", "measurements", "best", "finals"):
        assert resumed[name] == expected[name], name
    assert 0 < resumed["reused"] <= recorded

"""What the command line costs before it does anything, and what a run costs in which all is known.

``tileyard --help`` beside its parts, and the second ``tileyard tune examples/gemm.py`` in a home of
its own beside the import of TileLang, which every run would pay if nothing were remembered.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

ROUNDS = 15
KNOWN_ROUNDS = 5
EXAMPLE = Path(__file__).parents[1] / "examples" / "gemm.py"
COMMANDS = {
    "tileyard --help": [sys.executable, "-m", "tileyard", "--help"],
    "import typer": [sys.executable, "-c", "import typer"],
    "python": [sys.executable, "-c", "pass"],
}
KNOWN_COMMANDS = {
    "second tileyard tune": [sys.executable, "-m", "tileyard", "tune", str(EXAMPLE)],
    "import tilelang": [sys.executable, "-c", "import tilelang"],
}


def main() -> None:
    """Time the commands in turn and print medians and ratios."""
    _print(_time(COMMANDS, ROUNDS, os.environ), "python")
    with tempfile.TemporaryDirectory() as folder:
        own = {"TILEYARD_HOME": f"{folder}/home", "TILEYARD_LOCK_DIR": f"{folder}/locks"}
        env = {**os.environ, **own}
        # The run that learns everything.
        subprocess.run(
            KNOWN_COMMANDS["second tileyard tune"], check=True, stdout=subprocess.DEVNULL, env=env
        )
        _print(_time(KNOWN_COMMANDS, KNOWN_ROUNDS, env), "import tilelang")


def _time(
    commands: Mapping[str, list[str]], rounds: int, env: Mapping[str, str]
) -> dict[str, float]:
    """The median of each command in seconds; they take turns, so that noise meets all of them."""
    samples_s: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(rounds):
        for name, command in commands.items():
            started_s = time.perf_counter()
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=env)
            samples_s[name].append(time.perf_counter() - started_s)
    return {name: statistics.median(taken_s) for name, taken_s in samples_s.items()}


def _print(medians_s: Mapping[str, float], unit: str) -> None:
    for name, median_s in medians_s.items():
        ratio = median_s / medians_s[unit]
        print(f"{name:20} {median_s * 1e3:7.1f} ms   {ratio:4.1f} x {unit}")


if __name__ == "__main__":
    main()

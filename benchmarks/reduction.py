"""Reduces planted failures of kernels with over 60 statements: what is left of each, and how long it took.

``python benchmarks/reduction.py [NAME ...]`` prints a row for each. There is no other tool for TileLang that
a user would pick instead: the time beside is that of one run of what is asked of each candidate, so the ratio
is about how many a user would try by hand.
"""

import importlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
_FIGURES = re.compile(
    r"^# (\d+) statements? of (\d+), after ([\d,]+) candidates?: (.*)$", re.MULTILINE
)


def main(names: list[str]) -> None:
    """A row for each failure."""
    sys.path.insert(0, str(ROOT))
    planted = importlib.import_module("tests.reduction.planted")
    print(f"{'failure':28}{'statements':>12}{'candidates':>12}{'seconds':>10}{'of CPU':>9}  end")
    for name, one in planted.PLANTED.items():
        if names and name not in names:
            continue
        with tempfile.TemporaryDirectory() as folder:
            shutil.copy(planted.FOLDER / "spoiled.py", folder)
            (Path(folder) / "large.py").write_text(one.text(), encoding="utf-8")
            environment = {
                **os.environ,
                "TILEYARD_HOME": f"{folder}/home",
                "TILEYARD_PLUGINS": "wrong=tests.reduction.wrong_target:WrongTarget",
                "PYTHONPATH": f"{ROOT}/src:{ROOT}",
            }
            command = [sys.executable, "-m", "tileyard", *one.arguments]
            began_s, before = time.monotonic(), os.times()
            done = subprocess.run(
                command, cwd=folder, env=environment, capture_output=True, text=True, check=False
            )
            spent_s, after = time.monotonic() - began_s, os.times()
        cpu_s = sum(after[2:4]) - sum(before[2:4])
        found = _FIGURES.search(done.stdout)
        if found is None:
            print(f"{name:28}{done.stderr.strip()}")
            continue
        left, full, candidates, end = found.groups()
        print(
            f"{name:28}{left + ' of ' + full:>12}{candidates:>12}{spent_s:>10.1f}{cpu_s:>9.1f}  {end}"
        )
        if os.environ.get("SHOW"):
            print(done.stdout)


if __name__ == "__main__":
    main(sys.argv[1:])

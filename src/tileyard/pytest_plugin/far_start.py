"""Starts the far side of a task of tests, in the environment and paths of the task's file. Run by
its path with the standard library alone: a queue may have removed variables. Its own stay.
"""

import json
import os
import sys
from pathlib import Path

MARK = "TILEYARD_FAR"
"""Set once the environment is complete: a process finds libraries by its environment at the start."""
PREPARED = "TILEYARD_FAR_PREPARED"
"""Set once the queue's prologue is read, for the same reason."""


def main() -> None:
    """Start again in the complete environment, then run the task."""
    task = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    if os.environ.get(MARK) != task["token"]:
        whole = {**os.environ, **task["environment"], MARK: task["token"]}
        os.execve(sys.executable, [sys.executable, "-P", __file__, *sys.argv[1:]], whole)
    os.chdir(task["cwd"])
    sys.path[:] = [*task["paths"], *(path for path in sys.path if path not in task["paths"])]
    # Found by what was just set.
    from tileyard.pytest_plugin.far import read_prologue, run_far

    if task["prologue"] and os.environ.get(PREPARED) != task["token"]:
        found = {**os.environ, **read_prologue(Path(sys.argv[1])), PREPARED: task["token"]}
        os.execve(sys.executable, [sys.executable, "-P", __file__, *sys.argv[1:]], found)
    sys.exit(run_far(Path(sys.argv[1]), sys.argv[2:]))


if __name__ == "__main__":
    main()

"""A process that has imported what takes seconds to import, and runs pytest in copies of itself.

Each line that it reads is one run; what it writes of it is its exit code. Only packages of others are
imported ahead: a copy imports Tileyard, plugins and tests by itself, as a fresh process does.
"""

import gc
import importlib
import json
import os
import runpy
import sys
from typing import Any

AHEAD = ("msgspec", "numpy", "pytest", "sqlalchemy", "tilelang.language")


def become(run: dict[str, Any]) -> None:
    """Turn a copy into what ``python -m pytest`` is when it begins."""
    os.chdir(run["folder"])
    os.environ.clear()
    os.environ.update(run["environment"])
    sys.path[0] = run["folder"]
    sys.argv = run["arguments"]
    silence = os.open(os.devnull, os.O_RDONLY)
    output = os.open(run["output"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for opened, stream in ((silence, 0), (output, 1), (output, 2)):
        os.dup2(opened, stream)
    os.close(silence)
    os.close(output)


def is_copy() -> bool:
    """Whether this process is a copy by now: one is made for each run, and the first returns at their end."""
    while line := sys.stdin.readline():
        pid = os.fork()
        if not pid:
            become(json.loads(line))
            return True
        os.write(1, b"%d\n" % os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    return False


if __name__ == "__main__":
    for name in AHEAD:
        importlib.import_module(name)
    gc.freeze()  # so that no copy has to touch, and thereby to copy, all that is there
    if is_copy():
        runpy.run_module("pytest", run_name="__main__", alter_sys=True)

"""Starts pytest, several processes side by side, each below a parent that counts what its orphans cost."""

import subprocess
import sys
from collections.abc import Iterable, Mapping

REAPING = "tools/reaping.py"


def run_pytest(
    jobs: int, arguments: Iterable[str], environment: Mapping[str, str] | None = None
) -> int:
    """Run pytest, in one process for 0 jobs; its exit status."""
    if jobs:
        workers = f"{jobs}*popen//python={sys.executable} {REAPING}"
        argv = ["-m", "pytest", "--dist", "loadfile", "--no-loadscope-reorder", "--tx", workers]
    else:
        argv = [REAPING, "-m", "pytest"]
    command = [sys.executable, *argv, "-q", *arguments]
    return subprocess.run(command, check=False, env=environment).returncode

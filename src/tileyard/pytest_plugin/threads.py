"""How many threads the numeric libraries of a test may use."""

import os
import sys

from tileyard.pytest_plugin.entry import ASKED_THREADS, OPENMP


def allow_threads(cores: int, processes: int) -> None:
    """In a test's own process: its share of the cores, or what the user has asked for."""
    asked = os.environ.pop(ASKED_THREADS, "")
    count = int(asked) if asked.isascii() and asked.isdecimal() else max(1, cores // processes)
    os.environ[OPENMP] = asked or str(count)
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(count)

"""How many threads the numeric libraries of a run use: none where tests are copied from, then a share."""

import os
import sys
from typing import Final

OPENMP: Final = "OMP_NUM_THREADS"
OPENBLAS: Final = "OPENBLAS_NUM_THREADS"
ASKED_THREADS: Final = "TILEYARD_PYTEST_THREADS"
"""The variable that keeps what ``OMP_NUM_THREADS`` was, for the tests' own processes."""


def spare_threads() -> None:
    """Keep OpenMP from starting threads in the process that tests are copied from.

    A copy of a process with such threads hangs where it wants to use them. OpenBLAS has means of its
    own. Harmless in a process that inherits from one where that was done.
    """
    if ASKED_THREADS in os.environ:
        return
    asked = os.environ.get(OPENMP, "")
    os.environ[ASKED_THREADS] = asked
    os.environ.setdefault(OPENBLAS, asked or str(len(os.sched_getaffinity(0))))
    os.environ[OPENMP] = "1"


def allow_threads(cores: int, processes: int) -> None:
    """In a test's own process: its share of the cores, or what the user has asked for."""
    asked = os.environ.pop(ASKED_THREADS, "")
    count = int(asked) if asked.isascii() and asked.isdecimal() else max(1, cores // processes)
    os.environ[OPENMP] = asked or str(count)
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(count)

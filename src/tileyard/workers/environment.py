"""Determines what workers get: the engine's environment with a cap on numeric libraries, and memory."""

import os
from pathlib import Path

THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)


def worker_environment(threads: int) -> dict[str, str]:
    """A complete environment in which numeric libraries start at most ``threads`` threads."""
    return {**os.environ, **dict.fromkeys(THREAD_VARIABLES, str(threads))}


def host_memory_bytes() -> int:
    """The memory in bytes of this host, or of the container of this process if that is less."""
    host = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        limit = int(Path("/sys/fs/cgroup/memory.max").read_text())
    except (OSError, ValueError):  # none, or "max"
        return host
    return min(host, limit)

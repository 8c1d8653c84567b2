"""What workers get: the engine's own environment with numeric libraries held to a cap, and the host's memory."""

import os
from pathlib import Path

THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)


def worker_environment(threads: int) -> dict[str, str]:
    """A whole environment in which numeric libraries start at most ``threads`` threads."""
    return {**os.environ, **dict.fromkeys(THREAD_VARIABLES, str(threads))}


def host_memory_bytes() -> int:
    """The memory of this host, or of the container that this process is in where that is less."""
    host = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        limit = int(Path("/sys/fs/cgroup/memory.max").read_text())
    except (OSError, ValueError):  # none, or "max"
        return host
    return min(host, limit)

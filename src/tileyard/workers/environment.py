"""The environment that workers get: the engine's own, with numeric libraries held to a cap."""

import os

THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)


def worker_environment(threads: int) -> dict[str, str]:
    """A whole environment in which numeric libraries start at most ``threads`` threads."""
    return {**os.environ, **dict.fromkeys(THREAD_VARIABLES, str(threads))}

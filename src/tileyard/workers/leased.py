"""Tells a worker the number of its lease, and waits for the lease if the worker was started early."""

import os
from collections.abc import MutableMapping

NUMBER_VARIABLE = "TILEYARD_LEASE"
PIPE_VARIABLE = "TILEYARD_LEASE_PIPE"


def wait_for_lease(environ: MutableMapping[str, str]) -> int:
    """The number of this process's first lease, 0 if it needs none; it comes directly from its keeper.

    Returns once the lease is held, and leaves its number in ``environ`` for the processes that this one starts.
    Raises SystemExit if the keeper is gone.
    """
    pipe = environ.pop(PIPE_VARIABLE, "")
    if pipe:
        with os.fdopen(int(pipe), "rb") as numbers:
            line = numbers.readline().decode()
        if not line.endswith("\n"):
            raise SystemExit("the keeper is gone: there will be no lease")
        environ[NUMBER_VARIABLE] = line.rstrip()
    return int(environ.get(NUMBER_VARIABLE, "").partition(",")[0] or 0)

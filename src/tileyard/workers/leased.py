"""Tells a worker the number of its lease, and waits for the lease if the worker was started early."""

import os
from collections.abc import MutableMapping

NUMBER_VARIABLE = "TILEYARD_LEASE"
PIPE_VARIABLE = "TILEYARD_LEASE_PIPE"


def wait_for_lease(environ: MutableMapping[str, str]) -> int:
    """Wait for this process's first lease; leave its number, else 0, in ``environ``. Raises SystemExit."""
    pipe = environ.pop(PIPE_VARIABLE, "")
    if pipe:
        with os.fdopen(int(pipe), "rb") as numbers:
            line = numbers.readline().decode()
        if not line.endswith("\n"):
            raise SystemExit("the keeper is gone: there will be no lease")
        environ[NUMBER_VARIABLE] = line.rstrip()
    return int(environ.get(NUMBER_VARIABLE, "").partition(",")[0] or 0)

"""``tileyard agent``: offers this host's devices to a run elsewhere, which started it."""

import os
from pathlib import Path
from typing import Annotated

import typer


def agent(
    *,
    scratch: Annotated[
        str,
        typer.Option(
            metavar="DIR", help="Use this instead of the data directory, and remove it at the end."
        ),
    ] = "",
    cores: Annotated[
        str, typer.Option(metavar="LIST", help="Use and offer only these CPU cores, such as 0-3,7.")
    ] = "",
) -> int:
    """Offer the devices of this host to a run on another one. Runs with --hosts start it.

    Standard input and output are the session with the run. It leases devices as every run of this host
    does, so others keep their turn, and ends what it started when the run hangs up.

    Exit status: 0 when the session is over.
    """
    from tileyard.devices.cpu import parse_cores, require_cores
    from tileyard.engine.hosts.agent import serve_stdio
    from tileyard.show.opening import load_settings

    if cores:
        chosen = parse_cores(cores, "--cores")
        require_cores(chosen, os.sched_getaffinity(0), "--cores")
        os.sched_setaffinity(0, chosen)
    serve_stdio(load_settings(), Path(scratch).absolute() if scratch else None)
    return 0

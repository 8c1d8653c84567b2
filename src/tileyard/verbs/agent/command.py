"""``tileyard agent``: offers this host's devices to a run elsewhere."""

import os
from pathlib import Path
from typing import Annotated

import typer

from tileyard.show.typed import TokenFile


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
    connect: Annotated[
        str,
        typer.Option(
            metavar="ADDRESS",
            help="Connect to the run at HOST:PORT or unix:PATH, with the token in $TILEYARD_AGENT_TOKEN.",
        ),
    ] = "",
    token_file: TokenFile = "",
) -> int:
    """Offer the devices of this host to a run on another one. Runs with --hosts start it.

    Standard input and output are the session with the run, or with --connect a connection. It leases
    devices as every run of this host does, so others keep their turn, and ends what it started when the run
    hangs up.

    Exit status: 0 when the session is over; 2 if the run does not take it.
    """
    from tileyard.devices.cpu import parse_cores, require_cores
    from tileyard.engine.hosts.agent import serve_run, serve_stdio
    from tileyard.engine.hosts.meeting import Address, read_ticket
    from tileyard.show.opening import load_settings
    from tileyard.show.values import refuse_unused

    if cores:
        chosen = parse_cores(cores, "--cores")
        require_cores(chosen, os.sched_getaffinity(0), "--cores")
        os.sched_setaffinity(0, chosen)
    settings = load_settings()
    folder = Path(scratch).absolute() if scratch else None
    if connect:
        serve_run(settings, Address.parse(connect), read_ticket(token_file), folder)
    else:
        refuse_unused("without --connect", {"--token-file": token_file})
        serve_stdio(settings, folder)
    return 0

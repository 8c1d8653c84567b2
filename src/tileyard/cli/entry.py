"""The program ``tileyard``: ``lease`` and ``exec`` go their own short ways, all else to the command line proper."""

import sys


def run() -> None:
    """Run one command and exit with its status."""
    if sys.argv[1:2] == ["lease"]:  # typer and what it brings would double the cost of a lease
        from tileyard.cli.lease import run_lease

        sys.exit(run_lease(sys.argv[2:]))
    if sys.argv[1:2] == ["exec"]:  # the process becomes the script's own
        from tileyard.cli.exec import run_exec

        sys.exit(run_exec(sys.argv[2:]))
    from tileyard.cli.main import run as run_any

    run_any()

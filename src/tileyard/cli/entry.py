"""The program ``tileyard``: ``lease`` and ``exec`` have fast paths of their own; everything else goes to ``main``."""

import os
import sys

INTERRUPTED = 130


def run() -> None:
    """Run one command and exit with its status."""
    if not has_folder() and not asks_for_help(sys.argv[1:]):
        gone = "the working directory no longer exists (change to one that does)"
        sys.exit(say(gone, 2))
    if sys.argv[1:2] == ["lease"]:  # typer and its imports would double the cost of a lease
        from tileyard.cli.lease import run_lease

        sys.exit(run_lease(sys.argv[2:]))
    if sys.argv[1:2] == ["exec"]:  # the process becomes the script's own
        from tileyard.cli.exec import run_exec

        sys.exit(run_exec(sys.argv[2:]))
    from tileyard.cli.main import main

    sys.exit(main(sys.argv[1:]))


def say(message: str, status: int) -> int:
    """Print one line to stderr, and return the exit status."""
    from tileyard.report.words import clean_line

    print(f"tileyard: {clean_line(message)}", file=sys.stderr)
    return status


def has_folder() -> bool:
    """Whether there is a working directory, which every command reads."""
    try:
        return bool(os.getcwd())  # noqa: PTH109 - pathlib costs a lease 5 ms
    except OSError:
        return False


def asks_for_help(arguments: list[str]) -> bool:
    """Whether help is requested among the options of a command, before a user's own command or script."""
    ours = arguments[:2] if arguments[:1] == ["exec"] else arguments
    return "--help" in (ours[: ours.index("--")] if "--" in ours else ours)

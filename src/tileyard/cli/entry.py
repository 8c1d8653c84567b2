"""The program ``tileyard``: ``lease`` and ``exec`` have fast paths of their own; everything else goes to ``main``."""

import os
import sys
import traceback
from contextlib import suppress
from pathlib import Path

from tileyard.show.guarding import escape, guarded

INTERRUPTED = 130
INTERNAL_ERROR = 70


def run() -> None:
    """Run one command and exit with its status."""
    open_streams()
    try:
        sys.exit(_run(sys.argv[1:]))
    except KeyboardInterrupt:  # during an import: commands handle it themselves
        sys.exit(INTERRUPTED)


def _run(arguments: list[str]) -> int:
    if not has_folder() and not asks_for_help(arguments):
        return say("the working directory no longer exists (change to one that does)", 2)
    if arguments[:1] == ["exec"]:  # the process becomes the script's own
        from tileyard.verbs.exec.command import run_exec

        return run_exec(arguments[1:])
    with guarded():
        if arguments[:1] == ["lease"]:  # typer and its imports would double the cost of a lease
            from tileyard.verbs.lease.command import run_lease

            return run_lease(arguments[1:])
        from tileyard.cli.main import main

        return main(arguments)


def open_streams() -> None:
    """Open closed standard streams on nothing: otherwise the next file would become one of them."""
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(fd, True)
    os.close(fd)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, "w" if number else "r", encoding="utf-8"))


def say(message: str, status: int) -> int:
    """Print one line to stderr, and return the exit status."""
    with suppress(OSError):  # nobody reads it
        print(f"tileyard: {clean(message)}", file=sys.stderr)
    return status


def explain(error: Exception) -> int:
    """Print why a command ended, one line if the host or the data directory is at fault, and return the exit status."""
    from tileyard.base.errors import blame_host
    from tileyard.base.settings import find_home

    if isinstance(error, BrokenPipeError):
        return INTERNAL_ERROR  # what was asked for may not have begun
    if isinstance(error, OSError):
        with suppress(OSError):
            if fault := blame_host(error, find_home(os.environ, Path.cwd())):
                return say(str(fault), fault.exit_status)
    with suppress(OSError):
        print(escape("".join(traceback.format_exception(error))), end="", file=sys.stderr)
    return say("this is a bug in tileyard; please report it", INTERNAL_ERROR)


def clean(message: str) -> str:
    """Foreign text as one line without effect on a terminal, or on a job of GitHub Actions."""
    from tileyard.show.words import clean_line

    return escape(clean_line(message))


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

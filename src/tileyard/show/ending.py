"""How a command ends: its exit status, and the line that says why. Light to import: a lease waits for it."""

import os
import sys
import traceback
from contextlib import suppress
from pathlib import Path

from tileyard.show.guarding import escape

INTERRUPTED = 130
INTERNAL_ERROR = 70


def say(message: str, status: int) -> int:
    """Print one line to stderr, and return the exit status."""
    with suppress(OSError):  # nobody reads it
        print(f"tileyard: {clean(message)}", file=sys.stderr)
    return status


def explain(error: Exception) -> int:
    """Print why a command ended, in one line if the host or home is at fault; return the exit status."""
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

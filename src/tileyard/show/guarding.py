"""Keeps printed text from acting as a command in a job of GitHub Actions. GitHub's runner obeys
``##[command]`` in a line and ``::command::`` at its start: one character of each is escaped, as
JSON allows. Files are not changed.
"""

import io
import os
import re
import stat
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

JOB = "GITHUB_ACTIONS"
_UNDECIDED = re.compile(r"\s*:?")
INTERRUPTED = 130
INTERNAL_ERROR = 70


_ANYWHERE, _AT_START = re.compile(r"(?<=##)\["), re.compile(r"^([^\S\n]*:):", re.MULTILINE)


class GuardedStream(io.TextIOWrapper):
    """A text stream on which no line is a command, except those of ``command``, however it is cut."""

    _line = ""
    """The current line so far; what cannot matter is left out."""

    def write(self, text: str) -> int:
        """Write text, with escapes in place of what would begin a command."""
        shown = []
        for part in text.splitlines(keepends=True):
            line = self._line + part
            shown.append(_escape(line)[len(self._line) :])
            is_open = _UNDECIDED.fullmatch(line) is not None
            self._line = "" if part[-1] in "\r\n" else line if is_open else f"x{line[-2:]}"
        super().write("".join(shown))
        return len(text)

    def command(self, line: str) -> None:
        """Write a line that the runner is to obey, for what stands at its start."""
        super().write(_ANYWHERE.sub(r"\\u005b", line) + "\n")
        self._line = ""


def escape(text: str) -> str:
    """Lines of text as they are printed here."""
    return _escape(text) if os.environ.get(JOB) else text


def _escape(text: str) -> str:
    return _AT_START.sub(r"\1\\u003a", _ANYWHERE.sub(r"\\u005b", text))


def print_command(line: str) -> None:
    """Print a command for GitHub's runner."""
    if isinstance(sys.stdout, GuardedStream):
        sys.stdout.command(line)
    else:
        print(line)


@contextmanager
def guarded() -> Iterator[None]:
    """In a job of GitHub Actions, guard what this process prints, not the programs that it starts."""
    before = sys.stdout, sys.stderr
    if os.environ.get(JOB):
        sys.stdout, sys.stderr = map(_guard, before)
    try:
        yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, GuardedStream):
                with suppress(OSError, ValueError):
                    stream.flush()
                    stream.detach()
        sys.stdout, sys.stderr = before


def _guard(stream: TextIO) -> TextIO:
    """The stream itself if it is a file, which keeps what it gets."""
    try:
        is_file = stat.S_ISREG(os.fstat(stream.fileno()).st_mode)
    except (OSError, ValueError):  # a stream in memory
        return stream
    if is_file or not isinstance(stream, io.TextIOWrapper):
        return stream
    stream.flush()
    return GuardedStream(
        stream.buffer, stream.encoding, stream.errors, line_buffering=stream.line_buffering
    )


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

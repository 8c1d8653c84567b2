"""Keeps printed text from acting as a command in a job of GitHub Actions. GitHub's runner obeys
``##[command]`` in a line and ``::command::`` at its start: one character of each is escaped, as
JSON allows. Files are not changed.
"""

import io
import os
import re
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TextIO

JOB = "GITHUB_ACTIONS"
_ANYWHERE, _AT_START = re.compile(r"(?<=##)\["), re.compile(r"^([^\S\n]*:):", re.MULTILINE)
_UNDECIDED = re.compile(r"\s*:?")


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

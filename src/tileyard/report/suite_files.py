"""Reports written whole or not at all, and the ends of logs that they quote."""

import os
import re
from collections.abc import Iterable
from pathlib import Path

from tileyard.drafts import draft_of
from tileyard.errors import UsageError

_TERMINAL = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~])")
"""What programs send to colour their output, to move a cursor, or to name a window."""


def write_atomically(path: Path, chunks: Iterable[bytes]) -> None:
    """Write a file that nobody ever sees half of, and the folders above it.

    Raises UsageError that names the path where it cannot be written.
    """
    try:
        path.resolve().parent.mkdir(parents=True, exist_ok=True)
        with draft_of(path) as file:
            file.writelines(chunks)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from error


def read_tail(path: Path, size: int) -> str:
    """The last whole lines of a log, ``size`` bytes at most, free of terminal codes; empty if unreadable.

    A first line says how much lies before them.
    """
    try:
        with path.open("rb") as file:
            length = file.seek(0, os.SEEK_END)
            begin = max(0, length - size)
            file.seek(begin)
            content = file.read(size)
    except (OSError, ValueError):  # the latter for a name that no file can have
        return ""
    if begin:
        cut = content.find(b"\n") + 1  # 0 where one line is longer than all that may be quoted
        content = content[cut:]
        begin += cut
    text = _TERMINAL.sub("", content.decode("utf-8", errors="replace"))
    return f"({begin} bytes before this are in {path})\n{text}" if begin else text

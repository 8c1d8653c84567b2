"""Writes reports completely or not at all, copies logs, and reads the ends of logs that reports quote."""

import contextlib
import errno
import os
import re
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from tileyard.base.drafts import draft_of
from tileyard.base.errors import UsageError
from tileyard.base.model import Trial
from tileyard.base.modes import write_on

_TERMINAL = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~])")
"""Control sequences of programs that colour their output, move a cursor, or name a window."""


class Report(contextlib.AbstractContextManager["Report"]):
    """A file that is never visible half written, and its folders. As a context manager it can reserve disk
    space, which is dropped if the block fails. All methods raise UsageError naming the path if it cannot be
    written.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._draft = contextlib.ExitStack()
        self._file: BinaryIO | None = None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._draft.__exit__(kind, error, trace)

    def reserve(self, room_bytes: int) -> None:
        """Reserve a place for the file, and so many bytes if available: a full disk then cannot prevent it.
        One that is not plain, as a pipe, is opened when written.
        """
        if not self._path.exists() or self._path.is_file():
            with self._explained():
                self._open(room_bytes)

    def write(self, *versions: Iterable[bytes]) -> None:
        """Write the first version that fits, once."""
        with self._explained(), self._draft:
            file = self._file or self._open(0)
            for number, chunks in enumerate(versions, start=1):
                try:
                    _write_whole(file, b"".join(chunks))
                except OSError as error:
                    if error.errno != errno.ENOSPC or number == len(versions):
                        raise
                else:
                    return

    def _open(self, room_bytes: int) -> BinaryIO:
        self._path.resolve().parent.mkdir(parents=True, exist_ok=True)
        self._file = self._draft.enter_context(draft_of(self._path, room_bytes))
        return self._file

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise UsageError(f"cannot write {self._path}: {error.strerror}") from error


class CaseLogs:
    """Copies of cases' logs, made as these end: ``CASE.log`` below a folder, all attempts in one. Raises
    UsageError if that is impossible; ``error`` is the first later failure.
    """

    def __init__(self, folder: Path, home: Path) -> None:
        self.error: UsageError | None = None
        self._folder = folder
        self._home = home
        self._begun: set[str] = set()
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"cannot write {folder}: {error.strerror}") from error

    def keep(self, trial: Trial) -> None:
        """Copy the log of an attempt, if it has one."""
        source, target = self._home / trial.log, self._folder / f"{trial.case}.log"
        if not trial.log or not source.is_file():
            return
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with (
                source.open("rb") as read,
                target.open("ab" if trial.case in self._begun else "wb") as write,
            ):
                shutil.copyfileobj(read, write)
        except OSError as error:
            self.error = self.error or UsageError(f"cannot write {target}: {error.strerror}")
        self._begun.add(trial.case)


def write_atomically(path: Path, chunks: Iterable[bytes]) -> None:
    """Write a ``Report`` at once."""
    Report(path).write(chunks)


def require_writable(path: Path) -> None:
    """Make its folders. Raises UsageError where a ``Report`` cannot be written there."""
    with contextlib.suppress(_DroppedError), Report(path) as report:
        report.reserve(0)
        raise _DroppedError


class _DroppedError(Exception):
    """It was an attempt, and leaves nothing."""


def _write_whole(file: BinaryIO, data: bytes) -> None:
    """Write from the beginning, over existing content: reserved space stays reserved."""
    if file.seekable():
        file.seek(0)
    write_on(file.fileno(), bytearray(data))
    if file.seekable():
        file.seek(len(data))  # where a draft is cut off


def read_tail(path: Path, size: int) -> str:
    """The last whole lines of a log, at most ``size`` bytes, without terminal codes, below a line on what
    precedes them; empty if unreadable.
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
        cut = content.find(b"\n") + 1  # 0 if one line is longer than the limit
        content = content[cut:]
        begin += cut
    text = _TERMINAL.sub("", content.decode("utf-8", errors="replace"))
    return f"({begin} bytes before this are in {path})\n{text}" if begin else text

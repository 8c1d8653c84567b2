"""Writes and reads the raw event stream of a run: one JSON line per event, in ``runs/<run>.jsonl``."""

import contextlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import BinaryIO, Self

import msgspec

from tileyard.base.errors import HomeError, UsageError
from tileyard.base.events import EVENT_VERSION, CaseEnded, Event, RunEnded, RunStarted
from tileyard.base.model import Record, Trial
from tileyard.base.modes import make_folder, open_file, write_on
from tileyard.processes.keeper.files import is_locked, lock_for_writing
from tileyard.store.rows import try_decode, upgrade

_RUN_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}")
_DECODER: msgspec.json.Decoder[Event] = msgspec.json.Decoder(Event)
END_BYTES = 4096
"""More bytes than the last event of a run has."""


class _OldCase(Record):
    kernel: str


class _OldPlanned(Record, tag="case_planned"):
    """A planned case of version 1. Only its trial is still used."""

    case: _OldCase


_OLD_DECODER = msgspec.json.Decoder(_OldPlanned)


class EventLog:
    """Appends the events of one run; a context manager. One survives this process after ``append``,
    or ``add`` and ``flush``; both raise HomeError, and the events stay for the next ``flush``. The file is
    locked meanwhile, by which others see that the run is under way.
    """

    def __init__(self, home: Path, run: str) -> None:
        self.path = run_file(home, run)
        self._unwritten = bytearray()
        self._descriptor = _open_stream(self.path)
        with contextlib.suppress(OSError):  # another process writes there, too
            lock_for_writing(self._descriptor)
        self._end_torn_line()

    def append(self, event: Event) -> None:
        """Write one event. Raises HomeError if the disk is full."""
        self.add(event)
        self.flush()

    def add(self, event: Event) -> None:
        """Keep an event for the next ``flush``."""
        self._unwritten += msgspec.json.encode(event) + b"\n"

    def flush(self) -> None:
        """Write what was added. Raises HomeError if the disk is full."""
        try:
            write_on(self._descriptor, self._unwritten)
        except OSError as error:
            raise HomeError(f"cannot write to {self.path}: {error.strerror}") from error

    def close(self) -> None:
        """Close the file; a second call has no effect. Events that still cannot be written are lost."""
        if self._descriptor >= 0:
            with contextlib.suppress(HomeError):  # a flush that failed has reported it
                self.flush()
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _end_torn_line(self) -> None:
        """End a half line that a killed writer may have left, so that the next line does not join it."""
        size = os.fstat(self._descriptor).st_size
        if size and os.pread(self._descriptor, 1, size - 1) != b"\n":
            self._unwritten += b"\n"


class StoredRun(Record):
    """The trials in a run's event stream, as they ended; ``skipped`` counts unreadable lines."""

    trials: tuple[Trial, ...]
    skipped: int


def is_run_name(text: str) -> bool:
    """Whether a run can have this name, which is then that of a file in the folder of runs."""
    return _RUN_NAME.fullmatch(text) is not None


def run_file(home: Path, run: str) -> Path:
    """The file with the events of a run. Raises HomeError for a name that is not a possible file name."""
    if not is_run_name(run):
        raise HomeError(f"{run!r} cannot be the name of a run")
    return home / "runs" / f"{run}.jsonl"


def begin_run_file(home: Path, run: str) -> bool:
    """Create the empty event stream of a run; False if there already is one. Raises HomeError."""
    path = run_file(home, run)
    try:
        os.close(_open_stream(path, os.O_EXCL))
    except HomeError:
        if path.exists():
            return False
        raise
    return True


def _open_stream(path: Path, flags: int = 0) -> int:
    try:
        make_folder(path.parent)
        return open_file(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | flags)
    except OSError as error:
        raise HomeError(
            f"cannot write to {path}: {error.strerror}", hint="set TILEYARD_HOME elsewhere"
        ) from error


def read_events(path: Path) -> Iterator[Event | None]:
    """A stream's events, None for an unreadable line. Version 1: no planned cases, upgraded trials.
    Raises HomeError if it cannot be opened or is newer.
    """
    with _open(path) as file:
        yield from _decode(path, file)


def _open(path: Path) -> BinaryIO:
    try:
        if path.exists() and not path.is_file():  # opening a pipe would wait for its writer
            raise HomeError(f"cannot read {path}: it is not a file")
        return path.open("rb")
    except OSError as error:
        raise HomeError(f"cannot read {path}: {error.strerror}") from error


def _decode(path: Path, lines: Iterable[bytes]) -> Iterator[Event | None]:
    for line in lines:
        event = try_decode(_DECODER, line)
        if event is None and try_decode(_OLD_DECODER, line) is not None:
            continue
        if isinstance(event, RunStarted) and event.version > EVENT_VERSION:
            raise HomeError(
                f"{path} was written by a newer version of Tileyard"
                f" (events {event.version}, this one knows {EVENT_VERSION})",
                hint="upgrade Tileyard, or move the file away",
            )
        if isinstance(event, CaseEnded):
            event = msgspec.structs.replace(event, trial=upgrade(event.trial, line))
        if line.strip():
            yield event


class EventTail:
    """Follows the events of a run while it goes on."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read_bytes = 0

    def read(self) -> Iterator[Event]:
        """The events since the last call, but for an incomplete last line. Raises as ``read_events``."""
        with _open(self._path) as file:
            file.seek(self._read_bytes)
            yield from filter(None, _decode(self._path, self._whole_lines(file)))

    def _whole_lines(self, file: BinaryIO) -> Iterator[bytes]:
        for line in file:
            if not line.endswith(b"\n"):
                return
            self._read_bytes += len(line)
            yield line


class StreamState(Record):
    """What the ends of a run's stream say: its first and last event, if they are known, and whether the run
    is under way.
    """

    begun: RunStarted | None
    ended: RunEnded | None
    is_open: bool


def is_under_way(path: Path) -> bool:
    """Whether a process writes a run's stream. Raises as ``read_events``."""
    with _open(path) as file:
        return is_locked(file.fileno())


def read_state(path: Path) -> StreamState:
    """The state of a run, from the first line and the last of its stream. Raises as ``read_events``."""
    is_open = is_under_way(path)
    with _open(path) as file:
        begun = _read_begun(path, file)
        file.seek(max(0, file.seek(0, os.SEEK_END) - END_BYTES))
        last = [event for event in _decode(path, file.readlines()[-1:]) if event]
    ended = last[0] if last and isinstance(last[0], RunEnded) else None
    return StreamState(begun=begun, ended=ended, is_open=is_open and ended is None)


def _read_begun(path: Path, file: BinaryIO) -> RunStarted | None:
    first = next(_decode(path, [file.readline()]), None)
    return first if isinstance(first, RunStarted) else None


def read_run(path: Path) -> StoredRun:
    """The trials of one stream. Raises HomeError as ``read_events`` does."""
    events = list(read_events(path))
    return StoredRun(
        trials=tuple(event.trial for event in events if isinstance(event, CaseEnded)),
        skipped=sum(event is None for event in events),
    )


def is_recorded(path: Path, has_all: Callable[[Sequence[str]], bool]) -> bool:
    """Whether a stream can be removed: all of it can be read, and the table has each of its trials."""
    try:
        run = read_run(path)
    except HomeError:
        return False
    return not run.skipped and has_all([trial.id for trial in run.trials])


def find_run_file(home: Path, run: str = "") -> Path:
    """The event stream of a run, by its name or the beginning of it; of the last one if that is empty.
    Raises UsageError.
    """
    files = {path.stem: path for path in list_run_files(home)}
    if run in files:
        return files[run]
    found = [name for name in files if name.startswith(run)]
    if run and len(found) > 1:
        raise UsageError(f"{run!r} is the beginning of {len(found)} runs: {', '.join(found[-3:])}")
    for name in sort_newest(home, found):
        if files[name].exists():  # `tileyard cache gc` removes files of runs at any time
            return files[name]
    raise UsageError(f"no run {f'{run!r} ' if run else ''}is recorded in {home}")


def sort_newest(home: Path, runs: Iterable[str]) -> Iterator[str]:
    """These runs, from the one that began last: by their names, and within a minute by their streams."""
    for _, same in groupby(sorted(runs, reverse=True), lambda run: run.rpartition("-")[0]):
        yield from sorted(same, key=lambda run: _began_at(home, run), reverse=True)


def _began_at(home: Path, run: str) -> float:
    try:
        path = run_file(home, run)
        with _open(path) as file:
            begun = _read_begun(path, file)
    except HomeError:
        return 0.0
    return begun.at if begun else 0.0


def list_run_files(home: Path) -> list[Path]:
    """The event streams of all runs, by name. It reads the folder alone, and no file in it."""
    try:
        with os.scandir(home / "runs") as entries:
            found = [one.path for one in entries if one.name.endswith(".jsonl") and one.is_file()]
    except OSError:
        return []
    return [Path(one) for one in sorted(found)]

"""Keeps the result of each run, so that reports of it can be made later: ``results/<run>.zst``."""

import contextlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import msgspec
import zstandard

from tileyard.base.errors import HomeError, UsageError
from tileyard.base.model import Record
from tileyard.base.modes import make_folder, write_file
from tileyard.store.events import is_run_name, run_file, sort_newest

FOLDER = "results"
MOST_BYTES = 1 << 30
"""Maximum size of a result that is read."""


class Kept(Record):
    """The result of a run, in msgpack; ``kind`` is the name of its class."""

    kind: str
    result: msgspec.Raw


def keep_result(home: Path, run: str, result: object) -> None:
    """Write a run's result. Raises HomeError if that is impossible."""
    file = _result_file(home, run)
    kept = Kept(kind=type(result).__qualname__, result=msgspec.Raw(msgspec.msgpack.encode(result)))
    draft = file.with_suffix(".draft")
    try:
        make_folder(file.parent)
        pack = zstandard.ZstdCompressor(write_checksum=True)
        write_file(draft, pack.compress(msgspec.msgpack.encode(kept)))
        draft.replace(file)
    except OSError as error:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)
        raise HomeError(f"cannot write to {file}: {error.strerror}") from error


def read_result(home: Path, run: str) -> Kept:
    """The result of a run. Raises UsageError if it is not kept, HomeError if it cannot be read."""
    file = _result_file(home, run)
    try:
        content = zstandard.decompress(file.read_bytes(), max_output_size=MOST_BYTES)
        return msgspec.msgpack.decode(content, type=Kept)
    except FileNotFoundError:
        hint = "a run keeps it when it ends; tileyard trace shows others"
        raise UsageError(f"the result of run {run!r} is not kept in {home}", hint) from None
    except OSError as error:
        raise HomeError(f"cannot read {file}: {error.strerror}") from error
    except (zstandard.ZstdError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise HomeError(f"{file} is damaged: {error}", hint="run it again") from error


def has_result(home: Path, run: str) -> bool:
    """Whether the result of a run is kept."""
    return bool(run) and bool(stamp_result(home, run))


def stamp_result(home: Path, run: str) -> int:
    """When the result of a run was kept, in nanoseconds of the file system's clock; 0 if it is not kept."""
    try:
        return _result_file(home, run).stat().st_mtime_ns
    except OSError:
        return 0


def list_kept(home: Path) -> Iterator[str]:
    """The runs whose results are kept, from the one that began last."""
    names = [path.stem for path in (home / FOLDER).glob("*.zst") if is_run_name(path.stem)]
    return filter(partial(has_result, home), sort_newest(home, names))


def _result_file(home: Path, run: str) -> Path:
    return home / FOLDER / f"{run_file(home, run).stem}.zst"

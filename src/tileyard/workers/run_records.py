"""Records, by run key in one append-only file beside the object store, what runs were made of."""

import fcntl
import tempfile
from collections.abc import Iterable
from pathlib import Path

import msgspec

from tileyard.artifacts.copying import writing_to
from tileyard.artifacts.objects import ObjectStore
from tileyard.artifacts.pins import find_oldest_pin, gate
from tileyard.base.decoding import decode_json
from tileyard.base.model import Case, Record, RunKey
from tileyard.base.modes import append_file, mode_in
from tileyard.workers.protocol import RunEntry

FILE_NAME = "runs.jsonl"


class RunRecord(Record):
    """One case in the form that a runner receives."""

    case: Case
    entry: RunEntry


class RunRecords:
    """Appends to the records of one object store, each run key once."""

    def __init__(self, objects: ObjectStore) -> None:
        self._path = _path_of(objects)
        self._known: set[RunKey] = set()
        self._unwritten = bytearray()

    def add(self, key: RunKey, record: RunRecord) -> None:
        """Keep a run for the next ``flush``; equal keys mean equal inputs and equal checks."""
        if key not in self._known:
            self._known.add(key)
            self._unwritten += b"\n" + key.encode() + b" " + msgspec.json.encode(record) + b"\n"

    def flush(self) -> None:
        """Append what was added. Raises HomeError; what could not be written is kept for the next call."""
        if not self._unwritten:
            return
        with writing_to(self._path):
            append_file(self._path, self._unwritten)


def find_run(objects: ObjectStore, key: str) -> RunRecord | None:
    """The latest run with this key; None if it was never made here, or its record is torn."""
    return find_runs(objects, (key,)).get(key)


def find_runs(objects: ObjectStore, keys: Iterable[str]) -> dict[str, RunRecord]:
    """The latest run with each of these keys, omitting those for which ``find_run`` returns None."""
    wanted = {key.encode(): key for key in keys}
    found: dict[str, RunRecord] = {}
    try:
        with _path_of(objects).open("rb") as file:
            for line in file:
                name, _, text = line.partition(b" ")
                if name in wanted and (record := _decode(text)) is not None:
                    found[wanted[name]] = record
    except FileNotFoundError:
        return {}
    return found


def sweep_runs(objects: ObjectStore) -> int:
    """Drop the runs whose artifact is gone, unless a run is active; return bytes freed. Raises OSError."""
    path = _path_of(objects)
    with gate(objects.root, fcntl.LOCK_EX):
        if not path.is_file() or find_oldest_pin(objects.root) is not None:
            return 0
        before = path.stat().st_size
        with (
            path.open("rb") as file,
            tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as kept,
        ):
            for line in file:
                record = _decode(line.partition(b" ")[2])
                if record is not None and objects.has_record("build", record.entry.build):
                    kept.write(b"\n" + line)
        fresh = Path(kept.name)
        fresh.chmod(mode_in(path.parent, 0o666))
        after = fresh.stat().st_size
        if after < before:
            fresh.replace(path)
        else:
            fresh.unlink()
    return max(0, before - after)


def _path_of(objects: ObjectStore) -> Path:
    return objects.root / FILE_NAME


def _decode(text: bytes) -> RunRecord | None:
    try:
        return decode_json(text, RunRecord)
    except msgspec.DecodeError:
        return None

"""What a run was made of, kept by its run key in the object store, so that it can be repeated."""

import msgspec

from tileyard.artifacts.objects import ObjectStore
from tileyard.model import Case, Record, RunKey
from tileyard.workers.protocol import RunEntry

RECORD_KIND = "run"


class RunRecord(Record):
    """One case as a runner gets it, and the target that loads its artifact."""

    case: Case
    entry: RunEntry
    target: str


def remember_run(objects: ObjectStore, key: RunKey, record: RunRecord) -> None:
    """Keep a run under its key; equal keys mean equal inputs and equal checks."""
    objects.put_record(RECORD_KIND, key, msgspec.json.encode(record))


def find_run(objects: ObjectStore, key: str) -> RunRecord | None:
    """The run with this key; None where it was never made here, or its record is damaged."""
    data = objects.get_record(RECORD_KIND, key)
    try:
        return None if data is None else msgspec.json.decode(data, type=RunRecord)
    except msgspec.DecodeError:
        return None

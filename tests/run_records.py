"""Runs that are kept without an engine."""

from tileyard.artifacts.objects import ObjectStore
from tileyard.base.model import RunKey
from tileyard.workers.run_records import RunRecord, RunRecords


def remember_run(objects: ObjectStore, key: RunKey, record: RunRecord) -> None:
    """Keep a single run under its key."""
    records = RunRecords(objects)
    records.add(key, record)
    records.flush()

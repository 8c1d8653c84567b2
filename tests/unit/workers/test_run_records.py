"""What runs were made of: appended, found by key, and readable after a writer was killed."""

import msgspec
from tests.run_records import remember_run

from tileyard.artifacts.objects import ObjectStore
from tileyard.artifacts.pins import hold
from tileyard.base.model import BuildKey, Case, GoldenKey, KernelWork, RunKey
from tileyard.workers.protocol import Golden, RunEntry
from tileyard.workers.run_records import FILE_NAME, RunRecord, RunRecords, find_run, sweep_runs


def record(target: str) -> RunRecord:
    """A run that is told from others by its target."""
    golden = Golden(key=GoldenKey("g"), inputs=(), outputs=())
    entry = RunEntry(
        case="c", build=BuildKey("b"), golden=golden, specs=(), scalars=(1, 2.5), log="a.log"
    )
    return RunRecord(
        case=Case(id="c", work=KernelWork(kernel="k", config={"n": 1}), target=target),
        entry=entry,
    )


def test_a_run_is_found_by_its_key(objects: ObjectStore) -> None:
    """Every field comes back; a key that was never written finds nothing, not even by its start."""
    assert find_run(objects, "a" * 40) is None
    records = RunRecords(objects)
    records.add(RunKey("a" * 40), record("one"))
    records.add(RunKey("b" * 40), record("two"))
    records.flush()
    expected = record("two")
    assert find_run(objects, "b" * 40) == expected
    assert find_run(objects, "a" * 39) is None
    assert find_run(objects, "c" * 40) is None


def test_nothing_is_written_before_a_flush(objects: ObjectStore) -> None:
    """And a key that was written is not written again by the same engine."""
    records = RunRecords(objects)
    records.add(RunKey("a"), record("one"))
    assert find_run(objects, "a") is None
    records.flush()
    records.add(RunKey("a"), record("one"))
    size = (objects.root / FILE_NAME).stat().st_size
    records.flush()
    expected = size
    assert (objects.root / FILE_NAME).stat().st_size == expected


def test_a_torn_record_hides_no_other(objects: ObjectStore) -> None:
    """What a killed writer left is passed over, and what follows stands on a line of its own."""
    remember_run(objects, RunKey("a"), record("one"))
    with (objects.root / FILE_NAME).open("ab") as file:
        file.write(b'a {"case": {"id"')
    remember_run(objects, RunKey("b"), record("two"))
    expected = [record("one"), record("two")]
    assert [find_run(objects, key) for key in "ab"] == expected


def test_runs_whose_artifact_is_gone_are_swept(objects: ObjectStore) -> None:
    """They cannot be repeated; while a run goes on nothing is touched, since it may be writing."""
    kept = record("kept")
    gone = msgspec.structs.replace(
        record("gone"), entry=msgspec.structs.replace(kept.entry, build=BuildKey("no"))
    )
    objects.put_record("build", "b", b"artifact")
    for key, one in (("a" * 40, kept), ("c" * 40, gone), ("d" * 40, kept)):
        remember_run(objects, RunKey(key), one)
    size = (objects.root / FILE_NAME).stat().st_size
    with hold(objects.root):
        assert sweep_runs(objects) == 0
    freed = sweep_runs(objects)
    assert freed > 0
    assert (objects.root / FILE_NAME).stat().st_size == size - freed
    assert find_run(objects, "c" * 40) is None
    assert find_run(objects, "a" * 40) == find_run(objects, "d" * 40) == kept
    remember_run(objects, RunKey("e" * 40), kept)
    assert find_run(objects, "e" * 40) == kept

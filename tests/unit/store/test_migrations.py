"""A store of an older version shows what it showed, and says in columns what was in names before."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.unit.store.older import SCHEMA, TRIALS, WITHOUT_SUITES, make_store, make_stream, tell

from tileyard.base.model import Outcome, RunKey, Trial
from tileyard.store.events import is_recorded, read_run, run_file
from tileyard.store.rows import try_trial
from tileyard.store.schema import SCHEMA_VERSION
from tileyard.store.trials import TrialQuery, TrialStore


@pytest.fixture(params=[make_store, make_stream])
def store(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[TrialStore]:
    """A store of version 1 after its first opening, and one that is rebuilt from such a stream."""
    request.param(tmp_path)
    with TrialStore.open(tmp_path) as store:
        yield store


def describe_schema(path: Path) -> list[tuple[str, ...]]:
    """Columns with their types and indexes with theirs, of both tables, in no order."""
    with closing(sqlite3.connect(path)) as database:
        found = database.execute(
            "SELECT t.name, c.name, c.type FROM sqlite_master t, pragma_table_info(t.name) c"
            " WHERE t.type = 'table' UNION SELECT i.name, c.name, i.tbl_name FROM sqlite_master i,"
            " pragma_index_info(i.name) c WHERE i.type = 'index'"
        ).fetchall()
        assert database.execute("PRAGMA user_version").fetchone() == (SCHEMA_VERSION,)
    return sorted(found)


@pytest.mark.parametrize("older", ["", WITHOUT_SUITES])
def test_a_migrated_store_is_like_a_new_one(tmp_path: Path, older: str) -> None:
    """It has the same columns and indexes, and takes the same trials."""
    old, new = tmp_path / "old", tmp_path / "new"
    for home in (old, new):
        home.mkdir()
    with closing(sqlite3.connect(old / "store.db")) as database:
        database.executescript(SCHEMA + older)
    for home in (old, new):
        TrialStore.open(home).close()
    expected = describe_schema(new / "store.db")
    assert describe_schema(old / "store.db") == expected


def test_trials_of_version_1_say_what_their_cases_are(store: TrialStore) -> None:
    """Attempt and testcase are fields, and what was not an argument of a kernel is none."""
    found = {trial.id: trial for trial in store.list_trials(TrialQuery())}
    expected = {
        "t1": ("dir/a/x", 1, "dir/a", "", {}),
        "t2": ("dir/a/x", 2, "dir/a", "", {}),
        "t3": ("dir/a/x~3", 1, "dir/a", "", {}),
        "t4": ("c0001", 1, "", "gemm", {"M": 64}),
        "t5": ("gemm/block=8", 1, "", "gemm", {"M": 64}),
        "t6": ("tests/a.py/test_b[1]", 1, "test_b", "test_b", {}),
    }
    told = {
        name: (trial.case, trial.attempt, trial.testcase, trial.kernel, trial.arguments)
        for name, trial in found.items()
    }
    assert told == expected


@pytest.mark.parametrize("attempt", ['"y"', "1.5", "null", "[1]"])
def test_nonsense_in_a_record_of_version_1_ends_nothing(attempt: str) -> None:
    """A record that anybody may have written is read as far as it can be, or not at all."""
    record = tell("t", "a/x~y", "a", f'{{"case":"x","attempt":{attempt}}}')
    trial = try_trial(record)
    assert trial is None or (trial.case, trial.attempt, trial.testcase) == ("a/x~y", 1, "a")


def test_histories_of_version_1_stay(store: TrialStore) -> None:
    """Times, proofs, durations, summaries and lists by name are those that the older version gave."""
    expected = [
        ("dir/a/x", "dir/a", 1.0),
        ("dir/a/x", "dir/a", 2.0),
        ("dir/a/x~3", "dir/a", 3.0),
        ("tests/a.py/test_b[1]", "test_b", 6.0),
    ]
    times = store.list_run_times()
    assert [(time.case, time.testcase, time.run_s) for time in times] == expected
    [case, *_] = store.list_case_times([Outcome.PASSED], 2.0, "command", "npu")
    assert (list(case.before_s), list(case.after_s)) == ([1.0], [2.0])
    proof = store.find_passed(RunKey("k"))
    assert proof is not None
    assert proof.id == "t6"
    assert list(store.find_durations("gemm", "cpu").values()) == [5.0]
    assert len(store.list_trials(TrialQuery())) == len(TRIALS)
    of_testcase = store.list_trials(TrialQuery(kernel="dir/a"))
    assert [trial.id for trial in of_testcase] == ["t3", "t2", "t1"]
    assert store.describe_skipped() == ""


def test_streams_of_version_1_are_recorded_once_the_table_has_their_trials(tmp_path: Path) -> None:
    """Cases that an older version planned are no damage."""
    make_stream(tmp_path)
    path = run_file(tmp_path, "r")
    with TrialStore.open(tmp_path) as store:
        assert is_recorded(path, store.has_all)
    assert read_run(path).skipped == 0


def test_an_interrupted_migration_is_done_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make_trial: Callable[..., Trial]
) -> None:
    """A store is of one version or of the other, and goes on to take trials."""
    make_store(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr("tileyard.store.sqlite.SCHEMA_VERSION", SCHEMA_VERSION + 1)
        with pytest.raises(KeyError):  # there is no such migration
            TrialStore.open(tmp_path)
    with TrialStore.open(tmp_path) as store:
        store.record(make_trial("t7", case="dir/a/x", testcase="dir/a", kernel="", started_at=7.0))
        found = store.list_run_times()
    expected = ["dir/a/x"] * 3
    assert [time.case for time in found][:3] == expected

"""Opening the store: what cannot be used is refused in one line, and nothing is changed."""

import re
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

import tileyard
from tileyard.base.errors import HomeError
from tileyard.base.events import CaseEnded
from tileyard.base.model import Trial
from tileyard.store.base import NETWORK, find_filesystem
from tileyard.store.events import EventLog
from tileyard.store.schema import SCHEMA_VERSION
from tileyard.store.trials import TrialQuery, TrialStore

MakeTrial = Callable[..., Trial]


def open_and_close(home: Path) -> None:
    """Open the store of ``home`` for a moment."""
    TrialStore.open(home).close()


def test_store_is_made_with_its_home(tmp_path: Path) -> None:
    """A new home is created, and its store is empty and in WAL mode."""
    home = tmp_path / "deep" / "home"

    with TrialStore.open(home) as store:
        assert store.list_trials(TrialQuery()) == []

    with closing(sqlite3.connect(home / "store.db")) as database, database:
        assert database.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert database.execute("PRAGMA user_version").fetchone() == (SCHEMA_VERSION,)
    database.close()


def test_store_is_made_once_by_all_who_open_it_at_once(
    tmp_path: Path, make_trial: MakeTrial
) -> None:
    """Nobody sees a store half made or fills it a second time."""
    with EventLog(tmp_path, "r1") as log:
        for i in range(100):
            log.append(CaseEnded(trial=make_trial(f"t{i}")))
    barrier = threading.Barrier(4)
    expected = [100] * 4

    def open_with_the_others(_: int) -> int:
        barrier.wait()
        with TrialStore.open(tmp_path) as store:
            return len(store.list_trials(TrialQuery(limit=0)))

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(open_with_the_others, range(4)))

    assert found == expected


def test_newer_store_is_refused_and_left_alone(tmp_path: Path) -> None:
    """A store of a newer version is neither read nor written."""
    open_and_close(tmp_path)
    with closing(sqlite3.connect(tmp_path / "store.db")) as database, database:
        database.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    database.close()
    expected = (tmp_path / "store.db").read_bytes()

    with pytest.raises(HomeError, match="newer version of Tileyard"):
        TrialStore.open(tmp_path)

    assert (tmp_path / "store.db").read_bytes() == expected


def test_database_of_someone_else_is_refused_and_left_alone(tmp_path: Path) -> None:
    """A file of that name with tables of another program is not taken over."""
    with closing(sqlite3.connect(tmp_path / "store.db")) as database, database:
        database.execute("CREATE TABLE theirs (x)")
    database.close()
    expected = (tmp_path / "store.db").read_bytes()

    with pytest.raises(HomeError, match="not a store of Tileyard"):
        TrialStore.open(tmp_path)

    assert (tmp_path / "store.db").read_bytes() == expected


def test_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    """The message names the file and says what to do."""
    (tmp_path / "store.db").write_bytes(b"this is text, and long enough to be looked at" * 100)

    with pytest.raises(HomeError, match=r"store\.db: .*not a database.*move it away") as caught:
        TrialStore.open(tmp_path)
    assert "\n" not in str(caught.value)


def test_damage_found_while_reading_is_named(tmp_path: Path, make_trial: MakeTrial) -> None:
    """A store whose pages were overwritten says so, rather than losing trials silently."""
    with TrialStore.open(tmp_path) as store:
        for i in range(200):
            store.record(make_trial(f"t{i}"))
    path = tmp_path / "store.db"
    content = bytearray(path.read_bytes())
    content[4096:] = b"\xff" * (len(content) - 4096)
    path.write_bytes(content)

    with (
        TrialStore.open(tmp_path) as store,
        pytest.raises(HomeError, match=r"store\.db: .*malform"),
    ):
        store.list_trials(TrialQuery())


def test_home_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    """A file in the way of the home directory is reported with its path."""
    (tmp_path / "file").write_bytes(b"")

    with pytest.raises(HomeError, match=r"cannot write to .*home") as caught:
        TrialStore.open(tmp_path / "file" / "home")
    assert "\n" not in str(caught.value)


def test_store_that_is_a_directory_is_refused(tmp_path: Path) -> None:
    """What SQLite cannot open is reported as the home's fault."""
    (tmp_path / "store.db").mkdir()

    with pytest.raises(HomeError, match=r"store\.db: unable to open .*it must be readable, and"):
        TrialStore.open(tmp_path)


@pytest.mark.parametrize("kind", sorted(NETWORK))
def test_network_file_systems_are_refused(tmp_path: Path, kind: str) -> None:
    """A store on a mount of another host is refused before anything is written to it."""
    mounts = tmp_path / "mounts"
    home = tmp_path / "my home"
    escaped = str(home).replace(" ", "\\040")
    mounts.write_text(f"/dev/vda / ext4 rw 0 0\nserver:/x {escaped} {kind} rw 0 0\n")

    with pytest.raises(HomeError, match=f"network file system .{kind}."):
        TrialStore.open(home / "below", mounts=mounts)

    assert not home.exists()


def test_innermost_and_latest_mount_decides(tmp_path: Path) -> None:
    """A local disk below a network mount is local, and a later mount hides an earlier one."""
    mounts = tmp_path / "mounts"
    mounts.write_text(
        "server:/ / nfs rw 0 0\n"
        "/dev/vda /data ext4 rw 0 0\n"
        "server:/x /data/far nfs4 rw 0 0\n"
        "server:/y /over cifs rw 0 0\n"
        "tmpfs /over tmpfs rw 0 0\n"
        "broken\n"
    )
    expected = ["ext4", "ext4", "nfs4", "nfs", "tmpfs"]

    found = [
        find_filesystem(Path(path), mounts)
        for path in ("/data", "/data/x/y", "/data/far/z", "/database", "/over/x")
    ]

    assert found == expected


def test_host_without_a_table_of_mounts_is_trusted(tmp_path: Path) -> None:
    """Where nothing says what a file system is, the store opens."""
    TrialStore.open(tmp_path, mounts=tmp_path / "none").close()

    assert find_filesystem(tmp_path, tmp_path / "none") == ""


def test_store_that_was_moved_away_comes_back_from_the_event_streams(
    tmp_path: Path, make_trial: MakeTrial
) -> None:
    """Following the advice for a damaged file loses no trial."""
    expected = make_trial("t1")
    with EventLog(tmp_path, "r1") as log:
        log.append(CaseEnded(trial=expected))

    with TrialStore.open(tmp_path) as store:
        assert store.list_trials(TrialQuery()) == [expected]


def test_interrupted_making_of_a_store_is_done_again(
    tmp_path: Path, make_trial: MakeTrial, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store appears with all its first rows or not at all."""
    trial = make_trial("t1")
    with EventLog(tmp_path, "r1") as log:
        log.append(CaseEnded(trial=trial))
    with monkeypatch.context() as patch:
        patch.setattr("tileyard.store.trials.list_run_files", lambda _: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            TrialStore.open(tmp_path)

    with TrialStore.open(tmp_path) as store:
        assert store.list_trials(TrialQuery()) == [trial]


def test_a_database_is_for_those_the_home_is_open_to(tmp_path: Path) -> None:
    """So are the files that SQLite makes beside it, from the first moment on."""
    tmp_path.chmod(0o700)
    with TrialStore.open(tmp_path):
        found = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    names = ("store.db", "store.db-shm", "store.db-wal", "store.lock")
    assert found == dict.fromkeys(names, 0o600)


def test_only_one_module_knows_which_database_it_is() -> None:
    """What SQLite alone understands is in one module, so that another database is one more."""
    source = Path(tileyard.__file__).parent
    words = (
        "PRAGMA|BEGIN IMMEDIATE|json_group_array|store\\.db|create_aggregate|sqlite_where|sqlite3"
    )
    expected = ["store/sqlite.py"]
    found = [
        str(path.relative_to(source))
        for path in source.rglob("*.py")
        if re.search(words, path.read_text())
    ]
    assert found == expected

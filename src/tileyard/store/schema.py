"""The tables of ``store.db``, their version, and the opening of the file."""

import fcntl
import os
import sqlite3
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import (
    Boolean,
    Column,
    Connection,
    Engine,
    Float,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    create_engine,
    event,
    func,
    literal_column,
)
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import DatabaseError
from sqlalchemy.pool import ConnectionPoolEntry

from tileyard.errors import HomeError
from tileyard.modes import make_folder, open_file
from tileyard.store.filesystem import MOUNTS, require_local

SCHEMA_VERSION = 1
APPLICATION_ID = 0x54494C45
BUSY_S = 30.0

metadata = MetaData()

trials = Table(
    "trials",
    metadata,
    # Order of arrival; breaks ties between trials that started at the same time.
    Column("number", Integer, primary_key=True),
    Column("id", Text, nullable=False, unique=True),
    Column("run", Text, nullable=False),
    Column("case_id", Text, nullable=False),
    Column("kernel", Text, nullable=False),
    Column("target", Text, nullable=False),
    Column("device", Text, nullable=False),
    Column("outcome", Text, nullable=False),
    Column("control", Boolean, nullable=False),
    Column("reused", Boolean, nullable=False),
    Column("started_at", Float, nullable=False),
    Column("median_ns", Float),
    # Stores that are older than this column get it when they are opened; then it is last.
    Column("run_s", Float),
    Column("build_key", Text, nullable=False),
    Column("golden_key", Text, nullable=False),
    Column("run_key", Text, nullable=False),
    Column("measurement_key", Text, nullable=False),
    # The whole Trial as JSON. The other columns repeat what is searched for.
    Column("record", LargeBinary, nullable=False),
)
Index("trials_by_start", trials.c.started_at)
Index("trials_by_run", trials.c.run, trials.c.started_at)
Index("trials_by_kernel", trials.c.kernel, trials.c.started_at)
# Only builds that failed are looked up by their key: one that succeeded may have thousands of trials.
failed_builds = Index(
    "trials_by_failed_build",
    trials.c.build_key,
    trials.c.started_at,
    sqlite_where=trials.c.run_key == literal_column("''"),
)
Index("trials_by_measurement", trials.c.measurement_key, trials.c.started_at)
# Holds all that is asked of a suite's history, so that 100,000 cases are read without their records.
# A suite's case is ``testcase/name``; no other trial pays for this.
is_of_suite = func.instr(trials.c.case_id, literal_column("'/'")) > literal_column("0")
suite_times = Index(
    "trials_of_suites",
    trials.c.case_id,
    trials.c.started_at,
    trials.c.kernel,
    trials.c.target,
    trials.c.device,
    trials.c.outcome,
    trials.c.run_s,
    trials.c.reused,
    sqlite_where=is_of_suite,
)
suite_runs = Index(
    "trials_of_suites_by_run_key", trials.c.run_key, trials.c.started_at, sqlite_where=is_of_suite
)

doubles = func.doubles
"""An aggregate of SQLite connections: a column's numbers, as the bytes of an array of doubles."""


class _Doubles:
    """Collects them without a step in Python for each row."""

    def __init__(self) -> None:
        self._values = array("d")
        self.step = self._values.append

    def finalize(self) -> bytes:
        return self._values.tobytes()


Fill = Callable[[Connection], None]


def open_database(home: Path, fill: Fill, mounts: Path = MOUNTS) -> Engine:
    """The opened ``store.db`` of ``home``. A new one gets its first rows from ``fill``.

    Raises HomeError where ``home`` cannot be written or lies on a network file system, and where
    the file is damaged, not ours, or from a newer version.
    """
    path = home / "store.db"
    require_local(home, mounts)
    try:
        make_folder(home)
        lock = open_file(home / "store.lock", os.O_RDWR | os.O_CREAT)
    except OSError as error:
        raise HomeError(
            f"cannot write to {home}: {error.strerror}", hint="set TILEYARD_HOME elsewhere"
        ) from error
    try:
        # The change to WAL and the first tables must not race: SQLite does not wait for the former.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():  # what SQLite makes beside it has the mode of this file
            os.close(open_file(path, os.O_RDWR | os.O_CREAT))
        engine = _make_engine(path)
        try:
            with explained(path), engine.connect() as connection:
                _make_ready(connection, path, fill)
        except BaseException:
            engine.dispose()
            raise
    finally:
        os.close(lock)
    return engine


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn what SQLite complains of into a HomeError that names the file and says what to do."""
    try:
        yield
    except (DatabaseError, sqlite3.Error) as error:
        cause = error.orig if isinstance(error, DatabaseError) else error
        code = getattr(cause, "sqlite_errorcode", 0) & 0xFF
        raise HomeError(f"{path}: {cause}", hint=_HINTS.get(code, _MOVE_AWAY)) from error


_MOVE_AWAY = "move it away: the next start rebuilds it from the event streams in runs/"
CHECKPOINT_PAGES = 8000
"""Keys are random, so trials dirty pages all over: written back together, each page goes once."""

_HINTS = {
    sqlite3.SQLITE_BUSY: "another process has kept it locked for too long",
    sqlite3.SQLITE_FULL: "free some space",
    sqlite3.SQLITE_READONLY: "it must be writable, or set TILEYARD_HOME elsewhere",
    sqlite3.SQLITE_CANTOPEN: "it must be writable, or set TILEYARD_HOME elsewhere",
    sqlite3.SQLITE_PERM: "it must be writable, or set TILEYARD_HOME elsewhere",
}


def _make_engine(path: Path) -> Engine:
    engine = create_engine(
        f"sqlite:///{path}", isolation_level="AUTOCOMMIT", connect_args={"timeout": BUSY_S}
    )

    @event.listens_for(engine, "connect")
    def _prepare(connection: DBAPIConnection, _: ConnectionPoolEntry) -> None:
        connection.text_factory = _decode
        connection.create_aggregate("doubles", 1, _Doubles)
        cursor = connection.cursor()
        cursor.execute("PRAGMA synchronous = NORMAL")
        cursor.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
        cursor.close()

    return engine


def _decode(data: bytes) -> str | bytes:
    """A text of a row, as it is where it is none: that makes no sense in its column, and ends nothing else."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


def _make_ready(connection: Connection, path: Path, fill: Fill) -> None:
    """Refuse what is not ours; make the tables in a new file, all at once."""
    found = _pragma(connection, "user_version")
    if found > SCHEMA_VERSION:
        raise HomeError(
            f"{path} was written by a newer version of Tileyard"
            f" (schema {found}, this one knows {SCHEMA_VERSION})",
            hint="upgrade Tileyard, or set TILEYARD_HOME elsewhere",
        )
    if found == SCHEMA_VERSION:
        # Begins to write, if only what an older store lacks: notices a read-only file before
        # anything is built.
        with one_transaction(connection):
            _add_run_times(connection)
            failed_builds.create(connection, checkfirst=True)
            suite_times.create(connection, checkfirst=True)
            suite_runs.create(connection, checkfirst=True)
            return
    if connection.exec_driver_sql("SELECT count(*) FROM sqlite_master").scalar_one():
        raise HomeError(f"{path} is not a store of Tileyard", hint="move it away")
    connection.exec_driver_sql("PRAGMA journal_mode = WAL")
    with one_transaction(connection):
        metadata.create_all(connection)
        fill(connection)
        connection.exec_driver_sql(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.exec_driver_sql(f"PRAGMA user_version = {SCHEMA_VERSION}")


def _add_run_times(connection: Connection) -> None:
    """Give an older store the column ``run_s``; what it holds is of no suite, and needs no value.

    Older versions of Tileyard go on using such a store: they name the columns that they write.
    """
    columns = connection.exec_driver_sql("PRAGMA table_info(trials)").all()
    if columns and "run_s" not in {column[1] for column in columns}:
        connection.exec_driver_sql("ALTER TABLE trials ADD COLUMN run_s FLOAT")


@contextmanager
def one_transaction(connection: Connection) -> Iterator[None]:
    """All or nothing: the driver is in autocommit mode, where every statement stands alone."""
    connection.exec_driver_sql("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        connection.exec_driver_sql("ROLLBACK")
        raise
    connection.exec_driver_sql("COMMIT")


def _pragma(connection: Connection, name: str) -> int:
    return int(connection.exec_driver_sql(f"PRAGMA {name}").scalar_one())

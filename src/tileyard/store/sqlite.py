"""The part of the store that is specific to SQLite: opening its file, fast queries, and migration."""

import fcntl
import os
import sqlite3
import threading
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import (
    ColumnElement,
    Connection,
    Engine,
    LargeBinary,
    Select,
    TypeDecorator,
    bindparam,
    create_engine,
    event,
    func,
    insert,
    select,
)
from sqlalchemy.dialects.sqlite.base import SQLiteDialect
from sqlalchemy.engine.interfaces import DBAPIConnection, DBAPICursor, Dialect
from sqlalchemy.exc import DatabaseError
from sqlalchemy.pool import ConnectionPoolEntry, PoolProxiedConnection

from tileyard.base.errors import HomeError
from tileyard.base.modes import make_folder, open_file
from tileyard.store.base import MOUNTS, require_local
from tileyard.store.rows import Row
from tileyard.store.schema import (
    SCHEMA_VERSION,
    failed_builds,
    is_unbuilt,
    metadata,
    suite_trials,
    trials,
)

Lookup = Select[tuple[bytes]]
"""A statement that finds the record of one trial; its parameter is ``key``."""
State = tuple[int, int]
"""Size and time of the last change of a file, by which a change is noticed."""
FILE = "store.db"
APPLICATION_ID = 0x54494C45
BUSY_S = 30.0
CHECKPOINT_PAGES = 8000
"""Pages between checkpoints: trials dirty pages all over, so many are written back together."""
MIGRATION_KIB = 64_000
"""KiB of memory for a migration, which sorts all trials of suites."""

_MOVE_AWAY = "move it away: the next start rebuilds it from the event streams in runs/"
_CANNOT_OPEN = "it must be readable, and its folder writable, or set TILEYARD_HOME elsewhere"
_HINTS = {
    sqlite3.SQLITE_BUSY: "another process has kept it locked for too long",
    sqlite3.SQLITE_FULL: "free some space",
    sqlite3.SQLITE_IOERR: "free some space, and see the limits of this shell on files: ulimit -f, ulimit -n",
    sqlite3.SQLITE_READONLY: "it must be writable, or set TILEYARD_HOME elsewhere",
    sqlite3.SQLITE_CANTOPEN: _CANNOT_OPEN,
    sqlite3.SQLITE_PERM: _CANNOT_OPEN,
}

failed_builds.dialect_kwargs["sqlite_where"] = is_unbuilt
suite_trials.dialect_kwargs["sqlite_with_rowid"] = False  # the table is in the order of its key


def has_store(home: Path) -> bool:
    """Whether a data directory has a store."""
    return (home / FILE).is_file()


def open_database(
    home: Path, fill: Callable[[], Sequence[Row]], mounts: Path = MOUNTS, *, to_read: bool = False
) -> "Sqlite":
    """The opened store of ``home``; ``fill`` gives a new one its first rows. ``to_read``: nothing is written
    if ``home`` is not writable. Raises HomeError if ``home`` has to be and is not, or is on a network file
    system, or if the file is damaged, not ours or newer.
    """
    path = home / FILE
    require_local(home, mounts)
    if to_read and home.is_dir() and not os.access(home, os.W_OK):
        return _open_as_it_is(path)
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
        if not path.exists():  # the files that SQLite makes beside it get the mode of this file
            os.close(open_file(path, os.O_RDWR | os.O_CREAT))
        return _open(path, partial(_make_ready, fill=fill))
    finally:
        os.close(lock)


def _open_as_it_is(path: Path) -> "Sqlite":
    hint = "a user who may write there must run `tileyard trials` once"
    before = _find_state(path)
    if before is None:
        raise HomeError(
            f"the records in {path.parent} were never indexed: its {FILE} is missing or empty",
            hint=hint,
        )
    # SQLite reads a log of changes only with the index that its writers made. Without a log it must
    # believe that nobody writes, as it could not make the index.
    log, index = (path.with_name(f"{FILE}-{end}") for end in ("wal", "shm"))
    if _find_state(log) is None:
        return _open(path, _require_current, "ro&immutable=1", before)
    if not (os.access(log, os.R_OK) and os.access(index, os.R_OK)):
        raise HomeError(
            f"{path} cannot be read here: its last changes are in {log.name}, which takes a readable"
            f" {index.name}",
            hint=hint,
        )
    return _open(path, _require_current, "ro")


def _open(
    path: Path,
    prepare: Callable[[Connection, Path], None],
    mode: str = "rw",
    unchanged: State | None = None,
) -> "Sqlite":
    database = Sqlite(path, mode, unchanged)
    try:
        with database.reading() as connection:
            prepare(connection, path)
    except BaseException:
        database.close()
        raise
    return database


def _find_state(path: Path) -> State | None:
    """None for a file without content, or no file."""
    try:
        found = path.stat()
    except OSError:
        return None
    return (found.st_size, found.st_mtime_ns) if found.st_size else None


def _find_remedy(path: Path) -> str:
    """What helps if a file is damaged, for this user."""
    if os.access(path.parent, os.W_OK):
        return _MOVE_AWAY
    return "only a user who may write to its folder can repair it"


class Sqlite:
    """The database of a store, usable from any thread: a pool, and a connection for every case's statements,
    which SQLAlchemy would slow tenfold. Errors become a HomeError that names ``path`` and what to do.
    """

    def __init__(self, path: Path, mode: str, unchanged: State | None = None) -> None:
        """``unchanged``: the state of a file that is read without locks. Once it differs, each statement
        ends with a HomeError: its rows may be of different times.
        """
        self.path = path
        self._unchanged = unchanged
        self._engine = _make_engine(path, mode)
        self._own: PoolProxiedConnection | None = None
        self._lock = threading.Lock()
        self._prepared: dict[Lookup, tuple[str, Mapping[str, Any]]] = {}

    def close(self) -> None:
        """Close all connections."""
        with self._lock:
            if self._own is not None:
                self._own.close()
                self._own = None
        self._engine.dispose()

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A connection for reading."""
        with self._explained(), self._engine.connect() as connection:
            yield connection

    def find(self, lookup: Lookup, **values: str) -> object:
        """The record that is looked up, None if there is none. It is asked of each of thousands of cases."""
        if lookup not in self._prepared:
            compiled = lookup.compile(dialect=_DIALECT, compile_kwargs={"render_postcompile": True})
            self._prepared[lookup] = str(compiled), dict(compiled.params)
        text, parameters = self._prepared[lookup]
        with self._explained(), self._lock:
            cursor = self._open_cursor()
            try:
                cursor.execute(text, {**parameters, **values})
                row = cursor.fetchone()
            finally:
                cursor.close()  # otherwise it would keep the rest of the rows
        return None if row is None else row[0]

    def insert(self, rows: Sequence[Row]) -> None:
        """Append rows, all of them or none. Raises ValueError if an id already exists."""
        with self._explained(), self._lock:
            cursor = self._open_cursor()
            try:
                with _one_transaction(cursor):
                    _insert(cursor, rows)
            except sqlite3.IntegrityError as error:
                names = " or ".join(str(row["id"]) for row in rows)
                raise ValueError(f"trial {names} is already recorded") from error

    @staticmethod
    def doubles(
        column: ColumnElement[float | None], condition: ColumnElement[bool]
    ) -> ColumnElement[Sequence[float]]:
        """An aggregate: a column's numbers in the matching rows, without what is no number."""
        return func.doubles(column, type_=_Array).filter(condition)

    def _open_cursor(self) -> DBAPICursor:
        if self._own is None:
            self._own = self._engine.raw_connection()
            self._own.detach()
        return self._own.cursor()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except (
            UnicodeDecodeError
        ) as error:  # in a message of SQLite: a name in its schema is damaged
            raise HomeError(
                f"{self.path}: its schema is damaged", hint=_find_remedy(self.path)
            ) from error
        except (DatabaseError, sqlite3.Error) as error:
            cause = error.orig if isinstance(error, DatabaseError) else error
            code = getattr(cause, "sqlite_errorcode", 0) & 0xFF
            hint = _HINTS.get(code) or _find_remedy(self.path)
            raise HomeError(f"{self.path}: {cause}", hint=hint) from error
        finally:
            # A writer's log alone changes nothing here: it is not read.
            if self._unchanged and _find_state(self.path) != self._unchanged:
                raise HomeError(
                    f"{self.path} was written while it was read", hint="run the command again"
                )


def _make_engine(path: Path, mode: str) -> Engine:
    engine = create_engine(
        f"sqlite:///file:{quote(str(path))}?uri=true&mode={mode}",
        isolation_level="AUTOCOMMIT",
        connect_args={"timeout": BUSY_S},
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
    """A text of a row; invalid bytes stay bytes, and affect nothing else."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


class _Doubles:
    """Collects a column's numbers without a step in Python for each row."""

    def __init__(self) -> None:
        self._values: list[float] = []  # or any other value of the column
        self.step = self._values.append

    def finalize(self) -> bytes:
        try:
            return array("d", self._values).tobytes()
        except TypeError:
            return array("d", [v for v in self._values if isinstance(v, float)]).tobytes()


class _Array(TypeDecorator[Sequence[float]]):
    """The result of ``_Doubles`` as an array; empty if no row matches."""

    impl = LargeBinary
    cache_ok = True

    def process_result_value(self, value: bytes | None, dialect: Dialect) -> Sequence[float]:
        return array("d", value or b"")


# ---- writing ------------------------------------------------------------------------------------

_DIALECT = SQLiteDialect(paramstyle="named")
_SUITE = ("testcase", "attempt", "suite")
_INSERT = str(
    insert(trials).compile(
        dialect=_DIALECT, column_keys=[c.name for c in trials.c if c.name != "number"]
    )
)
_copied = [column for column in suite_trials.c if column.name not in _SUITE]
_INSERT_SUITE = str(
    insert(suite_trials)
    .from_select(
        [*_copied, *_SUITE],
        select(*[trials.c[column.name] for column in _copied], *map(bindparam, _SUITE)).where(
            trials.c.id == bindparam("id")
        ),
    )
    .compile(dialect=_DIALECT)
)


def _insert(cursor: DBAPICursor, rows: Sequence[Row]) -> None:
    """Append rows to both tables; the second one contains those of suites."""
    cursor.executemany(_INSERT, rows)
    if of_suites := [row for row in rows if row["testcase"]]:
        cursor.executemany(_INSERT_SUITE, of_suites)


@contextmanager
def _one_transaction(cursor: DBAPICursor) -> Iterator[None]:
    """Run the block as one transaction: the driver is in autocommit mode."""
    cursor.execute("BEGIN IMMEDIATE")
    try:
        yield
        cursor.execute("COMMIT")
    except BaseException:
        if cursor.connection.in_transaction:  # a full disk may have ended it already
            cursor.execute("ROLLBACK")
        raise


# ---- versions -----------------------------------------------------------------------------------


def _find_version(connection: Connection, path: Path) -> int:
    """The version of a file, 0 for a new one. Refuses one that is not ours, or newer."""

    def ask(name: str) -> int:
        return int(connection.exec_driver_sql(name).scalar_one())

    found = ask("PRAGMA user_version")
    if found > SCHEMA_VERSION:
        raise HomeError(
            f"{path} was written by a newer version of Tileyard"
            f" (schema {found}, this one knows {SCHEMA_VERSION})",
            hint="upgrade Tileyard, or set TILEYARD_HOME elsewhere",
        )
    if found < 0:
        raise HomeError(f"{path}: its header is damaged", hint=_find_remedy(path))
    if not found and ask("SELECT count(*) FROM sqlite_master"):
        raise HomeError(f"{path} is not a store of Tileyard", hint=_find_remedy(path))
    return found


def _require_current(connection: Connection, path: Path) -> None:
    """Refuse a file that would have to be written before it can be read."""
    if _find_version(connection, path) < SCHEMA_VERSION:
        raise HomeError(
            f"{path} was written by an older version of Tileyard, and cannot be upgraded here",
            hint="its folder must be writable: copy the data directory, and name that",
        )


def _make_ready(connection: Connection, path: Path, fill: Callable[[], Sequence[Row]]) -> None:
    """Create a new file's tables, all at once, or migrate an older one; see ``_find_version``."""
    found = _find_version(connection, path)
    cursor = connection.connection.cursor()
    if not found:
        cursor.execute("PRAGMA journal_mode = WAL")
    elif found < SCHEMA_VERSION:
        cursor.execute(f"PRAGMA cache_size = -{MIGRATION_KIB}")
    # Begins to write in any case: this detects a read-only file before anything is built.
    with _one_transaction(cursor):
        if not found:
            metadata.create_all(connection)
            _insert(cursor, fill())
            cursor.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        for version in range(found or SCHEMA_VERSION, SCHEMA_VERSION):
            MIGRATIONS[version](cursor)
        if found < SCHEMA_VERSION:
            cursor.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    if 0 < found < SCHEMA_VERSION:
        cursor.execute("PRAGMA cache_size = -2000")


def _tell_suites_apart(cursor: DBAPICursor) -> None:
    """From version 1 to 2: suites get a table, older trials fields of ``rows.upgrade``; records stay."""
    columns = {row[1] for row in cursor.execute("PRAGMA table_info(trials)").fetchall()}
    if "run_s" not in columns:  # from before there were suites
        cursor.execute("ALTER TABLE trials ADD COLUMN run_s FLOAT")
    for statement in _TO_2:
        cursor.execute(statement)


_IS_LATER = """stem GLOB '*~' AND
        instr(record, CAST('"attempt":' || substr(case_id, length(stem) + 1) || '},"config":{}' AS BLOB))"""
_TO_2 = (
    "ALTER TABLE trials RENAME COLUMN kernel TO label",
    "ALTER TABLE trials ADD COLUMN shape TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE trials ADD COLUMN side TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE trials ADD COLUMN config TEXT",
    """CREATE TABLE suite_trials (
        case_id TEXT NOT NULL, started_at FLOAT NOT NULL, number INTEGER NOT NULL, testcase TEXT NOT NULL,
        target TEXT NOT NULL, device TEXT NOT NULL, outcome TEXT NOT NULL, run_s FLOAT,
        reused BOOLEAN NOT NULL, attempt INTEGER NOT NULL, suite TEXT NOT NULL, run_key TEXT NOT NULL,
        PRIMARY KEY (case_id, started_at, number)) WITHOUT ROWID""",
    f"""INSERT INTO suite_trials
        SELECT CASE WHEN {_IS_LATER} THEN substr(stem, 1, length(stem) - 1) ELSE case_id END,
            started_at, number, label, target, device, outcome, run_s, reused,
            CASE WHEN {_IS_LATER} THEN CAST(substr(case_id, length(stem) + 1) AS INTEGER) ELSE 1 END,
            '', run_key
        FROM (SELECT *, rtrim(case_id, '0123456789') AS stem FROM trials
            WHERE target = 'pytest' OR instr(record, CAST('"arguments":{{"case":' AS BLOB))
                AND substr(case_id, 1, length(label) + 1) = label || '/')
        ORDER BY 1, 2, 3""",
    """CREATE INDEX suite_trials_by_run_key ON suite_trials (run_key, started_at, number)""",
    "DROP INDEX IF EXISTS trials_of_suites",
    "DROP INDEX IF EXISTS trials_of_suites_by_run_key",
    """UPDATE trials SET case_id = substr(case_id, 1, length(rtrim(case_id, '0123456789')) - 1)
        WHERE number IN (SELECT number FROM suite_trials WHERE attempt > 1)""",
    """CREATE INDEX IF NOT EXISTS trials_by_failed_build ON trials (build_key, started_at)
        WHERE run_key = ''""",
)
MIGRATIONS = {1: _tell_suites_apart}
"""The migration of a store from each version to the next."""

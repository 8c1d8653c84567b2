"""Trials in SQLite: append-only, shared by processes, found by key, rebuilt from event streams."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from sqlalchemy import (
    ColumnElement,
    Connection,
    Engine,
    func,
    insert,
    select,
    type_coerce,
)
from sqlalchemy.exc import IntegrityError
from sqlalchemy.types import NullType

from tileyard.errors import UsageError
from tileyard.model import (
    BuildKey,
    MeasurementKey,
    Outcome,
    Record,
    RunKey,
    Trial,
)
from tileyard.store.events import list_run_files, read_run
from tileyard.store.filesystem import MOUNTS
from tileyard.store.lookups import (
    FIND_BUILD_FAILURE,
    FIND_MEASURED,
    FIND_PASSED,
    REUSABLE,
    Lookups,
    Question,
)
from tileyard.store.rows import DURATIONS, durations_of, row_of, try_trial
from tileyard.store.run_times import CaseTimes, RunTime, RunTimeQuery
from tileyard.store.runs import RunSummary, read_runs
from tileyard.store.schema import (
    explained,
    is_of_suite,
    one_transaction,
    open_database,
    trials,
)
from tileyard.store.suites import read_case_times, read_run_times
from tileyard.wording import count_of

# As it is in the file: what is no bytes would fail within SQLAlchemy.
_RECORD: ColumnElement[object] = type_coerce(trials.c.record, NullType())
_NEWEST = (trials.c.started_at.desc(), trials.c.number.desc())
_INSERT = insert(trials)
_MOST_IDS = 500
"""So many ids are asked for at once."""


class TrialQuery(Record):
    """Which trials to list; an empty field asks for nothing. ``limit`` 0 means all."""

    kernel: str = ""
    run: str = ""
    target: str = ""
    outcome: Outcome | None = None
    limit: int = 50


class TrialStore:
    """The trials of one home directory; a context manager, usable from any thread.

    Every method raises HomeError where the file cannot be used (full disk, damage, a lock that is
    held for too long).
    """

    def __init__(self, engine: Engine, path: Path) -> None:
        self._engine = engine
        self._path = path
        self._unreadable: set[object] = set()
        self._skipped = 0
        self._skipped_lines = 0
        self._lookups = Lookups(engine)

    @classmethod
    def open(cls, home: Path, mounts: Path = MOUNTS) -> Self:
        """Open ``home/store.db``; make it where there is none, from the event streams if any.

        Raises HomeError where ``home`` is not writable or on a network file system, and where
        the file is damaged or from a newer version. ``mounts`` is the host's table of mounts.
        """

        skipped = 0

        def fill(connection: Connection) -> None:
            nonlocal skipped
            runs = [read_run(path) for path in list_run_files(home)]
            skipped = sum(run.skipped for run in runs)
            each = {trial.id: trial for run in runs for trial in run.trials}
            _insert_all(connection, each.values())

        store = cls(open_database(home, fill, mounts), home / "store.db")
        store._skipped_lines = skipped
        return store

    def close(self) -> None:
        """Close the file."""
        self._lookups.close()
        self._engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def describe_skipped(self) -> str:
        """What of this store could not be read so far and was passed over, in one line; else empty."""
        skipped = [
            f"{count_of(number, what)} of {where}"
            for number, what, where in (
                (self._skipped + len(self._unreadable), "row", self._path),
                (self._skipped_lines, "line", self._path.parent / "runs"),
            )
            if number
        ]
        return f"skipped what cannot be read: {' and '.join(skipped)}" if skipped else ""

    # ---- writing ----------------------------------------------------------------------------

    def record(self, trial: Trial) -> None:
        """Append a trial; it survives the death of this process once this has returned.

        Raises ValueError where a trial of this id exists.
        """
        self.record_all([trial])

    def record_all(self, content: Sequence[Trial]) -> None:
        """Append trials, all of them or none; as ``record``."""
        with explained(self._path):
            try:
                with self._engine.connect() as connection, one_transaction(connection):
                    _insert_all(connection, content)
            except IntegrityError as error:
                names = " or ".join(trial.id for trial in content)
                raise ValueError(f"trial {names} is recorded already") from error

    def find_measured(self, key: MeasurementKey) -> Trial | None:
        """The latest trial of this measurement whose outcome can be relied on again."""
        return self._find(FIND_MEASURED, key)

    def find_passed(self, key: RunKey, run: str = "") -> Trial | None:
        """The latest trial of a suite's case that passed with this run key, in this run if one is named."""
        if not run:
            return self._find(FIND_PASSED, key)
        wanted = (trials.c.run_key == key, is_of_suite, trials.c.run == run)
        found = self._select([*wanted, trials.c.outcome == Outcome.PASSED.value], 1)
        return found[0] if found else None

    def find_build_failure(self, build: BuildKey) -> Trial | None:
        """The latest trial that failed while this was built, before it had a run key."""
        return self._find(FIND_BUILD_FAILURE, build)

    def find_durations(self, kernel: str, target: str) -> dict[str, float]:
        """How long the latest trials of a kernel ran, in seconds, on whatever device.

        The keys are ``canonical_json((arguments, config))``. At most DURATIONS trials are read.
        """
        statement = (
            select(_RECORD)
            .where(
                trials.c.kernel == kernel,
                trials.c.target == target,
                trials.c.outcome.in_(sorted(REUSABLE)),
            )
            .order_by(*_NEWEST)
            .limit(DURATIONS)
        )
        with explained(self._path), self._engine.connect() as connection:
            records: Sequence[object] = connection.execute(statement).scalars().all()
        return durations_of(reversed(records))

    def list_run_times(self, query: RunTimeQuery) -> list[RunTime]:
        """How long cases of suites ran, in the order of cases, each case's oldest first."""
        with explained(self._path), self._engine.connect() as connection:
            times, skipped = read_run_times(connection, query)
        self._skipped += skipped
        return times

    def list_case_times(
        self, outcomes: Iterable[Outcome], target: str = "", device_class: str = ""
    ) -> list[CaseTimes]:
        """How long all runs with these outcomes took, case by case; an empty name matches all."""
        with explained(self._path), self._engine.connect() as connection:
            times, skipped = read_case_times(connection, outcomes, target, device_class)
        self._skipped += skipped
        return times

    def list_trials(self, query: TrialQuery) -> list[Trial]:
        """Trials that fit ``query``, newest first."""
        wanted = (
            (trials.c.kernel, query.kernel),
            (trials.c.run, query.run),
            (trials.c.target, query.target),
            (trials.c.outcome, query.outcome),
        )
        conditions = [column == str(value) for column, value in wanted if value]
        return self._select(conditions, query.limit)

    def get_trial(self, id_prefix: str) -> Trial:
        """The trial whose id begins so. Raises UsageError where there is none, or several."""
        exact = self._select([trials.c.id == id_prefix], 1)
        if exact:
            return exact[0]
        # Not LIKE, which ignores case, gives % a meaning and cannot use the index.
        found = self._select(
            [trials.c.id >= id_prefix, trials.c.id < id_prefix + "\U0010ffff"], limit=2
        )
        if not found or not id_prefix:
            raise UsageError(
                f"no trial has an id that begins with {id_prefix!r}",
                hint="`tileyard trials` lists them",
            )
        if len(found) > 1:
            raise UsageError(
                f"several trials have an id that begins with {id_prefix!r},"
                f" among them {found[0].id} and {found[1].id}",
                hint="give more of it",
            )
        return found[0]

    def list_runs(self, limit: int = 0) -> list[RunSummary]:
        """A summary of every run that has a trial, the newest first; ``limit`` 0 means all."""
        with explained(self._path), self._engine.connect() as connection:
            return read_runs(connection, limit)

    def has_all(self, ids: Sequence[str]) -> bool:
        """Whether every one of these trials is recorded."""
        with explained(self._path), self._engine.connect() as connection:
            for first in range(0, len(ids), _MOST_IDS):
                some = set(ids[first : first + _MOST_IDS])
                found = select(func.count()).where(trials.c.id.in_(some))
                if connection.execute(found).scalar() != len(some):
                    return False
        return True

    # ---- inside -----------------------------------------------------------------------------

    def _find(self, question: Question, key: str) -> Trial | None:
        """The one trial that the question finds; nothing has an empty key."""
        if not key:
            return None
        with explained(self._path):
            record = self._lookups.find(question, key)
        return None if record is None else self._read(record, record)

    def _select(self, conditions: Sequence[ColumnElement[bool]], limit: int) -> list[Trial]:
        columns = select(_RECORD, trials.c.number)
        statement = columns.where(*conditions).order_by(*_NEWEST).limit(limit or None)
        with explained(self._path), self._engine.connect() as connection:
            found = [self._read(*row) for row in connection.execute(statement)]
        return [trial for trial in found if trial is not None]

    def _read(self, record: object, row: object) -> Trial | None:
        """The trial of a row; one that cannot be read is counted once."""
        trial = try_trial(record)
        if trial is None:
            self._unreadable.add(row)
        return trial


def _insert_all(connection: Connection, content: Iterable[Trial]) -> None:
    rows = [row_of(trial) for trial in content]
    if rows:
        connection.execute(_INSERT, rows)

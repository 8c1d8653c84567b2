"""Stores trials in a database: append-only, shared by processes, found by key, rebuilt from event streams."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Self

import msgspec
from sqlalchemy import ColumnElement, bindparam, func, select, type_coerce
from sqlalchemy.types import NullType

from tileyard.base.errors import UsageError
from tileyard.base.model import BuildKey, MeasurementKey, Outcome, RunKey, Trial, Value
from tileyard.base.wording import count_of
from tileyard.store.base import (
    BUILD_FAILURES,
    LATEST,
    MOUNTS,
    REUSABLE,
    CaseTimes,
    RunSpan,
    RunTime,
    Store,
)
from tileyard.store.base import TrialQuery as TrialQuery
from tileyard.store.events import list_run_files, read_run
from tileyard.store.rows import DURATIONS, Row, durations_of, encode_config, row_of, try_trial
from tileyard.store.schema import is_unbuilt, suite_trials, trials
from tileyard.store.sqlite import Lookup, Sqlite, open_database
from tileyard.store.sqlite import has_store as has_store
from tileyard.store.suites import read_case_times, read_run_times

# As in the file: a value that is not bytes would fail within SQLAlchemy.
_RECORD: ColumnElement[object] = type_coerce(trials.c.record, NullType())
_NEWEST = (trials.c.started_at.desc(), trials.c.number.desc())
_MOST_IDS = 500
"""Number of ids per query."""
_IS_ITS_PART = (
    (suite_trials.c.case_id == trials.c.case_id)
    & (suite_trials.c.started_at == trials.c.started_at)
    & (suite_trials.c.number == trials.c.number)
)
"""Joins the two tables, trial by trial."""
_HAS_PASSED = (suite_trials.c.number == trials.c.number) & (
    suite_trials.c.outcome == Outcome.PASSED.value
)
"""Joins the two tables."""


def _latest(*conditions: ColumnElement[bool]) -> Lookup:
    return select(trials.c.record).where(*conditions).order_by(*_NEWEST).limit(1)


# What is looked up of every case: the record of the latest trial with some ``key``.
_FIND_MEASURED = (
    select(trials.c.record)
    .where(trials.c.measurement_key == bindparam("key", ""), trials.c.outcome.in_(sorted(REUSABLE)))
    .order_by((trials.c.config == bindparam("config", "")).desc(), *_NEWEST)
    .limit(1)
)
_FIND_BUILD_FAILURE = _latest(
    trials.c.build_key == bindparam("key", ""),
    is_unbuilt,  # as in its index
    trials.c.outcome.in_(sorted(BUILD_FAILURES)),
)
_AFTER_ALL = "\U0010ffff"
"""What comes after the name of each run."""
_FIND_EARLIER_RUN = select(func.max(trials.c.run)).where(trials.c.run < bindparam("run"))
_FIND_SPAN = select(
    func.count(), func.min(trials.c.started_at), func.max(trials.c.started_at)
).where(trials.c.run == bindparam("run"))
ELSEWHERE = "TILEYARD_HOME names another data directory"
_FIND_PASSED = (
    select(trials.c.record)
    .where(suite_trials.c.run_key == bindparam("key", ""), _HAS_PASSED)
    .order_by(suite_trials.c.started_at.desc(), suite_trials.c.number.desc())
    .limit(1)
)


def _within(case: str) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    """A case and those below it. Only labels have an index: a part of the id is that of its trial."""
    parts = case.split("/")
    spans = itertools.combinations(range(len(parts) + 1), 2)
    labels = {"/".join(parts[first:end]) for first, end in spans}
    # Not LIKE, which ignores case; "0" is the character after "/".
    below = (trials.c.case_id >= f"{case}/") & (trials.c.case_id < f"{case}0")
    return trials.c.label.in_(labels), (trials.c.case_id == case) | below


def _may_be_of(batch: str) -> ColumnElement[bool]:
    """Whether a record has the beginning of this batch's id: no column has it, and decoding is slow."""
    beginning = msgspec.json.encode(batch)[1:-1]
    own, below = (func.instr(trials.c.record, start + beginning) for start in (b'"batch":"', b"/"))
    return (own > 0) | (below > 0)


class TrialStore(Store):
    """The ``Store`` of a database."""

    def __init__(self, database: Sqlite, skipped_lines: int = 0) -> None:
        self._database = database
        self._unreadable: set[object] = set()
        self._skipped = 0
        self._skipped_lines = skipped_lines

    @classmethod
    def open(cls, home: Path, mounts: Path = MOUNTS, *, to_read: bool = False) -> Self:
        """Open the store of ``home``, or create it, from any event streams; ``mounts``: the host's
        table. Raises HomeError as ``open_database`` does.
        """
        skipped = 0

        def fill() -> list[Row]:
            nonlocal skipped
            runs = [read_run(path) for path in list_run_files(home)]
            skipped = sum(run.skipped for run in runs)
            each = {trial.id: trial for run in runs for trial in run.trials}
            return [row_of(trial) for trial in each.values()]

        return cls(open_database(home, fill, mounts, to_read=to_read), skipped)

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def describe_skipped(self) -> str:
        """One line about what could not be read from this store so far and was skipped; else empty."""
        path = self._database.path
        skipped = [
            f"{count_of(number, what)} of {where}"
            for number, what, where in (
                (self._skipped + len(self._unreadable), "row", path),
                (self._skipped_lines, "line", path.parent / "runs"),
            )
            if number
        ]
        return f"skipped what cannot be read: {' and '.join(skipped)}" if skipped else ""

    # ---- writing ----------------------------------------------------------------------------

    def record_all(self, content: Sequence[Trial]) -> None:
        """Append trials, all of them or none."""
        self._database.insert([row_of(trial) for trial in content])

    def find_measured(
        self, key: MeasurementKey, config: Mapping[str, Value] | None = None
    ) -> Trial | None:
        """The latest reusable trial of this measurement: of this config, else of one with the same binary."""
        return self._find(_FIND_MEASURED, key, config=encode_config(config or {}))

    def find_passed(self, key: RunKey, run: str = "") -> Trial | None:
        """The latest trial of a suite's case that passed with this run key, in this run if one is named."""
        if not run:
            return self._find(_FIND_PASSED, key)
        wanted = (suite_trials.c.run_key == key, _HAS_PASSED, trials.c.run == run)
        found = self._select(wanted, 1)
        return found[0] if found else None

    def find_build_failure(self, build: BuildKey) -> Trial | None:
        """The latest trial that failed while this was built, before it had a run key."""
        return self._find(_FIND_BUILD_FAILURE, build)

    def find_durations(self, kernel: str, target: str) -> dict[str, float]:
        """Seconds that a kernel's latest trials ran on any device, by ``canonical_json((arguments,
        config))``. At most DURATIONS trials are read.
        """
        statement = (
            select(_RECORD)
            .where(
                trials.c.label == kernel,
                trials.c.target == target,
                trials.c.outcome.in_(sorted(REUSABLE)),
            )
            .order_by(*_NEWEST)
            .limit(DURATIONS)
        )
        with self._database.reading() as connection:
            records: Sequence[object] = connection.execute(statement).scalars().all()
        return durations_of(reversed(records))

    def list_run_times(self, target: str = "", latest: int = LATEST) -> list[RunTime]:
        """Durations of the ``latest`` attempts at each case of a suite; an empty target matches all."""
        with self._database.reading() as connection:
            times, skipped = read_run_times(connection, target, latest)
        self._skipped += skipped
        return times

    def list_case_times(
        self,
        outcomes: Iterable[Outcome],
        since: float = 0.0,
        target: str = "",
        device_class: str = "",
    ) -> list[CaseTimes]:
        """Durations of all runs with these outcomes, case by case; an empty name matches all."""
        with self._database.reading() as connection:
            on = (target, device_class)
            times, skipped = read_case_times(
                connection, self._database.doubles, outcomes, since, on
            )
        self._skipped += skipped
        return times

    def list_trials(self, query: TrialQuery) -> list[Trial]:
        """Trials that match ``query``, newest first."""
        wanted = (
            (trials.c.label, query.kernel),
            (trials.c.run, query.run),
            (trials.c.target, query.target),
            (trials.c.outcome, query.outcome),
        )
        conditions = [column == str(value) for column, value in wanted if value]
        if query.run_keys:
            conditions.append(trials.c.run_key.in_(query.run_keys))
        if query.since:
            conditions.append(trials.c.started_at >= query.since)
        if query.was_run:
            conditions.append(trials.c.outcome != Outcome.NOT_RUN.value)
        if query.case:
            conditions += _within(query.case)
        if query.batch:
            conditions.append(_may_be_of(query.batch))
        if query.suite:
            is_its = suite_trials.c.suite == query.suite
            conditions.append(select(suite_trials.c.number).where(_IS_ITS_PART, is_its).exists())
        found = self._select(conditions, 0 if query.batch else query.limit)
        if not query.batch:
            return found
        own = [one for one in found if one.batch.rpartition("/")[2].startswith(query.batch)]
        return own[: query.limit or None]

    def list_runs(self, limit: int = 0, before: str = "") -> list[RunSpan]:
        """The latest runs by name, which begins with the date, of those ``before`` one if it is named; all if
        the limit is 0. Each is looked up in an index, whose number of rows does not matter.
        """
        found: list[RunSpan] = []
        last = before or _AFTER_ALL
        with self._database.reading() as connection:
            while not limit or len(found) < limit:
                run = connection.execute(_FIND_EARLIER_RUN, {"run": last}).scalar()
                if not isinstance(run, str) or run >= last:  # otherwise the row is damaged
                    break
                [span] = connection.execute(_FIND_SPAN, {"run": run}).all()
                count, *times = span
                first_at, last_at = (time if isinstance(time, float) else 0.0 for time in times)
                found.append(RunSpan(run=run, trials=count, first_at=first_at, last_at=last_at))
                last = run
        return found

    def get_last_number(self) -> int:
        """The number of what was recorded last, which grows with each trial; 0 if there is none."""
        with self._database.reading() as connection:
            return connection.execute(select(func.max(trials.c.number))).scalar() or 0

    def count_outcomes(self, run: str) -> dict[Outcome, int]:
        """How many trials of a run ended in which way."""
        statement = (
            select(trials.c.outcome, func.count())
            .where(trials.c.run == run)
            .group_by(trials.c.outcome)
        )
        known = {outcome.value: outcome for outcome in Outcome}
        with self._database.reading() as connection:
            rows = connection.execute(statement).all()
        return {known[outcome]: count for outcome, count in rows if outcome in known}

    def get_trial(self, id_prefix: str) -> Trial:
        """The trial whose id begins with this prefix. Raises UsageError if there is none, or several."""
        exact = self._select([trials.c.id == id_prefix], 1)
        if exact:
            return exact[0]
        # Not LIKE, which ignores case, gives % a meaning and cannot use the index.
        found = self._select(
            [trials.c.id >= id_prefix, trials.c.id < id_prefix + "\U0010ffff"], limit=2
        )
        if not found or not id_prefix:
            raise UsageError(
                f"no trial in {self._database.path.parent} has an id that begins with {id_prefix!r}",
                hint=f"`tileyard trials` lists them; {ELSEWHERE}",
            )
        if len(found) > 1:
            raise UsageError(
                f"several trials have an id that begins with {id_prefix!r},"
                f" among them {found[0].id} and {found[1].id}",
                hint="give more of it",
            )
        return found[0]

    def has_all(self, ids: Sequence[str]) -> bool:
        """Whether every one of these trials is recorded."""
        with self._database.reading() as connection:
            for first in range(0, len(ids), _MOST_IDS):
                some = set(ids[first : first + _MOST_IDS])
                found = select(func.count()).where(trials.c.id.in_(some))
                if connection.execute(found).scalar() != len(some):
                    return False
        return True

    # ---- inside -----------------------------------------------------------------------------

    def _find(self, lookup: Lookup, key: str, **values: str) -> Trial | None:
        """The one trial that is looked up; nothing has an empty key."""
        record = self._database.find(lookup, key=key, **values) if key else None
        return None if record is None else self._read(record, record)

    def _select(self, conditions: Sequence[ColumnElement[bool]], limit: int) -> list[Trial]:
        columns = select(_RECORD, trials.c.number)
        statement = columns.where(*conditions).order_by(*_NEWEST).limit(limit or None)
        with self._database.reading() as connection:
            found = [self._read(*row) for row in connection.execute(statement)]
        return [trial for trial in found if trial is not None]

    def _read(self, record: object, row: object) -> Trial | None:
        """The trial of a row; an unreadable one is counted once."""
        trial = try_trial(record)
        if trial is None:
            self._unreadable.add(row)
        return trial


def open_store(home: Path) -> Store:
    """The trials of a data directory, in whichever database; created if there are none."""
    return TrialStore.open(home)


def read_store(home: Path) -> Store:
    """The same to read: a data directory that is not writable stays as it is."""
    return TrialStore.open(home, to_read=True)


def has_records(home: Path) -> bool:
    """Whether there are trials, or event streams from which the store can be rebuilt."""
    return has_store(home) or bool(list_run_files(home))

"""What is looked up of every case, on a connection of its own: it is asked for each of thousands.

The statements are prepared once. Through the pool and the statement compiler of SQLAlchemy one
look-up takes ten times as long.
"""

import threading

from sqlalchemy import ColumnElement, Engine, bindparam, literal_column, select
from sqlalchemy.dialects import sqlite
from sqlalchemy.pool import PoolProxiedConnection

from tileyard.model import Outcome
from tileyard.store.schema import is_of_suite, trials

REUSABLE = frozenset(
    {
        Outcome.PASSED,
        Outcome.UNCHECKED,
        Outcome.MISMATCH,
        Outcome.RUNTIME_ERROR,
        Outcome.CRASHED,
        Outcome.TIMEOUT,
        Outcome.OUT_OF_MEMORY,
    }
)
"""Outcomes of a run that say something of the kernel: the same keys would end the same way."""

BUILD_FAILURES = frozenset({Outcome.COMPILE_ERROR, Outcome.TIMEOUT, Outcome.OUT_OF_MEMORY})
"""Outcomes of a build that say something of the source."""


class Question:
    """A statement that finds the record of the latest trial with some key, ready for the driver."""

    def __init__(self, *conditions: ColumnElement[bool]) -> None:
        """The conditions name the key as ``bindparam("key")``."""
        statement = (
            select(trials.c.record)
            .where(*conditions)
            .order_by(trials.c.started_at.desc(), trials.c.number.desc())
            .limit(1)
        )
        compiled = statement.compile(
            dialect=sqlite.dialect(paramstyle="named"),
            compile_kwargs={"render_postcompile": True},
        )
        self.text = str(compiled)
        self.parameters = dict(compiled.params)


FIND_MEASURED = Question(
    trials.c.measurement_key == bindparam("key", ""), trials.c.outcome.in_(sorted(REUSABLE))
)
FIND_PASSED = Question(
    trials.c.run_key == bindparam("key", ""),
    is_of_suite,  # as in its index
    trials.c.outcome == Outcome.PASSED.value,
)
FIND_BUILD_FAILURE = Question(
    trials.c.build_key == bindparam("key", ""),
    trials.c.run_key == literal_column("''"),  # as in its index
    trials.c.outcome.in_(sorted(BUILD_FAILURES)),
)


class Lookups:
    """One connection for reading, taken from the engine when it is first needed."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._connection: PoolProxiedConnection | None = None
        self._lock = threading.Lock()

    def find(self, question: Question, key: str) -> object:
        """The record that is asked for, None if there is none. Raises what the database driver raises."""
        with self._lock:
            if self._connection is None:
                pooled = self._engine.raw_connection()
                pooled.detach()
                self._connection = pooled
            cursor = self._connection.cursor()
            try:
                cursor.execute(question.text, {**question.parameters, "key": key})
                row = cursor.fetchone()
            finally:
                cursor.close()  # or the rest of the rows would be kept for us
        return None if row is None else row[0]

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

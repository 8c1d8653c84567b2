"""What a database does for the store; the rest is SQL that every database understands."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from sqlalchemy import ColumnElement, Connection, Select

from tileyard.store.rows import Row

Lookup = Select[tuple[bytes]]
"""A statement that finds the record of one trial; its parameter is ``key``."""
Doubles = Callable[
    [ColumnElement[float | None], ColumnElement[bool]], ColumnElement[Sequence[float]]
]
"""An aggregate: the numbers of a column in the rows that fit; what is no number is left out."""


class Database(Protocol):
    """An opened database with the tables of ``schema.py``, usable from any thread.

    Its errors become HomeErrors that name ``path`` and say what to do.
    """

    path: Path

    @property
    def doubles(self) -> Doubles:
        """The aggregate."""

    def close(self) -> None:
        """Close all connections."""

    def reading(self) -> AbstractContextManager[Connection]:
        """A connection to read from."""

    def find(self, lookup: Lookup, key: str) -> object:
        """The record that is looked up, None if there is none. It is asked of each of thousands of cases."""

    def insert(self, rows: Sequence[Row]) -> None:
        """Append rows, all of them or none. Raises ValueError where one of an id exists."""

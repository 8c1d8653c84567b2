"""Tables of all rows, which the reader sorts and filters."""

from collections.abc import Callable, Sequence
from typing import Literal

from tileyard.base.model import Record

Cell = str | float | int | bool | None
MOST_ROWS = 10_000
"""Maximum number of rows of a table: a page of more is slow to open."""
Kind = Literal["text", "shared", "number", "time", "seconds", "percent"]
"""``shared``: a text that many rows have; ``time``: nanoseconds."""


class Column(Record, rename="camel"):
    """A column; one with a ``parameter`` is found by ``NAME=VALUE``, too."""

    name: str
    kind: Kind = "text"
    parameter: bool = False
    is_long: bool = False


class Kept(Record):
    """The rows that a table has, and a ``note`` if these are not all."""

    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""


class Table(Record):
    """Rows, at first in the order of column ``by``. Column ``choice`` has few values, of which the reader
    chooses one. A shared text is a number of ``texts``. The ``note`` says which rows are not in it.
    """

    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    choice: int
    by: int = 0
    texts: tuple[str, ...] = ()
    note: str = ""


def keep_first(
    rows: Sequence[tuple[Cell, ...]], run: str, urgency: Callable[[tuple[Cell, ...]], float]
) -> Kept:
    """All rows of a ``run``, in their order; of too many those of the lowest ``urgency``."""
    if len(rows) <= MOST_ROWS:
        return Kept(rows=tuple(rows))
    chosen = sorted(range(len(rows)), key=lambda place: urgency(rows[place]))[:MOST_ROWS]
    return Kept(
        rows=tuple(rows[place] for place in sorted(chosen)),
        note=f"The table has {MOST_ROWS:,} of {len(rows):,} rows, those first that matter most; "
        f"tileyard trials export {run} -o trials.jsonl writes all.",
    )


def make_table(columns: Sequence[Column], kept: Kept, choice: str, by: str) -> Table:
    """The table of these rows, sorted ``by`` and chosen by these columns. Numbers are rounded."""
    texts: dict[str, int] = {}
    names = [one.name for one in columns]

    def shorten(cell: Cell, kind: Kind) -> Cell:
        if kind == "shared" and isinstance(cell, str):
            return texts.setdefault(cell, len(texts))
        # The value of a parameter, which is a text, can be given to an option as it is.
        return round_figure(cell) if type(cell) is float and kind != "text" else cell

    made = tuple(
        tuple(shorten(cell, column.kind) for cell, column in zip(row, columns, strict=True))
        for row in kept.rows
    )
    return Table(
        columns=tuple(columns),
        rows=made,
        choice=names.index(choice),
        by=names.index(by),
        texts=tuple(texts),
        note=kept.note,
    )


def round_figure(number: float) -> float:
    """Six significant digits, which are enough for every reader."""
    return float(f"{number:.6g}")

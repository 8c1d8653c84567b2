"""Tries operations on scalar types, and describes what was found as a page."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from tileyard.base.errors import UnsupportedError
from tileyard.ir.dtypes import DTYPES, TENSOR_FLOAT

YES, REFUSED, NONE = "yes", "refused", ""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """What became of an operation on a type; ``reason`` is why it was refused."""

    mark: str
    reason: str = ""
    problem: str = ""


@dataclass(frozen=True, kw_only=True)
class Row:
    """An operation's cells by scalar type; the single one of an operation without types is called ````."""

    title: str
    names: tuple[str, ...]
    cells: Mapping[str, Cell]

    @property
    def is_whole(self) -> bool:
        """Whether one cell says all."""
        return tuple(self.cells) == ("",)


Try = Callable[[Any], object]
"""Raises UnsupportedError for a PrimFunc that is refused."""


def tabulate(operation: Any, attempt: Try, folder: str, known: Mapping[str, Cell]) -> Row:
    """What becomes of an operation on each type, or on one if that says all. ``known`` ones are not tried."""
    first = next(
        (
            found
            for dtype in ("float32", "int32", "int8")
            if (found := _find(operation, dtype, attempt, folder)).mark
        ),
        Cell(mark=NONE, problem=f"{operation.title}: TileLang makes no kernel of it"),
    )
    is_refused_by_name = first.mark == REFUSED and operation.said in first.reason
    if not operation.is_typed or is_refused_by_name:
        cells = {"": first}
    else:
        cells = {
            dtype: known[dtype] if dtype in known else _find(operation, dtype, attempt, folder)
            for dtype in DTYPES
        }
        if not cells["float32"].mark:
            cells[TENSOR_FLOAT] = Cell(mark=NONE)
    return Row(title=operation.title, names=operation.names, cells=cells)


def _find(operation: Any, dtype: str, attempt: Try, folder: str) -> Cell:
    try:
        func = operation.elaborate(dtype)
    except Exception:  # noqa: BLE001 (TileLang refuses in many ways)
        return Cell(mark=NONE)
    try:
        attempt(func)
    except UnsupportedError as error:
        if _is_misuse(error, dtype):
            return Cell(mark=NONE)
        problem = _criticize(error, operation, dtype, folder)
        return Cell(mark=REFUSED, reason=reason_of(error), problem=problem)
    return Cell(mark=YES)


def reason_of(error: UnsupportedError) -> str:
    """The message, without the line and the statement of the one kernel that was tried."""
    message = error.message.removesuffix(f" at {error.file}:{error.line}")
    return message.partition(" is not covered: ")[2].partition(" in `")[0] or message


def _is_misuse(error: UnsupportedError, dtype: str) -> bool:
    """Whether the operation does not exist for the type on a GPU either. Of functions of tensor floats
    TileLang makes a kernel, but no CUDA code.
    """
    if dtype == TENSOR_FLOAT:
        is_function = f" of {TENSOR_FLOAT}, which only " in error.message
        return is_function and f"{_BITS} of " not in error.message
    return " does not take " in error.message or " does not give " in error.message


_BITS = "reinterpret"
"""What is not a function, but the same bits."""


def _criticize(error: UnsupportedError, operation: Any, dtype: str, folder: str) -> str:
    """What is wrong with a refusal: it has to name the operation, or the type, and the user's line."""
    if not error.line or not error.file.startswith(folder):
        return f"{operation.title} on {dtype}: no line in {error.message!r}"
    if operation.said not in error.message and dtype not in error.message:
        return f"{operation.title} on {dtype}: no operation in {error.message!r}"
    return ""


# ---- the page -----------------------------------------------------------------------------------


def describe_group(title: str, rows: Sequence[Row], notes: "Notes") -> str:
    """A table of those rows that have cells for types, and one of the others."""
    typed = [row for row in rows if not row.is_whole]
    whole = [row for row in rows if row.is_whole]
    return "\n\n".join(
        [
            f"## {title}",
            *(["\n".join(_typed(typed, notes))] if typed else []),
            *(["\n".join(_whole(whole))] if whole else []),
        ]
    )


class Notes:
    """Reasons of refusals, numbered."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def number(self, reason: str) -> int:
        """The number of a reason."""
        return self._numbers.setdefault(reason, len(self._numbers) + 1)

    def describe(self) -> str:
        """All reasons, as a list."""
        return "\n".join(f"{number}. {reason}" for reason, number in self._numbers.items())


def _typed(rows: Sequence[Row], notes: Notes) -> Iterator[str]:
    yield f"| | {' | '.join(f'`{dtype}`' for dtype in DTYPES)} |"
    yield "| --- |" + " --- |" * len(DTYPES)
    for row in rows:
        cells = (
            f"{cell.mark} ({notes.number(cell.reason)})" if cell.mark == REFUSED else cell.mark
            for cell in row.cells.values()
        )
        yield f"| {code_of(row.title)} | {' | '.join(cells)} |"


def _whole(rows: Sequence[Row]) -> Iterator[str]:
    yield "| whatever the type | |"
    yield "| --- | --- |"
    for row in rows:
        cell = row.cells[""]
        yield f"| {code_of(row.title)} | {f'{cell.mark}: {cell.reason}' if cell.reason else cell.mark} |"


def code_of(title: str) -> str:
    """A title as a page has it."""
    name, comma, rest = title.partition(",")
    return f"`{name}`{comma}{rest}".replace("|", "\\|")


def read_cells(page: str) -> dict[tuple[str, str], dict[str, Cell]]:
    """The cells of a page by scalar type, for each title of an operation in its group."""
    notes = dict(re.findall(r"^(\d+)\. (.*)$", page, re.MULTILINE))
    found: dict[tuple[str, str], dict[str, Cell]] = {}
    group, columns = "", [""]
    for line in page.splitlines():
        title, *texts = line.removeprefix("| ").removesuffix(" |").split(" | ")
        if line.startswith("## "):
            group = line[3:]
        elif line.startswith("| | `"):
            columns = re.findall("`(.*?)`", line)
        elif line.startswith("| whatever the type "):
            columns = [""]
        elif line.startswith("| `"):
            cells = [_read_cell(text, notes) for text in texts]
            found[group, title] = dict(zip(columns, cells, strict=True))
    return found


def _read_cell(text: str, notes: Mapping[str, str]) -> Cell:
    mark, colon, reason = text.partition(": ")
    if not colon:
        mark, _, number = text.rstrip(")").partition(" (")
        reason = notes[number] if number else ""
    return Cell(mark=mark, reason=reason)


def summarize(groups: Mapping[str, Sequence[Row]]) -> str:
    """How many operations of each group are taken."""
    lines = ["| group | operations | taken | taken in part | refused |", "| --- |" + " ---: |" * 4]
    totals = [0, 0, 0]
    for title, rows in groups.items():
        counts = count(rows)
        totals = [a + b for a, b in zip(totals, counts, strict=True)]
        lines.append(_line(title, counts))
    lines.append(_line("**all**", totals))
    return "\n".join(lines)


def _line(title: str, counts: Sequence[int]) -> str:
    return f"| {title} | {sum(counts)} | {' | '.join(map(str, counts))} |"


def count(rows: Sequence[Row]) -> list[int]:
    """How many operations are taken, taken in part, and refused."""
    found: dict[str, set[str]] = {}
    for row in rows:
        marks = {cell.mark for cell in row.cells.values()} - {NONE}
        for name in row.names if row.names != ("-",) else (row.title,):
            found.setdefault(name, set()).update(marks)
    marks = list(found.values())
    return [marks.count({YES}), marks.count({YES, REFUSED}), marks.count({REFUSED})]


def try_type(operation: Any, dtype: str, attempt: Try, folder: str) -> Cell:
    """What becomes of a type in a kernel that only copies."""
    found = _find(operation, dtype, attempt, folder)
    return found if found.mark else Cell(mark=NONE, reason="TileLang makes no kernel of it")


def describe_types(cells: Mapping[str, Cell]) -> str:
    """A table of scalar types, which are refused whatever is done with them."""
    lines = ["## Scalar types", "", "| type | |", "| --- | --- |"]
    for title, cell in cells.items():
        reason = f": {cell.reason}" if cell.mark and cell.reason else cell.reason
        lines.append(f"| {title} | {cell.mark}{reason} |")
    return "\n".join(lines)


def problems(groups: Mapping[str, Sequence[Row]]) -> list[str]:
    """What is wrong with refusals, or with what is tried."""
    cells = (cell for row in chain(*groups.values()) for cell in row.cells.values())
    return [cell.problem for cell in cells if cell.problem]

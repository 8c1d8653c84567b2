"""Writes to the terminal, without effect of control sequences and markup, nor of a reader that closes."""

import io
import os
import sys
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import IO, TextIO

import rich.console
from rich.cells import cell_len
from rich.console import ConsoleOptions, RenderableType
from rich.measure import Measurement
from rich.segment import Segment
from rich.table import Column, Table
from rich.text import Text

from tileyard.show.words import clean_line, make_visible

LEAST_TEXT = 20
"""Narrowest column, in characters, of text that is cut; longest text that is not broken."""
UNLIMITED = 1 << 16
"""Width, in characters, at which a table is measured."""


class Console(rich.console.Console):
    """A console that shows control characters in text, but for those that rich itself uses to draw."""

    def __init__(
        self, *, stderr: bool = False, file: TextIO | None = None, width: int | None = None
    ) -> None:
        # In a notebook rich writes outputs of the cell instead, even if a file is given.
        force_jupyter = None if file is None else False
        super().__init__(
            stderr=stderr,
            file=file,
            width=width,
            force_jupyter=force_jupyter,
            markup=False,
            emoji=False,
            color_system=None if os.environ.get("NO_COLOR") else "auto",
        )

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """The segments of the printed text."""
        for segment in super().render(renderable, options):
            text = segment.text if segment.control else make_visible(segment.text)
            yield segment if text is segment.text else Segment(text, segment.style)

    def on_broken_pipe(self) -> None:
        """Print nothing more."""
        self.quiet = True
        silence(self.file)


HTML = (
    '<pre style="white-space:pre;overflow-x:auto;line-height:normal;'
    "font-family:Menlo,'DejaVu Sans Mono',consolas,'Courier New',monospace\">{code}</pre>"
)

MEASURED = frozenset({"latency", "± 95 %", "GFLOP/s", "slowdown"})
"""Headers of columns with what was measured."""
PLAIN, MARKED = "text/plain", "text/html"


def render(width: int, show: Callable[[rich.console.Console], None]) -> dict[str, str]:
    """Print on a console of this width, and return the output as text and as HTML, by media type."""
    console = Console(file=io.StringIO(), width=width)
    console.record = True
    show(console)
    text = console.export_text(clear=False).rstrip("\n")
    return {PLAIN: text, MARKED: console.export_html(inline_styles=True, code_format=HTML)}


def say(console: rich.console.Console, text: str, style: str = "") -> None:
    """Print foreign text as one line, which is not broken at the edge of the screen."""
    console.print(Text(clean_line(text), style=style), soft_wrap=True)


def new_table(columns: Iterable[str], left: Container[str], wrapped: Container[str] = ()) -> Table:
    """A table without rules. Only ``left`` columns are aligned on the left; only ``wrapped`` ones break."""
    table = Table(header_style="bold", box=None)
    for name in columns:
        table.add_column(
            name, justify="left" if name in left else "right", no_wrap=name not in wrapped
        )
    return table


def print_table(  # noqa: PLR0913 - each way to save room is a parameter
    console: rich.console.Console,
    table: Table,
    cut: str = "",
    *,
    spare: Iterable[str] = (),
    folded: Mapping[str, str] = MappingProxyType({}),
    joins_equal: bool = False,
) -> None:
    """Print a table without cutting values: a row too long for the screen continues on its next line.
    Columns that are empty or of one value are left out, the latter named below the table if it
    ``joins_equal`` or is too wide; not ``MEASURED`` ones. If still too wide, ``spare`` columns go one by one,
    then ``folded`` ones (names by headers) become one of ``name=value``, then the border goes. On a terminal,
    column ``cut`` ends with the screen.
    """

    def is_too_wide() -> bool:
        least = [_least_width(column, cut) for column in columns]
        return _frame_width(console, table, columns) + sum(least) > console.width

    columns, same = list(table.columns), list[Column]()
    if joins_equal or is_too_wide():
        columns = [column for column in columns if any(map(str, column.cells))] or columns
    if joins_equal or is_too_wide():
        same = [column for column in columns if _is_constant(column)]
        columns = [column for column in columns if not _is_constant(column)] or columns
    for name in spare:
        if is_too_wide():
            columns = [column for column in columns if column.header != name]
    if is_too_wide():
        columns = _fold(columns, folded)
    if is_too_wide():
        table.box = None
    if table.title:
        console.print(Text(str(table.title), style="table.title"), soft_wrap=True)
    shown = _take(table, columns, _share_width(console, table, columns, cut))
    unlimited = console.options.update(width=UNLIMITED)
    for line in console.render_lines(shown, unlimited, pad=False):
        text = Text.assemble(*((segment.text, segment.style or "") for segment in line))
        text.rstrip()
        console.print(text, soft_wrap=True, highlight=False)
    values = "; ".join(f"{column.header}={next(iter(column.cells))}" for column in same)
    for below in (f"the same in all rows: {values}" if same else "", table.caption):
        if below:
            console.print(Text(str(below), style="dim"), soft_wrap=True)


def name_parameters(keys: Iterable[str], results: Container[str]) -> dict[str, str]:
    """Parameters by their headers: their names, or ``config_NAME`` where a column of results has that."""
    return {f"config_{key}" if key in results else key: key for key in keys}


def _fold(columns: Sequence[Column], folded: Mapping[str, str]) -> list[Column]:
    """The columns, with one instead of several ``folded`` ones, in the place of the first."""
    joined = [column for column in columns if column.header in folded]
    if len(joined) < 2:
        return list(columns)
    names = [folded[str(column.header)] for column in joined]
    rows = zip(*(column.cells for column in joined), strict=True)
    pairs = (zip(names, row, strict=True) for row in rows)
    cells = [" ".join(f"{name}={cell}" for name, cell in row if str(cell)) for row in pairs]
    one = Column(header="config", _cells=[*cells])
    kept = [column for column in columns if column is joined[0] or column.header not in folded]
    return [one if column is joined[0] else column for column in kept]


def _is_constant(column: Column) -> bool:
    """Whether several rows have the same value, and a line below the table may name it."""
    values = [str(cell) for cell in column.cells]
    return column.header not in MEASURED and len(values) > 1 and len(set(values)) == 1


def _texts(column: Column) -> list[str]:
    return [line for cell in (column.header, *column.cells) for line in str(cell).splitlines()]


def _full_width(column: Column) -> int:
    return max(map(cell_len, _texts(column)), default=0)


def _least_width(column: Column, cut: str) -> int:
    """What a column needs: cut text LEAST_TEXT, breaking text its longest word; short text does not break."""
    if column.header == cut:
        return min(_full_width(column), LEAST_TEXT)
    if column.no_wrap:
        return _full_width(column)
    texts = _texts(column)
    parts = [
        part for text in texts for part in (text.split() if cell_len(text) > LEAST_TEXT else [text])
    ]
    return max(map(cell_len, parts), default=0)


def _share_width(
    console: rich.console.Console, table: Table, columns: Sequence[Column], cut: str
) -> list[int]:
    """The width of each column: its whole one, from which the widest give what the screen lacks."""
    widths = [_full_width(column) for column in columns]
    least = [
        width if column.header == cut and not console.is_terminal else _least_width(column, cut)
        for column, width in zip(columns, widths, strict=True)
    ]
    room = console.width - _frame_width(console, table, columns)
    while sum(widths) > room and widths != least:
        shrinkable = [width - few and width for width, few in zip(widths, least, strict=True)]
        widths[shrinkable.index(max(shrinkable))] -= 1
    return widths


def _frame_width(console: rich.console.Console, table: Table, columns: Sequence[Column]) -> int:
    taken = _take(table, columns, [1] * len(columns))
    unlimited = console.options.update(width=UNLIMITED)
    return Measurement.get(console, unlimited, taken).maximum - len(columns)


def _take(table: Table, columns: Sequence[Column], widths: Sequence[int]) -> Table:
    taken = Table(header_style=table.header_style, box=table.box)
    for column, width in zip(columns, widths, strict=True):
        taken.add_column(column.header, justify=column.justify, no_wrap=column.no_wrap, width=width)
    cells = zip(*(column.cells for column in columns), strict=True)
    for row, given in zip(table.rows, cells, strict=True):
        taken.add_row(*given, style=row.style)
    return taken


@contextmanager
def outliving_readers() -> Iterator[None]:
    """Print to standard output as long as somebody reads it, and continue afterwards."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        silence(sys.stdout)


def silence(stream: IO[str]) -> None:
    """Discard everything written to a stream's descriptor from here on."""
    nowhere = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)

"""Writes to the terminal: control sequences and markup in logs, names and messages have no effect.

If a reader closes its end, the run goes on and the rest of the output is dropped.
"""

import io
import os
import sys
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import IO, TextIO

import rich.console
from rich.cells import cell_len
from rich.console import ConsoleOptions, RenderableType
from rich.measure import Measurement
from rich.segment import Segment
from rich.table import Column, Table
from rich.text import Text

from tileyard.report.words import clean_line, make_visible

LEAST_TEXT = 20
"""Narrowest column, in characters, of text that is cut."""
UNLIMITED = 1 << 16
"""Width, in characters, at which a table is measured."""


class Console(rich.console.Console):
    """A console that shows control characters in printed text; those that rich itself uses for drawing are unchanged."""

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


HTML = """\
<pre style="white-space:pre;overflow-x:auto;line-height:normal;font-family:Menlo,'DejaVu Sans Mono',consolas,'Courier New',monospace">{code}</pre>"""


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
    """A table without rules. Columns are aligned on the right except ``left`` ones; only ``wrapped`` ones break."""
    table = Table(header_style="bold", box=None)
    for name in columns:
        table.add_column(
            name, justify="left" if name in left else "right", no_wrap=name not in wrapped
        )
    return table


def print_table(console: rich.console.Console, table: Table, cut: str = "") -> None:
    """Print a table so that no value is cut: a row too long for the screen continues on its next line.

    If a table is too wide, its empty columns are left out, then those with one value in all rows, which
    a line below the table names. On a terminal, text of the last column is cut at the edge of the
    screen if the column is called ``cut``.
    """

    def measure(columns: Sequence[Column]) -> int:
        least = _take(table, columns, {cut: LEAST_TEXT})
        return Measurement.get(console, unlimited, least).minimum

    unlimited = console.options.update(width=UNLIMITED)
    columns, same = list(table.columns), list[Column]()
    if measure(columns) > console.width:
        columns = [column for column in columns if any(map(str, column.cells))] or columns
    if measure(columns) > console.width:
        same = [column for column in columns if _is_constant(column)]
        columns = [column for column in columns if not _is_constant(column)] or columns
    least = measure(columns)
    room = max(0, console.width - least) + LEAST_TEXT if console.is_terminal else UNLIMITED
    shown = _take(table, columns, {cut: room})
    options = unlimited if cut else console.options.update(width=max(console.width, least))
    for line in console.render_lines(shown, options, pad=False):
        text = Text.assemble(*((segment.text, segment.style or "") for segment in line))
        text.rstrip()
        console.print(text, soft_wrap=True, highlight=False)
    if same:
        values = ", ".join(f"{column.header} {next(iter(column.cells))}" for column in same)
        console.print(Text(f"the same in all rows: {values}", style="dim"), soft_wrap=True)


def _is_constant(column: Column) -> bool:
    """Whether several rows have the same value."""
    values = [str(cell) for cell in column.cells]
    return len(values) > 1 and len(set(values)) == 1


def _take(table: Table, columns: Sequence[Column], limits: Mapping[object, int]) -> Table:
    """The same table with these columns; those with a limit are cut there."""
    taken = Table(
        title=table.title,
        caption=table.caption,
        title_justify=table.title_justify,
        caption_justify=table.caption_justify,
        header_style=table.header_style,
        box=table.box,
    )
    for column in columns:
        limit = limits.get(column.header)
        no_wrap = column.no_wrap or limit is not None
        width = max(cell_len(str(cell)) for cell in (column.header, *column.cells))
        taken.add_column(
            column.header,
            justify=column.justify,
            no_wrap=no_wrap,
            min_width=min(width, limit or width) if no_wrap else None,
            max_width=limit,
        )
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

"""The terminal as Tileyard writes to it: nothing in a log, a name or a message is obeyed or read as markup.

A reader that closes the other end does not end the run: the rest of the output is dropped.
"""

import os
import sys
from collections.abc import Container, Iterable, Iterator
from contextlib import contextmanager
from typing import IO, TextIO

import rich.console
from rich.console import ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from tileyard.report.words import clean_line, make_visible


class Console(rich.console.Console):
    """Shows control characters of what is printed; those by which rich itself draws are left alone."""

    def __init__(
        self, *, stderr: bool = False, file: TextIO | None = None, width: int | None = None
    ) -> None:
        super().__init__(stderr=stderr, file=file, width=width, markup=False, emoji=False)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """The segments of what is printed."""
        for segment in super().render(renderable, options):
            text = segment.text if segment.control else make_visible(segment.text)
            yield segment if text is segment.text else Segment(text, segment.style)

    def on_broken_pipe(self) -> None:
        """Print nothing more."""
        self.quiet = True
        silence(self.file)


def say(console: rich.console.Console, text: str, style: str = "") -> None:
    """Print text of others as one line, which is not broken where the screen ends."""
    console.print(Text(clean_line(text), style=style), soft_wrap=True)


def new_table(columns: Iterable[str], left: Container[str], wrapped: Container[str] = ()) -> Table:
    """A table without rules. Columns are aligned on the right but for these; only ``wrapped`` ones break."""
    table = Table(header_style="bold", box=None)
    for name in columns:
        table.add_column(
            name, justify="left" if name in left else "right", no_wrap=name not in wrapped
        )
    return table


@contextmanager
def outliving_readers() -> Iterator[None]:
    """Print to standard output as long as somebody reads it, and go on afterwards."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        silence(sys.stdout)


def silence(stream: IO[str]) -> None:
    """Have a stream's descriptor lead nowhere, for whatever else is written to it."""
    nowhere = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)

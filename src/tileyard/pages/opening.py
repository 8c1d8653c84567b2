"""Reports that a command writes at its end. Light to import: pages are imported once they are made."""

import sys
from collections.abc import Callable
from pathlib import Path
from pkgutil import resolve_name

from tileyard.show.opening import require_place, write_file
from tileyard.show.values import FilePath
from tileyard.store.results import has_result


def open_report(file: FilePath, describe: str) -> Callable[[object, Path, str], None]:
    """A function that writes the report of a result, a data directory and its run into the file, and does
    nothing without one; ``module:name`` describes the result. Raises UsageError if there can be no such file.
    """
    if file:
        require_place(file)

    def write(result: object, home: Path, run: str) -> None:
        if file:
            from tileyard.pages.report import read_log, render_report

            subjects = resolve_name(describe)(result, read_log(home, run))
            write_file(file, render_report(subjects).encode())

    return write


def tell_report(file: FilePath, home: Path, run: str) -> None:
    """Name the report that was written, or the command that writes it if the run's result is kept."""
    if file:
        print(f"report: {file}", file=sys.stderr)
    elif has_result(home, run):
        print(f"report: tileyard report {run} -o report.html", file=sys.stderr)

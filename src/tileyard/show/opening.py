"""Functions that the commands which read records share."""

import contextlib
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from errno import EISDIR
from pathlib import Path
from pkgutil import resolve_name
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

import msgspec

from tileyard.base.decoding import draft_of
from tileyard.base.errors import UsageError
from tileyard.base.model import Outcome
from tileyard.base.settings import Settings, read_settings
from tileyard.base.wording import install_extra

if TYPE_CHECKING:
    from tileyard.show.console import Console
    from tileyard.store.base import RunTime, Store

T = TypeVar("T")
P = ParamSpec("P")


def load_settings() -> Settings:
    """The settings of this command."""
    return read_settings(os.environ, Path.cwd())


@contextlib.contextmanager
def open_store() -> Iterator[tuple["Store", Path]]:
    """The existing store, and its data directory. Raises UsageError if nothing was recorded yet."""
    home = load_settings().home
    if not _has_records(home):
        raise UsageError(f"nothing is recorded in {home} yet")
    from tileyard.store import trials

    with trials.read_store(home) as store:
        try:
            yield store, home
        finally:
            if skipped := store.describe_skipped():
                print(f"tileyard: {skipped}", file=sys.stderr)


def _has_records(home: Path) -> bool:
    if not home.is_dir():
        return False
    # A third of a second of imports, which not all commands need.
    from tileyard.store.trials import has_records

    return has_records(home)


def read_run_times() -> Sequence["RunTime"]:
    """Recorded times of cases of suites; empty if there is no store yet."""
    if not _has_records(load_settings().home):
        return ()
    with open_store() as (store, _):
        return store.list_run_times()


def read_file(file: str, most: int = -1) -> bytes:
    """The content of a file given to a command, or at most this number of bytes of it. Raises UsageError."""
    try:
        with Path(file).open("rb") as opened:
            return opened.read(most)
    except OSError as error:
        raise UsageError(f"cannot read {file}: {error.strerror}") from None


def write_file(file: str | os.PathLike[str], data: bytes) -> None:
    """Write a requested output file, all of it or nothing. Raises UsageError."""
    try:
        with draft_of(Path(file)) as draft:
            draft.write(data)
    except OSError as error:
        raise UsageError(f"cannot write {file}: {error.strerror}") from None


def write_or_print(file: str | os.PathLike[str], data: bytes) -> None:
    """The same, but print it for ``-``, as long as somebody reads it."""
    if file != "-":
        write_file(file, data)
        return
    from tileyard.show.console import outliving_readers

    with outliving_readers():
        print(data.decode(), end="")


def open_picture(file: str | os.PathLike[str] | None, render: str) -> Callable[..., None]:
    """A function that writes a result as PNG, which ``module:name`` renders, and says so; it does nothing
    without a file.

    Only with one matplotlib is imported, which takes half a second. Raises UsageError if it is missing, or if
    there can be no such file.
    """
    if not file:
        return lambda found, *args, **kwargs: None
    try:
        draw = resolve_name(render)
    except ImportError as error:
        raise UsageError(f"--png takes matplotlib: {error}", install_extra("png")) from None
    require_place(file)

    def write(found: object, *args: object, **kwargs: object) -> None:
        write_file(file, draw(found, *args, **kwargs))
        print(f"picture: {file}", file=sys.stderr)

    return write


def require_place(file: str | os.PathLike[str]) -> None:
    """Make the folder of a file that is to be written after hours. Raises UsageError if there can be none."""
    try:
        Path(file).parent.mkdir(parents=True, exist_ok=True)
        if Path(file).is_dir():
            raise IsADirectoryError(EISDIR, os.strerror(EISDIR))
        with TemporaryFile(dir=Path(file).parent):
            pass
    except OSError as error:
        raise UsageError(f"cannot write {file}: {error.strerror}") from None


def parse_outcome(text: str) -> Outcome:
    """An outcome by its name."""
    try:
        return Outcome(text)
    except ValueError:
        known = ", ".join(Outcome)
        raise UsageError(f"there is no outcome {text!r}", f"there are: {known}") from None


def present(
    found: T,
    as_json: bool,
    view: "Callable[Concatenate[Console, T, P], None]",
    *args: P.args,
    **kwargs: P.kwargs,
) -> None:
    """Print a record as JSON, or with its view, which takes the other arguments."""
    from tileyard.show.console import Console

    if as_json:
        print_json(found)
    else:
        view(Console(), found, *args, **kwargs)


def print_json(value: object) -> None:
    """Print any record as indented JSON, as long as somebody reads it."""
    from tileyard.show.console import outliving_readers

    text = msgspec.json.format(msgspec.json.encode(value)).decode()
    # Within strings alone, where an escape means the same: printed text has no effect on the terminal.
    with outliving_readers():
        print(
            re.sub(
                r"[\x7f-\x9f\u200e-\u200f\u2028-\u202e\u2066-\u2069]",
                lambda found: f"\\u{ord(found[0]):04x}",
                text,
            )
        )

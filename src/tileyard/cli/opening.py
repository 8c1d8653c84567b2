"""What the commands that look at records share."""

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from tileyard.errors import UsageError
from tileyard.model import Outcome
from tileyard.settings import read_settings

if TYPE_CHECKING:
    from tileyard.store.run_times import RunTime
    from tileyard.store.trials import TrialStore


@contextlib.contextmanager
def open_store() -> Iterator[tuple["TrialStore", Path]]:
    """The store that is there, and its home. Raises UsageError where nothing was recorded yet."""
    # A third of a second of imports, which not all commands need.
    from tileyard.store.trials import TrialStore

    home = read_settings(os.environ, Path.cwd()).home
    if not (home / "store.db").is_file():
        raise UsageError(f"nothing is recorded in {home} yet")
    with TrialStore.open(home) as store:
        yield store, home


def read_run_times(home: Path) -> Sequence["RunTime"]:
    """How long cases of suites took; nothing where there is no store yet."""
    # As above.
    from tileyard.store.run_times import RunTimeQuery
    from tileyard.store.trials import TrialStore

    if not (home / "store.db").is_file():
        return ()
    with TrialStore.open(home) as store:
        return store.list_run_times(RunTimeQuery())


def parse_outcome(text: str) -> Outcome:
    """An outcome by its name."""
    try:
        return Outcome(text)
    except ValueError:
        known = ", ".join(Outcome)
        raise UsageError(f"there is no outcome {text!r}", f"there are: {known}") from None


def print_json(value: object) -> None:
    """Any record as indented JSON."""
    print(msgspec.json.format(msgspec.json.encode(value)).decode())

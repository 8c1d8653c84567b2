"""Which cases of a suite failed when they were last run, so that just these can be run again."""

import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

import msgspec

from tileyard.artifacts.keys import digest_parts
from tileyard.errors import HomeError
from tileyard.model import Record
from tileyard.suite.result import CaseVerdict

FOLDER = "suites"


class Failing(Record):
    """The ids of cases that failed, or that no device could be had for, when they were last run."""

    cases: tuple[str, ...] = ()


def read_failing(home: Path, suite: str) -> tuple[str, ...]:
    """What is known of the suite with this path; nothing where it never ran, or the file is torn."""
    try:
        return msgspec.json.decode(_path(home, suite).read_bytes(), type=Failing).cases
    except (FileNotFoundError, msgspec.DecodeError):
        return ()


def note_failing(home: Path, suite: str, verdicts: Iterable[CaseVerdict]) -> None:
    """Take in what a run has found; what it did not run stays as it was. Raises HomeError."""
    known = dict.fromkeys(read_failing(home, suite))
    for verdict in verdicts:
        known.pop(verdict.case, None)
        if verdict.is_bad:
            known[verdict.case] = None
    path = _path(home, suite)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=path.parent)
        with os.fdopen(descriptor, "wb") as file:
            file.write(msgspec.json.encode(Failing(cases=tuple(known))))
        Path(name).replace(path)
    except OSError as error:
        raise HomeError(f"cannot write to {path.parent}: {error.strerror}") from error


def _path(home: Path, suite: str) -> Path:
    return home / FOLDER / f"{digest_parts('suite', suite)[:20]}.json"

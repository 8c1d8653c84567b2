"""Compile steps shared out among the processes of pytest-xdist: each is carried out once.

Every process has the same steps in the same order. Share ``k`` is a file of results; who holds its
lock makes it. A process takes its own share first and then looks at all others: it waits for those
that are being made, and makes those whose maker died.
"""

import fcntl
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from tileyard.pytest_plugin.declared import Step
from tileyard.pytest_plugin.records import StepResult

Make = Callable[[Sequence[Step]], list[StepResult]]
_decoder = msgspec.json.Decoder(list[StepResult])


def prepare_shares(
    steps: Sequence[Step], folder: Path, own: int, count: int, make: Make
) -> list[StepResult]:
    """All results, after this process has made what was its to make. ``own`` is below ``count``."""
    folder.mkdir(parents=True, exist_ok=True)
    results: list[StepResult] = []
    for offset in range(count):
        number = (own + offset) % count
        path = folder / f"share-{number}.json"
        with _locked(path.with_suffix(".lock")):
            if not path.exists():
                made = make(steps[number::count])
                draft = path.with_suffix(".draft")
                draft.write_bytes(msgspec.json.encode(made))
                draft.replace(path)
        results += _decoder.decode(path.read_bytes())
    return results


def read_shares(folder: Path) -> Iterator[StepResult]:
    """The results of all shares that were made."""
    for path in sorted(folder.glob("share-*.json")):
        yield from _decoder.decode(path.read_bytes())


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)

"""Compile steps shared out among the processes of pytest-xdist: each is carried out once.

Every process has the same steps in the same order. Share ``k`` is a file of results; who holds its
lock makes it. A process takes its own share first and then those that nobody has begun; at last it
waits for those that are being made, and makes those whose maker died.
"""

import fcntl
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from tileyard.modes import make_folder, open_file, write_file
from tileyard.pytest_plugin.records import StepResult
from tileyard.pytest_plugin.steps import Step

Make = Callable[[Sequence[Step]], list[StepResult]]
_decoder = msgspec.json.Decoder(list[StepResult])


def prepare_shares(
    steps: Sequence[Step], folder: Path, own: int, count: int, make: Make
) -> list[StepResult]:
    """All results, after this process has made what was its to make. ``own`` is below ``count``."""
    make_folder(folder)
    order = [(own + offset) % count for offset in range(count)]
    for is_patient in (False, True):
        for number in order:
            path = folder / f"share-{number}.json"
            with _locked(path.with_suffix(".lock"), is_patient=is_patient) as is_ours:
                if is_ours and not path.exists():
                    made = make(steps[number::count])
                    draft = path.with_suffix(".draft")
                    write_file(draft, msgspec.json.encode(made))
                    draft.replace(path)
    return list(read_shares(folder))


def read_shares(folder: Path) -> Iterator[StepResult]:
    """The results of all shares that were made."""
    for path in sorted(folder.glob("share-*.json")):
        yield from _decoder.decode(path.read_bytes())


@contextmanager
def _locked(path: Path, *, is_patient: bool) -> Iterator[bool]:
    """Hold a lock for the block, unless another has it and we are not ``is_patient``; says which."""
    lock = open_file(path, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX if is_patient else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        yield False
    else:
        yield True
    finally:
        os.close(lock)

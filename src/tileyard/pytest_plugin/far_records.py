"""What goes to the far side of a queue and comes back, in files of the run's own folder on a shared mount."""

import pickle
from pathlib import Path
from typing import Any

from tileyard.artifacts.keys import digest_bytes
from tileyard.errors import DamagedError
from tileyard.model import Record
from tileyard.modes import write_file
from tileyard.pytest_plugin.records import Left, StepResult
from tileyard.workers.task_lines import Submitted


class FarTest(Record):
    """A whole test. ``kernels`` and ``functions`` are what was built for it; ``answer`` is the file for what comes of it."""

    nodeid: str
    limit_s: float
    answer: str
    kernels: dict[str, StepResult] = {}
    functions: dict[str, StepResult] = {}


class FarTask(Submitted, kw_only=True):
    """What is submitted. The environment lies in it: what a queue hands on of one may be cut.

    ``paths`` is where modules are found, ``arguments`` what pytest was given here. A test whose own limit
    is longer than what is left of ``limit_s`` is not begun: it is for another task.
    """

    environment: dict[str, str]
    cwd: str
    paths: tuple[str, ...]
    arguments: tuple[str, ...]
    rootdir: str
    folder: str
    limit_s: float
    tests: tuple[FarTest, ...]


class FarAnswer(Record):
    """What came of a test: pytest's reports and warnings in their plain form, and whether it has asked to end the run."""

    reports: tuple[dict[str, Any], ...]
    warnings: tuple[dict[str, Any], ...] = ()
    left: Left | None = None


def write_answer(path: Path, answer: FarAnswer) -> str:
    """Write it whole; its digest."""
    data = pickle.dumps(answer)
    draft = path.with_suffix(".draft")
    write_file(draft, data)
    draft.replace(path)
    return digest_bytes(data)


def read_answer(path: Path, digest: str) -> FarAnswer:
    """Read it. Raises DamagedError where it is not what was written."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise DamagedError(
            f"{path}, which the far side has written, cannot be read: {error.strerror}"
        ) from None
    if digest_bytes(data) != digest:
        raise DamagedError(f"{path} is not what the far side has written")
    answer: FarAnswer = pickle.loads(data)
    return answer

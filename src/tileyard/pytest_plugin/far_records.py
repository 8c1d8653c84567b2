"""Records sent to the far side of a queue and back, in files of the run's own folder on a shared mount."""

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from tileyard.artifacts.keys import digest_bytes
from tileyard.base.errors import DamagedError
from tileyard.base.model import Outcome, Record
from tileyard.base.modes import write_file
from tileyard.pytest_plugin.records import Left, StepResult
from tileyard.workers.task_lines import Submitted

T = TypeVar("T")


class FarTest(Record):
    """A whole test and its builds; ``answer`` is the file for its result, ``devices`` its task's number."""

    name: str
    limit_s: float
    answer: str
    devices: int = 1
    kernels: dict[str, StepResult] = {}
    functions: dict[str, StepResult] = {}


class FarCall(Record):
    """The part of a test that holds a device: files of a `FarGiven` and of the ``answer``, a
    `FarDone`. Import ``modules`` from their files first.
    """

    name: str
    limit_s: float
    modules: dict[str, str]
    given: str
    answer: str
    devices: int = 1


class FarTask(Submitted, kw_only=True):
    """A submitted task of whole or parts of tests, with the environment, which a queue may cut.
    ``paths``: module search path; ``arguments``: pytest's. A test longer than the rest of
    ``limit_s`` is left to another task. ``devices``: held at once by each part.
    """

    environment: dict[str, str]
    cwd: str
    paths: tuple[str, ...]
    arguments: tuple[str, ...]
    rootdir: str
    folder: str
    limit_s: float
    devices: int = 1
    tests: tuple[FarTest, ...] = ()
    calls: tuple[FarCall, ...] = ()


class FarAnswer(Record):
    """The result of a test: plain reports and warnings. ``needs``: devices for another run, else 0."""

    reports: tuple[dict[str, Any], ...] = ()
    warnings: tuple[dict[str, Any], ...] = ()
    left: Left | None = None
    needs: int = 0


class FarGiven(Record):
    """What to call: a function with ``values`` of its parameters, or a ``block`` of a test's
    function; with a ``count`` of devices, as a tuple.
    """

    function: Callable[..., object]
    values: dict[str, Any]
    args: tuple[object, ...] = ()
    block: int | None = None
    count: int | None = None


class FarDone(Record):
    """The result of a call: ``values``, arguments ``changed`` in place, exception, or why ``refused``."""

    values: dict[str, Any] = {}
    changed: dict[str, Any] = {}
    error: BaseException | None = None
    trace: str = ""
    refused: str = ""


class FarReply(Record):
    """How a call ended, for the test that waits for it: the digest of its file, or why there is none."""

    digest: str = ""
    outcome: Outcome = Outcome.PASSED
    message: str = ""


class FarCallWanted(Record):
    """A test's own process waits for a call, and reads a `FarReply` from ``pipe``."""

    call: FarCall
    pipe: str


class NotSeparable(Record):
    """A test's own process ends, because the test has to run whole, with this number of devices."""

    reason: str
    devices: int = 1


def lines_of(task: Path) -> Path:
    """The file of the far side's printed lines, beside the file of a task."""
    return task.with_suffix(".lines")


def write_answer(path: Path, answer: FarAnswer | FarGiven | FarDone) -> str:
    """Write it whole; returns its digest. Raises what pickling raises."""
    data = pickle.dumps(answer)
    draft = path.with_suffix(".draft")
    write_file(draft, data)
    draft.replace(path)
    return digest_bytes(data)


def read_answer(file: str, digest: str, kind: type[T]) -> T:
    """Read it. Raises DamagedError if it is not what was written."""
    path = Path(file)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise DamagedError(
            f"{path}, which the far side has written, cannot be read: {error.strerror}"
        ) from None
    if digest_bytes(data) != digest:
        raise DamagedError(f"{path} was not written by the queue's task")
    answer: T = pickle.loads(data)
    if not isinstance(answer, kind):
        raise DamagedError(f"{path} holds {type(answer).__name__}")
    return answer

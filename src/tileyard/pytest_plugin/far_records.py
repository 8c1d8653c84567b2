"""Records sent to the far side of a queue and back, in files of the run's own folder on a shared mount."""

import pickle
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from tileyard.artifacts.objects import digest_bytes
from tileyard.base.errors import DamagedError
from tileyard.base.model import BuildKey, Outcome, Record, Rule, Value
from tileyard.base.modes import write_file
from tileyard.frontend.found import Found
from tileyard.workers.task_lines import Submitted

FACTS = "tileyard"
"""The attribute of a test's last report that holds its ``TestFacts``, as builtins."""
INTERRUPTED = "interrupted"
"""In place of an outcome: the test ran when the run was ended."""
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class KernelStep:
    """Build one kernel; ``id`` names the step in every process. ``source`` has its ``arguments``,
    or is a PrimFunc with ``out_idx``. ``check_sync`` is as in a yard, and fails on mistakes.
    """

    id: str
    source: Found | Any
    arguments: dict[str, Value]
    target: str
    out_idx: tuple[int, ...] | None
    check_sync: bool | None = None


@dataclass(frozen=True, kw_only=True)
class Declared:
    """What a function's result depends on besides code and values, named as in suites: ``inputs``
    below ``root``, ``runs`` with all programs started, None if not declared.
    """

    root: Path
    inputs: tuple[str, ...] = ()
    runs: tuple[str, ...] | None = None
    env: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class FunctionStep:
    """Call a function that builds, with ``values``; kept if ``declared`` says what it depends on."""

    id: str
    function: Callable[..., object]
    values: dict[str, object]
    limit_s: float
    declared: Declared | None = None


@dataclass(frozen=True, kw_only=True)
class BodyStep:
    """Build what a test without markers, or its fixture, compiles itself, as far as reading finds it."""

    id: str
    function: Callable[..., object]
    values: dict[str, object]


Step = KernelStep | FunctionStep | BodyStep


# ---- what a test's own process tells ------------------------------------------------------------


class Reported(Record):
    """A report of pytest on one phase, in its own plain form. ``outcome`` is our term for it."""

    data: dict[str, Any]
    outcome: Outcome


class Warned(Record):
    """A warning that pytest recorded; ``arguments`` are the arguments of its hook."""

    arguments: dict[str, Any]


class DeviceWanted(Record):
    """The test waits for a device from now on: its limit does not run."""


class DeviceRefused(Record):
    """The test no longer waits, and got no device."""


class DevicesNeeded(Record):
    """The test needs this number at once, more than its process has, and ends for that."""

    count: int


class HoldBegan(Record):
    """The test holds a device from ``at`` on, in seconds of the host's monotonic clock."""

    device: str
    lease: int
    at: float
    waited_s: float
    dynamic: bool = False


class HoldEnded(Record):
    """The device was returned, and that is confirmed."""

    at: float


class Compiled(Record):
    """The test had ``kernel`` compiled while it ran."""

    kernel: str


class Answered(Record):
    """The one answer of a process that was started for one question."""

    reply: Any


class TurnedTo(Record):
    """The process runs this test from ``at`` on, in seconds of the host's monotonic clock."""

    test: str
    at: float


class Left(Record):
    """The whole run is to end: ``pytest.exit`` or an interrupt."""

    reason: str
    code: int | None = None
    interrupted: bool = False


# ---- what a run comes to --------------------------------------------------------------------------


class StepResult(Record):
    """The result of one compile step, begun ``at`` on the host's monotonic clock. ``build`` and
    ``target`` are a kernel's, ``folder`` and ``pickled`` result a function's. ``why``: kept or
    made, or where a test that ran ahead ended. ``unchecked``: why undefined behaviour was not
    checked. ``is_partial``: the test read may compile more. ``rule`` is as in an Elaborated.
    """

    step: str
    outcome: Outcome = Outcome.PASSED
    message: str = ""
    at: float = 0.0
    seconds: float = 0.0
    reused: bool = False
    build: BuildKey = BuildKey("")
    rule: Rule | None = None
    target: str = ""
    folder: str = ""
    pickled: str = ""
    why: str = ""
    unchecked: str = ""
    is_partial: bool = False


class Hold(Record):
    """A device held by one test, a line of the ledger; ``at`` is in seconds since the run began.
    ``dynamic``: taken because a device was used outside a block.
    """

    test: str
    device: str
    lease: int
    at: float
    held_s: float
    waited_s: float
    dynamic: bool = False


class TestFacts(Record):
    """Facts about a test besides its reports; ``seconds``: of its process, without waits for devices."""

    __test__ = False  # not a test class, despite its name

    seconds: float
    outcome: Outcome
    message: str = ""
    log: str = ""
    holds: tuple[Hold, ...] = ()
    compiled: tuple[str, ...] = ()


class TestEntry(Record):
    """One test of the run. ``outcome`` is an `Outcome`, or INTERRUPTED."""

    __test__ = False

    test: str
    outcome: str
    seconds: float
    held_s: float = 0.0
    message: str = ""
    compiled: tuple[str, ...] = ()


class DeviceUse(Record):
    """Total time for which a device was held, and its share of the run's wall time."""

    device: str
    holds: int
    held_s: float
    share: float


class RunReport(Record):
    """The content of ``--tileyard-report``. Times are in seconds."""

    run: str
    exit_status: int
    wall_s: float
    prepare_s: float
    build_s: float
    most_builds_at_once: int
    steps: tuple[StepResult, ...]
    devices: tuple[DeviceUse, ...]
    holds: tuple[Hold, ...]
    tests: tuple[TestEntry, ...]
    version: int = 1


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

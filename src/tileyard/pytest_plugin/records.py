"""Compile steps, the messages between the processes of a run, and the results of the run."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tileyard.base.model import BuildKey, Outcome, Record, Value
from tileyard.base.rules import Rule
from tileyard.frontend.found import Found


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


FACTS = "tileyard"
"""The attribute of a test's last report that holds its ``TestFacts``, as builtins."""


class TestFacts(Record):
    """Facts about a test besides its reports; ``seconds``: of its process, without waits for devices."""

    __test__ = False  # not a test class, despite its name

    seconds: float
    outcome: Outcome
    message: str = ""
    log: str = ""
    holds: tuple[Hold, ...] = ()
    compiled: tuple[str, ...] = ()


INTERRUPTED = "interrupted"
"""In place of an outcome: the test ran when the run was ended."""


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

"""What happens in a run: one versioned stream of records for all who watch it."""

from typing import Literal

from tileyard.model import Case, Device, Record, Trial

EVENT_VERSION = 2

StepKind = Literal["golden", "check"]
StopReason = Literal["done", "budget", "first_failure", "interrupted"]
"""Why a run stopped: all was tried, its time was spent, a case failed, or somebody stopped it."""


class RunStarted(Record, tag="run_started"):
    """The first event of a run. ``cases`` is how many are expected, ``flops`` the work of each.

    At most ``undecided`` batches are planned and have not ended, as long as cases take more than milliseconds.
    ``expected_s`` is what they should take together, one after another, 0 if nobody knows; ``is_guess`` says that no earlier run says so.
    ``steps`` golden and check steps take ``steps_s`` in all beside the devices, on ``lanes``. A case that
    fails is tried ``retries`` times again. ``spared`` are cases whose failures are none of the run's.
    """

    title: str
    run: str = ""
    at: float = 0.0
    target: str = ""
    devices: tuple[Device, ...] = ()
    undecided: int = 0
    cases: int = 0
    flops: float = 0.0
    expected_s: float = 0.0
    is_guess: bool = False
    steps: int = 0
    steps_s: float = 0.0
    lanes: int = 0
    retries: int = 0
    spared: tuple[str, ...] = ()
    version: int = EVENT_VERSION


class CasePlanned(Record, tag="case_planned"):
    """A case was accepted, as one of a batch; exactly one CaseEnded will follow."""

    case: Case
    batch: str = ""


class BuildStarted(Record, tag="build_started"):
    """A compile worker began to build a case's kernel."""

    case: str
    at: float


class BuildEnded(Record, tag="build_ended"):
    """A case's artifact is ready, or its build failed. ``reused`` if it was already there."""

    case: str
    at: float
    ok: bool
    reused: bool


class _OfDevice(Record):
    """What happened to a device, and when."""

    device: str
    at: float


class DeviceAsked(_OfDevice, tag="device_asked"):
    """Something is ready to run, and a device was asked for."""


class DeviceAwaited(_OfDevice, tag="device_awaited"):
    """Somebody else has a device that was asked for: ``holder``, if that is known.

    ``place`` is ours in its queue, 1 for the next, 0 if unknown.
    """

    place: int = 0
    holder: str = ""


class DeviceLeased(_OfDevice, tag="device_leased"):
    """A device is held, under the lease with this number; 0 where the queue that lends it decides."""

    lease: int


class DeviceReleased(_OfDevice, tag="device_released"):
    """A device is no longer held, or no longer asked for."""


class CaseStarted(Record, tag="case_started"):
    """A runner began a case on a device."""

    case: str
    device: str
    at: float


class StepEnded(Record, tag="step_ended"):
    """A golden or check step of a case ended, which took these seconds of a lane. One whose result was there tells nothing."""

    case: str
    step: StepKind
    at: float
    seconds: float


class CaseEnded(Record, tag="case_ended"):
    """A case reached its outcome."""

    trial: Trial


class Note(Record, tag="note"):
    """Something people should know that belongs to no case."""

    text: str
    level: Literal["info", "warning"] = "info"


class PairsCounted(Record, tag="pairs_counted"):
    """How many pairs of a comparison are decided, and how many are not. ``left_s`` is a guess, None as long as nothing was timed."""

    decided: int
    undecided: int
    left_s: float | None


class RunEnded(Record, tag="run_ended"):
    """The last event of a run."""

    run: str
    at: float
    reason: StopReason


Event = (
    RunStarted
    | CasePlanned
    | BuildStarted
    | BuildEnded
    | DeviceAsked
    | DeviceAwaited
    | DeviceLeased
    | DeviceReleased
    | CaseStarted
    | StepEnded
    | CaseEnded
    | Note
    | PairsCounted
    | RunEnded
)

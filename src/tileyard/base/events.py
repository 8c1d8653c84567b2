"""The events of a run: one versioned stream of records for all listeners."""

import time
from collections import Counter
from collections.abc import Sequence
from typing import Literal

from tileyard.base.model import Case, Device, Diagnostic, Moment, Record, Seconds, Trial
from tileyard.base.wording import count_of, name_line

EVENT_VERSION = 2

StepKind = Literal["golden", "check"]
PauseReason = Literal["quiet", "judge", "pairs", "burst"]
"""Why a held device runs nothing although a batch is ready: something is built or asked on its cores, the
judge needs them or owes a verdict, as many interleaved batches as devices are to begin together, or building
goes on until more is ready.
"""
StopReason = Literal["done", "budget", "gain", "first_failure", "interrupted"]
"""Why a run stopped: all cases were tried, its time was spent, little gain was expected, a case failed, or it
was interrupted.
"""


class RunStarted(Record, tag="run_started"):
    """The first event of a run, with the expected number of ``cases`` and ``flops`` of each. Up to
    ``undecided`` batches are planned at once, of cases that take more than milliseconds.
    ``expected_s`` is the sum of their times, 0 if unknown, ``is_guess`` if not of earlier runs;
    ``steps_s`` that of ``steps`` beside devices, on ``lanes``. Failed cases have ``retries``; those
    ``spared`` do not fail the run. ``budget_left_s``: None without a budget.
    """

    title: str
    run: str = ""
    at: Moment = 0.0
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
    budget_left_s: float | None = None
    version: int = EVENT_VERSION


class CasePlanned(Record, tag="case_planned"):
    """A case was accepted as part of a batch; exactly one CaseEnded will follow."""

    case: Case
    batch: str = ""


class PreparationEnded(Record, tag="preparation_ended"):
    """A case was prepared, or ended instead, after these seconds: elaborated, with its golden result."""

    case: str
    at: Moment
    seconds: Seconds


class BuildStarted(Record, tag="build_started"):
    """A compile worker, on another ``host`` if one is named, began to build a case's kernel. Its number, of
    the whole run, is None in older streams.
    """

    case: str
    at: Moment
    host: str = ""
    worker: int | None = None


class BuildEnded(Record, tag="build_ended"):
    """A case's artifact is ready, or its build failed. ``reused`` if the artifact already existed."""

    case: str
    at: Moment
    ok: bool
    reused: bool


class TargetsBuilt(Record, tag="targets_built"):
    """The number of targets of build steps that are built so far, of all that were missing."""

    built: int
    total: int


class _OfDevice(Record):
    device: str
    at: Moment


class DeviceAsked(_OfDevice, tag="device_asked"):
    """A batch is ready to run, and a device was requested."""


class DeviceAwaited(_OfDevice, tag="device_awaited"):
    """Someone else, ``holder``, has a device that is wanted; ``place``: ours in its queue, from 1; 0
    unknown.
    """

    place: int = 0
    holder: str = ""


class DeviceLeased(_OfDevice, tag="device_leased"):
    """A device is held under the lease with this number; 0 if a queue lends it."""

    lease: int


class DevicePaused(_OfDevice, tag="device_paused"):
    """A held device does not begin a batch that is ready, for this reason."""

    reason: PauseReason


class DeviceReleased(_OfDevice, tag="device_released"):
    """A device is no longer held, or no longer requested."""


class CaseStarted(Record, tag="case_started"):
    """A runner began a case on a device."""

    case: str
    device: str
    at: Moment


class CaseLeft(_OfDevice, tag="case_left"):
    """A device is done with a case, which then ends, is judged, or runs again if its device failed."""

    case: str


class JudgeAnswered(Record, tag="judge_answered"):
    """The judge has compared the outputs of these cases, after these seconds."""

    cases: tuple[str, ...]
    at: Moment
    seconds: Seconds


class StepEnded(Record, tag="step_ended"):
    """A case's golden or check step, without a known result, ended after these seconds on a lane."""

    case: str
    step: StepKind
    at: Moment
    seconds: Seconds


class CaseEnded(Record, tag="case_ended"):
    """A case reached its outcome; ``at`` is 0 in older streams."""

    trial: Trial
    at: Moment = 0.0


class Note(Record, tag="note"):
    """A message for people that belongs to no case."""

    text: str
    level: Literal["info", "warning"] = "info"


def describe_note(found: Diagnostic) -> str:
    """The text of a note about a kernel, after its line if that is known."""
    where = found.where
    place = "" if where is None else f"{name_line(where.file, where.line)}: "
    return f"note: {place}{found.message}"


class HostLost(Record, tag="host_lost"):
    """Nothing more is heard of another host's agent; what ran there runs elsewhere."""

    host: str
    at: Moment
    why: str


class HostJoined(Record, tag="host_joined"):
    """Another host's agent has come while the run goes on, with these devices."""

    host: str
    at: Moment
    devices: tuple[Device, ...] = ()


class PairsCounted(Record, tag="pairs_counted"):
    """Decided and undecided pairs of a comparison; ``left_s``: estimate, None before anything was timed."""

    decided: int
    undecided: int
    left_s: float | None


class StudyAdvanced(Record, tag="study_advanced"):
    """How far a study is: the share by which its best time is still expected to improve, the seconds until
    it ends, finals included (both None if unknown), and the configs ``rejected`` untried, by reason.
    """

    expected_gain: float | None
    left_s: float | None
    rejected: dict[str, int] = {}


class RepetitionStarted(Record, tag="repetition_started"):
    """A ``strategy`` begins to search the recorded space in a ``file`` once more; the one before has ended.
    This and others are ``left``, by strategy.
    """

    strategy: str
    file: str
    left: dict[str, int]


class RunEnded(Record, tag="run_ended"):
    """The last event of a run."""

    run: str
    at: Moment
    reason: StopReason


Event = (
    RunStarted
    | CasePlanned
    | PreparationEnded
    | BuildStarted
    | BuildEnded
    | TargetsBuilt
    | DeviceAsked
    | DeviceAwaited
    | DeviceLeased
    | DevicePaused
    | DeviceReleased
    | CaseStarted
    | CaseLeft
    | JudgeAnswered
    | StepEnded
    | CaseEnded
    | Note
    | HostLost
    | HostJoined
    | PairsCounted
    | StudyAdvanced
    | RepetitionStarted
    | RunEnded
)


def describe_lost(events: Sequence[HostLost]) -> tuple[str, ...]:
    """A line on each lost host: when, the last time of several, and why."""
    times = Counter(event.host for event in events)
    last = {event.host: event for event in events}
    return tuple(
        f"host {host} was lost{f' {times[host]} times, at last' if times[host] > 1 else ''} at "
        f"{time.strftime('%H:%M:%S', time.localtime(event.at))}: {event.why}"
        for host, event in last.items()
    )


def describe_joined(event: HostJoined) -> str:
    """A line on a host that has joined."""
    if not event.devices:
        return f"host {event.host} has joined, and builds"
    return f"host {event.host} has joined, with {count_of(len(event.devices), 'device')}"


FINALS = "finals"
"""Beginning of the ids of batches of finals, after the shape if a run has several."""
MEETING = "meeting"
"""Beginning of the ids of later meetings, after the shape."""


def is_final(one: Trial | CasePlanned) -> bool:
    """Whether it takes part in finals."""
    return one.batch.rpartition("/")[2].startswith(FINALS)


def is_meeting(one: Trial | CasePlanned) -> bool:
    """Whether it is of a meeting after the finals, of the best config and another one."""
    return one.batch.rpartition("/")[2].startswith(MEETING)

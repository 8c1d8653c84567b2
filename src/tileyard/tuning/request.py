"""The requests and the results of tuning runs, of one shape and of many, and the result of a build of configs.

One module because the result of a table holds those of its studies, and these hold those of builds.
"""

from collections.abc import Iterable

from tileyard.artifacts.keys import canonical_json
from tileyard.artifacts.manifest import Build
from tileyard.draws import Draw
from tileyard.events import CasePlanned, StopReason
from tileyard.model import (
    INFRASTRUCTURE,
    CheckPolicy,
    Limits,
    Measurement,
    Outcome,
    Record,
    SourceLine,
    TimingPolicy,
    Trial,
    Value,
)

DEFAULT_TRIALS = 200
FINALS = "finals"
"""How the ids of batches begin in which finalists meet, after the shape of a study of many."""
BUSY = 1.05
"""Where equal things may differ by more than this factor, ties are not resolved."""
ALL_CONFIGS = 1_000_000
"""More than can be built in a life: every point of a space."""


def is_final(one: Trial | CasePlanned) -> bool:
    """Whether it takes part in finals."""
    return one.batch.rpartition("/")[2].startswith(FINALS)


class TuneRequest(Record):
    """One tuning run. ``kernel`` may be empty where the file holds only one.

    ``overrides`` gives values for tunable parameters, in place of the kernel's own. So do ``reference`` and ``inputs``, names of
    functions of its file, ``flops``, a formula over its arguments, and ``rtol`` and ``atol``, each in place of that of its tolerance. At most
    ``trials`` configs are tried; screening stops after ``budget_s`` seconds. ``finalists`` configs
    meet in up to ``rounds`` interleaved rounds before a winner is named. With ``require_check`` a config
    wins only if its results were compared; and only if it is right on the inputs of all ``draws``, too.
    """

    kernel: str = ""
    arguments: dict[str, Value] = {}
    shape: str = ""
    overrides: dict[str, tuple[Value, ...]] = {}
    reference: str = ""
    inputs: str = ""
    flops: str = ""
    rtol: float | None = None
    atol: float | None = None
    trials: int = DEFAULT_TRIALS
    budget_s: float | None = None
    check: CheckPolicy = CheckPolicy()
    timing: TimingPolicy = TimingPolicy()
    limits: Limits = Limits()
    finalists: int = 5
    rounds: int = 60
    seed: int = 0
    require_check: bool = False
    draws: tuple[Draw, ...] = ()


class Final(Record):
    """How a finalist did. ``ratio`` is its time over that of the fastest finalist.

    ``low`` and ``high`` bound the ratio. ``tied`` says that the two can't be told apart. The
    winner comes first; where several are tied it need not be the fastest. ``measurement`` is that of the
    finals, which decided.
    """

    trial: str
    config: dict[str, Value]
    ratio: float
    low: float
    high: float
    tied: bool
    measurement: Measurement | None = None


class Control(Record):
    """The A/A control of the finals: the leader against itself.

    ``false_alarm`` says that the interval excludes 1 although both are the same binary, and ``reused``
    that these finals took place in an earlier run.
    """

    ratio: float
    low: float
    high: float
    false_alarm: bool
    reused: bool = False

    @property
    def is_wide(self) -> bool:
        """The machine was so busy that equal things may have looked as different as configs do."""
        return self.low * BUSY < 1 or self.high > BUSY


def median_ns(trial: Trial) -> float:
    """The time by which trials are ordered: infinite for one that was not measured."""
    return trial.measurement.median_ns if trial.measurement is not None else float("inf")


def one_per_binary(trials: Iterable[Trial]) -> list[Trial]:
    """The first trial of each binary, in order; one of which no binary is known is its own."""
    first: dict[str, Trial] = {}
    for trial in trials:
        first.setdefault(trial.keys.binary or trial.id, trial)
    return list(first.values())


class CompileResult(Record):
    """What building a space came to. ``configs`` are in the order of the space.

    ``lines`` says where the user wrote each statement of the first one that was built, by number.
    """

    run: str
    kernel: str
    arguments: dict[str, Value]
    target: str
    space: int
    configs: tuple[Build, ...]
    notes: tuple[str, ...] = ()
    reason: StopReason = "done"
    seconds: float = 0.0
    lines: dict[int, SourceLine] = {}

    def find(self, config: dict[str, Value]) -> Build | None:
        """How the build of a config ended; None for one that was not to be built."""
        named = canonical_json(config)
        return next((one for one in self.configs if canonical_json(one.config) == named), None)

    @property
    def exit_status(self) -> int:
        """0 all were built, 1 some were not, 130 interrupted."""
        if self.reason == "interrupted":
            return 130
        return 0 if all(one.outcome is Outcome.PASSED for one in self.configs) else 1


class KeptOut(Record):
    """A device whose times do not count beside those of ``base``, although it is of the same kind.

    It took ``ratio`` times as long for the same kernel, between ``low`` and ``high``; or ``message`` says how that kernel
    ended there.
    """

    device: str
    base: str
    ratio: float = 0.0
    low: float = 0.0
    high: float = 0.0
    message: str = ""


class StudyResult(Record):
    """What a tuning run came to. ``best`` is the winner's screening trial, None where none passed.

    ``trials`` are in the order in which they ended, without those of the finals. ``flops`` is the
    kernel's work, 0 where unknown. ``seconds`` is the duration of the whole run. ``silicon`` is what the
    device is, ``checked`` says that results were to be compared, and ``require_check`` that they had to be.
    ``also_built`` says how the same configs could be built for other targets, ``unrecorded`` names the trials
    that the store could not take. ``are_finals_lost`` says that infrastructure failed some of the finals. Of devices of one kind
    those are ``kept_out`` that differ. What has won is right on all ``draws``. ``others`` are the same study on other silicon, each with its own trials and winner.
    """

    run: str
    kernel: str
    arguments: dict[str, Value]
    target: str
    device: str
    flops: float
    space: int
    trials: tuple[Trial, ...]
    best: Trial | None
    finals: tuple[Final, ...] = ()
    control: Control | None = None
    reason: StopReason = "done"
    seconds: float = 0.0
    silicon: str = ""
    checked: bool = True
    require_check: bool = False
    draws: tuple[Draw, ...] = ()
    also_built: tuple[CompileResult, ...] = ()
    unrecorded: tuple[str, ...] = ()
    are_finals_lost: bool = False
    kept_out: tuple[KeptOut, ...] = ()
    others: tuple["StudyResult", ...] = ()

    @property
    def exit_status(self) -> int:
        """0 a best config was found, 1 none passed, 3 infrastructure only, 130 interrupted.

        3 is also a best one out of those that infrastructure has left, or one that could not be recorded. Over several
        kinds of silicon it is 1 where none passed on one of them, else 3 where it is 3 for one.
        """
        found = {self.own_status, *(other.own_status for other in self.others)}
        return next((status for status in (130, 1, 3) if status in found), 0)

    @property
    def own_status(self) -> int:
        """The exit status of this silicon alone."""
        if self.reason == "interrupted":
            return 130
        if self.best is not None:
            return 3 if self.lost or self.are_finals_lost or self.unrecorded else 0
        return 3 if self.lost and len(self.lost) == len(self.trials) else 1

    @property
    def lost(self) -> tuple[Trial, ...]:
        """The configs that devices, queues or hosts failed: nothing is known of them."""
        return tuple(trial for trial in self.trials if trial.outcome in INFRASTRUCTURE)

    @property
    def unchecked(self) -> str:
        """Why nothing says that results are right; empty where they were compared, or none was right."""
        if not self.count(Outcome.UNCHECKED):
            return ""
        return "unchecked: no reference" if self.checked else "unchecked: not to be compared"

    def measurement_of(self, trial: Trial) -> Measurement | None:
        """The times that decided on a config: those of the finals, if it took part in them."""
        own = (final.measurement for final in self.finals if final.trial == trial.id)
        return next(own, None) or trial.measurement

    def same_binary(self, trial: Trial) -> tuple[Trial, ...]:
        """The trials of all configs that gave the binary of this one, itself among them, in order."""
        binary = trial.keys.binary
        alike = [one for one in self.trials if binary and one.keys.binary == binary] or [trial]
        return tuple(sorted(alike, key=lambda one: canonical_json(one.config)))

    @property
    def reused(self) -> int:
        """How many trials were known from earlier runs."""
        return sum(trial.reused for trial in self.trials)

    def count(self, outcome: Outcome) -> int:
        """How many configs ended in this way."""
        return sum(trial.outcome is outcome for trial in self.trials)


class Shape(Record):
    """Arguments to tune a kernel for, besides those that all shapes have and those of the kernel's own set ``declared``, if there is one.

    ``weight`` says how often they occur, in any unit. ``where`` is what messages about them begin with.
    """

    arguments: dict[str, Value]
    weight: float = 1.0
    name: str = ""
    declared: str = ""
    where: str = ""


class TableRow(Record):
    """The config that a dispatch table has for a shape, which is called ``name``; ``trial`` is that of its screening, None where no config passed.

    It takes ``slowdown`` x the time of the shape's best config: at most, at the confidence of the finals, in which both took part. ``latency_ns``
    is its median time there, or when it was screened if it is the best one and met no other.
    """

    name: str
    arguments: dict[str, Value]
    weight: float
    trial: Trial | None = None
    slowdown: float = 1.0
    latency_ns: float = 0.0


class CurvePoint(Record):
    """The ``share`` of all shapes, by weight, that at most so many ``configs`` serve within the limit.

    The ``worst`` shape takes so many times as long as with its own best config; None if there is one for which none of these has passed.
    """

    configs: tuple[dict[str, Value], ...]
    share: float
    worst: float | None


class TableResult(Record):
    """What tuning for many shapes came to: a study and a row of the dispatch table for each, in the order of the request.

    Each row is ``within`` that share of its best config's time. ``curve`` says what fewer configs can do, down to one; its last point is the
    table. Other points go by times of the screening where configs have not met.
    """

    run: str
    kernel: str
    target: str
    within: float
    studies: tuple[StudyResult, ...]
    rows: tuple[TableRow, ...]
    curve: tuple[CurvePoint, ...] = ()
    reason: StopReason = "done"
    seconds: float = 0.0
    unrecorded: tuple[str, ...] = ()

    @property
    def exit_status(self) -> int:
        """0 each shape has a best config, 1 for some none passed, 3 and 130 as of a study."""
        statuses = {study.exit_status for study in self.studies} | ({3} if self.unrecorded else {0})
        return next(status for status in (130, 1, 3, 0) if status in statuses)

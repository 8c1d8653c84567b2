"""Results of tuning runs, for one shape and for many, of strategies on recorded spaces, and of a build of
configs.
"""

from collections.abc import Iterable

from tileyard.artifacts.manifest import Build
from tileyard.artifacts.objects import canonical_json
from tileyard.base.events import StopReason
from tileyard.base.model import (
    INFRASTRUCTURE,
    Draw,
    Measurement,
    Outcome,
    Record,
    SourceLine,
    Trial,
    Value,
)

CHECKPOINTS = (25, 50, 100, 200)
"""Numbers of trials after which regret is stated; of fewer trials, after the last one."""


class Regret(Record):
    """After ``trials``, how much slower the best config so far is than the best of the space, 0.02 for 2 %:
    the median over the repetitions and its interval. None, or an end that is None: nothing was right. With
    two goals it is the share that is missing of the hypervolume of the space's Pareto set. The trials took
    ``ended_s`` seconds, in the median, when they were recorded.
    """

    trials: int
    median: float | None
    low: float | None
    high: float | None
    ended_s: float = 0.0


class Score(Record):
    """A score of ``autotuning-methodology`` and its interval over the repetitions: 0 is as good as random
    search is expected to be, 1 is the best config from the beginning.
    """

    score: float
    low: float
    high: float


class End(Record):
    """The end of a repetition: after ``trials`` the best config had this ``regret``, and the strategy
    expected a further ``gain``, a share; None if nothing was right or known.
    """

    trials: int
    regret: float | None
    gain: float | None


class Replay(Record):
    """A ``strategy`` on a space of ``configs``, with the number of ``failures`` by their kind,
    with ``in_flight`` trials under way: ``repetitions`` runs with the seeds from 0, of ``trials`` in the
    median. ``score`` is None for the reason ``unscored``; it takes about ``needed`` trials. ``is_short``:
    runs ended before its last moment. ``curve`` has the regret after more numbers of trials. ``note`` is a
    doubt about the file. With a ``second`` measure there is no score. ``ends`` are those of the repetitions,
    if the expected gain was to end them.
    """

    file: str
    space: str
    strategy: str
    configs: int
    best_ns: float
    repetitions: int
    in_flight: int
    trials: float
    regrets: tuple[Regret, ...]
    score: Score | None
    needed: int
    is_short: bool
    unscored: str = ""
    curve: tuple[Regret, ...] = ()
    note: str = ""
    second: str = ""
    ends: tuple[End, ...] = ()
    failures: dict[str, int] = {}


BUSY = 1.05
"""If equal things may differ by more than this factor, ties are not resolved."""


class Final(Record):
    """A finalist's result, the winner's first. ``ratio`` is its time over the winner's, between ``low`` and
    ``high``. ``tied``: the two cannot be distinguished. ``measurement``, of the finals, has the winner's
    times in all rounds times the ratio, also if it took part in fewer.
    """

    trial: str
    config: dict[str, Value]
    ratio: float
    low: float
    high: float
    tied: bool
    measurement: Measurement | None = None


class Tradeoff(Record):
    """A member of a study's Pareto set: no config with at most this ``amount`` of the second measure is
    clearly faster, and it is clearly faster than the members with less. ``measurement`` has its times, of the
    finals if it met others.
    """

    trial: str
    config: dict[str, Value]
    measurement: Measurement
    amount: float


class Incumbent(Record):
    """A config that a winner has to beat: by ``name`` the kernel's default, or the one in use, which an
    earlier study or an import chose. ``final`` compares it with the winner; ``problem`` is why it lost
    without one.
    """

    name: str
    config: dict[str, Value]
    final: Final | None = None
    problem: str = ""


class Control(Record):
    """The A/A control of the finals: the leader against itself. ``false_alarm``: the interval excludes all
    differences that count as a tie, although both are one binary. ``reused``: the finals were an earlier
    run's.
    """

    ratio: float
    low: float
    high: float
    false_alarm: bool
    reused: bool = False

    @property
    def is_wide(self) -> bool:
        """Whether the machine was so busy that equal binaries may differ as much as configs do."""
        return self.low * BUSY < 1 or self.high > BUSY


def name_binary(trial: Trial) -> str:
    """A trial's binary; one without a known binary counts as its own."""
    return trial.keys.binary or trial.id


def one_per_binary(trials: Iterable[Trial]) -> list[Trial]:
    """The first trial of each binary, in order."""
    first: dict[str, Trial] = {}
    for trial in trials:
        first.setdefault(name_binary(trial), trial)
    return list(first.values())


class CompileResult(Record):
    """The result of building a space, ``configs`` in its order. ``lines`` are the user's by statement number,
    of the first config built. ``notes`` are warnings, and why there is no ``bundle``: the path of the one
    written.
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
    bundle: str = ""

    def find(self, config: dict[str, Value]) -> Build | None:
        """The build of a config; None for one that was not to be built."""
        named = canonical_json(config)
        return next((one for one in self.configs if canonical_json(one.config) == named), None)

    @property
    def exit_status(self) -> int:
        """0 if all that the target has room for was built, 1 if not or if none is, 130 if interrupted."""
        if self.reason == "interrupted":
            return 130
        fitting = [one for one in self.configs if not one.exceeds]
        return 0 if fitting and all(one.outcome is Outcome.PASSED for one in fitting) else 1


class KeptOut(Record):
    """A device of the kind of ``base`` whose times do not count with it: it took ``ratio`` times as long for
    the same kernel, between ``low`` and ``high``, or ``message`` is that kernel's outcome there.
    """

    device: str
    base: str
    ratio: float = 0.0
    low: float = 0.0
    high: float = 0.0
    message: str = ""


class StudyResult(Record):
    """The result of a tuning run; ``best`` is the winner's screening trial, None if none passed. ``trials``
    are in order of their ends, without finals, and ``ended_s`` the seconds until so many had ended.
    ``rejected`` configs were proposed, and not accepted by functions in ``where``. ``flops`` is the kernel's
    work, 0 if unknown; ``stopped`` says in words what ended the screening early; ``seconds`` are the whole
    run's, ``silicon`` the device's identity. ``checked``: results were to be compared, ``require_check``: had
    to be. ``also_built`` are builds for other targets; ``unrecorded`` trials are not in the store.
    ``lost_hosts`` has a line on each host that was lost. ``are_finals_lost``: infrastructure failed some
    finals. ``kept_out`` are devices that differ from others of their kind; ``unmet`` trials may equal the
    winner and did not meet it. ``busy`` is what was disturbed without consequences, ``disturbances`` are
    contradictions of finals and screening. It is ``disturbed`` if the last one stayed: then there is no
    order, and no best but the ``leader``. What won is right on all ``draws``. ``others`` are the study on
    other silicon. ``reference`` has the reference's times, if asked for. ``incumbents`` stay the best unless
    another config is clearly faster, the first one first. ``pareto`` is the Pareto set of latency and the
    ``second`` measure, the fastest first, which is the best. ``least`` is the smallest difference that
    decided anything in the finals, a share; 0 if unknown.
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
    least: float = 0.0
    reason: StopReason = "done"
    stopped: str = ""
    seconds: float = 0.0
    silicon: str = ""
    checked: bool = True
    require_check: bool = False
    draws: tuple[Draw, ...] = ()
    also_built: tuple[CompileResult, ...] = ()
    unrecorded: tuple[str, ...] = ()
    lost_hosts: tuple[str, ...] = ()
    are_finals_lost: bool = False
    kept_out: tuple[KeptOut, ...] = ()
    unmet: tuple[str, ...] = ()
    busy: tuple[str, ...] = ()
    disturbances: tuple[str, ...] = ()
    disturbed: bool = False
    leader: Trial | None = None
    others: tuple["StudyResult", ...] = ()
    reference: Measurement | None = None
    incumbents: tuple[Incumbent, ...] = ()
    second: str = ""
    pareto: tuple[Tradeoff, ...] = ()
    ended_s: tuple[float, ...] = ()
    rejected: int = 0

    @property
    def exit_status(self) -> int:
        """0 if a best config was found, 1 if none passed, 130 if interrupted; 3 for infrastructure only, and
        if it failed some configs, results are unrecorded, or the study was disturbed. Over several kinds of
        silicon it is 1 if none passed on one, else 3 if it is 3 for one.
        """
        found = {self.own_status, *(other.own_status for other in self.others)}
        return next((status for status in (130, 1, 3) if status in found), 0)

    @property
    def own_status(self) -> int:
        """The exit status for this silicon alone."""
        if self.reason == "interrupted":
            return 130
        if self.disturbed:
            return 3
        if self.best is not None:
            return 3 if self.lost or self.are_finals_lost or self.unrecorded else 0
        return 3 if self.lost and len(self.lost) == len(self.trials) else 1

    @property
    def lost(self) -> tuple[Trial, ...]:
        """The configs of which nothing is known because a device, queue or host failed."""
        return tuple(trial for trial in self.trials if trial.outcome in INFRASTRUCTURE)

    @property
    def unchecked(self) -> str:
        """Why results are not known to be right; empty if they were compared, or if none passed."""
        if not self.count(Outcome.UNCHECKED):
            return ""
        return "unchecked: no reference" if self.checked else "unchecked: not to be compared"

    def measurement_of(self, trial: Trial) -> Measurement | None:
        """The times that decided about a config: those of the finals if its binary took part in them."""
        if not self.finals:
            return trial.measurement
        same = {trial.id, *(one.id for one in self.same_binary(trial))}
        own = (final.measurement for final in self.finals if final.trial in same)
        return next(own, None) or trial.measurement

    def same_binary(self, trial: Trial) -> tuple[Trial, ...]:
        """The trials of all configs with the binary of this trial, including itself, in order."""
        binary = trial.keys.binary
        alike = [one for one in self.trials if binary and one.keys.binary == binary] or [trial]
        return tuple(sorted(alike, key=lambda one: canonical_json(one.config)))

    @property
    def reused(self) -> int:
        """Number of trials that were known from earlier runs."""
        return sum(trial.reused for trial in self.trials)

    def count(self, outcome: Outcome) -> int:
        """Number of configs with this outcome."""
        return sum(trial.outcome is outcome for trial in self.trials)


class TableRow(Record):
    """The config of a dispatch table for the shape ``name``; ``trial`` is its screening trial, None if none
    passed. It takes at most ``slowdown`` x the shape's best time, at the confidence of the finals of both.
    ``latency_ns`` is its median there, or in the screening if it is the best and met no other.
    """

    name: str
    arguments: dict[str, Value]
    weight: float
    trial: Trial | None = None
    slowdown: float = 1.0
    latency_ns: float = 0.0


class CurvePoint(Record):
    """The ``share`` of shapes, by weight, that ``configs`` serve within the limit. ``worst`` is the largest
    slowdown against a shape's own best; None if none of these passed for some shape.
    """

    configs: tuple[dict[str, Value], ...]
    share: float
    worst: float | None


class TableResult(Record):
    """The result of tuning for many shapes: a study and a row of the dispatch table each, as requested. Rows
    are ``within`` that share of their best time. ``curve`` shows what fewer configs achieve, down to one; its
    last point is the table, others use screening times of configs that have not met.
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
        """0 if each shape has a best config, 1 if none passed for some shape, 3 and 130 as for a study."""
        statuses = {study.exit_status for study in self.studies} | ({3} if self.unrecorded else {0})
        return next(status for status in (130, 1, 3, 0) if status in statuses)

"""What a tuning run is asked to do, and what it comes to."""

from tileyard.events import StopReason
from tileyard.model import CheckPolicy, Limits, Outcome, Record, TimingPolicy, Trial, Value

DEFAULT_TRIALS = 200
ALL_CONFIGS = 1_000_000
"""More than can be built in a life: every point of a space."""


class TuneRequest(Record):
    """One tuning run. ``kernel`` may be empty where the file holds only one.

    ``overrides`` gives values for tunable parameters, in place of the kernel's own. At most
    ``trials`` configs are tried; screening stops after ``budget_s`` seconds. ``finalists`` configs
    meet in up to ``rounds`` interleaved rounds before a winner is named.
    """

    kernel: str = ""
    arguments: dict[str, Value] = {}
    shape: str = ""
    overrides: dict[str, tuple[Value, ...]] = {}
    reference: str = ""
    trials: int = DEFAULT_TRIALS
    budget_s: float | None = None
    check: CheckPolicy = CheckPolicy()
    timing: TimingPolicy = TimingPolicy()
    limits: Limits = Limits()
    finalists: int = 5
    rounds: int = 60
    seed: int = 0


class Final(Record):
    """How a finalist did. ``ratio`` is its time over that of the fastest finalist.

    ``low`` and ``high`` bound the ratio. ``tied`` says that the two can't be told apart. The
    winner comes first; where several are tied it need not be the fastest.
    """

    trial: str
    config: dict[str, Value]
    ratio: float
    low: float
    high: float
    tied: bool


class Control(Record):
    """The A/A control of the finals: the leader against itself.

    ``false_alarm`` says that the interval excludes 1 although both are the same binary.
    """

    ratio: float
    low: float
    high: float
    false_alarm: bool


class StudyResult(Record):
    """What a tuning run came to. ``best`` is the winner's screening trial, None where none passed.

    ``trials`` are in the order in which they ended, without those of the finals. ``flops`` is the
    kernel's work, 0 where unknown. ``seconds`` is the duration of the whole run.
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

    @property
    def reused(self) -> int:
        """How many trials were known from earlier runs."""
        return sum(trial.reused for trial in self.trials)

    def count(self, outcome: Outcome) -> int:
        """How many configs ended in this way."""
        return sum(trial.outcome is outcome for trial in self.trials)

"""The studies that scripts' tuners ask for: those of ``tileyard tune``, shown on stderr."""

import sys
from collections.abc import Callable, Sequence

from tileyard.api.tune import run_study
from tileyard.model import CheckPolicy, TimingPolicy, Trial
from tileyard.scripts.tuner_author import StudyOrder
from tileyard.service.client import RunClient
from tileyard.service.verbs import StartTune
from tileyard.settings import Settings
from tileyard.tuning.request import TuneRequest
from tileyard.workers.protocol import AuthorReply, AuthorRequest

LONGEST_NS = 100_000_000
"""How long a config of a script is timed at most: its tuner counts on a GPU's times."""
QUEUE_LIMIT_S = 300.0
"""So long a script waits for the cores; then its tuner times in its own process, as it would anyway."""
FINALISTS = 3
ROUNDS = 15


class StudyOfScript:
    """Runs studies in an engine of their own; results go to the store as those of ``tileyard tune``."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def __call__(
        self, order: StudyOrder, answer: Callable[[AuthorRequest], AuthorReply]
    ) -> Sequence[Trial]:
        """The trials, the winner first, then by their times. Raises TileyardError."""
        request = TuneRequest(
            kernel=order.kernel,
            trials=order.configs,
            check=CheckPolicy(enabled=False),
            timing=TimingPolicy(max_ns=LONGEST_NS),
            limits=order.limits,
            finalists=FINALISTS,
            rounds=ROUNDS,
        )
        start = StartTune(
            request=request, target="cpu", file="", reuse=True, queue_limit_s=QUEUE_LIMIT_S
        )
        client = RunClient(start, self._settings, answer)
        result = run_study(client, self._settings, shown=sys.stderr.isatty())
        best = "" if result.best is None else result.best.id
        return sorted(result.trials, key=lambda trial: (trial.id != best, _median_ns(trial)))


def _median_ns(trial: Trial) -> float:
    return trial.measurement.median_ns if trial.measurement is not None else float("inf")

"""Results of a strategy on a recorded space."""

from tileyard.base.model import Record

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

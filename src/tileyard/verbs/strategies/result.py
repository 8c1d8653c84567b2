"""The results of ``strategies``."""

from tileyard.base.model import Record
from tileyard.verbs.tune.result.replayed import Replay


class Known(Record):
    """A strategy, and what it does in one sentence; ``is_default``: a study has it if none is named."""

    name: str
    description: str
    is_default: bool


class Standing(Record):
    """A strategy over all spaces: the mean of its scores, and on how many spaces its score is the best.
    ``score`` is None if no space has one.
    """

    strategy: str
    score: float | None
    wins: int
    spaces: int


class Comparison(Record):
    """The replays, space by space, and the strategies, the best first."""

    replays: tuple[Replay, ...]
    standings: tuple[Standing, ...]

"""Finds the commit with a change in a history that may have merges, by tests that may be wrong. By Bayes'
rule each test updates every commit's probability of being the culprit, so later answers outvote a wrong one;
the next test is the one whose answer is most uncertain. (M. Ben-Or and A. Hassidim, "The Bayesian learner is
optimal for noisy binary search", FOCS 2008.)
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tileyard.base.model import Record

SURE: Final = 0.99
"""The probability that the culprit is among the suspects."""
LIKELY: Final = 0.8
"""From this probability on a commit is tested against its parent: see ``docs/design/measurement.md``."""
ASKABLE: Final = 512
"""Most commits that are considered for the next test."""


class Commit(Record):
    """A commit: its hash, those of its parents, and the first line of its message."""

    sha: str
    parents: tuple[str, ...]
    subject: str


class Answer(Record):
    """The probability that a commit has the change, by one test, and ``why``; None if it cannot be tested."""

    has_it: float | None
    why: str


class Step(Record):
    """A test of ``commit`` against ``base``, the good revision or a parent, and the ``suspects`` left."""

    commit: Commit
    base: str
    answer: Answer
    suspects: int


class Suspicion:
    """The probability of each commit. ``parents`` are indices of earlier commits; ``error``, above 0 and
    below 1/2, is the share of tests that are wrong.
    """

    def __init__(self, parents: Sequence[Sequence[int]], error: float) -> None:
        self._error = error
        self._ancestors: list[int] = []
        """The set of each commit and its ancestors, one bit per commit."""
        for index, own in enumerate(parents):
            ancestors = 1 << index
            for parent in own:
                ancestors |= self._ancestors[parent]
            self._ancestors.append(ancestors)
        self._untestable: set[int] = set()
        self._weights: NDArray[np.float64] = np.full(len(parents), 1 / len(parents))

    @property
    def suspects(self) -> list[int]:
        """The fewest commits that include the culprit with the probability SURE, the likeliest first."""
        order = np.argsort(-self._weights, kind="stable")
        count = int(np.searchsorted(np.cumsum(self._weights[order]), SURE)) + 1
        return [int(index) for index in order[:count]]

    def find_likely(self, likely: float) -> int | None:
        """The commit that is the culprit with at least this probability; None if there is none."""
        index = int(np.argmax(self._weights))
        return index if self._weights[index] >= likely else None

    def choose(self) -> int | None:
        """The commit to test next against the good revision; None if no test separates the suspects."""
        suspects = sum(1 << index for index in self.suspects)
        telling = [
            index
            for index in self._list_askable()
            if suspects & self._ancestors[index] not in (0, suspects)
        ]
        return min(telling, key=lambda index: abs(self.share(index) - 0.5), default=None)

    def tell(self, index: int, has_it: float | None, base: int | None = None) -> None:
        """Record a test of a commit, as in ``Answer``, against the commit ``base``, None for one before all.
        One that cannot be tested is not chosen again.
        """
        if has_it is None:
            self._untestable.add(index)
            return
        bounded = min(max(has_it, self._error), 1 - self._error)
        between = self._find_between(index, base)
        self._weights = self._weights * np.where(between, bounded, 1 - bounded)
        self._weights /= self._weights.sum()

    def share(self, index: int, base: int | None = None) -> float:
        """The probability that a commit has the change, compared with ``base`` as in ``tell``."""
        return float(self._weights[self._find_between(index, base)].sum())

    def _list_askable(self) -> Iterator[int]:
        places = np.arange(len(self._weights))
        if len(places) > ASKABLE:  # those that divide the probability into equal parts
            shares = np.linspace(0, 1, ASKABLE, endpoint=False)
            places = np.unique(np.searchsorted(np.cumsum(self._weights), shares, side="right"))
        return (int(index) for index in places if int(index) not in self._untestable)

    def _find_between(self, index: int, base: int | None) -> NDArray[np.bool_]:
        between = self._find_ancestors(index)
        return between if base is None else between & ~self._find_ancestors(base)

    def _find_ancestors(self, index: int) -> NDArray[np.bool_]:
        count = len(self._weights)
        octets = self._ancestors[index].to_bytes((count + 7) // 8, "little")
        bits = np.unpackbits(np.frombuffer(octets, np.uint8), count=count, bitorder="little")
        return bits.astype(np.bool_)


class Bisection:
    """Tests commits until one suspect is left, or several that no test separates. ``commits`` are those that
    bad has and ``good`` lacks, parents first. ``test`` returns whether its second commit has the change
    against its first. From a probability of ``likely`` on a commit is tested against its parent.
    """

    def __init__(
        self,
        good: str,
        commits: Sequence[Commit],
        error: float,
        test: Callable[[str, str], Answer],
        *,
        likely: float = LIKELY,
    ) -> None:
        self._places = {commit.sha: index for index, commit in enumerate(commits)}
        parents = [
            [self._places[one] for one in commit.parents if one in self._places]
            for commit in commits
        ]
        self._good = good
        self._commits = commits
        self._test = test
        self._likely = likely
        self._suspicion = Suspicion(parents, error)
        self._most = 4 * math.ceil(math.log2(len(commits) + 1)) + 12
        self._by_parent: dict[tuple[int, str], float | None] = {}
        """The last answer of each test of a commit against a parent."""

    @property
    def suspects(self) -> tuple[Commit, ...]:
        """The commits that may be the culprit, the likeliest first."""
        return tuple(self._commits[index] for index in self._suspicion.suspects)

    @property
    def is_confirmed(self) -> bool:
        """Whether there is a single suspect, and it differs from a parent."""
        index, *others = self._suspicion.suspects
        answers = (self._by_parent.get((index, one)) for one in self._commits[index].parents)
        return not others and any(answer is not None and answer > 0.5 for answer in answers)

    def run(self) -> Iterator[Step]:
        """Yields each test once it ends; their number is bounded, as tests may contradict each other."""
        for _ in range(self._most):
            if self.is_confirmed:
                return
            likely = self._choose_likely()
            index, base = likely or (self._suspicion.choose(), self._good)
            if index is None:
                return
            answer = self._test(base, self._commits[index].sha)
            if likely is not None:
                self._by_parent[likely] = answer.has_it
            if answer.has_it is not None or likely is None:
                self._suspicion.tell(index, answer.has_it, self._places.get(base))
            count = len(self._suspicion.suspects)
            yield Step(commit=self._commits[index], base=base, answer=answer, suspects=count)

    def _choose_likely(self) -> tuple[int, str] | None:
        """The likely culprit and the parent that separates it best from other suspects, maybe not a merge's
        first; None if no parent can be tested, or separates it from any.
        """
        index = self._suspicion.find_likely(self._likely)
        if index is None:
            return None
        shares = {
            parent: self._suspicion.share(index, self._places.get(parent))
            for parent in self._commits[index].parents
            if self._by_parent.get((index, parent), 0.0) is not None
        }
        if not shares or (len(self.suspects) > 1 and min(shares.values()) >= SURE):
            return None
        return index, min(shares, key=lambda parent: shares[parent])

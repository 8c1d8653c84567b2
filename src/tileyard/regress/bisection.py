"""Which commit changed something, found with tests that may be wrong, over a history that may have merges.

Each commit of the range has a probability of being the culprit. A test of a commit says, with a known error, whether
the culprit is among the commit and its ancestors, and Bayes' rule follows it: later answers outvote a wrong one.
The next commit to test is the one whose answer is the most open. (M. Ben-Or and A. Hassidim, "The Bayesian learner
is optimal for noisy binary search", FOCS 2008.)
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tileyard.model import Record

SURE: Final = 0.99
"""The probability with which the culprit is among the suspects."""
ASKABLE: Final = 512
"""Of a longer range this many commits are considered for the next test."""


class Commit(Record):
    """A commit: its hash, those of its parents, and the first line of its message."""

    sha: str
    parents: tuple[str, ...]
    subject: str


class Answer(Record):
    """The probability that a commit has the change, by one test; None where it cannot be tested. ``why`` says it in words."""

    has_it: float | None
    why: str


class Step(Record):
    """A test of ``commit`` against ``base``: the good revision, or in the end the commit's own parent.

    ``suspects`` commits were left after it.
    """

    commit: Commit
    base: str
    answer: Answer
    suspects: int


class Suspicion:
    """The probability of each commit. ``parents`` are indices of earlier commits.

    ``error`` is the share of tests that are wrong, above 0 and below one half.
    """

    def __init__(self, parents: Sequence[Sequence[int]], error: float) -> None:
        self._error = error
        self._ancestors: list[int] = []
        """Of each commit the set of its ancestors and itself, one bit for each."""
        for index, own in enumerate(parents):
            ancestors = 1 << index
            for parent in own:
                ancestors |= self._ancestors[parent]
            self._ancestors.append(ancestors)
        self._untestable: set[int] = set()
        self._weights: NDArray[np.float64] = np.full(len(parents), 1 / len(parents))

    @property
    def suspects(self) -> list[int]:
        """The fewest commits that have the culprit among them with the probability SURE, the likeliest first."""
        order = np.argsort(-self._weights, kind="stable")
        count = int(np.searchsorted(np.cumsum(self._weights[order]), SURE)) + 1
        return [int(index) for index in order[:count]]

    def choose(self) -> int | None:
        """The commit to test next; None where no test can tell the suspects apart."""
        suspects = sum(1 << index for index in self.suspects)
        telling = [
            index
            for index in self._list_askable()
            if suspects & self._ancestors[index] not in (0, suspects)
        ]
        return min(telling, key=lambda index: abs(self._share(index) - 0.5), default=None)

    def tell(self, index: int, has_it: float | None) -> None:
        """Take in a test of a commit, as in ``Answer``. One that cannot be tested is not asked again."""
        if has_it is None:
            self._untestable.add(index)
            return
        bounded = min(max(has_it, self._error), 1 - self._error)
        self._update(np.where(self._find_ancestors(index), bounded, 1 - bounded))

    def acquit(self, index: int) -> None:
        """Take in that a commit does not differ from its parent."""
        factors = np.ones(len(self._weights))
        factors[index] = self._error / (1 - self._error)
        self._update(factors)

    def _update(self, factors: NDArray[np.float64]) -> None:
        self._weights = self._weights * factors
        self._weights /= self._weights.sum()

    def _list_askable(self) -> Iterator[int]:
        places = np.arange(len(self._weights))
        if len(places) > ASKABLE:  # those that cut the probability into equal parts
            shares = np.linspace(0, 1, ASKABLE, endpoint=False)
            places = np.unique(np.searchsorted(np.cumsum(self._weights), shares, side="right"))
        return (int(index) for index in places if int(index) not in self._untestable)

    def _share(self, index: int) -> float:
        """The probability that this commit has the change."""
        return float(self._weights[self._find_ancestors(index)].sum())

    def _find_ancestors(self, index: int) -> NDArray[np.bool_]:
        count = len(self._weights)
        octets = self._ancestors[index].to_bytes((count + 7) // 8, "little")
        bits = np.unpackbits(np.frombuffer(octets, np.uint8), count=count, bitorder="little")
        return bits.astype(np.bool_)


class Bisection:
    """Tests one commit after another until one suspect is left, or those that no test can tell apart.

    ``commits`` are those that the bad revision has and ``good`` lacks, parents first. ``test`` is asked whether its second
    commit has the change, compared with its first one. In the end the culprit is tested against its parent.
    """

    def __init__(
        self, good: str, commits: Sequence[Commit], error: float, test: Callable[[str, str], Answer]
    ) -> None:
        places = {commit.sha: index for index, commit in enumerate(commits)}
        parents = [[places[one] for one in commit.parents if one in places] for commit in commits]
        self._good = good
        self._commits = commits
        self._test = test
        self._suspicion = Suspicion(parents, error)
        self._most = 4 * math.ceil(math.log2(len(commits) + 1)) + 12
        self.is_confirmed = False
        """Whether the one suspect differs from its parent."""

    @property
    def suspects(self) -> tuple[Commit, ...]:
        """Those that may be the culprit, the likeliest first."""
        return tuple(self._commits[index] for index in self._suspicion.suspects)

    def run(self) -> Iterator[Step]:
        """Each test once it has ended. There is a bound on their number, for tests that contradict each other."""
        suspicion = self._suspicion
        for _ in range(self._most):
            index = suspicion.choose()
            if index is not None:
                answer = self._test(self._good, self._commits[index].sha)
                suspicion.tell(index, answer.has_it)
                yield self._step(index, self._good, answer)
                continue
            index, *others = suspicion.suspects
            parents = self._commits[index].parents
            if others or not parents:
                return
            base = parents[0]
            answer = self._test(base, self._commits[index].sha)
            self.is_confirmed = answer.has_it is not None and answer.has_it > 0.5
            if answer.has_it is not None and not self.is_confirmed:
                suspicion.acquit(index)
            yield self._step(index, base, answer)
            if self.is_confirmed or answer.has_it is None:
                return

    def _step(self, index: int, base: str, answer: Answer) -> Step:
        count = len(self._suspicion.suspects)
        return Step(commit=self._commits[index], base=base, answer=answer, suspects=count)

"""Bisection with tests that may be wrong: over merges, past untestable commits, back from a wrong step."""

import random
from collections.abc import Callable, Collection

import pytest

from tileyard.verbs.regress.plan.bisection import Answer, Bisection, Commit

LINE = [[], *([index] for index in range(63))]
"""64 commits, one after another."""
MERGED = [[], [0], [1], [1], [3], [2, 4], [5], [6]]
"""A branch of two commits, 3 and 4, comes back in 5."""


def has_it(parents: list[list[int]], culprit: int, index: int) -> bool:
    """Whether the culprit is among a commit and its ancestors."""
    return index == culprit or any(has_it(parents, culprit, one) for one in parents[index])


def bisect(
    parents: list[list[int]],
    culprit: int,
    broken: Collection[int] = (),
    lies: Callable[[int], bool] = lambda asked: False,
    error: float = 0.05,
) -> tuple[set[int], bool, int]:
    """The suspects, whether one is confirmed, and the number of tests. ``lies`` gets a test's number."""
    asked = 0

    def test(base: str, head: str) -> Answer:
        nonlocal asked
        asked += 1
        if {int(base), int(head)} & set(broken):
            return Answer(has_it=None, why="not built")
        more = has_it(parents, culprit, int(head))
        if base != "-1":
            more &= not has_it(parents, culprit, int(base))
        return Answer(has_it=float(more != lies(asked)), why="")

    commits = [
        Commit(sha=str(index), parents=tuple(map(str, own or [-1])), subject="")
        for index, own in enumerate(parents)
    ]
    bisection = Bisection("-1", commits, error, test)
    assert len(list(bisection.run())) == asked
    return {int(one.sha) for one in bisection.suspects}, bisection.is_confirmed, asked


@pytest.mark.parametrize("parents", [LINE, MERGED, [[]]])
def test_the_culprit_is_found_wherever_it_is(parents: list[list[int]]) -> None:
    """On a branch, in a merge, the first and the last one; hardly more tests than halving takes."""
    for culprit in range(len(parents)):
        suspects, is_confirmed, asked = bisect(parents, culprit, error=0.001)
        assert (suspects, is_confirmed) == ({culprit}, True)
        assert asked <= 9


@pytest.mark.parametrize(
    ("parents", "culprits", "most"), [(LINE, (0, 21, 63), 7), (MERGED, range(8), 5)]
)
def test_a_likely_commit_is_tested_against_its_parent_at_once(
    parents: list[list[int]], culprits: Collection[int], most: int
) -> None:
    """That answer counts as any other: it is the last one, and a wrong one is outvoted, of a merge too."""
    for culprit in culprits:
        suspects, is_confirmed, asked = bisect(parents, culprit, error=0.01)
        assert (suspects, is_confirmed) == ({culprit}, True)
        assert asked <= most
        for wrong in range(1, asked + 1):
            told, _, more = bisect(
                parents, culprit, lies=lambda asked, wrong=wrong: asked == wrong, error=0.01
            )
            assert told == {culprit}
            assert more <= asked + 7


def test_commits_that_cannot_be_tested_are_passed_over() -> None:
    """Where they are not next to the culprit they cost nothing; else they are suspects with it."""
    assert bisect(LINE, 40, broken=(3, 31, 32, 33))[:2] == ({40}, True)
    assert bisect(LINE, 40, broken=(38, 39))[:2] == ({38, 39, 40}, False)


def test_a_wrong_step_is_taken_back() -> None:
    """Each single answer may be wrong, whichever it is; it costs a few tests more."""
    for wrong in range(1, 11):
        suspects, is_confirmed, _ = bisect(LINE, 21, lies=lambda asked, wrong=wrong: asked == wrong)
        assert (suspects, is_confirmed) == ({21}, True)


def test_many_wrong_steps_are_outvoted() -> None:
    """One answer of twenty is wrong, on a hundred histories."""
    chance = random.Random(1)
    found = [
        bisect(LINE, culprit, lies=lambda asked: chance.random() < 0.05)[0] == {culprit}
        for culprit in (chance.randrange(64) for _ in range(100))
    ]
    assert sum(found) >= 98


def test_tests_that_say_nothing_come_to_an_end() -> None:
    """Answers by chance are no reason to go on for ever."""
    chance = random.Random(2)
    _, _, asked = bisect(LINE, 10, lies=lambda asked: chance.random() < 0.5)
    assert asked <= 40


def test_a_long_history_takes_its_logarithm() -> None:
    """5,000 commits, of which not each is considered at each step."""
    line = [[], *([index] for index in range(4999))]
    commits = [Commit(sha=str(i), parents=(str(i - 1),), subject="") for i in range(len(line))]
    asked: list[int] = []

    def test(base: str, head: str) -> Answer:
        asked.append(int(head))
        return Answer(has_it=float(int(base) < 3210 <= int(head)), why="")

    bisection = Bisection("-1", commits, 0.001, test)
    for _ in bisection.run():
        pass
    assert [one.sha for one in bisection.suspects] == ["3210"]
    assert len(asked) <= 18

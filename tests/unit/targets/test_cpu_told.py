"""What CPU kernels tell of themselves: prints, assertions and failures, at the user's lines."""

from collections.abc import Callable

import numpy as np
import pytest

from tileyard.base.errors import KernelFault
from tileyard.base.model import SourceLine
from tileyard.show.words import annotate
from tileyard.targets.cpu.loaded import CpuLoaded

TALKATIVE = """
def talk(X: int32[4], n: int32, Y: out.int32[4]):
    by: grid[1]
    t: local.int32[8]
    for i in serial(4):
        print("row {} of {}", i, n, X[i])
        assert X[i] < n, "too large"
        Y[i] = 100 // (X[i] + 8)
        t[X[i] + 4] = 1
        Y[i] = Y[i] << t[X[i] + 4] * 20 * X[i]
"""
"""Statement 1 prints, 2 asserts, 3 divides, 4 indexes, 5 shifts."""
LINES = {number: SourceLine(file="kernels.py", line=40 + number) for number in (1, 2, 3, 4)}

FAILURES = {
    ((1, 7),): "kernels.py:42: assertion failed: too large (X[i] = 7, i = 1, n = 5)",
    ((0, -8),): "kernels.py:43: an integer is divided by zero",
    ((0, -8), (3, 7)): "kernels.py:43: an integer is divided by zero",
    ((2, 2),): "talk: an integer of 32 bits is shifted out of range (t[X[i] + 4] * 20 * X[i] = 40)",
    ((3, -5),): "kernels.py:44: an index of t is outside its shape [8] (X[i] + 4 = -1)",
}
"""The message where elements of X have these values and the others are 0: of two failures, the first."""


@pytest.fixture(scope="module")
def talk(load_text: Callable[[str], CpuLoaded]) -> CpuLoaded:
    """The kernel, of which most lines are known."""
    loaded = load_text(TALKATIVE)
    loaded.know_lines(LINES)
    return loaded


@pytest.mark.slow
@pytest.mark.parametrize("wrong", FAILURES)
def test_failures_tell_the_line_and_the_values(
    wrong: tuple[tuple[int, int], ...], talk: CpuLoaded
) -> None:
    """Of a kernel's own failure the user's line is told, where it is known, and what was wrong."""
    given = np.zeros(4, np.int32)
    for place, value in wrong:
        given[place] = value
    launch = talk.bind([given], [5])
    expected = FAILURES[wrong]
    for _ in range(2):  # what is told of one launch is not left for the next
        with pytest.raises(KernelFault) as failed:
            launch.run()
        assert str(failed.value) == expected


@pytest.mark.slow
def test_prints_have_the_line_in_front(talk: CpuLoaded, capfd: pytest.CaptureFixture[str]) -> None:
    """A print begins with its line; values stand where its message has braces, the others behind it."""
    expected = "".join(f"kernels.py:41: row {i} of 9 {i % 2}\n" for i in range(4))
    talk.bind([np.array([0, 1, 0, 1], np.int32)], [9]).run()
    assert capfd.readouterr().out == expected


@pytest.mark.slow
def test_kernels_that_share_a_binary_tell_their_own_lines(
    talk: CpuLoaded, load_text: Callable[[str], CpuLoaded]
) -> None:
    """Lines are those of a loaded kernel, not of what was built, and of none where nobody gave any."""
    other, bare = load_text(TALKATIVE), load_text(TALKATIVE)
    other.know_lines({2: SourceLine(file="other.py", line=7)})
    expected = ["kernels.py:42", "other.py:7", "talk"]
    said = []
    for loaded in (talk, other, bare):
        with pytest.raises(KernelFault) as failed:
            loaded.as_callable()(np.full(4, 6, np.int32), 5)
        said.append(str(failed.value).partition(": ")[0])
    assert said == expected


def test_c_is_annotated_with_lines() -> None:
    """Comments name the user's line in place of a statement's number; no text moves to another line."""
    text = "/* 4: copy(A, B) */\n{\n}\n/* 17: fill(B, 0) */\n/* plain */\n"
    expected = "/* kernels.py:44: copy(A, B) */\n{\n}\n/* 17: fill(B, 0) */\n/* plain */\n"
    assert annotate(text, LINES) == expected

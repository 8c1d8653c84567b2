"""Lines of a task are read back as they were written, or not at all."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tileyard.base.model import Measurement, Mismatch, Outcome
from tileyard.workers.task_lines import (
    CaseResult,
    CaseTurnedTo,
    Line,
    TaskEnded,
    TaskStarted,
    TokenRead,
    format_line,
    try_read_line,
)

MEASURED = Measurement(
    median_ns=1.5, low_ns=1.25, high_ns=0.1 + 0.2, confidence=0.95, samples_ns=(1.5, 1e300)
)
RESULT = CaseResult(
    token="t",
    case="c",
    outcome=Outcome.MISMATCH,
    seconds=0.25,
    device="cpu:0",
    message='é\n"quoted" {x}',
    measurement=MEASURED,
    mismatch=Mismatch(output="b", index=(1, 2), got="nan", want="1", wrong=1, total=4),
    log='TILEYARD_TASK {"token":"t"}\n',
)
LINES: list[Line] = [
    TaskStarted(token="t", host="h", device="cuda:0", identity="i"),
    CaseTurnedTo(token="t", case="c"),
    RESULT,
    TaskEnded(token="t", code=1, cases=3, message="m"),
    TokenRead(token="t", host="h", folder="/a b", problem=""),
]


@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize("frame", ["{}", "[12:00] 0: {}", "{}\r", "  {}  "])
def test_a_line_comes_back_as_it_was(line: Line, frame: str) -> None:
    """Whatever a queue puts around it; it is one line whatever it holds."""
    text = format_line(line)
    read = try_read_line(frame.replace("{}", text))
    assert read is not None
    expected = format_line(line)
    assert format_line(read) == expected
    assert "\n" not in expected


@given(st.integers(0, len(format_line(RESULT)) - 1), st.integers(1, 40))
def test_a_line_with_a_gap_is_none(start: int, length: int) -> None:
    """A gap is seen, or changes nothing of what is read."""
    text = format_line(RESULT)
    damaged = text[:start] + text[start + length :]
    read = try_read_line(damaged)
    expected = (None, text)
    assert (read and format_line(read)) in expected


@given(st.integers(0, len(format_line(RESULT)) - 1), st.characters(codec="utf-8"))
def test_a_line_with_another_character_is_none(at: int, character: str) -> None:
    """One wrong character is seen wherever it stands."""
    text = format_line(RESULT)
    damaged = text[:at] + character + text[at + 1 :]
    read = try_read_line(damaged)
    expected = (None, text)
    assert (read and format_line(read)) in expected


def test_other_output_is_none() -> None:
    """Also such as looks like one of ours."""
    for text in ("", "hello", "TILEYARD_RESULT", "TILEYARD_RESULT {", "TILEYARD_RESULT {}"):
        assert try_read_line(text) is None

"""The live view of a suite's run at one moment, on terminals of any size."""

import pytest
from rich.cells import cell_len
from rich.text import Text

from tileyard.model import Outcome
from tileyard.report.suite_forecast import Running
from tileyard.report.suite_live import Drawn, draw


def drawn(cases: int) -> Drawn:
    """A view of so many running cases with names that are too long and not all of one width."""
    running = tuple(
        Running(
            device=f"slot:{i}",
            id=f"t/{i}",
            case="形状/" * 20 + f"case-{i}",
            attempt=1 + i % 2,
            ran_s=100.0,
            left_s=50.0 - i,
            limit_s=60.0,
        )
        for i in range(cases)
    )
    return Drawn(
        title=Text("test ops " * 20),
        elapsed_s=100.0,
        total=10,
        counts={Outcome.PASSED: 5},
        flaky=0,
        again=0,
        slots=64,
        busy=cases,
        building=2,
        awaited=("npu:0", "npu:1", "npu:2", "npu:3"),
        left_s=50.0,
        running=running,
    )


@pytest.mark.parametrize("width", [40, 80, 200])
def test_a_view_keeps_to_its_terminal(width: int) -> None:
    """No line is wider and there are no more lines than there is room for, a prompt included."""
    height = 12
    lines = draw(drawn(64), width, height).plain.splitlines()
    expected = (width, height - 1)
    assert max(map(cell_len, lines)) <= expected[0]
    assert len(lines) <= expected[1]
    assert lines[-1] == "  and 58 more with less time left"


def test_a_name_that_is_too_long_keeps_its_end() -> None:
    """What tells cases from each other stands there, and so does the attempt."""
    lines = draw(drawn(2), 80, 24).plain.splitlines()
    expected = ("/case-0 100 s about 50 s left", "/case-1, attempt 2 100 s about 49 s left")
    shown = [" ".join(line.split()) for line in lines[-2:]]
    assert shown[0].endswith(expected[0])
    assert shown[1].endswith(expected[1])
    assert all("\u2026" in line for line in lines[-2:])


def test_a_terminal_without_unicode_gets_a_bar_of_ascii() -> None:
    """Half of ten cases is half of the bar."""
    bar = draw(drawn(0), 80, 24, is_ascii=True).plain.splitlines()[1]
    expected = "=" * 12 + " " * 12 + "  5/10  100 s  about 50 s left"
    assert bar == expected

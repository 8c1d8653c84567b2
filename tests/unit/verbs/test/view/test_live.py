"""The live view of a suite's run at one moment, on terminals of any size."""

import io
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console
from tests.unit.show.run_events import begun, ended, fold, planned, started, take_all

from tileyard.base.events import BuildStarted, DeviceAwaited
from tileyard.verbs.test.view.progress import SuiteLayout
from tileyard.verbs.test.view.words import rerun_command

NAME = "形状/" * 20


def draw(running: int, width: int, height: int, encoding: str = "utf-8") -> list[str]:
    """Lines of a view of so many running cases with names that are too long and not all of one width."""
    view = fold(started(slots=64, expected_s=3200.0), *(ended(f"ended/{i}") for i in range(5)))
    for number in range(running):
        case, attempt = f"{NAME}case-{number}", 1 + number % 2
        plan = planned(case, 150.0 - number, attempt=attempt)
        take_all(view, (plan, begun(plan.case.key, f"slot:{number}")))
    if running:
        take_all(view, (planned("t/a"), BuildStarted(case="t/a", at=0.0)))
        take_all(view, (DeviceAwaited(device=f"npu:{number}", at=0.0) for number in range(4)))
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    console = Console(file=file, width=width, height=height)
    layout = SuiteLayout(Path("/home/t"), rerun_command("ops.toml"))
    return layout.draw(view, 100.0, console.options).plain.splitlines()


@pytest.mark.parametrize("width", [40, 80, 200])
def test_a_view_keeps_to_its_terminal(width: int) -> None:
    """No line is wider and there are no more lines than there is room for, a prompt included."""
    height = 12
    lines = draw(64, width, height)
    expected = (width, height - 1)
    assert max(map(cell_len, lines)) <= expected[0]
    assert len(lines) <= expected[1]
    assert lines[-1] == "  and 58 more with less time left"


def test_a_name_that_is_too_long_keeps_its_end() -> None:
    """What tells cases from each other stands there, and so does the attempt."""
    lines = draw(2, 80, 24)
    expected = ("/case-0 100 s about 50 s left", "/case-1, attempt 2 100 s about 49 s left")
    shown = [" ".join(line.split()) for line in lines[-2:]]
    assert shown[0].endswith(expected[0])
    assert shown[1].endswith(expected[1])
    assert all("\u2026" in line for line in lines[-2:])


def test_a_terminal_without_unicode_gets_a_bar_of_ascii() -> None:
    """Half of ten cases is half of the bar."""
    bar = draw(0, 80, 24, encoding="ascii")[1]
    expected = "=" * 12 + " " * 12 + "  5/10  100 s  about 50 s left"
    assert bar == expected

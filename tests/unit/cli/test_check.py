"""``tileyard check``: for how many findings the command line asks for timelines."""

import io
import sys

import pytest

from tileyard.cli import check_session
from tileyard.cli.main import main


class Screen(io.StringIO):
    """A terminal."""

    def isatty(self) -> bool:
        """It is one."""
        return True


@pytest.mark.parametrize(
    ("stream", "options", "expected"),
    [
        (Screen, (), 1),
        (io.StringIO, (), 0),
        (Screen, ("--json",), 0),
        (Screen, ("--sarif",), 0),
        (io.StringIO, ("--timeline",), sys.maxsize),
    ],
)
def test_a_terminal_shows_the_first_timeline(
    monkeypatch: pytest.MonkeyPatch,
    stream: type[io.StringIO],
    options: tuple[str, ...],
    expected: int,
) -> None:
    """Elsewhere none is shown unless all are asked for."""
    asked: list[int] = []

    def check_file(*given: object) -> int:
        wanted = given[-1]
        assert isinstance(wanted, check_session.Wanted)
        asked.append(wanted.timelines)
        return 0

    monkeypatch.setattr(check_session, "check_file", check_file)
    monkeypatch.setattr(sys, "stdout", stream())
    assert main(["check", __file__, *options]) == 0
    assert asked == [expected]

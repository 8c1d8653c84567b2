"""``tileyard check``: for how many findings the command line asks for timelines."""

import io
import sys
from pathlib import Path

import pytest

from tileyard.base.settings import Settings
from tileyard.cli.main import main
from tileyard.verbs.check.command import checking
from tileyard.verbs.check.options import CheckOptions
from tileyard.verbs.check.view import findings as view
from tileyard.verbs.check.view.findings import SyncReport


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
    asked: list[bool] = []
    shown: list[int] = []

    async def check_file(file: Path, kernel: str, options: CheckOptions, _: Settings) -> SyncReport:
        asked.append(options["timeline"])
        return SyncReport(file=str(file), kernels=())

    def describe_check(report: SyncReport, timelines: int) -> list[str]:
        shown.append(timelines)
        return []

    monkeypatch.setattr(checking, "check_file", check_file)
    monkeypatch.setattr(view, "describe_check", describe_check)
    monkeypatch.setattr(sys, "stdout", stream())
    assert main(["check", __file__, *options]) == 0
    assert asked == [expected > 0]
    assert shown == ([] if {"--json", "--sarif"} & {*options} else [expected])

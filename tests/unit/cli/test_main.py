"""What every command has: help, and the version beside it."""

import pytest

import tileyard
from tileyard.cli.main import main


@pytest.mark.parametrize(
    "command",
    [(), ("tune",), ("test",), ("cache",), ("cache", "gc"), ("ci", "matrix"), ("devices",)],
)
def test_help_has_two_names(command: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    """-h says what --help does."""
    shown = []
    for option in ("-h", "--help"):
        assert main([*command, option]) == 0
        shown.append(capsys.readouterr().out)
    expected, found = shown
    assert found == expected
    assert "-h, --help" in found


def test_the_version_is_the_packages(capsys: pytest.CaptureFixture[str]) -> None:
    """On the command line and in Python."""
    assert main(["--version"]) == 0
    expected = f"tileyard {tileyard.__version__}\n"
    assert capsys.readouterr().out == expected
    assert tileyard.__version__[0].isdecimal()

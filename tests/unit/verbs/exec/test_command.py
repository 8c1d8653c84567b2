"""The command line of ``tileyard exec``: what is ours, what is the script's, and what is neither."""

import sys
from pathlib import Path
from typing import NoReturn

import pytest

from tileyard.base.errors import UsageError
from tileyard.verbs.exec.command import Wanted, run_exec


def tune_nothing(*_: object) -> NoReturn:
    """The study of a script that has no tuner."""
    raise AssertionError


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["a.py", "--tally", "json"], ("plain", False, ["a.py", "--tally", "json"])),
        (["--tally", "json", "a.py", "-m"], ("json", False, ["a.py", "-m"])),
        (["--tally=none", "-m", "a.b", "--", "x"], ("none", True, ["a.b", "--", "x"])),
        (["--", "-a.py", "--help"], ("plain", False, ["-a.py", "--help"])),
    ],
)
def test_what_follows_the_script_is_its_own(
    arguments: list[str], expected: tuple[str, bool, list[str]]
) -> None:
    """Options of ours end at the script, at ``-m`` or at ``--``."""
    wanted = Wanted(arguments)
    assert (wanted.tally, wanted.is_module, wanted.argv) == expected


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "there is no script"),
        (["--tally", "json"], "there is no script"),
        (["--tally", "loud", "a.py"], "--tally is one of"),
        (["--tally"], "--tally is one of"),
        (["-m"], "-m needs a module"),
        (["--"], "there is no script"),
        (["--fast", "a.py"], "'--fast' is not an option"),
    ],
)
def test_what_makes_no_sense_is_named(arguments: list[str], expected: str) -> None:
    """A bad command line is refused before anything is run."""
    with pytest.raises(UsageError, match=expected):
        Wanted(arguments)


def test_a_check_is_asked_for() -> None:
    """By an option before the script."""
    assert Wanted(["--check-sync", "a.py"]).is_checked
    assert not Wanted(["a.py", "--check-sync"]).is_checked


def test_without_tilelang_one_line_says_what_to_install(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Before anything of the script is run."""
    script = tmp_path / "plain.py"
    script.write_text("print('it ran')")
    monkeypatch.setitem(sys.modules, "tilelang", None)
    monkeypatch.delitem(sys.modules, "tileyard.verbs.exec.plan.run", raising=False)
    monkeypatch.delitem(sys.modules, "tileyard.frontend.tilelang", raising=False)
    monkeypatch.delitem(sys.modules, "tileyard.verbs.exec.plan.building", raising=False)
    monkeypatch.setenv("TILEYARD_HOME", str(tmp_path / "home"))
    assert run_exec([str(script)], tune_nothing) == 2
    printed = capsys.readouterr()
    hint = "pip install './tileyard[tilelang]' beside the checkout"
    assert printed.err == f"tileyard: tileyard exec needs TileLang ({hint})\n"
    assert printed.out == ""


def test_help_needs_no_script(capsys: pytest.CaptureFixture[str]) -> None:
    """It is printed, and nothing else is done."""
    expected = 0
    assert run_exec(["--help"], tune_nothing) == expected
    assert "SCRIPT.py" in capsys.readouterr().out

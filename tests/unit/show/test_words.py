"""Text of others as it is shown."""

import io
from pathlib import Path

import pytest
from rich.text import Text

from tileyard.base.model import Outcome, Trial
from tileyard.show.console import Console
from tileyard.show.words import clean_line, make_visible
from tileyard.verbs.tune.view.trials import print_trial


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain\ttext\n", "plain\ttext\n"),
        ("\x1b[31m", "\\x1b[31m"),
        ("\x9b\x7f\r", "\\x9b\\x7f\\r"),
        ("\u202e\u2066", "\\u202e\\u2066"),
        ("\udcff", "\\udcff"),
        ("größer ≤ 文", "größer ≤ 文"),
    ],
)
def test_control_characters_are_written_as_escapes(text: str, expected: str) -> None:
    """Newlines and tabs stay, and so does whatever people can read."""
    assert make_visible(text) == expected


def test_a_console_passes_on_nothing_that_a_terminal_obeys() -> None:
    """Also in the cells of tables and in lines that look like markup."""
    written = io.StringIO()
    console = Console(file=written, width=80)
    console.print(Text("a\x1bb\u202ec\nd"))
    console.print("[bold]x[/y]")
    assert written.getvalue() == "a\\x1bb\\u202ec\nd\n[bold]x[/y]\n"


def test_a_line_is_one_line() -> None:
    """Whatever separates lines becomes a space."""
    assert clean_line("a\n\x1bb\u2028c\u202ed\te") == r"a \x1bb c\u202ed e"


def test_a_log_outside_the_home_is_not_shown(tmp_path: Path) -> None:
    """A record may name any path; only what lies in the data directory is read."""
    (tmp_path / "secret").write_text("outside", encoding="utf-8")
    (tmp_path / "home").mkdir()
    written = io.StringIO()
    trial = Trial(
        id="r.1",
        run="r",
        case="c",
        batch="",
        kernel="k",
        arguments={},
        config={},
        target="cpu",
        outcome=Outcome.PASSED,
        log="../secret",
    )
    print_trial(Console(file=written, width=80), trial, tmp_path / "home", source=False)
    assert "outside" not in written.getvalue()

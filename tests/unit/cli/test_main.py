"""What every command has: help, and the version beside it."""

import re
import sys
from pathlib import Path
from types import ModuleType

import pytest
from tests.in_process import run_here
from typer.main import get_command

import tileyard
from tileyard.cli import entry
from tileyard.cli.main import app, list_verbs, main
from tileyard.show.guarding import INTERRUPTED


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


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("test s --changed --why", "--changed needs a value, and --why is an option"),
        ("test s -v --policy -x", "--policy needs a value, and -x is an option"),
        ("test s --policy full --policy --list", "--policy needs a value, and --list is an option"),
        ("test s --durations-pattern --list --skip", "--durations-pattern needs a value"),
        ("test s --policy=--list -v", "there is no suite s"),
        ("test s --durations f --durations-pattern ---", "there is no suite s"),
        ("test s --dry-run", "there is no suite s"),
        ("test -- --changed --why", "unexpected extra argument"),
    ],
)
def test_an_option_is_not_the_value_of_another(
    words: str, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is refused, since a whole suite would run with a policy of that name."""
    status = 2
    assert main(words.split()) == status
    assert expected in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("trials export {} -o f", "[KERNEL|RUN] is empty (One kernel or one run; by default all)"),
        ("strategies compare a {}", "FILE... is empty (Recorded spaces)"),
        ("tune {}", "FILE[::NAME] is empty (Where the kernel is)"),
        ("trials import {}", "FILE is empty (A file that tileyard trials export wrote)"),
        ("tune --replay {}", "--replay is empty: it takes a path"),
        ("strategies compare a --png {}", "--png is empty: it takes a path"),
        ("ci matrix s --times {}", "--times is empty: it takes a path"),
        ("ci matrix s --durations f --durations {}", "--durations is empty: it takes a path"),
        ("test s --junit {}", "--junit is empty: it takes a path"),
    ],
)
def test_an_empty_name_is_refused(
    words: str, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """It would be everything that is recorded, or the working directory."""
    assert main(["" if word == "{}" else word for word in words.split()]) == 2
    said = capsys.readouterr()
    assert expected in said.err
    assert (said.out, said.err.count("\n")) == ("", 1)


def test_no_file_is_called_dash(tmp_path: Path) -> None:
    """What takes a path refuses it in one line, but where it is standard input or output."""
    taking = [
        (verb, one.flags[0])
        for verb, options in list_verbs(get_command(app)).items()
        for one in options.values()
        if re.match(r"(FILE|DIR)\b(?!.*-)", one.metavar)
        and verb != ("devices",)  # which groups commands, and is none
    ]
    assert len(taking) > 30
    for verb, flag in taking:
        done = run_here((*verb, flag, "-", "--", "true"), tmp_path, {})
        assert (done.returncode, done.stdout) == (2, ""), verb
        (line,) = done.stderr.splitlines()
        assert line.endswith(f"{flag} takes a path, and - is none (./- is)")
    for words in (
        "site -",
        "import -",
        "tune -",
        "test -",
        "ci duplicates -",
        "regress HEAD -- a -",
    ):
        done = run_here((*words.split(),), tmp_path, {})
        assert (done.returncode, done.stdout) == (2, ""), words
        assert re.search(r" (FILE|DIR|SUITE) takes a path, and - is none", done.stderr), words
    assert not [*tmp_path.iterdir()]


def test_the_version_is_the_packages(capsys: pytest.CaptureFixture[str]) -> None:
    """On the command line and in Python."""
    assert main(["--version"]) == 0
    expected = f"tileyard {tileyard.__version__}\n"
    assert capsys.readouterr().out == expected
    assert tileyard.__version__[0].isdecimal()


@pytest.mark.parametrize(
    ("words", "expected"), [("tileyard tes", "test"), ("tileyard test --fail", "--fail-fast")]
)
def test_a_shell_completes_commands_and_options(
    words: str, expected: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As the script asks for them that --show-completion prints."""
    monkeypatch.setenv("_TILEYARD_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split()) - 1))
    with pytest.raises(SystemExit):
        main([])
    assert capsys.readouterr().out.split() == [expected]


@pytest.mark.parametrize(
    ("command", "module"),
    [("tune", "cli.main"), ("lease", "verbs.lease.command"), ("exec", "verbs.exec.command")],
)
def test_an_interrupt_during_an_import_is_quiet(
    monkeypatch: pytest.MonkeyPatch, command: str, module: str
) -> None:
    """The status is that of any interrupted command."""

    class Interrupted(ModuleType):
        def __getattr__(self, name: str) -> object:
            raise AttributeError if name.startswith("_") else KeyboardInterrupt

    monkeypatch.setattr(sys, "argv", ["tileyard", command])
    name = f"tileyard.{module}"
    monkeypatch.setitem(sys.modules, name, Interrupted(name))
    with pytest.raises((SystemExit, KeyboardInterrupt)) as ended:
        entry.run()
    assert isinstance(ended.value, SystemExit)
    assert ended.value.code == INTERRUPTED

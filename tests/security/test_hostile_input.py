"""Hostile or broken input: one line that names it and exit status 2, never a traceback or a hang."""

from pathlib import Path

import pytest
from tests.conftest import CommandLine

pytestmark = pytest.mark.slow

GOOD = """
name = "s"
run = ["sh", "-c", "true"]
[[testcase]]
name = "t"
case = [{ name = "a" }]
"""
DEEP = 20_000
"""More levels than any decoder follows."""


def write(path: Path, text: str) -> Path:
    """A file with a text."""
    path.write_text(text, encoding="utf-8")
    return path


def refuse(cli: CommandLine, *arguments: str) -> str:
    """The one line that a command says of what it refuses."""
    done = cli.run(*arguments)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr
    return done.stderr.replace(f"{cli.cwd}/", "")


# ---- nesting ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("extra", "expected"),
    [
        (
            "x = " + "[" * DEEP + "]" * DEEP,
            "suite.toml: is not valid TOML: it is nested too deeply",
        ),
        ("vars" + ".a" * 1000 + " = 1", "suite.toml: is not valid TOML: it is nested too deeply"),
        ("vars.x = " + "1" * 5000, "suite.toml: is not valid TOML: Exceeds the limit"),
        (
            'list = ["cat", "deep.json"]',
            "suite.toml:1: list: line 1 of what it printed: is no JSON",
        ),
    ],
    ids=["lists", "keys", "digits", "list"],
)
def test_a_suite_that_is_nested_too_deeply(cli: CommandLine, extra: str, expected: str) -> None:
    """It is refused by the line that says so, by all who read it."""
    write(cli.cwd / "suite.toml", f"{extra}\n{GOOD}")
    write(cli.cwd / "deep.json", '{"name":' * DEEP)
    for command in ("test", "plan"):
        assert expected in refuse(cli, command, "suite.toml")


@pytest.mark.parametrize("text", ["[" * DEEP, '{"a":' * DEEP, '{"t::a": ' + "1" * 5000 + "}"])
def test_a_file_of_durations_that_is_nested_too_deeply(cli: CommandLine, text: str) -> None:
    """It is refused by its name."""
    write(cli.cwd / "suite.toml", GOOD)
    write(cli.cwd / "times.json", text)
    for command in ("test", "plan"):
        assert "times.json:1: is" in refuse(cli, command, "suite.toml", "--durations", "times.json")


def test_declarations_that_are_nested_too_deeply(cli: CommandLine) -> None:
    """A file of devices is refused by its name, also by a lease, which has a code of its own."""
    write(cli.cwd / "tileyard.toml", "x = " + "[" * DEEP + "]" * DEEP)
    expected = "tileyard.toml: is not valid TOML: it is nested too deeply"
    assert expected in refuse(cli, "devices")
    leased = cli.run("lease", "--", "true")
    assert expected in leased.stderr
    assert "Traceback" not in leased.stderr


def test_memory_of_a_suite_that_is_nested_too_deeply(cli: CommandLine) -> None:
    """What a run remembers of a suite is passed over where it cannot be read."""
    write(cli.cwd / "suite.toml", GOOD)
    assert cli.run("test", "suite.toml").returncode == 0
    (remembered,) = (cli.home / "suites").iterdir()
    write(remembered, "[" * DEEP)
    done = cli.run("test", "suite.toml")
    assert done.returncode == 0, done.stderr

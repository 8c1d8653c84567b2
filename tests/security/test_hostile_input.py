"""Hostile or broken input: one line that names it and exit status 2, never a traceback or a hang."""

import subprocess
import sys
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


# ---- durations ----------------------------------------------------------------------------------

ENDLESS = "9" * 309
"""Seconds that no float holds."""


@pytest.mark.parametrize("time", [ENDLESS, f"{ENDLESS}h", "1e308", "1e400", "inf", "nan", "-1"])
def test_an_endless_duration_on_the_command_line(cli: CommandLine, time: str) -> None:
    """Every option that takes a time refuses it."""
    write(cli.cwd / "suite.toml", GOOD)
    for arguments in (
        ("test", "suite.toml", f"--budget={time}"),
        ("test", "suite.toml", f"--split={time}"),
        ("plan", "suite.toml", f"--startup={time}"),
        ("ci", "matrix", "--suite", "suite.toml", f"--max-time={time}"),
        ("devices", f"--window={time}"),
        ("lease", f"--max-time={time}", "--", "true"),
        ("lease", f"--queue-timeout={time}", "--", "true"),
        ("history", f"--since={time}"),
    ):
        assert time[:40] in refuse(cli, *arguments)


@pytest.mark.parametrize("time", ["1e308", "inf", "nan", "-1", "1e400"])
def test_an_endless_duration_in_a_file(cli: CommandLine, time: str) -> None:
    """Suites, declarations and tables of durations are refused by file and line."""
    for text, expected in (
        (f"limits.run_s = {time}\n{GOOD}", "suite.toml:1: limits.run_s: expected `float`"),
        (f"{GOOD}\n[policies.p]\nbudget_s = {time}", "suite.toml:9: policies.p.budget_s: expected"),
        (
            GOOD.replace(
                'run = ["sh", "-c", "true"]', f'run = {{ argv = ["true"], limit_s = {time} }}'
            ),
            "run.limit_s: expected",
        ),
    ):
        write(cli.cwd / "suite.toml", text)
        for command in ("test", "plan"):
            assert expected in refuse(cli, command, "suite.toml")
    write(cli.cwd / "suite.toml", GOOD)
    write(cli.cwd / "times.csv", f"testcase,seconds\nt,{time}\n")
    for command in ("test", "plan"):
        said = refuse(cli, command, "suite.toml", "--durations", "times.csv")
        assert f"times.csv:2: seconds: '{time}' is not a number of seconds" in said
    queue = f'[[queue]]\nname = "q"\nsubmit = ["{{command}}"]\ndevice = "cpu:0"\nidentity = "x"\nqueue_limit_s = {time}'
    write(cli.cwd / "tileyard.toml", queue)
    assert "tileyard.toml: queue 'q': `queue_limit_s` is not above 0" in refuse(cli, "devices")


# ---- the working directory ----------------------------------------------------------------------


def run_nowhere(cli: CommandLine, *arguments: str) -> tuple[int, list[str]]:
    """Exit status and lines on standard error of a command whose working directory is removed."""
    (cli.cwd / "gone").mkdir()
    done = subprocess.run(
        [
            "sh",
            "-c",
            'rmdir "$PWD" && exec "$@"',
            "sh",
            sys.executable,
            "-m",
            "tileyard",
            *arguments,
        ],
        cwd=cli.cwd / "gone",
        env=cli.environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stderr.splitlines()


def test_a_working_directory_that_is_gone(cli: CommandLine) -> None:
    """Every command says so in one line; help is still given."""
    suite = str(write(cli.cwd / "suite.toml", GOOD))
    expected = ["tileyard: the working directory does not exist any more (change to one that does)"]
    for arguments in (
        ("test", suite),
        ("plan", suite),
        ("trials",),
        ("devices",),
        ("doctor",),
        ("lease", "--", "true", "--help"),
        ("exec", suite, "--help"),
        ("ci", "matrix", "--suite", suite, "--jobs", "2"),
        ("cache", "gc", "--keep-days", "1"),
    ):
        assert run_nowhere(cli, *arguments) == (2, expected), arguments
    for arguments in (("--help",), ("test", "--help"), ("lease", "--help"), ("exec", "--help")):
        assert run_nowhere(cli, *arguments) == (0, []), arguments

"""Suites that cannot be run as they are: file, line and key on one line, exit status 2, never green."""

from pathlib import Path

import pytest
from tests.conftest import CommandLine
from tests.e2e.own_process import refuse_run

pytestmark = pytest.mark.slow

GOOD = """\
name = "s"
run = ["sh", "-c", "true"]

[[testcase]]
name = "a"
tags = ["quick"]
case = [{ name = "one" }, { name = "two" }]

[[skip]]
cases = "a/two"
reason = "needs a card"
"""


def refuse(cli: CommandLine, text: str, *options: str) -> str:
    """What the command says of a suite that it refuses, without the folder's name."""
    path = cli.cwd / "suite.toml"
    path.write_text(text, encoding="utf-8")
    done = refuse_run(cli, "test", str(path), *options)
    assert done.returncode == 2, (done.returncode, done.stdout, done.stderr)
    assert "Traceback" not in done.stderr
    return done.stderr.replace(f"{cli.cwd}/", "")


def test_the_good_suite_is_green(cli: CommandLine) -> None:
    """What the other tests break is whole at first; with a mistake in it, the command says so in one line."""
    (cli.cwd / "suite.toml").write_text(GOOD, encoding="utf-8")
    done = cli.run("test", str(cli.cwd / "suite.toml"))
    expected = 0
    assert done.returncode == expected, done.stderr
    (cli.cwd / "suite.toml").write_text(GOOD.replace("tags", "tag"), encoding="utf-8")
    bad = cli.run("test", str(cli.cwd / "suite.toml"))
    assert (bad.returncode, bad.stdout, bad.stderr.count("\n")) == (2, "", 1)
    assert "suite.toml:6: testcase[0].tag: unknown key" in bad.stderr


@pytest.mark.parametrize(
    ("found", "instead", "expected"),
    [
        (
            'tags = ["quick"]',
            'tag = ["quick"]',
            "suite.toml:6: testcase[0].tag: unknown key (did you mean 'tags'",
        ),
        ('"two" }', '"one" }', "suite.toml:7: case a/one appears twice, also at suite.toml:7"),
        (
            '["sh", "-c", "true"]',
            '["no-such-program"]',
            "suite.toml:2: run[0]: there is no program 'no-such-program'",
        ),
        (
            'name = "s"',
            'name = "s"\ninclude = ["suite.toml"]',
            "suite.toml:2: include[0]: includes itself: suite.toml -> suite.toml",
        ),
        (
            'name = "s"',
            'name = "s"\nlist = ["sh", "-c", "echo no cases >&2; exit 7"]',
            "suite.toml:2: list: no cases: ended with exit code 7: sh -c 'echo no cases >&2; exit 7' in ",
        ),
        (
            '["sh", "-c", "true"]',
            '{ argv = ["true"], inputs = ["*.tml"] }',
            "suite.toml:2: run.inputs[0]: *.tml matches no file (",
        ),
        ("cases = ", "case = ", "suite.toml:10: skip[0].case: unknown key (did you mean 'cases'"),
    ],
    ids=[
        "unknown key",
        "duplicate case",
        "missing program",
        "cyclic include",
        "list",
        "inputs",
        "rule",
    ],
)
def test_a_mistake_is_told_where_it_stands(
    cli: CommandLine, found: str, instead: str, expected: str
) -> None:
    """File, line, key and what is wrong, on standard error."""
    assert found in GOOD
    said = refuse(cli, GOOD.replace(found, instead, 1))
    assert f"tileyard: {expected}" in said


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (
            ("--select", "b"),
            "suite.toml: --select b matches none of its 2 cases",
        ),
        (
            ("--select", "a/two"),
            "suite.toml: nothing to run for policy full, --select a/two: "
            "a/two: on the skip list: needs a card",
        ),
        (("--policy", "nightly"), "suite.toml: there is no policy 'nightly'"),
        (
            ("--sanitize",),
            "--sanitize has no effect on suite.toml: its cases are programs, not kernels",
        ),
    ],
)
def test_nothing_to_run_is_no_green_run(
    cli: CommandLine, options: tuple[str, ...], expected: str
) -> None:
    """Selecting nothing says what was asked for and why nothing is left."""
    said = refuse(cli, GOOD, *options)
    assert f"tileyard: {expected}" in said


def test_a_refused_suite_leaves_no_trace(cli: CommandLine, tmp_path: Path) -> None:
    """Nothing is built, run or recorded for a suite that cannot be read."""
    refuse(cli, GOOD.replace("tags", "tag"))
    left = [path.name for path in tmp_path.rglob("*.log")]
    expected: list[str] = []
    assert left == expected

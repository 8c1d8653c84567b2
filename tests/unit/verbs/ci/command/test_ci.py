"""``tileyard ci``: what makes no sense is refused in one line."""

import re
from pathlib import Path

import pytest

from tileyard.cli.main import main

SUITE = """
name = "sums"
run = ["true", "{case}"]
[[testcase]]
name = "row"
case = [{ name = "f32", smoke = true }, { name = "f16" }]
[[testcase]]
name = "col"
case = [{ name = "f32", smoke = true }, { name = "f16" }]
"""


@pytest.fixture(autouse=True)
def _suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A suite of four cases in the working directory, and a jobs file with a mistake."""
    (tmp_path / "suite").mkdir()
    (tmp_path / "suite" / "suite.toml").write_text(SUITE, encoding="utf-8")
    (tmp_path / "jobs.toml").write_text("[jobs.a]\nselct = []\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TILEYARD_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("GITHUB_OUTPUT", raising=False)


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one line with which a command is refused."""
    status = main(["ci", *arguments])
    said = capsys.readouterr()
    assert (status, said.out) == (2, "")
    (line,) = said.err.strip().splitlines()
    assert line.startswith("tileyard: ")
    return line


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((), "no job is named"),
        (("x",), "'x' is not of the form JOB=SELECTION"),
        (("x=none.toml",), "there is no suite"),
        (("x=suite:smokey",), "x=suite:smokey: .*there is no policy 'smokey'"),
        (("x=suite?zzz",), "matches none of its 4 cases"),
        (("x=suite?",), "no case is named behind its sign"),
        (("x=suite", "--independent", "y"), "--independent y: there is no such job"),
        (("--jobs-file", "none.toml"), "none.toml: No such file"),
        (("--jobs-file", "jobs.toml"), r"jobs.toml:2: jobs.a.selct: unknown key"),
        (("x=suite", "--durations", "none.json"), "cannot read none.json"),
    ],
)
def test_jobs_that_make_no_sense_are_refused(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], expected: str
) -> None:
    """One line says what is wrong, and where."""
    assert re.search(expected, refused(capsys, "duplicates", *arguments))


def test_a_list_of_commands_that_was_asked_for_may_be_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A later job reads the list with fromJSON, which an output that is not there would fail."""
    (tmp_path / "jobs.toml").write_text("[jobs.a]\nselect = ['suite']\n", encoding="utf-8")
    monkeypatch.setenv("GITHUB_OUTPUT", str(tmp_path / "output"))
    arguments = ("suite", "--jobs", "1", "--github-output")
    for more, expected in (((), "cases=4"), (("--jobs-file", "jobs.toml"), "commands=[]")):
        assert main(["ci", "matrix", *arguments, *more]) == 0
        output = (tmp_path / "output").read_text(encoding="utf-8")
        assert output.splitlines()[-1] == expected


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((), "--jobs, or the longest time of one with --max-time"),
        (("--jobs", "2", "--max-time", "5m"), "--jobs, or the longest time of one with --max-time"),
        (("--max-time", "soon"), "'soon' is not a duration"),
        (("--jobs", "300"), "300 jobs are too many"),
        (("--jobs", "2", "--policy", "smokey"), "there is no policy 'smokey'"),
        (("--jobs", "2", "--select", "zzz"), "matches none of its 4 cases"),
        (("--jobs", "2", "--github-output"), "GITHUB_OUTPUT is not set"),
        (("--jobs", "2", "--changed-files", "none"), "cannot read none"),
        (("--jobs", "2", "--always", "src"), "--changed-files, which is missing"),
        (("--jobs", "2", "--durations", "suite"), "suite: holds no JUnit file"),
        (("--jobs", "2", "--times", "suite"), "cannot write suite"),
    ],
)
def test_a_matrix_that_makes_no_sense_is_refused(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], expected: str
) -> None:
    """One line says what is wrong."""
    assert re.search(expected, refused(capsys, "matrix", "suite", *arguments))

"""``tileyard bisect`` with a suite: programs that a commit made slower, wrong, crash or impossible."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.conftest import CommandLine
from tests.e2e.repositories import SUMS, git, make_history

from tileyard.service.client import RunClient
from tileyard.verbs.regress.options.start import StartRegress
from tileyard.verbs.regress.result import Regression, TimedRow

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("cc") is None, reason="its programs are compiled"),
]

SUITE = (
    SUMS
    + """[run]
argv = ["{build}/{testcase}"]
[[testcase]]
name = "even"
case = [{ name = "a" }]
[[testcase]]
name = "sum"
case = [{ name = "a" }, { name = "b" }]
"""
)
SOURCE = """
#include <stdio.h>
#include <stdlib.h>
int main(void) {
  volatile double x = 0;
  for (int i = 0; i < WORK; ++i) x = x * 0.999 + 1;
  FINISH
  fputc('RESULT', fopen("result", "wx"));
  return 0;
}
"""
ONE = ("suite::sum/a",)
SAME_WAY = pytest.mark.sweep(0)
"""By default a mismatch stands for all failures; ``test_sought.py`` of the unit tests has the others."""
USUAL = {"WORK": "1000000", "FINISH": "", "RESULT": "7"}
COUNTING = """
name = "simulated"
[run]
argv = ["sh", "{suite}/numbers.sh"]
[measure]
pattern = '^rate: (\\d+)'
unit = "GB/s"
better = "higher"
[[testcase]]
name = "copy"
"""


def source(changed: dict[str, str]) -> str:
    """A program."""
    text = SOURCE
    for key, value in {**USUAL, **changed}.items():
        text = text.replace(key, value)
    return text


@pytest.mark.parametrize(
    ("changed", "expected", "named"),
    [
        ({"WORK": "3000000"}, ("slower", ""), ONE),
        ({"RESULT": "8"}, ("fails", "mismatch"), ("suite/suite.toml", "--select", "sum/a")),
        pytest.param({"FINISH": "abort();"}, ("fails", "crashed"), ONE, marks=SAME_WAY),
        pytest.param({"FINISH": "no;"}, ("fails", "compile_error"), ONE, marks=SAME_WAY),
    ],
)
def test_the_commit_that_changed_a_program_is_found(
    cli: CommandLine,
    tmp_path: Path,
    changed: dict[str, str],
    expected: tuple[str, str],
    named: tuple[str, ...],
) -> None:
    """And confirmed; a commit whose suite cannot be read is passed over."""
    good, bad = source({}), source(changed)
    make_history(
        cli,
        tmp_path,
        [
            {"suite/suite.toml": SUITE, "suite/even.c": good, "suite/sum.c": good},
            {"suite/sum.c": f"{good}// again\n"},
            {"suite/suite.toml": "name ="},  # the first one to be tested
            {"suite/suite.toml": SUITE},
            {"suite/sum.c": bad},
        ],
    )
    done = cli.run("bisect", "c0", "main", *named, "--margin", "15%", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    sought = found["sought"]
    assert (sought["case"], sought["kind"], sought["outcome"]) == ("sum/a", *expected)
    assert [one["subject"] for one in found["suspects"]] == ["step 4"]
    assert "step 2: cannot be tested" in done.stderr
    assert found["is_confirmed"]
    assert list((cli.home / "tmp").iterdir()) == []


def test_the_commit_that_made_a_number_worse_is_found(cli: CommandLine, tmp_path: Path) -> None:
    """More of it is better, in a suite at the top of its repository; a vanished case does not mislead."""
    rates = [100, 100, 100, 99, 50]
    numbers = [{"numbers.sh": f"echo rate: {rate}  # {step}\n"} for step, rate in enumerate(rates)]
    numbers[0]["suite.toml"] = COUNTING
    numbers[2]["suite.toml"] = COUNTING.replace("copy", "other")
    numbers[3]["suite.toml"] = COUNTING
    make_history(cli, tmp_path, numbers)
    done = cli.run("bisect", "c0", "main", ".")
    assert done.returncode == 0, done.stderr
    assert "copy/default is worse: -50.00 %" in done.stderr
    assert "step 2: cannot be tested" in done.stderr
    assert "step 4: since then copy/default is worse: -50.00 %\n" in done.stdout
    assert "not confirmed" not in done.stdout
    for run, words, why in [
        (cli.run_here, ("suite.toml", "numbers.sh"), "suite.toml is a suite, and one suite is"),
        (cli.run, ("suite.toml::nothing",), "nothing"),
        (cli.run_here, ("suite.toml", "--fail-on", "spills:+0"), "no effect with a suite"),
    ]:
        done = run("bisect", "c0", "main", *words)
        assert done.returncode == 2
        assert why in done.stderr
        assert len(done.stderr.splitlines()) <= 2


SCRIPTS = ("bisect", "c0", "c2", "--exec", "bench/count.py", "--printed", r"counted: (\d+) steps")


@pytest.fixture
def scripts(cli: CommandLine, tmp_path: Path) -> CommandLine:
    """A history in which a script prints no number at last, because of a module that it imports."""
    script = {"bench/count.py": "from sizes import STEPS\nprint(f'counted: {STEPS} steps')\n"}
    sizes = [{"bench/sizes.py": f"STEPS = {size}\n"} for size in ("100", "None")]
    make_history(cli, tmp_path, [script | sizes[0], {"bench/other.py": ""}, sizes[1]])
    return cli


def check_culprit(done: subprocess.CompletedProcess[str]) -> None:
    """The commit with which the script fails is found."""
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["sought"]["case"], found["sought"]["kind"]) == ("count/default", "fails")
    assert [one["subject"] for one in found["suspects"]] == ["step 2"]
    assert found["is_confirmed"]


# Ten runs of scripts, each of which imports TileLang: a regression runs some by default.
@pytest.mark.sweep(0)
def test_the_commit_with_which_a_script_fails_is_found(scripts: CommandLine) -> None:
    """A commit that changes other modules alone runs nothing."""
    check_culprit(scripts.run(*SCRIPTS, "--json"))


def test_scripts_of_commits_are_compared_until_one_is_known_to_fail(
    scripts: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each comparison has the script of two commits, and asks for the number that it prints."""
    compared: list[StartRegress] = []

    def compare(client: RunClient[Regression], _: object) -> Regression:
        start = client._verb
        assert isinstance(start, StartRegress)
        compared.append(start)
        ((base, _), (head, _)) = (*start.base_files, *start.head_files)
        assert (Path(base).name, Path(head).name) == ("count.py", "count.py")
        sizes = [Path(file).with_name("sizes.py").read_text() for file in (base, head)]
        verdict = "unchanged" if sizes[0] == sizes[1] else "failed"
        message = "runtime_error: printed no line" if verdict == "failed" else ""
        row = TimedRow(case="count/default", verdict=verdict, head_message=message)
        told = {"base": start.base.name, "head": start.head.name, "target": start.target}
        return Regression(**told, run="", device="", silicon="", margin=0.02, rows=(row,))

    monkeypatch.setattr(RunClient, "run", compare)
    check_culprit(scripts.run_here(*SCRIPTS, "--json"))
    first, second, third = (git(scripts.cwd, "rev-parse", f"c{number}") for number in range(3))
    asked = [(start.base.revision, start.head.revision) for start in compared]
    assert asked == [(first, third), (first, second), (second, third)]
    assert all(
        start.request.measure and start.request.measure.unit == "steps" for start in compared
    )
    refused = scripts.run_here(*SCRIPTS, "--fail-on", "spills:+0")
    assert (refused.returncode, len(refused.stderr.splitlines())) == (2, 1)
    assert "--fail-on has no effect with --exec" in refused.stderr

"""Names of runs: each is one run's alone, and none leads out of the data directory."""

import json
from pathlib import Path

import pytest
from tests.conftest import CommandLine

pytestmark = pytest.mark.slow

SUITE = """
name = "s"
run = ["sh", "-c", "echo {case}"]
[[testcase]]
name = "t"
case = [{ name = "a" }]
"""
UNLUCKY = """
import itertools, secrets, time
digits, real = itertools.count(), secrets.token_hex
secrets.token_hex = lambda size=None: f"{next(digits):04x}" if size == 2 else real(size)
time.strftime = lambda form, *moment: form.replace("%Y%m%d-%H%M", "20261121-1104")
"""
"""Has every process begin the same minute and the same random digits."""


def test_runs_that_would_have_the_same_name_get_two(cli: CommandLine) -> None:
    """Runs that begin at the same time with the same random digits end well, each with its own log."""
    (cli.cwd / "suite.toml").write_text(SUITE, encoding="utf-8")
    (cli.cwd / "unlucky").mkdir()
    (cli.cwd / "unlucky" / "sitecustomize.py").write_text(UNLUCKY, encoding="utf-8")
    cli.env["PYTHONPATH"] = str(cli.cwd / "unlucky")

    side_by_side = [cli.start("test", "suite.toml", "--keep-work", "--json") for _ in range(2)]
    ended = [(*process.communicate(), process.returncode) for process in side_by_side]

    assert [status for _, _, status in ended] == [0, 0], ended
    runs = {json.loads(out)["run"] for out, _, _ in ended}
    assert runs == {"20261121-1104-0000", "20261121-1104-0001"}
    for folder, ending in (("runs", ".jsonl"), ("logs", ""), ("work", "")):
        assert {path.name for path in (cli.home / folder).glob("2026*")} == {
            f"{run}{ending}" for run in runs
        }


def test_a_name_that_leads_elsewhere_names_nothing(cli: CommandLine, tmp_path: Path) -> None:
    """Every command that is given the name of a run or a trial refuses a path and reads nothing there."""
    (tmp_path / "suite.toml").write_text(SUITE, encoding="utf-8")
    (tmp_path / "secret").write_text("outside", encoding="utf-8")
    assert cli.run("test", "suite.toml").returncode == 0

    for name in ("../../secret", "../secret.jsonl", "/etc/passwd", "a/b", "..", ""):
        for command in ("show", "inspect", "run-artifact"):
            done = cli.run_here(command, name)
            assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr
            assert "outside" not in done.stdout + done.stderr
        listed = cli.run_here("trials", "--json", "--run", name or "..")
        assert json.loads(listed.stdout) == []

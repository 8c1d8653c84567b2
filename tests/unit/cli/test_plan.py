"""A prediction as the command line makes it: by what the suite's last run has measured, as the next run will."""

import json
from pathlib import Path
from typing import Any

import pytest

from tileyard.cli.main import main
from tileyard.suite.achieved import Startup
from tileyard.suite.memory import update_memory

SUITE = """
name = "two"
[[testcase]]
name = "a"
run = { argv = ["true"] }
case = [{ name = "1" }, { name = "2" }]
[[testcase]]
name = "b"
run = { argv = ["true"] }
case = [{ name = "1" }, { name = "2" }]
"""


@pytest.fixture
def suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A suite of two testcases, and a home in which it has run before."""
    monkeypatch.setenv("TILEYARD_HOME", str(tmp_path / "home"))
    path = tmp_path / "suite.toml"
    path.write_text(SUITE)
    update_memory(
        tmp_path / "home", str(path), [], Startup(startup_s=3.0, launch_s=None, lead_s=40.0)
    )
    return path


def predicted(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    """What is printed."""
    assert main(["plan", *arguments, "--slots", "1", "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def predicted_s(capsys: pytest.CaptureFixture[str], *arguments: str) -> float:
    """When the last piece ends."""
    return float(predicted(capsys, *arguments)["plan"]["predicted_s"])


def test_what_starting_costs_is_what_the_last_run_measured(
    suite: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both before the first case and for each piece, unless something else is asked for."""
    bare_s = predicted_s(capsys, str(suite), "--startup", "0s", "--lead", "0s")
    assert predicted_s(capsys, str(suite)) == pytest.approx(bare_s + 40.0 + 2 * 3.0)
    assert predicted_s(capsys, str(suite), "--lead", "1s") == pytest.approx(bare_s + 1.0 + 6.0)


def test_shards_of_a_suite_are_told_with_their_lengths(
    suite: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All of them, though only one is planned."""
    found = predicted(capsys, str(suite), "--shard", "1/2")
    assert found["shards_s"] == [20.0, 20.0]
    assert found["cases"] == 2


def test_programs_and_kernels_are_parts_one_after_another(
    suite: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As in the run: each has a plan of its own, and the whole takes as long as both."""
    suite.with_name("gemm.py").write_text("")
    kernels = '[[testcase]]\nname = "k"\nfile = "gemm.py"\nkernel = "gemm"\n'
    suite.write_text(SUITE + kernels + 'case = [{ name = "1" }, { name = "2" }, { name = "3" }]\n')
    found = predicted(capsys, str(suite))
    (then,) = found["then"]
    assert (found["cases"], then["cases"]) == (4, 3)
    alone_s = 40.0 + 4 * 10.0 + 2 * 3.0
    assert found["plan"]["predicted_s"] == pytest.approx(alone_s)
    assert then["plan"]["predicted_s"] == pytest.approx(40.0 + 3 * 10.0 + 3.0)
    assert main(["plan", str(suite), "--slots", "1"]) == 0
    expected = "programs and kernels, 2 parts one after another: 2 min 39 s"
    assert expected in capsys.readouterr().out


def test_a_budget_has_to_pay_for_what_starting_costs(
    suite: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As in the run: nothing fits into what passes before the first case."""
    assert main(["plan", str(suite), "--slots", "1", "--budget", "41s"]) == 2
    assert "no case fits into a budget of 41 s" in capsys.readouterr().err


def test_a_file_of_kernels_is_refused_with_what_to_do(
    suite: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In one line: plan imports nobody's code."""
    file = suite.with_name("gemm.py")
    file.write_text("raise SystemExit")
    assert main(["plan", str(file)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    expected = (
        f"tileyard: {file}:1: lists no case of gemm.py, and which kernels it holds is known only once it"
        " is imported (`tileyard test` does that; or name file, kernel and each `case` in a suite.toml)"
    )
    assert line == expected

"""A prediction by command line: by what the suite's last run has measured, as the next run will."""

import json
from pathlib import Path
from typing import Any

import pytest

from tileyard.cli.main import main
from tileyard.verbs.test.plan.lanes import update_memory
from tileyard.verbs.test.result.achieved import Startup

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
    started = Startup(startup_s=3.0, launch_s=None, lead_s=40.0)
    update_memory(tmp_path / "home", str(path), [], started, lambda known: known)
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


def test_a_plan_says_what_its_policy_leaves_out(
    suite: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As the run: which families, and which policies run them; cases' names have values of parameters."""
    suite.write_text(
        f'{SUITE}[parameters]\nmode = ["sim", "npu"]\n[policies.light]\nexclude = ["b/*"]\n'
    )
    found = predicted(capsys, str(suite), "--policy", "light", "--skip", "a/1", "--set", "mode=npu")
    assert [piece["cases"] for piece in found["plan"]["pieces"]] == [["a/2@npu"]]
    notes = [
        "policy light excludes 2 cases: b",
        "cases of b run only under the policies full and smoke",
    ]
    assert found["notes"] == notes
    assert main(["plan", str(suite), "--policy", "light"]) == 0
    shown = capsys.readouterr().out
    assert all(note in shown for note in notes)
    assert main(["plan", "--set", "mode=npu"]) == 2
    assert "--set has no effect without a suite" in capsys.readouterr().err


def test_any_log_is_a_history(suite: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By a pattern of the user's, of a suite or without one; and that of the serial simulator by itself."""
    log = suite.with_name("run.log")
    log.write_text("[INFO] begin\nb/1 took 7000 ms\na took 4 s\nb/2 took 9000 ms\n")
    pattern = r"^(?P<case>\S+) took (?P<seconds>\d+) (?P<unit>\w+)"
    options = ("--durations", str(log), "--durations-pattern", pattern, "--startup", "0s")
    assert predicted(capsys, str(suite), *options)["sources"] == {"history": 4}
    assert predicted_s(capsys, *options, "--lead", "0s") == 20.0
    log.write_text("[INFO] [1/1] running testcase: a\nTotal tick: 5\nModel RUN TIME: 98639.5 ms\n")
    assert predicted_s(capsys, *options[:2], "--startup", "0s") == pytest.approx(98.6395)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--durations-pattern", "x"), "--durations-pattern has no effect without --durations"),
        (
            ("--durations", "run.log", "--durations-pattern", "(?P<casse>x)"),
            "--durations-pattern: unknown group (?P<casse>...) (did you mean 'case'",
        ),
        (
            ("--durations", "run.log"),
            "run.log:1: is not a table with the columns testcase and seconds, no JSON, no JUnit "
            "XML, and no log",
        ),
    ],
)
def test_a_log_that_has_no_times_is_refused(
    suite: Path,
    capsys: pytest.CaptureFixture[str],
    options: tuple[str, ...],
    expected: str,
) -> None:
    """In one line, before anything is run."""
    log = suite.with_name("run.log")
    log.write_text("[INFO] begin\nend\n")
    options = tuple(str(log) if option == "run.log" else option for option in options)
    assert main(["plan", str(suite), *options]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert expected in line


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

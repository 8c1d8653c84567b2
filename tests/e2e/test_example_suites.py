"""Suites of programs that know nothing of Tileyard: a worked example, and a tree as others have it."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import ROOT, CommandLine

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("cmake") is None, reason="these suites are built by CMake"),
]

REDUCE_SIM = ROOT / "examples" / "suites" / "reduce_sim"
TREE = ROOT / "tests" / "suites" / "ptoas_like"


def run_suite(cli: CommandLine, suite: Path, *options: str) -> tuple[int, dict[str, Any]]:
    """The exit status of a run, and its summary."""
    summary = cli.cwd / "summary.json"
    done = cli.run("test", str(suite), *options, "--summary", str(summary))
    assert summary.exists(), done.stderr
    decoded: dict[str, Any] = json.loads(summary.read_text(encoding="utf-8"))
    return done.returncode, decoded


def outcomes(summary: dict[str, Any]) -> dict[str, str]:
    """How each case ended."""
    return {verdict["case"]: verdict["outcome"] for verdict in summary["result"]["verdicts"]}


def copy_of(tree: Path, cli: CommandLine) -> Path:
    """A tree in a folder of its own, so that it can be seen what is written into it."""
    return Path(shutil.copytree(tree, cli.cwd / tree.name))


def files_of(tree: Path) -> list[str]:
    """What lies in a tree."""
    return sorted(str(path.relative_to(tree)) for path in tree.rglob("*"))


def test_a_tree_of_system_tests_runs_as_it_is(cli: CommandLine) -> None:
    """One file beside it is all that a tree needs: each case has a verdict, and nothing is written there."""
    tree = copy_of(TREE, cli)
    before = files_of(tree)
    status, summary = run_suite(cli, tree)
    expected = {
        "tadd/f32_16x64": "passed",
        "tadd/f32_32x32_valid_31x30": "passed",
        "tadd/i32_16x64": "passed",
        "trowsum/f32_16x64": "passed",
        "trowsum/f32_8x128_valid_8x100": "passed",
    }
    assert (status, outcomes(summary)) == (0, expected)
    assert files_of(tree) == before


def test_a_wrong_kernel_fails_in_each_of_its_cases(cli: CommandLine) -> None:
    """The first case that fails does not hide the others, and other testcases go on."""
    tree = copy_of(TREE, cli)
    kernel = tree / "testcase" / "tadd" / "tadd.pto"
    kernel.write_text(kernel.read_text().replace("+", "-"), encoding="utf-8")
    status, summary = run_suite(cli, tree)
    expected = {
        "tadd/f32_16x64": "mismatch",
        "tadd/f32_32x32_valid_31x30": "mismatch",
        "tadd/i32_16x64": "mismatch",
        "trowsum/f32_16x64": "passed",
        "trowsum/f32_8x128_valid_8x100": "passed",
    }
    assert (status, outcomes(summary)) == (1, expected)


def test_an_edited_testcase_is_built_and_run_by_itself(cli: CommandLine) -> None:
    """Also where it was built in one call with others, and failed; what failed alike is reported once, wherever it is."""
    tree = copy_of(TREE, cli)
    source = tree / "testcase" / "tadd" / "main.cpp"
    good = source.read_text(encoding="utf-8")
    source.write_text(f"{good}int broken(", encoding="utf-8")
    page = cli.cwd / "page.md"
    github = {"GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": str(page)}
    done = cli.run("test", str(tree), "--summary", "first.json", **github)
    summary = json.loads((cli.cwd / "first.json").read_text(encoding="utf-8"))
    names = ("tadd/f32_16x64", "tadd/f32_32x32_valid_31x30", "tadd/i32_16x64")
    others = ("trowsum/f32_16x64", "trowsum/f32_8x128_valid_8x100")
    broken, passed = dict.fromkeys(names, "compile_error"), dict.fromkeys(others, "passed")
    assert (done.returncode, outcomes(summary)) == (1, broken | passed)
    assert done.stdout.count("compile_error  3 cases, the same message: ") == 1
    assert done.stdout.count("::error ") == 1
    assert page.read_text(encoding="utf-8").count("| compile_error | 3 cases, the same") == 1
    source.write_text(f"{good}// edited\n", encoding="utf-8")
    status, summary = run_suite(cli, tree, "--changed", "any")
    expected = dict.fromkeys(names, "passed") | dict.fromkeys(others, "skipped")
    assert (status, outcomes(summary)) == (0, expected)


def test_a_selection_builds_only_what_it_needs(cli: CommandLine) -> None:
    """Of a shared build one case asks for one program, and of what it would make nothing else is there."""
    status, summary = run_suite(cli, REDUCE_SIM, "--select", "rowmax/f16_32x48")
    expected = ["rowmax-f16_32x48"]
    assert (status, outcomes(summary)) == (0, {"rowmax/f16_32x48": "passed"})
    built = [path for path in (cli.home / "objects").rglob("*-f*_*") if path.is_file()]
    assert [path.name for path in built] == expected


def test_the_smoke_run_of_the_example_covers_each_operator(cli: CommandLine) -> None:
    """Every family and class of dtypes of the worked example is there, and all of them are right."""
    status, summary = run_suite(cli, REDUCE_SIM, "--policy", "smoke")
    expected = {"sum", "prod", "min", "max", "argmax", "argmin", "cast"}
    verdicts = summary["result"]["verdicts"]
    assert (status, {verdict["family"] for verdict in verdicts}) == (0, expected)
    assert set(outcomes(summary).values()) == {"passed"}


def test_planted_faults_are_told_apart(cli: CommandLine) -> None:
    """A hang, a crash and a wrong result each have their own verdict, and spoil no other's."""
    wanted = ("--select", "faults/*", "--select", "rowsum/f32_16x64", "--select", "tail/slow1")
    status, summary = run_suite(cli, REDUCE_SIM / "faulty.toml", *wanted)
    expected = {
        "faults/hang": "timeout",
        "faults/crash": "crashed",
        "faults/wrong": "mismatch",
        "rowsum/f32_16x64": "passed",
        "tail/slow1": "passed",
    }
    assert (status, outcomes(summary)) == (1, expected)
    worst = {v["case"]: v["mismatch"] for v in summary["result"]["verdicts"]}["faults/wrong"]
    assert (worst["index"], worst["wrong"], worst["total"]) == ([0, 0], 1, 16)
    assert summary["quarantined"] == ["faults/wrong"]

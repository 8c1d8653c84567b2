"""Suites of programs that know nothing of Tileyard: a worked example, and a tree as others have it."""

import json
import os
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


def family_of(case: str) -> str:
    """``sum`` of ``rowsum/f32_16x64``."""
    return case.partition("/")[0].removeprefix("row")


def copy_of(tree: Path, cli: CommandLine) -> Path:
    """A tree in a folder of its own, so that it can be seen what is written into it."""
    return Path(shutil.copytree(tree, cli.cwd / tree.name))


def files_of(tree: Path) -> list[str]:
    """What lies in a tree."""
    return sorted(str(path.relative_to(tree)) for path in tree.rglob("*"))


def test_a_tree_of_system_tests_runs_as_it_is(cli: CommandLine) -> None:
    """One file beside it is all that a tree needs: each case has a verdict, and nothing is written there. A
    testcase that cannot be built leaves alone the others that are built in the same call, and what failed
    alike is reported once, wherever it is. Of a wrong kernel, the first case that fails does not hide the
    others, and other testcases go on. An edited testcase is built and run by itself.
    """
    tree = copy_of(TREE, cli)
    before = files_of(tree)
    source, kernel = (tree / "testcase" / "tadd" / name for name in ("main.cpp", "tadd.pto"))
    good, right = (path.read_text(encoding="utf-8") for path in (source, kernel))
    names = ("tadd/f32_16x64", "tadd/f32_32x32_valid_31x30", "tadd/i32_16x64")
    others = ("trowsum/f32_16x64", "trowsum/f32_8x128_valid_8x100")

    source.write_text(f"{good}int broken(", encoding="utf-8")
    page = cli.cwd / "page.md"
    github = {"GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": str(page)}
    done = cli.run("test", str(tree), "--summary", "first.json", **github)
    summary = json.loads((cli.cwd / "first.json").read_text(encoding="utf-8"))
    expected = dict.fromkeys(names, "compile_error") | dict.fromkeys(others, "passed")
    assert (done.returncode, outcomes(summary)) == (1, expected)
    assert done.stdout.count("compile_error  3 cases, the same message: ") == 1
    assert done.stdout.count("::error ") == 1
    assert page.read_text(encoding="utf-8").count("| compile_error | 3 cases, the same") == 1

    source.write_text(f"{good}// edited\n", encoding="utf-8")
    kernel.write_text(right.replace("+", "-"), encoding="utf-8")
    status, summary = run_suite(cli, tree)
    expected = dict.fromkeys(names, "mismatch") | dict.fromkeys(others, "passed")
    assert (status, outcomes(summary)) == (1, expected)

    kernel.write_text(right, encoding="utf-8")
    status, summary = run_suite(cli, tree, "--changed", "any")
    expected = dict.fromkeys(names, "passed") | dict.fromkeys(others, "skipped")
    assert (status, outcomes(summary)) == (0, expected)
    assert files_of(tree) == before


@pytest.mark.sweep(0)  # by default: test_policies.py
def test_the_smoke_run_of_the_example_covers_each_operator(cli: CommandLine) -> None:
    """Cases of every family are selected, and pass: one of each family, or all of them in ``make test-all``.
    A selection builds only what it needs: of a shared build, one case asks for one program, and no other is
    built.
    """
    status, summary = run_suite(cli, REDUCE_SIM, "--select", "rowmax/f32_16x64")
    assert (status, outcomes(summary)) == (0, {"rowmax/f32_16x64": "passed"})
    built = [path for path in (cli.home / "objects").rglob("*-f*_*") if path.is_file()]
    assert [path.name for path in built] == ["rowmax-f32_16x64"]

    smoke = (str(REDUCE_SIM), "--policy", "smoke")
    listed = cli.run_here("test", *smoke, "--list").stdout.split()
    expected = {"sum", "prod", "min", "max", "argmax", "argmin", "cast"}
    assert set(map(family_of, listed)) == expected
    wanted = listed
    if "TILEYARD_EXAMPLE_CASES" not in os.environ:
        wanted = list({family_of(case): case for case in listed}.values())
    selected = (word for case in wanted for word in ("--select", case))
    status, summary = run_suite(cli, REDUCE_SIM, "--policy", "smoke", *selected)
    assert (status, outcomes(summary)) == (0, dict.fromkeys(wanted, "passed"))
    assert {verdict["family"] for verdict in summary["result"]["verdicts"]} == expected


@pytest.mark.sweep(0)  # by default: test_suite_faults.py
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

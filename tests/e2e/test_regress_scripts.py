"""``tileyard regress --exec``: GPU scripts of two versions, compared by time or by what they print."""

import json
from pathlib import Path

import pytest
from tests.conftest import CommandLine
from tests.e2e.gpu_builds import make_environment
from tests.e2e.repositories import make_history

pytestmark = pytest.mark.slow

SCRIPT = """
import tilelang
import tilelang.language as T
import torch
from sizes import STEPS

@tilelang.jit(out_idx=[-1])
def count(N, steps):
    @T.prim_func
    def main(A: T.Tensor((N,), "float32"), B: T.Tensor((N,), "float32")):
        with T.Kernel(1, threads=128) as _:
            x = T.alloc_fragment((N,), "float32")
            T.copy(A, x)
            for _ in T.serial(steps):
                for i in T.Parallel(N):
                    x[i] = x[i] + 1.0
            T.copy(x, B)
    return main

counted = count(128, STEPS)(torch.zeros(128, device="cuda"))
print(f"counted: {int(counted[0])} steps")
"""
PRINTED = ("--printed", r"counted: (\d+) steps")


@pytest.fixture
def scripts(cli: CommandLine, tmp_path: Path) -> Path:
    """A repository with two commits: a module that one of its scripts imports has changed."""
    first = {
        "sub/same.py": "",
        "bench/example.py": SCRIPT,
        "bench/sizes.py": "STEPS = 100\n",
        "bench/same.py": "print('counted: 5 steps')\n",
    }
    return make_history(cli, tmp_path, [first, {"bench/sizes.py": "STEPS = 110\n"}])


def test_a_script_runs_on_both_sides(cli: CommandLine, scripts: Path) -> None:
    """With the number that its kernel computes; one without changed imports is not run, head's own is new."""
    (scripts / "bench" / "new.py").write_text("")
    files = ("bench/example.py", "bench/same.py", "bench/new.py")
    # Programs that start sooner show which verdict numbers give that are decided: see test_regress_suites.py.
    done = cli.run("regress", "c0", ".", "--exec", *files, *PRINTED, "--each", "1s", "--json")
    assert done.returncode == 1, done.stderr
    rows = {row["case"]: row for row in json.loads(done.stdout)["rows"]}
    assert {case: row["verdict"] for case, row in rows.items()} == {
        "example/default": "inconclusive",
        "new/default": "new",
        "same/default": "unchanged",
    }
    example = rows["example/default"]
    assert (example["base"], example["head"], example["unit"]) == (100, 110, "steps")


PYTHON = """#!/bin/sh
[ "$*" = "-m tileyard exec {script}" ] && [ -e "$PYTHONPATH/tileyard/verbs/exec/command.py" ] || exit 1
echo rate {rate}
"""
"""Replaces a Python in which this Tileyard runs a script."""


def test_each_side_runs_its_own_python(cli: CommandLine, scripts: Path, tmp_path: Path) -> None:
    """With this Tileyard, whose ``exec`` it is."""
    script = scripts / "bench" / "rate.py"
    script.touch()
    pythons = []
    for name, rate in (("one", 110), ("other", 220)):
        pythons.append(tmp_path / name)
        pythons[-1].write_text(PYTHON.format(script=script, rate=rate))
        pythons[-1].chmod(0o755)
    words = ("--exec", "bench/rate.py", "--printed", r"rate (\d+)", "--higher")
    (row,) = cli.run_json("regress", *map(str, pythons), *words)["rows"]
    assert (row["base"], row["head"], row["better"]) == (110, 220, "higher"), row
    assert row["verdict"] == "improved"


# By default scripts run in one environment, and what is run of each side is compared.
@pytest.mark.sweep(0)
def test_each_side_runs_in_its_own_environment(
    cli: CommandLine, scripts: Path, tmp_path: Path
) -> None:
    """With this Tileyard, whose ``exec`` it is, and the modules that are beside the script."""
    text = "import sys, sizes, torch\nprint('rate', sizes.STEPS * (2 - sys.prefix.endswith('other')))\n"
    (scripts / "bench" / "rate.py").write_text(f"{text}torch.zeros(1, device='cuda')\n")
    other = make_environment(tmp_path / "other")
    # It is decided by more processes than the one for which there is time.
    words = ("--exec", "bench/rate.py", "--printed", r"rate (\d+)", "--higher", "--each", "1s")
    done = cli.run("regress", str(other), ".", *words, "--json")
    assert done.stdout, done.stderr
    (row,) = json.loads(done.stdout)["rows"]
    assert (row["base"], row["head"], row["better"]) == (110, 220, "higher"), row


def test_bad_input_is_one_line(cli: CommandLine, scripts: Path) -> None:
    """With exit status 2, whether the command's own process finds it or the engine, which opens files."""
    assert scripts.is_dir()
    same = ("c0", "c1", "--exec", "bench/same.py")
    for words, expected in {
        ("c0", "c1", "--exec", "bench/none.py"): "neither side has a file bench/none.py",
        ("c0", "c1", "--exec", "bench/same.py::a"): "same.py::a has no effect with --exec",
        ("c0", "tl.a=1", "--exec", "bench/same.py"): "tl.a=1 are pass options, and a script",
        ("c0", "a.tyb", "--exec", "bench/same.py"): "--exec has no effect where a side is built",
        (*same, "--printed", "a"): "has no group (...) that is",
        (*same, "--printed", "("): "'(' is not a regular expression",
        ("c0", "c1", "bench/same.py", *PRINTED): "--printed has no effect without --exec",
    }.items():
        refused = cli.run_here("regress", *words)
        assert (refused.returncode, len(refused.stderr.splitlines())) == (2, 1), words
        assert expected in refused.stderr
    for words, expected in {
        ("c0", "c1", "bench/same.py"): "it holds no kernel (--exec compares scripts that",
        (*same, "sub/same.py"): "2 scripts are called same.py",
    }.items():
        done = cli.run("regress", *words)
        assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), words
        assert expected in done.stderr

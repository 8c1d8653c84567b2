"""``tileyard regress`` with a side that is built already: bundles, and what a recorded run has built."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import CommandLine
from tests.e2e.bare_host import make_bare, run_bare
from tests.e2e.repositories import COPY
from tests.e2e.test_regress_suites import programs

from tileyard.artifacts.collection import Keep, collect

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("cc") is None, reason="its programs are compiled"),
]

KERNELS = (
    """
import numpy as np
import tilelang.language as T
import tileyard

@tileyard.kernel(
    space={"block": [512, 1024]},
    shapes={"one": {"N": 1 << 12}, "two": {"N": %(two)s}},
    reference=lambda A: A * np.float32(2.0) ** %(times)s,
)
def scale(N, block=1024):
    @T.prim_func
    def main(A: T.Tensor((N,), "float32"), B: T.Tensor((N,), "float32")):
        with T.Kernel(T.ceildiv(N, block), threads=128) as bx:
            x = T.alloc_fragment((block,), "float32")
            T.copy(A[bx * block], x)
            for _ in T.serial(%(times)s):
                for i in T.Parallel(block):
                    x[i] = x[i] * 2.0
            T.copy(x, B[bx * block])
    return main
"""
    + COPY.replace("{name}", "%(name)s")
    + COPY.replace("{name}", "same")
)
LIGHT = {"times": 1, "two": 1 << 13, "name": "first"}
HEAVY = {"times": 100, "two": 1 << 14, "name": "second"}
OTHER = {**HEAVY, "times": 1}
"""Nothing of it needs to be timed against ``LIGHT``."""
WORK = 2_000_000
ONE = ("--config", "block=512")


def verdicts(document: dict[str, Any]) -> dict[str, str]:
    """Of each row, by its case."""
    return {row["case"]: row["verdict"] for row in document["rows"]}


@pytest.fixture
def bare(tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """Compares on a host of its own with neither sources, nor a compiler, nor TileLang; what it printed."""
    host = make_bare(tmp_path / "there", ("sh", "cmp"))  # of the check steps

    def compare(status: int, *words: str) -> dict[str, Any]:
        decoded: dict[str, Any] = json.loads(
            run_bare(host, "regress", *words, "--json", status=status)
        )
        return decoded

    return compare


def bundle(cli: CommandLine, what: str, name: str, *options: str) -> str:
    """The path of a bundle of a suite or of a file of kernels."""
    path = str(cli.cwd / f"{name}.tyb")
    done = cli.run("bundle", what, "-o", path, *options)
    assert done.returncode == 0, done.stderr
    return path


def test_two_bundles_are_compared_where_nothing_can_be_built(
    cli: CommandLine, bare: Callable[..., dict[str, Any]]
) -> None:
    """Kernels that are slower, gone, new or the same; one of another size is not timed against the old one."""
    kernels = cli.cwd / "kernels.py"
    kernels.write_text(KERNELS % LIGHT)
    base = bundle(cli, "kernels.py", "base", "--commit", "c0ffee1234567890")
    kernels.write_text(KERNELS % HEAVY)
    head = bundle(cli, "kernels.py", "head")
    kernels.unlink()
    document = bare(1, base, head, "--margin", "15%", "--each", "90s")
    assert verdicts(document) == {
        "scale/two": "failed",
        "first/default": "missing",
        "scale/one": "regressed",
        "second/default": "new",
        "same/default": "unchanged",
    }
    assert document["base"] == f"{base} (c0ffee1234)"
    failed = document["rows"][0]["head_message"]
    assert failed == "cannot be compared: it has N=16384, and on base N=8192"
    (same,) = bare(0, base, head, "--select", "same", "--target", "cpu")["rows"]
    assert same["verdict"] == "unchanged"


def test_files_are_built_beside_a_bundle(cli: CommandLine) -> None:
    """By the same names; of a kernel that was packed config by config, with the arguments and configs of the bundle."""
    kernels = cli.cwd / "kernels.py"
    kernels.write_text(KERNELS % LIGHT)
    suite = bundle(cli, "kernels.py", "suite")
    configs = str(cli.cwd / "configs.tyb")
    asked = ("compile", "kernels.py::scale", "--config", "block=1024", "--shape", "two")
    assert cli.run(*asked, "-o", configs).returncode == 0
    kernels.write_text(KERNELS % OTHER)
    found = cli.run_json("regress", suite, ".", "kernels.py")
    assert verdicts(found) == {
        "first/default": "missing",
        "scale/one": "unchanged",
        "scale/two": "failed",
        "second/default": "new",
        "same/default": "unchanged",
    }
    one = cli.run_json("regress", ".", suite, "kernels.py::same/default")
    assert verdicts(one) == {"same/default": "unchanged"}
    kernels.write_text(KERNELS % HEAVY)
    longer = ("--margin", "15%", "--each", "90s")
    found = cli.run_json("regress", configs, ".", "kernels.py::scale", *longer)
    assert verdicts(found) == {"scale/block=1024": "regressed"}
    timed = {trial["arguments"]["N"] for trial in cli.run_json("trials", "--run", found["run"])}
    assert timed == {1 << 13}


def test_a_recorded_run_is_a_side_as_long_as_its_binaries_are_there(cli: CommandLine) -> None:
    """What was collected as garbage is a row that says so, and the rest is compared."""
    kernels = cli.cwd / "kernels.py"
    kernels.write_text(KERNELS % LIGHT)
    run = cli.run_json("test", "kernels.py")["run"]
    tuned = cli.run_json("tune", "kernels.py::scale", "--shape", "one", *ONE)["run"]
    kernels.write_text(KERNELS % OTHER)
    found = cli.run_json("regress", f"run:{run}", ".", "kernels.py")
    expected = {
        "first/default": "missing",
        "scale/one": "unchanged",
        "scale/two": "failed",
        "second/default": "new",
        "same/default": "unchanged",
    }
    assert verdicts(found) == expected
    kernels.write_text(KERNELS % HEAVY)
    found = cli.run_json("regress", f"run:{tuned}", ".", "kernels.py::scale", "--margin", "15%")
    assert verdicts(found) == {"scale/N=4096,block=512": "regressed"}
    collect(cli.home, Keep(max_bytes=0))
    assert cli.run("test", "kernels.py", "--select", "same").returncode == 0
    done = cli.run("regress", f"run:{run}", ".", "kernels.py", "--json")
    assert done.returncode == 1, done.stderr
    document = json.loads(done.stdout)
    assert verdicts(document) == {
        **expected,
        "first/default": "failed",
        "scale/one": "failed",
    }
    assert document["rows"][0]["base_message"] == (
        f"the binary of run {run} is no longer in the store: `cache collect` removed it"
    )


def test_programs_of_bundles_are_compared(
    cli: CommandLine, bare: Callable[..., dict[str, Any]]
) -> None:
    """On a bare host, and with the working tree; what both sides use alike is not run."""
    bundles = []
    for name, work, start in (("gone", WORK, "0"), ("new", WORK * 3 // 2, "1")):
        shutil.rmtree(cli.cwd / "suite", ignore_errors=True)
        (cli.cwd / "suite").mkdir()
        files = programs({name: WORK, "slow": work, "same": WORK}, start)
        for file, text in files.items():
            (cli.cwd / "suite" / file).write_text(text)
        bundles.append(bundle(cli, "suite", name))
    expected = {"gone/a": "missing", "slow/a": "regressed", "new/a": "new", "same/a": "unchanged"}
    asked = ("--margin", "15%", "--each", "10s")
    beside = cli.run_json("regress", bundles[0], ".", "suite", *asked)
    assert verdicts(beside) == expected
    assert verdicts(cli.run_json("regress", bundles[1], ".", "suite")) == {
        "slow/a": "unchanged",
        "new/a": "unchanged",
        "same/a": "unchanged",
    }
    shutil.rmtree(cli.cwd / "suite")
    assert verdicts(bare(1, *bundles, *asked)) == expected


@pytest.fixture
def packed(cli: CommandLine) -> CommandLine:
    """A bundle of kernels, one of programs, one of a toolchain, and files that are none."""
    (cli.cwd / "kernels.py").write_text(KERNELS % LIGHT)
    (cli.cwd / "suite").mkdir()
    for file, text in programs({"slow": WORK}, "0").items():
        (cli.cwd / "suite" / file).write_text(text)
    bundle(cli, "kernels.py", "kernels", "--select", "same")
    bundle(cli, "suite", "programs")
    (cli.cwd / "tree").mkdir()
    (cli.cwd / "tree" / "tool").touch()
    tools = ("--tree", "tree", "--commit", "c0ffee", "-o", "tools.tyb")
    assert cli.run("bundle", *tools).returncode == 0
    (cli.cwd / "text.tyb").write_text("no bundle")
    return cli


def test_bad_input_is_one_line(packed: CommandLine) -> None:
    """With exit status 2."""
    recorded = packed.run_json("test", "suite")["run"]
    compared = packed.run_json("regress", "kernels.tyb", ".", "kernels.py::same")["run"]
    shutil.copy(packed.cwd / "kernels.py", packed.cwd / "more.py")
    for words, expected in {
        ("gone.tyb", "kernels.tyb"): "cannot read the bundle gone.tyb: No such file",
        ("text.tyb", "kernels.tyb"): "text.tyb is not a sound bundle",
        (
            "tools.tyb",
            "kernels.tyb",
        ): "tools.tyb is a toolchain, and steps of a suite use one (name a suite)",
        ("kernels.tyb", "programs.tyb"): "base is built for cpu and head is built for programs",
        ("kernels.tyb", "."): "kernels.tyb is built: name the FILEs or the suite of the other",
        ("kernels.tyb", "kernels.tyb", "kernels.py"): "FILE has no effect where both sides",
        ("kernels.tyb", ".", "suite"): "base has kernels, and a suite of programs is named",
        (".", "programs.tyb", "kernels.py"): "head has a suite of programs, and kernels is named",
        ("kernels.tyb", ".", "kernels.py::first"): "base has 0 cases and head has 1 case",
        ("kernels.tyb", ".", "kernels.py", "more.py"): "has a case first/default, and so has",
        ("kernels.tyb", ".", "gone.py"): "neither side has a file gone.py",
        ("kernels.tyb", "kernels.tyb", "--select", "scale"): "--select scale matches none",
        ("kernels.tyb", "kernels.tyb", "--target", "cuda:sm_90a"): "--target cuda:sm_90a has no",
        ("programs.tyb", "programs.tyb", "--fail-on", "spills:+0"): "--fail-on has no effect on",
        ("kernels.tyb", "kernels.tyb", "--all-configs"): "--all-configs has no effect",
        ("run:20200101-0000-0000", ".", "kernels.py"): "there is no run 20200101-0000-0000",
        (f"run:{recorded}", ".", "suite"): f"run {recorded} ran programs",
        (f"run:{compared}", ".", "kernels.py"): f"run {compared} is itself a comparison",
    }.items():
        done = packed.run("regress", *words)
        assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), (words, done.stderr)
        assert expected in done.stderr

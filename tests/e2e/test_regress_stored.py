"""``tileyard regress`` with a side that is built already: bundles, and what a recorded run has built."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import ONE_CORE, CommandLine
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


def bundle(cli: CommandLine, what: str, name: str, *options: str) -> None:
    """Make a bundle of a suite or of a file of kernels."""
    done = cli.run("bundle", what, "-o", f"{name}.tyb", *options)
    assert done.returncode == 0, done.stderr


def write_kernels(cli: CommandLine, values: dict[str, Any]) -> None:
    """The file of kernels."""
    (cli.cwd / "kernels.py").write_text(KERNELS % values)


def write_programs(cli: CommandLine, name: str, work: int, start: str) -> None:
    """The suite of programs, one of which has this name, and one does so much."""
    shutil.rmtree(cli.cwd / "suite", ignore_errors=True)
    (cli.cwd / "suite").mkdir()
    files = programs({name: WORK, "slow": work, "same": WORK}, start)
    for file, text in files.items():
        (cli.cwd / "suite" / file).write_text(text)


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> CommandLine:
    """Bundles: of kernels, older, config by config and newer; of programs; of a toolchain; and none."""
    cli = CommandLine(tmp_path_factory.mktemp("stored"))
    write_kernels(cli, LIGHT)
    bundle(cli, "kernels.py", "light", "--commit", "c0ffee1234567890")
    asked = ("compile", "kernels.py::scale", "--config", "block=1024", "--shape", "two")
    assert cli.run(*asked, "-o", "configs.tyb").returncode == 0
    write_kernels(cli, HEAVY)
    bundle(cli, "kernels.py", "heavy")
    for name, work, start in (("gone", WORK, "0"), ("new", WORK * 3 // 2, "1")):
        write_programs(cli, name, work, start)
        bundle(cli, "suite", name)
    (cli.cwd / "tree").mkdir()
    (cli.cwd / "tree" / "tool").touch()
    tools = ("--tree", "tree", "--commit", "c0ffee", "-o", "tools.tyb")
    assert cli.run("bundle", *tools).returncode == 0
    (cli.cwd / "text.tyb").write_text("no bundle")
    return cli


@pytest.mark.sweep(0)  # by default: a recorded run, and bundles of programs
def test_two_bundles_are_compared_where_nothing_can_be_built(
    packed: CommandLine, bare: Callable[..., dict[str, Any]]
) -> None:
    """Kernels that are slower, gone, new or the same; another size is not timed against the old one."""
    (packed.cwd / "kernels.py").unlink()
    base, head = (str(packed.cwd / f"{name}.tyb") for name in ("light", "heavy"))
    document = bare(1, base, head, "--margin", "15%", *ONE_CORE)
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
    asked = ("light.tyb", "heavy.tyb", "--select", "same", "--target", "cpu")
    (same,) = packed.run_json("regress", *asked)["rows"]
    assert same["verdict"] == "unchanged"


def test_files_are_built_beside_a_bundle(packed: CommandLine) -> None:
    """By the same names; a kernel packed by config has the bundle's arguments and configs."""
    write_kernels(packed, OTHER)
    found = packed.run_json("regress", "light.tyb", ".", "kernels.py")
    assert verdicts(found) == {
        "first/default": "missing",
        "scale/one": "unchanged",
        "scale/two": "failed",
        "second/default": "new",
        "same/default": "unchanged",
    }
    one = packed.run_json("regress", ".", "light.tyb", "kernels.py::same/default")
    assert verdicts(one) == {"same/default": "unchanged"}
    write_kernels(packed, HEAVY)
    asked = ("configs.tyb", ".", "kernels.py::scale", "--margin", "15%", *ONE_CORE)
    found = packed.run_json("regress", *asked)
    assert verdicts(found) == {"scale/block=1024": "regressed"}
    timed = {one["arguments"]["N"] for one in packed.run_json("trials", "--run", found["run"])}
    assert timed == {1 << 13}


def test_a_recorded_run_is_a_side_as_long_as_its_binaries_are_there(packed: CommandLine) -> None:
    """What was collected as garbage is a row that says so, and the rest is compared."""
    write_kernels(packed, LIGHT)
    run = packed.run_json("test", "kernels.py")["run"]
    tuned = packed.run_json("tune", "kernels.py::scale", "--shape", "one", *ONE)["run"]
    write_kernels(packed, OTHER)
    found = packed.run_json("regress", f"run:{run}", ".", "kernels.py")
    expected = {
        "first/default": "missing",
        "scale/one": "unchanged",
        "scale/two": "failed",
        "second/default": "new",
        "same/default": "unchanged",
    }
    assert verdicts(found) == expected
    write_kernels(packed, HEAVY)
    asked = (f"run:{tuned}", ".", "kernels.py::scale", "--margin", "15%", *ONE_CORE)
    found = packed.run_json("regress", *asked)
    assert verdicts(found) == {"scale/N=4096,block=512": "regressed"}
    timed = {one["arguments"]["N"] for one in packed.run_json("trials", "--run", found["run"])}
    assert timed == {1 << 12}
    collect(packed.home, Keep(max_bytes=0))
    assert packed.run("test", "kernels.py", "--select", "same").returncode == 0
    done = packed.run("regress", f"run:{run}", ".", "kernels.py", "--json")
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


@pytest.mark.sweep(0)  # by default: test_regress_suites.py
def test_programs_of_bundles_are_compared(
    packed: CommandLine, bare: Callable[..., dict[str, Any]]
) -> None:
    """On a bare host, and with the working tree; what both sides use alike is not run."""
    write_programs(packed, "new", WORK * 3 // 2, "1")
    expected = {"gone/a": "missing", "slow/a": "regressed", "new/a": "new", "same/a": "unchanged"}
    asked = ("--margin", "15%", "--each", "10s")
    beside = packed.run_json("regress", "gone.tyb", ".", "suite", *asked)
    assert verdicts(beside) == expected
    assert verdicts(packed.run_json("regress", "new.tyb", ".", "suite")) == {
        "slow/a": "unchanged",
        "new/a": "unchanged",
        "same/a": "unchanged",
    }
    shutil.rmtree(packed.cwd / "suite")
    bundles = (str(packed.cwd / f"{name}.tyb") for name in ("gone", "new"))
    assert verdicts(bare(1, *bundles, *asked)) == expected


def test_bad_input_is_one_line(packed: CommandLine) -> None:
    """With exit status 2, whether the command's own process finds it or the engine, which opens bundles."""
    write_kernels(packed, OTHER)
    write_programs(packed, "new", WORK, "1")
    recorded = packed.run_json("test", "suite", "--select", "same")["run"]
    compared = packed.run_json("regress", "light.tyb", ".", "kernels.py::same")["run"]
    shutil.copy(packed.cwd / "kernels.py", packed.cwd / "more.py")
    early = {
        ("none.tyb", "light.tyb"): "cannot read the bundle none.tyb: No such file",
        (
            "tools.tyb",
            "light.tyb",
        ): "tools.tyb is a toolchain, and steps of a suite use one (name a suite)",
        ("light.tyb", "."): "light.tyb is built: name the FILEs or the suite of the other",
        ("light.tyb", "light.tyb", "kernels.py"): "FILE has no effect where both sides",
        ("light.tyb", ".", "none.py"): "neither side has a file none.py",
        ("light.tyb", "light.tyb", "--all-configs"): "--all-configs has no effect",
    }
    late = {
        ("text.tyb", "light.tyb"): "text.tyb is not a sound bundle",
        ("light.tyb", "gone.tyb"): "base is built for cpu and head is built for programs",
        ("light.tyb", ".", "suite"): "base has kernels, and a suite of programs is named",
        (".", "gone.tyb", "kernels.py"): "head has a suite of programs, and kernels is named",
        ("light.tyb", ".", "kernels.py::second"): "base has 0 cases and head has 1 case",
        ("light.tyb", ".", "kernels.py", "more.py"): "has a case same/default, and so has",
        ("light.tyb", "light.tyb", "--select", "other"): "--select other matches none",
        ("light.tyb", "light.tyb", "--target", "cuda:sm_90a"): "--target cuda:sm_90a has no",
        ("gone.tyb", "gone.tyb", "--fail-on", "spills:+0"): "--fail-on has no effect on",
        ("light.tyb", "light.tyb", "--fail-on", "spills:+0"): "the target cpu report no figures",
        ("run:20200101-0000-0000", ".", "kernels.py"): "there is no run 20200101-0000-0000",
        (f"run:{recorded}", ".", "suite"): f"run {recorded} ran programs",
        (f"run:{compared}", ".", "kernels.py"): f"run {compared} is itself a comparison",
    }
    for words, expected in (early | late).items():
        run = packed.run_here if words in early else packed.run
        done = run("regress", *words)
        assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), (words, done.stderr)
        assert expected in done.stderr

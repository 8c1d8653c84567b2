"""``--check-sync`` of ``tune`` and ``test``: a config whose synchronization is wrong is not run."""

import json
import subprocess
from pathlib import Path

import pytest
from tests.conftest import ROOT, CommandLine
from tests.e2e.pytest_tree import Tree
from tests.warm_python import warm

pytestmark = pytest.mark.slow

PIPELINES = (ROOT / "examples" / "pipelines.py").read_text(encoding="utf-8")
SOURCE = f"""
import numpy as np
import tileyard

{PIPELINES}

def double(X):
    return X * 2

@tileyard.kernel(space={{"left": [1, 2]}}, shapes={{"small": {{"N": 96}}}}, reference=double)
def doubled(N, left):
    return scale.get_tir(N, left)

__all__ = ["doubled"]
""".replace("def scale(N):", "def scale(N, left):").replace(
    "T.ptx_wait_group(1)", "T.ptx_wait_group(left)"
)


@pytest.fixture
def cli(tmp_path: Path) -> CommandLine:
    """A folder with a kernel of which one config waits for too few copies."""
    (tmp_path / "kernels.py").write_text(SOURCE, encoding="utf-8")
    return CommandLine(tmp_path)


def test_a_config_with_findings_is_not_tuned(cli: CommandLine) -> None:
    """It is not a best one, also where it was measured before; its message is the first finding."""
    unasked = cli.run_json("tune", "kernels.py::doubled", "--no-check-sync")
    assert [one["outcome"] for one in unasked["trials"]] == ["passed", "passed"]
    for options in ((), ("--check-sync",)):
        result = cli.run_json("tune", "kernels.py::doubled", *options)
        right, wrong = sorted(result["trials"], key=lambda trial: trial["config"]["left"])
        assert (right["outcome"], wrong["outcome"]) == ("passed", "runtime_error")
        assert wrong["message"].startswith("read before arrival: kernels.py:")
        assert "x is read at k=0" in wrong["message"]
        assert result["best"]["config"] == {"left": 1}


def test_a_case_with_findings_fails_its_suite(cli: CommandLine) -> None:
    """Unless nobody is to look."""
    text = SOURCE.replace('{"left": [1, 2]}', '{"left": [2]}')
    (cli.cwd / "kernels.py").write_text(
        text.replace("N, left):\n    return", "N, left=2):\n    return")
    )
    done = cli.run("test", "kernels.py", "--json")
    assert done.returncode == 1, done.stderr
    assert "read before arrival" in json.dumps(json.loads(done.stdout))
    assert cli.run("test", "kernels.py", "--no-check-sync").returncode == 0


UNDEFINED = """
import numpy as np
import tilelang.language as T
import tileyard

@tileyard.kernel(space={"block": [32, 64]}, shapes={"s": {"N": 256}}, reference=lambda X: X * 3)
def stale(N, block=32):
    @T.prim_func
    def main(X: T.Tensor((N,), "float32"), Y: T.Tensor((N,), "float32")):
        with T.Kernel(T.ceildiv(N, block), threads=128) as bx:
            f = T.alloc_shared((1,), "float32")
            if bx == 0:
                f[0] = 3.0
            for i in T.Parallel(block):
                Y[bx * block + i] = X[bx * block + i] * f[0]
    return main
"""
"""Results are right on a CPU, where a block finds what another one left in its tile."""


def test_undefined_behaviour_does_not_pass(tmp_path: Path) -> None:
    """Of kernels without asynchronous operations, in ``tune``, ``test`` and ``run``, unless turned off."""
    cli = CommandLine(tmp_path)
    (tmp_path / "stale.py").write_text(UNDEFINED, encoding="utf-8")
    reason = "uninitialised: stale.py:15: f is read, and nothing has written there"
    tuned = cli.run_json("tune", "stale.py")
    assert {one["outcome"] for one in tuned["trials"]} == {"runtime_error"}
    assert all(one["message"].startswith(reason) for one in tuned["trials"])
    for verb in ("test", "run"):
        done = cli.run(verb, "stale.py", "--json")
        assert (done.returncode, reason in done.stdout) == (1, True), done.stderr
    assert "uninitialised" not in cli.run("run", "stale.py", "--no-check-sync").stdout


SCRIPT = f"""
import sys
import torch
{PIPELINES}

kernel = scale(96)
x = torch.ones(96, device="cuda")
print(float(kernel(x).sum()))
if sys.argv[1:]:
    sys.exit(int(sys.argv[1]))
"""


@pytest.mark.parametrize(("own", "expected"), [("0", 1), ("5", 5)])
def test_the_kernels_of_a_script_are_checked(cli: CommandLine, own: str, expected: int) -> None:
    """The script runs as ever; where it ends well, mistakes are its exit status."""
    wrong = SCRIPT.replace("T.ptx_wait_group(1)", "T.ptx_wait_group(2)")
    (cli.cwd / "script.py").write_text(wrong, encoding="utf-8")
    done = run_script(cli, "--check-sync", "script.py", own)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (expected, "192.0")
    assert "x is read at k=0" in done.stderr
    assert "main: 2 mistakes in 1 of 1 block" in done.stderr


LONG = """
import tilelang
import tilelang.language as T

@T.prim_func
def main(A: T.Tensor((64,), "float32")):
    with T.Kernel(1, threads=64) as _:
        while A[0] > -1.0:
            A[0] = A[0] * 0.5

tilelang.compile(main)
"""
"""Nothing ends this loop, and nobody runs it."""


def test_a_script_without_mistakes_keeps_its_status(cli: CommandLine) -> None:
    """It states what was checked; unasked, notes are about mistakes, and one about what was not checked."""
    (cli.cwd / "wrong.py").write_text(SCRIPT.replace("T.ptx_wait_group(1)", "T.ptx_wait_group(2)"))
    noted = run_script(cli, "wrong.py", "0")
    assert (noted.returncode, noted.stderr.count("note: ")) == (0, 2), noted.stderr
    assert "x is read at k=0" in noted.stderr
    (cli.cwd / "script.py").write_text(SCRIPT, encoding="utf-8")
    assert "note: " not in run_script(cli, "script.py", "0").stderr
    (cli.cwd / "long.py").write_text(LONG, encoding="utf-8")
    note = (
        "note: 1 kernel not checked for races and undefined accesses: main: the check takes "
        "longer than 1 s"
    )
    assert note in run_script(cli, "long.py").stderr
    done = run_script(cli, "--check-sync", "script.py", "0")
    assert done.returncode == 0, done.stderr
    assert "main: no mistakes in 1 of 1 block" in done.stderr


NUMBERS = """
import tilelang
import tilelang.language as T
import torch

@tilelang.jit(out_idx=[3])
def gather(size):
    @T.prim_func
    def main(
        count: T.Tensor((1,), "int32"),
        places: T.Tensor((4,), "int32"),
        X: T.Tensor((size,), "float32"),
        Y: T.Tensor((4,), "float32"),
    ):
        with T.Kernel(1, threads=32) as _:
            x = T.alloc_shared((size,), "float32")
            for i in T.serial(count[0]):
                x[i] = X[i]
            for i in T.serial(4):
                Y[i] = x[places[i]]

    return main

gather(2)
for size, count in ((3, 3), (4, 3)):
    numbers = [torch.tensor(one, dtype=torch.int32) for one in ([count], [size - 1, 0, 1, 2])]
    gather(size)(*numbers, torch.ones(size))
"""


def test_numbers_that_decide_are_those_of_the_first_launch(cli: CommandLine) -> None:
    """A kernel that was not launched has none, and random ones would be mistakes of the check."""
    (cli.cwd / "script.py").write_text(NUMBERS, encoding="utf-8")
    done = run_script(cli, "script.py")
    assert done.returncode == 0, done.stderr
    found, left = [line for line in done.stderr.splitlines() if line.startswith("note: ")]
    assert "x is read at i_1=0, " in found
    assert "main: what it does depends on the numbers in count, places" in left
    asked = run_script(cli, "--check-sync", "script.py")
    assert asked.returncode == 1, asked.stderr
    assert asked.stderr.count("main: no mistakes in 1 of 1 block") == 1
    assert asked.stderr.count("x is read at i_1=0, ") == 1
    assert "main: not checked: what it does depends on the numbers in count, places" in asked.stderr


def run_script(cli: CommandLine, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run ``tileyard exec``."""
    return warm("tileyard.__main__").run(("exec", *arguments), cli.cwd, cli.environment())


def test_a_marker_of_pytest_asks_for_the_check(tmp_path: Path) -> None:
    """A kernel with mistakes fails its test before anything runs, also if nobody asked, and no other test."""
    tree = Tree(tmp_path)
    wrong = PIPELINES.replace("T.ptx_wait_group(1)", "T.ptx_wait_group(2)")
    tests = """
        import numpy as np, pytest
        from wrong import scale as bad
        from right import scale as good

        @pytest.mark.tile_kernel(kernel=bad, N=96, check_sync=True)
        def test_wrong(tile_kernel):
            pass

        @pytest.mark.tile_kernel(kernel=bad.get_tir(N=96), out_idx=[1], check_sync=True)
        def test_wrong_func(tile_kernel):
            pass

        @pytest.mark.tile_kernel(kernel=bad, N=96)
        def test_wrong_unasked(tile_kernel):
            pass

        @pytest.mark.tile_kernel(kernel=bad, N=96, check_sync=False)
        def test_unchecked(tile_kernel):
            pass

        @pytest.mark.tile_kernel(kernel=good, N=96, check_sync=True)
        def test_right(tile_kernel):
            pass

        @pytest.mark.tile_kernel(kernel=good.get_tir(N=96), out_idx=[1], check_sync=True)
        def test_right_func(tile_kernel):
            pass
    """
    tree.write(wrong=wrong, right=PIPELINES, test_it=tests)
    ran = tree.run()
    names = ("wrong", "wrong_func", "wrong_unasked", "unchecked", "right", "right_func")
    outcomes = {name: ran.outcome(f"::test_{name}") for name in names}
    assert [name for name, outcome in outcomes.items() if outcome == "passed"] == list(names[3:])
    assert "its check: read before arrival: " in ran.message("::test_wrong")
    assert "x is read at k=0" in ran.message("::test_wrong_func")

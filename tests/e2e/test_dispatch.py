"""Tuned kernels as functions: the config that won for a shape, a default for others, in many processes at once."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import CommandLine

pytestmark = pytest.mark.slow

KERNEL = """
import tilelang.language as T
import tileyard


@tileyard.kernel(space={"block": [32, 64]}, shapes={"usual": {"M": 4, "N": 128}}, reference=lambda A: A * 2)
def double(M, N, block=32):
    @T.prim_func
    def main(A: T.Tensor((M, N), "float32"), B: T.Tensor((M, N), "float32")):
        with T.Kernel(M, T.ceildiv(N, block), threads=32) as (bx, by):
            for i in T.Parallel(block):
                B[bx, by * block + i] = A[bx, by * block + i] * 2

    return main
"""

SCRIPT = """
import os
import sys

import numpy as np
import tileyard
from double import double

known, new = np.ones((4, 128), np.float32), np.ones((4, 512), np.float32)
tuned = tileyard.tuned(double, default={"block": 16})
assert tuned.choose(known)[1]["block"] in (32, 64) and (tuned(known) == 2).all() and tuned.built == 0

# Many processes at once ask for a kernel that nobody has built.
read, write = os.pipe()
for _ in range(int(sys.argv[1])):
    if os.fork() == 0:
        assert (tuned(new) == 2).all()
        os.write(write, bytes([tuned.built]))
        os._exit(0)
ended = [os.wait()[1] for _ in range(int(sys.argv[1]))]
built = os.read(read, 1000)
assert set(ended) == {0} and len(built) == len(ended), ended
print("built", sum(built), "in", len(built))

strict = tileyard.tuned(double)
try:
    strict(new)
except tileyard.TileyardError as error:
    print(error)
"""

STUDY = """
import numpy as np
import tileyard
from double import double

study = tileyard.tune(double, arg={"M": 2})
kernel = study.dispatch(default={"block": 64}, arguments=lambda A: {"M": A.shape[0], "N": A.shape[1]})
assert (kernel(np.ones((3, 64), np.float32)) == 2).all() and kernel.built == 1
study.export("winner.json")
"""


def python(cli: CommandLine, folder: Path, text: str, *arguments: str) -> str:
    """Run a script beside the kernel; what it prints. It must end well."""
    (folder / "double.py").write_text(KERNEL)
    (folder / "script.py").write_text(text)
    done = subprocess.run(
        [sys.executable, "script.py", *arguments],
        cwd=folder,
        env=cli.environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_tuned_kernels_run_with_what_was_found_and_one_process_builds(
    cli: CommandLine, tmp_path: Path
) -> None:
    """A shape that was tuned is loaded; of a new one that many processes ask for at once there is one build."""
    (tmp_path / "double.py").write_text(KERNEL)
    assert cli.run("tune", str(tmp_path / "double.py")).returncode == 0
    built, refused = python(cli, tmp_path, SCRIPT, "8").splitlines()
    assert built == "built 1 in 8"
    assert refused.startswith("no config of double is known for float32[4, 512] on ")


def test_choices_move_to_another_home(cli: CommandLine, tmp_path: Path) -> None:
    """A study dispatches shapes of its own and others; what it exports is imported whole, or not at all."""
    python(cli, tmp_path, STUDY)
    exported = cli.run("export", "double").stdout
    assert exported == (tmp_path / "winner.json").read_text()
    table: dict[str, Any] = {}
    exec(cli.run("export", "--form", "python").stdout, table)
    (configs,) = table["CONFIGS"].values()
    assert list(configs) == [("double", (("M", 2), ("N", 128)))]
    other = {"TILEYARD_HOME": str(tmp_path / "other")}
    refused = cli.run("export", **other)
    assert (refused.returncode, "no winner is recorded" in refused.stderr) == (2, True)
    done = cli.run("import", "winner.json", **other)
    assert (done.returncode, done.stdout.split()[:3]) == (0, ["1", "choice", "imported"])
    assert cli.run("export", **other).stdout == exported
    for name in ("script.py", "absent.json"):
        assert cli.run("import", name, **other).returncode == 2

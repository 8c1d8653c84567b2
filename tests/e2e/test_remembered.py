"""A second run knows what the first one was told: the kernel file is not even imported."""

from pathlib import Path

import pytest
from tests.conftest import CommandLine

pytestmark = pytest.mark.slow

KERNELS = """
import tilelang.language as T
import tileyard
from pathlib import Path
from pieces import operation

with Path(__file__).with_name("imports.log").open("a") as log:
    log.write("imported\\n")

def reference(A):
    with (Path(__file__).parent / "calls.log").open("a") as log:
        log.write("called\\n")
    return operation(A)

@tileyard.kernel(space={"block": [32]}, reference=reference)
def kernel(M=256, block=32):
    print("elaborated with", block)
    @T.prim_func
    def main(A: T.Tensor((M,), "float32"), B: T.Tensor((M,), "float32")):
        with T.Kernel(M // block, threads=block) as bx:
            for i in T.Parallel(block):
                B[bx * block + i] = operation(A[bx * block + i])
    return main
"""


def write(folder: Path, name: str, text: str) -> None:
    """One of the user's files."""
    (folder / name).write_text(text, encoding="utf-8")


def test_a_second_run_imports_nothing(cli: CommandLine) -> None:
    """The answers are known, with their output; a changed helper asks again, and --fresh makes all anew."""

    def imports_after() -> int:
        result = cli.run_json("tune", "mine.py", "--target", "scripted")
        assert {trial["outcome"] for trial in result["trials"]} == {"passed"}
        logs = [(cli.home / trial["log"]).read_text() for trial in result["trials"]]
        assert all("elaborated with" in log for log in logs)
        return len((cli.cwd / "imports.log").read_text().splitlines())

    cli.env["TILEYARD_PLUGINS"] = "scripted=tileyard.testing.doubles.scripted:ScriptedTarget"
    write(cli.cwd, "mine.py", KERNELS)
    write(cli.cwd, "pieces.py", "def operation(x):\n    return x + x\n")
    seen = [imports_after(), imports_after()]
    write(cli.cwd, "pieces.py", "def operation(x):\n    return x + x + x\n")
    seen.append(imports_after())
    expected = [1, 1, 2]
    assert seen == expected

    def count_calls() -> int:
        return len((cli.cwd / "calls.log").read_text().splitlines())

    before = count_calls()
    cli.run_json("run", "mine.py", "--target", "scripted", "--fresh")
    assert count_calls() == before + 1

"""``tileyard passes``: what passes make of a kernel, as people and programs read it."""

import json
from pathlib import Path

import pytest
from tests.conftest import KERNELS, CommandLine
from tests.own_authors import OwnCommandLine

pytestmark = pytest.mark.slow

SOURCE = (KERNELS / "gemm.py").read_text(encoding="utf-8")
MINE = """
[[passes]]
name = "plan-pipeline"
architecture = "sm_80"
[[passes]]
name = "version-buffers"
"""
BAD = """
import tilelang
import tilelang.language as T


@tilelang.jit
def loops(order=(2, 0, 1), stage=(2, 0, 0), stages=2):
    @T.prim_func
    def main(A: T.Tensor((64, 128), "float16"), C: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128) as _:
            a = T.alloc_shared((64, 64), "float16")
            b = T.alloc_shared((64, 64), "float16")
            c = T.alloc_fragment((64, 64), "float32")
            T.annotate_layout({b: T.Layout((64, 64), lambda i, j: [i - i, j])})
            T.clear(c)
            for k in T.Pipelined(2, num_stages=stages, order=[*order], stage=[*stage]):
                T.copy(A[:, k * 64 : k * 64 + 64], a)
                T.copy(a, b)
                T.gemm(a, b, c)
            T.copy(c, C)

    return main


@tilelang.jit
def large(stages=8):
    @T.prim_func
    def main(A: T.Tensor((128, 1024), "float16"), C: T.Tensor((128, 128), "float32")):
        with T.Kernel(1, threads=128) as _:
            a = T.alloc_shared((128, 128), "float16")
            c = T.alloc_fragment((128, 128), "float32")
            T.clear(c)
            for k in T.Pipelined(8, num_stages=stages):
                T.copy(A[:, k * 128 : k * 128 + 128], a)
                T.gemm(a, a, c)
            T.copy(c, C)

    return main
"""
SIZES = ("--arg", "M=64", "--arg", "N=64", "--arg", "K=100")


@pytest.fixture(scope="module")
def cli(tmp_path_factory: pytest.TempPathFactory) -> OwnCommandLine:
    """A folder with products of matrices."""
    folder = tmp_path_factory.mktemp("place")
    (folder / "gemm.py").write_text(SOURCE, encoding="utf-8")
    (folder / "bad.py").write_text(BAD, encoding="utf-8")
    (folder / "mine.toml").write_text(MINE, encoding="utf-8")
    (folder / "wrong.toml").write_text('[[passes]]\nname = "inject-pipeline"\n', encoding="utf-8")
    return OwnCommandLine(folder)


def line_of(text: str) -> int:
    """Where a text is in the kernel's file first."""
    return SOURCE[: SOURCE.index(text)].count("\n") + 1


def test_each_step_is_shown_and_checked(cli: CommandLine) -> None:
    """With the lines of the user's file, and a last line that says what the check found."""
    done = cli.run("passes", "gemm.py::gemm", *SIZES, "--config", "num_stages=3", "--verify")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    heads = [line for line in lines if line.startswith("----")]
    assert heads == [
        "---- written ----",
        "---- find-copies ----",
        "---- annotate-instructions ----",
        "---- plan-pipeline ----",
        "---- version-buffers ----",
        "---- inject-pipeline ----",
        "---- infer-shared-layouts ----",
    ]
    assert (
        f"            copy(A[by * 64 : +64, k * 32 : +32], A_shared)  # line {line_of('T.copy(A')}"
        in lines
    )
    assert lines[-1] == "gemm num_stages=3: 7 steps, all with the same results and no mistakes"


def test_changes_of_one_pass_are_shown(cli: CommandLine) -> None:
    """What it adds and removes, and nothing of other steps."""
    done = cli.run(
        "passes", "gemm.py::gemm", *SIZES, "--after", "version-buffers", "--diff"
    ).stdout.splitlines()
    assert done[0] == "---- version-buffers ----"
    assert "+    A_shared: shared.float32[2, 64, 32]" in done
    assert "-    A_shared: shared.float32[64, 32]" in done


def test_reasons_have_their_lines(cli: CommandLine, tmp_path: Path) -> None:
    """Also in the document for programs; from a process as a shell starts it."""
    cli = CommandLine(cli.cwd, {"TILEYARD_HOME": str(tmp_path / "home")})
    sizes = ("--arg", "M=64", "--arg", "N=63", "--arg", "K=64", "--config", "dtype=float16")
    shown = cli.run("passes", "gemm.py::gemm", *sizes, "--after", "plan-pipeline")
    place = f"gemm.py:{line_of('T.copy(B')}"
    said = "not asynchronous: cp.async moves 4, 8 or 16 aligned bytes, and B has 2 in a row here"
    assert shown.stdout.splitlines()[1].endswith(f"{place}: {said}")
    document = json.loads(cli.run("passes", "gemm.py::gemm", *sizes, "--json").stdout)
    (note,) = document["steps"][3]["notes"]
    assert note["message"] == said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ("gemm.py::gemm", "--pipeline", "sm_1"),
            "there is no pipeline 'sm_1' (pipelines: none, sm_80, sm_90a, tilelang, and files .toml)",
        ),
        (
            ("gemm.py::gemm", "--target", "cpu"),
            "--target cpu: passes are for cuda:ARCH, as cuda:sm_80",
        ),
        (
            ("gemm.py::gemm", "--pipeline", "wrong.toml"),
            "wrong.toml: pass 1, inject-pipeline: it must follow plan-pipeline",
        ),
        (
            ("gemm.py::gemm", "--after", "inline"),
            "the pipeline sm_80 has no pass 'inline' (it has written, find-copies, "
            "annotate-instructions, plan-pipeline, version-buffers, inject-pipeline, infer-shared-layouts)",
        ),
        (
            ("gemm.py::gemm", "--config", "num_stages=1,2"),
            "--config num_stages has several values: passes takes one config",
        ),
        (("none.py::gemm",), "there is no file none.py"),
    ],
)
def test_bad_usage_is_one_line(cli: CommandLine, arguments: tuple[str, ...], said: str) -> None:
    """It says what is wrong, and what there is."""
    done = cli.run("passes", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"tileyard: {said}\n"


def test_a_pipeline_of_the_users_own_runs(cli: CommandLine) -> None:
    """With its options, and the time that each pass takes."""
    shown = cli.run("passes", "gemm.py::gemm", *SIZES, "--pipeline", "mine.toml", "--time").stdout
    heads = [line.partition(" (") for line in shown.splitlines() if line.startswith("----")]
    assert [head for head, _, _ in heads] == [
        "---- written ----",
        "---- plan-pipeline",
        "---- version-buffers",
    ]
    assert all(time.endswith(" ms) ----") for _, _, time in heads[1:])


def test_the_plan_of_tilelang_is_a_step(cli: CommandLine) -> None:
    """For the target, and held against the kernel as it is written."""
    options = ("--pipeline", "tilelang", "--target", "cuda:sm_90a", "--verify")
    shown = cli.run("passes", "gemm.py::gemm", *SIZES, *options).stdout.splitlines()
    assert [line for line in shown if line.startswith("----")][1:] == ["---- tilelang ----"]
    assert any("init_barrier" in line for line in shown)
    assert shown[-1].endswith("2 steps, all with the same results and no mistakes")


@pytest.mark.parametrize(
    ("kernel", "statement", "said"),
    [
        (
            "loops",
            "T.copy(a, b)",
            "cannot run ahead, and the schedule of the loop says that it does",
        ),
        (
            "large",
            "for k in T.Pipelined(8",
            "not pipelined: 8 stages take 262144 bytes of shared memory, and a block has 166912",
        ),
        (
            "loops",
            "T.copy(a, b)",
            "the layout that b is given puts two elements at one place",
        ),
    ],
)
def test_what_cannot_be_followed_has_its_line(
    cli: CommandLine, kernel: str, statement: str, said: str
) -> None:
    """A schedule that breaks a dependence, stages that do not fit, a layout that lacks a place."""
    shown = cli.run("passes", f"bad.py::{kernel}", "--target", "cuda:sm_80")
    line = BAD[: BAD.index(statement)].count("\n") + 1
    assert shown.returncode == 0
    found = [one for one in shown.stdout.splitlines() if one.endswith(said)]
    assert len(found) == 1
    assert found[0].endswith(f"bad.py:{line}: {said}")

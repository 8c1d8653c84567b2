"""``tileyard passes``: what passes make of a kernel, as people and programs read it."""

import json
from pathlib import Path

import pytest
from tests.conftest import KERNELS, CommandLine

pytestmark = pytest.mark.slow

SOURCE = (KERNELS / "gemm.py").read_text(encoding="utf-8")
SIZES = ("--arg", "M=64", "--arg", "N=64", "--arg", "K=100")


@pytest.fixture
def cli(tmp_path: Path) -> CommandLine:
    """A folder with products of matrices."""
    (tmp_path / "gemm.py").write_text(SOURCE, encoding="utf-8")
    return CommandLine(tmp_path)


def line_of(text: str) -> int:
    """Where a text is in the kernel's file first."""
    return SOURCE[: SOURCE.index(text)].count("\n") + 1


def test_each_step_is_shown_and_checked(cli: CommandLine) -> None:
    """With the lines of the user's file, and a last line that says what the check found."""
    done = cli.run("passes", "gemm.py::gemm", *SIZES, "--config", "num_stages=3", "--check")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    heads = [line for line in lines if line.startswith("----")]
    assert heads == [
        "---- written ----",
        "---- find-copies ----",
        "---- plan-pipeline ----",
        "---- version-buffers ----",
        "---- inject-pipeline ----",
    ]
    assert (
        f"            copy(A[by * 64 : +64, k * 32 : +32], A_shared)  # line {line_of('T.copy(A')}"
        in lines
    )
    assert lines[-1] == "gemm num_stages=3: 5 steps, all with the same results and no mistakes"


def test_changes_of_one_pass_are_shown(cli: CommandLine) -> None:
    """What it adds and removes, and nothing of other steps."""
    done = cli.run(
        "passes", "gemm.py::gemm", *SIZES, "--after", "version-buffers", "--diff"
    ).stdout.splitlines()
    assert done[0] == "---- version-buffers ----"
    assert "+    A_shared: shared.float32[2, 64, 32]" in done
    assert "-    A_shared: shared.float32[64, 32]" in done


def test_reasons_have_their_lines(cli: CommandLine) -> None:
    """Also in the document for programs."""
    sizes = ("--arg", "M=64", "--arg", "N=63", "--arg", "K=64", "--config", "dtype=float16")
    shown = cli.run("passes", "gemm.py::gemm", *sizes, "--after", "plan-pipeline")
    place = f"gemm.py:{line_of('T.copy(B')}"
    said = "not asynchronous: cp.async moves 4, 8 or 16 aligned bytes, and B has 2 in a row here"
    assert shown.stdout.splitlines()[1].endswith(f"{place}: {said}")
    document = json.loads(cli.run("passes", "gemm.py::gemm", *sizes, "--json").stdout)
    (note,) = document["steps"][2]["notes"]
    assert note["message"] == said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ("gemm.py::gemm", "--pipeline", "sm_1"),
            "there is no pipeline 'sm_1' (there are none, sm_80)",
        ),
        (
            ("gemm.py::gemm", "--after", "inline"),
            "the pipeline sm_80 has no pass 'inline' (it has written, find-copies, plan-pipeline, version-buffers, inject-pipeline)",
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

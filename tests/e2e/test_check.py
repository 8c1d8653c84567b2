"""``tileyard check``: mistakes in synchronization, as people and programs read them."""

import json
from pathlib import Path

import pytest
from tests.conftest import ROOT, CommandLine
from tests.own_authors import OwnCommandLine

pytestmark = pytest.mark.slow

SOURCE = (ROOT / "examples" / "pipelines.py").read_text(encoding="utf-8")
LARGE = ("--arg", "M=4096", "--arg", "N=4096", "--arg", "K=4096")
SIZES = ("--arg", "M=48", "--arg", "N=32", "--arg", "K=96")

SPACE = """
import tileyard
from pipelines import scale

@tileyard.kernel(space={"blocks": [1, 6]}, where=lambda N, blocks: blocks > 1, shapes={"small": {"N": 96}})
def spaced(N, blocks):
    print("hello")
    assert blocks == 6
    return scale.get_tir(N)
"""

WORDS = """
import tilelang
from pipelines import scale

@tilelang.jit
def worded(N, word: str):
    return scale.get_tir(N)
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> OwnCommandLine:
    """A folder in which what was asked about the same files is answered."""
    return OwnCommandLine(tmp_path_factory.mktemp("place"))


@pytest.fixture
def cli(place: OwnCommandLine) -> OwnCommandLine:
    """The folder with the pipelines."""
    for file in place.cwd.glob("*.py"):
        file.unlink()
    (place.cwd / "pipelines.py").write_text(SOURCE, encoding="utf-8")
    return place


def test_a_correct_pipeline_passes(cli: CommandLine) -> None:
    """And how much was checked: small sizes for empty, short and long pipelines, standing for others."""
    done = cli.run("check", "pipelines.py::gemm", *LARGE)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "gemm: no mistakes in 48 of 48 blocks of 12 shapes",
        "    shapes: M=24, 32; N=24, 32; K=0, 16, 32, 48, 64, 80, 96, 112, 128, 224",
        "    the loop of line 32 is checked for every trip count: its state recurs every 3 iterations",
    ]


def test_sizes_need_not_be_given(cli: CommandLine) -> None:
    """The ones that are missing are found by trying; a document names each instance."""
    found = json.loads(cli.run("check", "pipelines.py::gemm", "--arg", "M=32", "--json").stdout)
    (checked,) = found["kernels"]
    assert {"M": 32, "N": 24, "K": 32} in checked["instances"]
    assert checked["trips"]["32"] == [0, 1, 2, 3, 4, 5, 6, 7, 8, 14]
    assert checked["periods"] == {"32": 3}
    (cli.cwd / "words.py").write_text(WORDS, encoding="utf-8")
    done = cli.run("check", "words.py")
    assert (done.returncode, done.stdout) == (2, "")
    assert "worded needs a value for N, word (give it with --arg N=VALUE" in done.stderr


def test_a_mistake_has_both_lines_and_the_missing_wait(cli: CommandLine, tmp_path: Path) -> None:
    """One line that editors can follow, and one with the way out: from a process as a shell starts it."""
    text = SOURCE.replace("T.ptx_wait_group(2)", "T.ptx_wait_group(3)")
    (cli.cwd / "pipelines.py").write_text(text, encoding="utf-8")
    shell = CommandLine(cli.cwd, {"TILEYARD_HOME": str(tmp_path / "home")})
    done = shell.run("check", "pipelines.py::gemm", *SIZES)
    assert done.returncode == 1
    path = cli.cwd / "pipelines.py"
    assert done.stdout.splitlines()[:2] == [
        f"{path}:46: b is read at k=0 before the copy of line 29 at p=0 has arrived (block 0, 0 "
        f"of M=32, N=32, K=32) [read-before-arrival]",
        "    the wait of line 34 at k=0 leaves 3 groups: T.ptx_wait_group(2) would cover it, or "
        "the stage is wrong",
    ]
    assert "gemm: 2 mistakes in 42 of 42 blocks of 10 shapes" in done.stdout.splitlines()
    found = json.loads(cli.run("check", "pipelines.py::gemm", *SIZES, "--json").stdout)
    assert [finding["wait"]["line"] for finding in found["kernels"][0]["findings"]] == [34, 34]
    instances = [finding["instance"] for finding in found["kernels"][0]["findings"]]
    assert instances == ["M=32, N=32, K=32", "M=32, N=32, K=64"]


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (
            "T.ptx_wait_group(1)",
            "pass",
            "no wait comes between: T.ptx_wait_group(1) is missing, or the stage is wrong",
        ),
        (
            "                T.ptx_commit_group()\n            for k",
            "            for k",
            "it is in no group: T.ptx_commit_group() is missing before the wait",
        ),
    ],
)
def test_what_is_missing_is_named(cli: CommandLine, before: str, after: str, said: str) -> None:
    """A wait, with its count, or a commit."""
    assert SOURCE.count(before) == 1
    (cli.cwd / "pipelines.py").write_text(SOURCE.replace(before, after), encoding="utf-8")
    done = cli.run("check", "pipelines.py::scale", "--arg", "N=96")
    assert done.returncode == 1
    assert done.stdout.splitlines()[1].strip() == said


def test_a_plan_of_tilelangs_is_checked_against_what_is_written(cli: CommandLine) -> None:
    """Right as written, wrong as it is pipelined; the first finding says which dependence is lost."""
    text = (ROOT / "tests" / "sync" / "public.py").read_text(encoding="utf-8")
    (cli.cwd / "public.py").write_text(text, encoding="utf-8")
    kernel = ("public.py::store_then_read", "--arg", "steps=3")
    assert cli.run("check", *kernel).returncode == 0
    done = cli.run("check", *kernel, "--pipeline", "tilelang:sm_80")
    lines = text.splitlines()
    copy, store = (
        1
        + next(
            n
            for n, line in enumerate(lines)
            if n > lines.index("def store_then_read(steps):") and word in line
        )
        for word in ("T.copy(", "+= tile")
    )
    assert done.returncode == 1
    assert done.stdout.splitlines()[0] == (
        f"{cli.cwd / 'public.py'}:{copy}: G is read in execution 2 of this line with what was "
        f"there before; as the kernel is "
        f"written, with what line {store} wrote in its execution 1 (block 0 of steps=2) "
        f"[dependence-reordered]"
    )


def test_the_config_and_the_shape_are_the_first_ones(cli: CommandLine) -> None:
    """Of the space, as far as it accepts them; what the user's code prints is not a result."""
    (cli.cwd / "spaced.py").write_text(SPACE, encoding="utf-8")
    done = cli.run("check", "spaced.py::spaced")
    assert done.returncode == 0
    assert done.stdout.startswith("spaced blocks=6: no mistakes in 10 of 10 blocks of 10 shapes\n")


def test_what_is_not_checked_is_named(cli: CommandLine) -> None:
    """Nothing is called right that was not looked at."""
    text = SOURCE.replace(
        "                T.ptx_wait_group(1)\n                for i in T.Parallel(BLOCK):\n",
        "                for i in T.Parallel(BLOCK):\n                    T.ptx_wait_group(1)\n",
    )
    (cli.cwd / "pipelines.py").write_text(text, encoding="utf-8")
    done = cli.run("check", "pipelines.py::scale", "--arg", "N=96")
    assert done.returncode == 0
    line = 1 + next(n for n, words in enumerate(text.splitlines()) if "ptx_wait_group(1)" in words)
    assert done.stdout.splitlines() == [
        f"not checked: {cli.cwd / 'pipelines.py'}:{line}: ptx_wait_group by single threads is not checked",
        "scale: nothing was checked",
    ]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["nowhere.py"], "there is no file nowhere.py"),
        (
            ["pipelines.py::gem", *SIZES],
            "'gem' (there are: gemm, scale, permute; did you mean gemm?)",
        ),
        (["pipelines.py::gemm", "--shape", "big"], "gemm has no shape 'big' (it has: none)"),
        (
            ["pipelines.py::scale", "--pipeline", "nvcc"],
            "--pipeline nvcc: either written or tilelang[:ARCH], as tilelang:sm_80",
        ),
        (
            ["pipelines.py::scale", "--arg", "N=96", "--pipeline", "tilelang:sm"],
            "scale cannot be checked: there is no architecture 'sm' (as sm_80 or sm_90a)",
        ),
    ],
)
def test_bad_usage_is_one_line(cli: CommandLine, arguments: list[str], line: str) -> None:
    """With exit status 2."""
    done = cli.run("check", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.strip().endswith(line)
    assert len(done.stderr.splitlines()) == 1


def test_a_file_that_ends_its_process_ends_no_command(tmp_path: Path) -> None:
    """The user's code lives in a process of its own."""
    (tmp_path / "wild.py").write_text("import os\nos._exit(3)\n", encoding="utf-8")
    done = CommandLine(tmp_path).run("check", "wild.py")
    assert (done.returncode, done.stdout) == (2, "")
    assert "the kernel file's process " in done.stderr

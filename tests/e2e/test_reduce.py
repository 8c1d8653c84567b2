"""``tileyard reduce``: planted failures cut down, and what is not a failure."""

import re
import shutil
from pathlib import Path

import pytest
from tests.conftest import ROOT, CommandLine
from tests.own_authors import OwnCommandLine
from tests.reduction.planted import FOLDER, IMPORT, LARGE, PLANTED

from tileyard.ir.printer import print_program
from tileyard.ir.reader import read_program

pytestmark = pytest.mark.slow

MOST = 10
SMALL = """
import tilelang
import tilelang.language as T


@tilelang.jit(out_idx=[1])
def backward(length):
    @T.prim_func
    def main(A: T.Tensor((length,), "float32"), B: T.Tensor((length,), "float32")):
        with T.Kernel(1, threads=32) as _:
            x = T.alloc_fragment((length,), "float32")
            y = T.alloc_fragment((length,), "float32")
            T.copy(A, x)
            T.clear(y)
            for i in T.Parallel(length):
                y[i] = T.abs(x[i])
            for i in T.Parallel(length):
                x[i] = y[i] + x[i]
            T.copy(x, B)

    return main
"""


@pytest.fixture
def cli(tmp_path: Path) -> CommandLine:
    """A folder with the large kernels, and the pipelines with mistakes."""
    shutil.copy(LARGE, tmp_path)
    shutil.copy(FOLDER / "spoiled.py", tmp_path)
    cli = CommandLine(tmp_path)
    cli.env["TILEYARD_PLUGINS"] = "wrong=tests.reduction.wrong_target:WrongTarget"
    cli.env["PYTHONPATH"] = f"{ROOT / 'src'}:{ROOT}"
    return cli


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> OwnCommandLine:
    """A folder with a kernel, and one with a mistake, where what was asked about them is answered."""
    folder = tmp_path_factory.mktemp("own")
    (folder / "small.py").write_text(SMALL, encoding="utf-8")
    pipelines = (ROOT / "examples" / "pipelines.py").read_text(encoding="utf-8")
    wrong = pipelines.replace("T.ptx_wait_group(1)", "T.ptx_wait_group(2)")
    assert wrong != pipelines
    (folder / "wrong.py").write_text(wrong, encoding="utf-8")
    return OwnCommandLine(folder)


@pytest.mark.sweep(1)
@pytest.mark.parametrize(
    ("name", "again", "said"),
    [
        pytest.param("wait missing", "check", "[read-before-arrival]", id="missing"),
        pytest.param("operation not supported", "compile", "copy within more", id="not supported"),
    ],
)
def test_a_planted_failure_is_cut_down(cli: CommandLine, name: str, again: str, said: str) -> None:
    """To at most ten of over sixty statements, with the one in question; the printed kernel fails too."""
    planted = PLANTED[name]
    (cli.cwd / "large.py").write_text(planted.text(), encoding="utf-8")
    done = cli.run(*planted.arguments)
    assert (done.returncode, done.stderr) == (0, "")
    found = re.search(r"^# (\d+) statements? of (\d+), ", done.stdout, re.MULTILINE)
    assert found is not None
    assert int(found[1]) <= MOST
    assert int(found[2]) >= 6 * MOST
    assert all(word in done.stdout for word in planted.kept)
    (cli.cwd / "small.py").write_text(done.stdout, encoding="utf-8")
    done = cli.run(again, "small.py")
    assert done.returncode == 1
    assert said in done.stdout + done.stderr


def test_a_mistake_that_the_check_finds_is_cut_down(own: OwnCommandLine) -> None:
    """To a few statements with the same mistake, printed as a Program where TileLang does not take them."""
    done = own.run("reduce", "wrong.py::scale", "--while", "check", "--arg", "N=96")
    assert (done.returncode, done.stderr) == (0, "")
    first, second, third, *left_over = done.stdout.splitlines()
    assert first.startswith("# scale of ")
    assert first.endswith("[read before arrival]")
    left, before = re.findall(r"\d+", second)[:2]
    assert int(left) < int(before)
    assert second.endswith(": nothing smaller fails")
    assert third.startswith("# as a Program, because TileLang does not take it: ")
    text = "\n".join(left_over) + "\n"
    assert print_program(read_program(text)) == text
    assert re.search(r'wait_group\(\d, unit="cp_async"\)', text) is not None


@pytest.mark.parametrize(
    ("command", "status"), [("grep -q T.abs", 0), ("grep -q T.acos", 2), ("exit 0; echo {}", 0)]
)
def test_a_command_says_what_fails(own: OwnCommandLine, command: str, status: int) -> None:
    """It receives the file of a kernel, in place of braces or at its end."""
    sizes = ("--arg", "length=16", "--limit", "10s")
    done = own.run("reduce", "small.py::backward", "--while", command, *sizes)
    assert done.returncode == status
    if status:
        said = "backward does not fail: the command ends with another status than 0"
        assert done.stderr == f"tileyard: {said}\n"
    else:
        assert done.stdout.splitlines()[0].endswith(f": `{command}` ends with 0")
        assert ("T.abs(" in done.stdout) == ("abs" in command)


def test_the_limit_ends_it(tmp_path: Path) -> None:
    """The kernel is printed as far as it was reduced."""
    planted = PLANTED["operation not supported"]
    (tmp_path / "large.py").write_text(
        planted.text().replace(IMPORT, "import tilelang\n"), encoding="utf-8"
    )
    done = OwnCommandLine(tmp_path).run(*planted.arguments, "--limit", "1ms")
    assert done.returncode == 0
    assert done.stdout.splitlines()[1].endswith(": the time is over")
    compile(done.stdout, "small.py", "exec")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ("--while", "compile_error"),
            "backward does not fail: the target builds it",
        ),
        (
            ("--while", "mismatch", "--pipeline", "sm_1"),
            "backward cannot be reduced: there is no pipeline 'sm_1'",
        ),
        (
            ("--while", "mismatch", "--target", "cuda:sm_80"),
            "backward cannot be reduced: kernels are run on cpu only, and cuda:sm_80 is for cuda",
        ),
        (
            ("--while", "true", "--pipeline", "sm_80"),
            "--pipeline is for --while check and --while mismatch",
        ),
        (
            ("--while", "check", "--config", "block=16,32"),
            "--config block has several values: reduce takes one config",
        ),
        (("--while", " "), "--while is empty: it is check, mismatch, compile_error or a command"),
    ],
)
def test_what_cannot_be_reduced_is_one_line(
    own: OwnCommandLine, arguments: tuple[str, ...], said: str
) -> None:
    """With exit status 2, and nothing printed."""
    done = own.run("reduce", "small.py::backward", "--arg", "length=32", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"tileyard: {said}")

"""``tileyard regress --static``: another Python on one side, pass options on the other, and the results."""

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import CommandLine
from tests.e2e.gpu_builds import KERNEL, make_environment, make_place

pytestmark = pytest.mark.slow

MORE = """

@tileyard.kernel(space={"block": [128]}, shapes={"default": {"N": 1024}})
def copy(N, block=128):
    @T.prim_func
    def main(A: T.Tensor((N,), "float32"), B: T.Tensor((N,), "float32")):
        with T.Kernel(T.ceildiv(N, block), threads=128) as bx:
            for i in T.Parallel(block):
                B[bx * block + i] = A[bx * block + i]

    return main


@tileyard.kernel
def homeless(N):
    raise AssertionError("nobody says how large it is")


if sys.prefix.endswith("elsewhere"):

    @tileyard.kernel(shapes={"default": {"N": 1024}})
    def gone(N):
        return copy(N)
"""


@dataclass
class Compared:
    """What a comparison came to."""

    cli: CommandLine
    status: int
    document: dict[str, Any]

    @property
    def rows(self) -> dict[str, dict[str, Any]]:
        """The rows by their kernels."""
        return {row["case"]: row for row in self.document["rows"]}


@pytest.fixture(scope="module")
def other_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment that has what is installed here, and no Tileyard of its own."""
    return make_environment(tmp_path_factory.mktemp("other") / "elsewhere")


@pytest.fixture(scope="module")
def compared(
    tmp_path_factory: pytest.TempPathFactory, gpu_caches: Path, other_python: Path
) -> Compared:
    """Another Python against pass options that make division less exact."""
    cli = make_place(tmp_path_factory.mktemp("static"), gpu_caches)
    (cli.cwd / "kernels").mkdir()
    (cli.cwd / "kernels" / "third.py").write_text(f"import sys\n{KERNEL}{MORE}")
    # A folder with a package of TileLang's name, as in a checkout of its sources, is not looked at.
    (cli.cwd / "tilelang").mkdir()
    (cli.cwd / "tilelang" / "__init__.py").write_text("raise ImportError('of the folder')\n")
    asked = ("regress", "--static", str(other_python), "tl.enable_fast_math=1", "kernels/third.py")
    limits = "instructions:+0,instructions:-0"
    how = ("--target", "cuda:sm_80", "--compile-workers", "1", "--json")
    done = cli.run(*asked, *how, "--fail-on", limits)
    assert done.stdout, done.stderr
    return Compared(cli, done.returncode, json.loads(done.stdout))


def test_what_differs_has_a_row_and_what_does_not_is_counted(compared: Compared) -> None:
    """Fast division changes the kernel that divides, for both of its shapes, and not the one that copies."""
    expected = {"third/default/block=128", "third/large/block=128"}
    changed = {case for case, row in compared.rows.items() if row["changes"]}
    figures = {one["metric"] for one in compared.rows["third/default/block=128"]["changes"]}
    verdicts = {case: row["verdict"] for case, row in compared.rows.items()}
    assert changed == expected
    assert list(verdicts.values()).count("unchanged") == 1
    assert {"code", "instructions"} <= figures


def test_kernels_that_a_side_lacks_have_rows(compared: Compared) -> None:
    """A kernel of one side, and one that cannot be built on either, are told with the reason."""
    rows = compared.rows
    (gone,) = (row for case, row in rows.items() if case.startswith("gone/"))
    assert [row["verdict"] for row in (gone, rows["homeless"])] == ["missing", "failed"]
    assert "N" in rows["homeless"]["base_message"]
    assert "N" in rows["homeless"]["head_message"]


def test_limits_set_the_exit_status(compared: Compared) -> None:
    """Figures beyond limits and a kernel that head lacks fail it; what base cannot build either does not."""
    gates = [gate for row in compared.document["rows"] for gate in row["gates"]]
    assert compared.status == 1
    assert sorted(gates) == ["missing", "over_limit", "over_limit"]


def test_both_sides_are_named_with_what_built_them(compared: Compared, other_python: Path) -> None:
    """The document says which TileLang, which compiler and which options each side had."""
    document = compared.document
    assert str(other_python) in document["base"]
    base, head = (document[side].partition(" (NVRTC ") for side in ("base", "head"))
    assert head[0].endswith("tl.enable_fast_math=1")
    assert base[2]
    assert base[2] == head[2]


def test_what_was_built_is_thrown_away(compared: Compared) -> None:
    """A comparison leaves nothing in the home but precompiled headers."""
    home = compared.cli.home
    assert list((home / "tmp").iterdir()) == []
    assert {path.name for path in home.iterdir()} - {".gitignore"} == {"caches", "objects", "tmp"}
    assert {path.name for path in (home / "objects").iterdir()} == {"gc.lock", "pins"}
    assert list((home / "objects" / "pins").iterdir()) == []


def test_a_revision_is_a_side(cli: CommandLine, tmp_path: Path) -> None:
    """A kernel has one name on both sides, also where a file is new; what it was is read from git. A file is
    compared once, whatever paths and names lead there, and two files with a case of one name are refused.
    """
    cli.env |= {"TILEYARD_HOME": str(tmp_path / "home")}
    kernels = (cli.cwd / "old.py", cli.cwd / "new.py")
    kernels[0].write_text(KERNEL + MORE.partition("@tileyard.kernel\ndef homeless")[0])
    git = ("git", "-c", "user.name=a", "-c", "user.email=a@example.org")
    for words in (("init", "-q"), ("add", "old.py"), ("commit", "-q", "-m", "old")):
        subprocess.run([*git, *words], cwd=cli.cwd, check=True)
    kernels[0].write_text(KERNEL)
    kernels[1].write_text(KERNEL)
    again = (str(kernels[0]), "old.py::third", "old.py::third/large")
    done = cli.run("static", "HEAD", ".", "old.py", "new.py", *again, "--target", "cpu", "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    rows = {row["case"]: row["verdict"] for row in document["rows"]}
    assert rows == {
        "old/copy/default/block=128": "missing",
        "new/third/default/block=128": "new",
        "new/third/large/block=128": "new",
        "old/third/default/block=128": "unchanged",
        "old/third/large/block=128": "unchanged",
    }
    assert ", HEAD (" in document["base"]
    assert "with changes in 2 files" in document["head"]
    (cli.cwd / "more").mkdir()
    (cli.cwd / "more" / "new.py").write_text(KERNEL)
    done = cli.run("static", ".", ".", "new.py::third", "more/new.py::third/large")
    said = "both new.py and more/new.py have a case new/third/large/block=128"
    assert (done.returncode, said in done.stderr) == (2, True), done.stderr


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((".", "/nowhere", "third.py"), "/nowhere is neither a Python, nor a virtual environment"),
        ((".", "/bin/true", "third.py"), "/bin/true: /bin/true is no Python that works"),
        ((".", "tl.x=1,tl.x=2", "third.py"), "tl.x is given twice"),
        ((".", ".", "nothing.py"), "neither side has a file nothing.py"),
        ((".", ".", "third.py", "--fail-on", "speed:+1%"), "there is no figure 'speed'"),
        ((".", ".", "third.py", "--fail-on", "build:+1%"), "takes --static --rebuilds 3 or more"),
        ((".", ".", "third.py", "--each", "5s"), "--each has no effect with --static"),
        ((".", "."), "--static builds two sides of kernels: BASE HEAD FILE..."),
        ((".", ".", "suite.toml"), "--static has no effect with a suite of programs"),
        ((".", ".", "third.py", "--target", "cuda:sm_1"), "there is no architecture 'sm_1'"),
    ],
)
def test_bad_input(cli: CommandLine, arguments: tuple[str, ...], expected: str) -> None:
    """What makes no sense is refused in one line before anything is built."""
    (cli.cwd / "third.py").write_text(KERNEL)
    done = cli.run_here("static", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert expected in line


def test_a_python_without_tileyards_packages(cli: CommandLine, tmp_path: Path) -> None:
    """A side whose Python lacks packages is told which."""
    (cli.cwd / "third.py").write_text(KERNEL)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "v")], check=True)
    done = cli.run("static", str(tmp_path / "v"), ".", "third.py")
    assert done.returncode == 2
    assert "lacks cuda.bindings, " in done.stderr
    assert "tilelang" in done.stderr

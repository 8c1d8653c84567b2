"""Bad input gets one clear line and exit status 2, never a traceback, and records nothing."""

import asyncio
import json
import re
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from tests.conftest import KERNELS, CommandLine
from tests.e2e.own_process import refuse_kernels, refuse_run
from tests.full_files import files_up_to
from tests.own_authors import OwnAuthor

from tileyard.base.model import Outcome
from tileyard.store.trials import TrialStore
from tileyard.workers.protocol import ElaborateConfig, Failed

REFUSED = str(KERNELS / "refused.py")
LIGHT = "light.py"

pytestmark = pytest.mark.slow

SIZED = """
import tilelang
import tilelang.language as T


@tilelang.jit
def sized(N):
    @T.prim_func
    def main(A: T.Tensor((N,), "float32")):
        with T.Kernel(T.ceildiv(N, 64)) as bx:
            A[bx] = 0

    return main
"""


@pytest.fixture
def cli(cli: CommandLine) -> CommandLine:
    """A folder with a kernel that costs nothing to import."""
    shutil.copy(KERNELS / "light.py", cli.cwd)
    return cli


def read_line(cli: CommandLine, done: subprocess.CompletedProcess[str]) -> str:
    """The one line with which a command was refused."""
    lines = done.stderr.strip().splitlines()
    assert done.returncode == 2, done.stderr
    assert len(lines) == 1, done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    assert lines[0].startswith("tileyard: ")
    assert recorded(cli.home) == 0
    return lines[0]


def recorded(home: Path) -> int:
    """How many trials a home holds."""
    if not (home / "store.db").exists():
        return 0
    with closing(sqlite3.connect(home / "store.db")) as database, database:
        found = database.execute("select count(*) from sqlite_master where name = 'trials'")
        if not found.fetchone()[0]:
            return 0
        return int(database.execute("select count(*) from trials").fetchone()[0])


def test_a_process_says_what_an_engine_refuses(cli: CommandLine) -> None:
    """One line of a process of its own, before there is a home: on arguments, kernels and their builds."""
    before = [path.name for path in cli.cwd.iterdir()]
    assert "--trials" in read_line(cli, cli.run("tune", LIGHT, "--trials", "0"))
    line = read_line(cli, cli.run("tune", f"{LIGHT}::nothing"))
    assert "there is no kernel 'nothing'" in line
    found = [path.name for path in cli.cwd.iterdir() if path.name != "__pycache__"]
    assert found == before
    line = read_line(cli, cli.run("tune", LIGHT, "--group-size", "4"))
    assert "cpu builds kernels one by one" in line
    assert "tpu" in read_line(cli, cli.run("tune", LIGHT, "--target", "tpu"))


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("tune", "missing.py"), "there is no file missing.py"),
        (("doctor", "--only", "queue"), "there is no subject 'queue' (subjects: python, "),
        (("tune", LIGHT, "--arg", "N"), "--arg 'N' is not of the form KEY=VALUE"),
        (("tune", LIGHT, "--budget", "soon"), "'soon' is not a duration"),
        (("tune", LIGHT, "--group-size", "0"), "--group-size"),
        (("tune", LIGHT, "--trials", "0"), "--trials"),
        (("run", LIGHT, "--shape", "default", "--shape", "other"), "--shape is given twice"),
        (("run", LIGHT, "--check", "--no-check"), "--check is given twice"),
        (("compile", LIGHT, "--arg", "N=512,1024"), "--config N=512,1024 tries each"),
        (("tune", LIGHT, "--config", "block=32,"), "--config block=32, has an empty value"),
        (("tune", LIGHT, "--reference", "add_one", "--no-check"), "--reference has no effect"),
        (
            ("compile", LIGHT, "--reference", "add_one"),
            "--reference has no effect without a bundle",
        ),
        (
            ("test", LIGHT, "--devices", "cpu", "--slots", "2"),
            "--slots has no effect with --devices",
        ),
        (
            ("run", LIGHT, "--sanitize", "--target", "cuda:sm_90a"),
            "--sanitize is for the target cpu",
        ),
        (("bundle", "--inspect", "a.tyb", "--select", "b"), "--select has no effect"),
        (("tune",), "FILE[::NAME]"),
        (("tun", LIGHT), "tun"),
        (("trials", "--outcome", "fine"), "fine"),
        (("show", "nothing"), "nothing"),
    ],
)
def test_wrong_arguments(cli: CommandLine, arguments: tuple[str, ...], expected: str) -> None:
    """What is wrong with the arguments is named."""
    assert expected in read_line(cli, cli.run_here(*arguments))


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("tune", f"{LIGHT}::nothing"), "there is no kernel 'nothing'"),
        (("tune", LIGHT, "--arg", "Q=3"), "add_one has no argument 'Q'"),
        (("tune", LIGHT, "--config", "tile=3"), "add_one has no config key 'tile'"),
        (("tune", LIGHT, "--config", "BLOCK=3"), "did you mean block?"),
        (("tune", LIGHT, "--shape", "huge"), "add_one has no shape 'huge' (it has: default)"),
        (("tune", LIGHT, "--config", "block=wide"), "block"),
        (("tune", LIGHT, "--reference", "nothing"), "nothing"),
        (("tune", LIGHT, "--devices", "gpu:7"), "gpu:7"),
        (("tune", LIGHT, "--devices", "cpu:0", "--devices", "cpu:cores=0"), "share a core"),
        (("tune", LIGHT, "--target", "cpu:native,sanitize=1"), "its times say nothing"),
        (("run", LIGHT, "--target", "cpu:native,sanitize=1"), "its times say nothing"),
        (("tune", LIGHT, "--budget", "0s"), "the budget is 0, which is enough for no config"),
        (("tune", LIGHT, "--run-limit", "0s"), "the limit of a run is 0"),
        (("tune", LIGHT, "--arg", "N=128.5"), "N=128.5 has the wrong type: N takes int"),
        (("tune", LIGHT, "--arg", "block=32", "--config", "block=64"), "as an argument and as a"),
    ],
)
def test_wrong_requests(cli: CommandLine, arguments: tuple[str, ...], expected: str) -> None:
    """What an engine finds wrong with a kernel, its arguments or devices is named, and no home is left."""
    assert expected in read_line(cli, refuse_kernels(cli, *arguments))
    assert not cli.home.exists()


def test_a_lock_directory_that_is_none(cli: CommandLine) -> None:
    """A run that cannot ask for its device is refused before anything is kept of it."""
    (cli.cwd / "locks").touch()
    cli.env["TILEYARD_LOCK_DIR"] = str(cli.cwd / "locks")
    assert "the lock directory" in read_line(cli, cli.run("tune", LIGHT))
    assert not cli.home.exists()


def test_an_unknown_dtype(cli: CommandLine) -> None:
    """A name that is not a dtype is refused where all that the parameter is known to take are dtypes."""
    (cli.cwd / "typed.py").write_text(
        "import tileyard\n"
        "@tileyard.kernel(shapes={'a': {'N': 8}})\n"
        "def k(N, dtype='float32'): ...\n",
        encoding="utf-8",
    )
    expected = "dtype='flaot16' is not a dtype (did you mean float16?)"
    assert expected in read_line(
        cli, refuse_kernels(cli, "tune", "typed.py", "--arg", "dtype=flaot16")
    )


def test_a_fraction_as_a_size(cli: CommandLine) -> None:
    """A parameter of which nothing is known takes no fraction that its kernel cannot be built with."""
    file = cli.cwd / "sized.py"
    file.write_text(SIZED, encoding="utf-8")
    line = read_line(cli, refuse_kernels(cli, "tune", "sized.py", "--arg", "N=128.5"))
    expected = "sized cannot take N=128.5 (it takes whole numbers, unless"
    assert expected in line


def test_a_file_without_a_kernel(cli: CommandLine) -> None:
    """A file that holds no kernel says how one is declared."""
    (cli.cwd / "empty.py").write_text("x = 1\n", encoding="utf-8")
    expected = "no kernel"
    assert expected in read_line(cli, refuse_kernels(cli, "tune", "empty.py"))


def test_a_file_that_cannot_be_imported(cli: CommandLine) -> None:
    """An error in the user's file is named with its line."""
    (cli.cwd / "broken.py").write_text("x = 1\nimport nowhere_to_be_found\n", encoding="utf-8")
    line = read_line(cli, refuse_kernels(cli, "tune", "broken.py"))
    expected = "broken.py:2"
    assert expected in line
    assert "nowhere_to_be_found" in line


def test_a_kernel_that_cannot_be_lowered(cli: CommandLine) -> None:
    """The outcome is ``compile_error``, with operation and user's line, and no bundle is written."""
    done = cli.run("compile", f"{REFUSED}::shuffled", "-o", "none.tyb", "--json")
    result = json.loads(done.stdout)
    (config,) = result["configs"]
    assert (done.returncode, result["bundle"], (cli.cwd / "none.tyb").exists()) == (1, "", False)
    assert result["notes"] == [f"nothing could be built: {cli.cwd}/none.tyb was not written"]
    assert config["outcome"] == "compile_error"
    assert "tl.shfl_xor_sync is not covered" in config["message"]
    assert "refused.py:15" in config["message"]


@pytest.mark.parametrize(
    ("kernel", "line", "expected"),
    [
        ("shuffled", 15, "tl.shfl_xor_sync is not covered"),
        ("counted", 27, "tl.syncthreads_count is not covered"),
        ("narrow", 35, "float99 (X) is a type not covered"),
        ("unknown", 47, "ValueError: unknown dtype `nothing`"),
    ],
)
def test_what_cannot_be_lowered_has_its_line(
    cli: CommandLine, kernel: str, line: int, expected: str
) -> None:
    """An operation or a type, as the author of the file answers: whatever builds it reports that."""
    author = OwnAuthor(Path(REFUSED), cli.home, (0,), {})
    question = ElaborateConfig(kernel=kernel, arguments={}, config={})
    reply = asyncio.run(author.ask(question, 60.0))
    assert isinstance(reply, Failed)
    assert reply.outcome is Outcome.COMPILE_ERROR
    assert expected in reply.message
    assert f"refused.py:{line}" in reply.message


def test_several_kernels_in_a_file(cli: CommandLine) -> None:
    """A file with several kernels asks which one is meant."""
    (cli.cwd / "two.py").write_text(
        "import tileyard\n"
        "@tileyard.kernel(space={'a': [1]})\n"
        "def first(a): ...\n"
        "@tileyard.kernel(space={'a': [1]})\n"
        "def second(a): ...\n",
        encoding="utf-8",
    )
    line = read_line(cli, refuse_kernels(cli, "tune", "two.py"))
    expected = "first, second"
    assert expected in line


def test_a_where_that_rejects_everything(cli: CommandLine) -> None:
    """An empty space is an error."""
    (cli.cwd / "none.py").write_text(
        "import tileyard\n"
        "@tileyard.kernel(space={'a': [1, 2]}, where=lambda a: a > 5)\n"
        "def k(a): ...\n",
        encoding="utf-8",
    )
    expected = (
        "no config of k is left to try: all 2 are rejected: none.py:2: where of k rejects a=1 ("
    )
    assert expected in read_line(cli, refuse_kernels(cli, "tune", "none.py"))


def test_constraints_that_contradict_each_other(cli: CommandLine) -> None:
    """The kernel's own and one of the run are named together; what cannot be read with its place."""
    (cli.cwd / "none.py").write_text(
        "import tileyard\n"
        "@tileyard.kernel(space={'a': range(1, 10**9), 'b': tileyard.when('a > 1', [1, 2])},\n"
        "    where=['a < b', 'b ** 2 < 3'][:1])\n"
        "def k(a, b): ...\n",
        encoding="utf-8",
    )
    options = ("--config", "a=pow2:1..1024", "--where", "a >= 4")
    line = read_line(cli, refuse_kernels(cli, "tune", "none.py", *options))
    told = "where of k 'a < b' and --where 'a >= 4' contradict each other, together they exclude"
    assert f"no config of k is valid: {told} each of its 22 points" in line
    text = (cli.cwd / "none.py").read_text("utf-8")
    (cli.cwd / "wrong.py").write_text(text.replace("[:1]", ""), encoding="utf-8")
    line = read_line(cli, refuse_kernels(cli, "tune", "wrong.py"))
    assert "wrong.py:2: k: constraint 'b ** 2 < 3': 'b ** 2' is not supported, at column 1" in line


def test_no_c_compiler(cli: CommandLine, tmp_path: Path) -> None:
    """Without a C compiler the message says what to install."""
    tools = tmp_path / "bin"
    tools.mkdir()
    line = read_line(cli, cli.run("tune", LIGHT, PATH=str(tools), CC=""))
    expected = "C compiler"
    assert expected in line


def test_a_home_that_cannot_be_written(cli: CommandLine) -> None:
    """A home below a plain file cannot be made."""
    (cli.cwd / "file").write_text("", encoding="utf-8")
    line = read_line(cli, cli.run("tune", LIGHT, TILEYARD_HOME=str(cli.cwd / "file" / "home")))
    expected = "file/home"
    assert expected in line


UNUSABLE = ("file", "file/below", "loop", 300 * "x")
SUITE = 'name = "s"\nrun = ["true"]\n[[testcase]]\nname = "t"\n'
READING = ("trials", "history", "config", "devices", "cache gc --keep-days 1", "inspect abc", "export -o x",
           "lease -- true")  # fmt: skip


@pytest.mark.parametrize("home", UNUSABLE, ids=["a file", "below a file", "a loop", "too long"])
def test_a_home_that_cannot_be_read(cli: CommandLine, home: str) -> None:
    """Whatever is in its place: one line that is no bug of ours, and no status of a leased command."""
    (cli.cwd / "file").write_text("", encoding="utf-8")
    (cli.cwd / "loop").symlink_to("loop")
    for command in READING:
        done = cli.run_here(*command.split(), TILEYARD_HOME=str(cli.cwd / home))
        assert done.returncode in (0, 2, 69), (command, done.stderr)
        assert len(done.stderr.splitlines()) == (done.returncode != 0), (command, done.stderr)


def test_trials_are_exported_to_a_named_file(cli: CommandLine) -> None:
    """Without one a line says so, before anything is read."""
    assert "-o" in read_line(cli, cli.run_here("trials", "export"))
    assert not cli.home.exists()


def test_objects_that_are_no_folder(cli: CommandLine) -> None:
    """The engine says so, instead of ending."""
    cli.home.mkdir()
    (cli.home / "objects").write_text("", encoding="utf-8")
    (cli.cwd / "suite.toml").write_text(SUITE, encoding="utf-8")
    done = cli.run("test", "suite.toml")
    assert done.returncode == 2
    assert re.fullmatch(r"tileyard: .*/home/objects.*\n", done.stderr)


def run_shell(cli: CommandLine, line: str) -> subprocess.CompletedProcess[str]:
    """Run a line of a shell, in which ``$0`` is the program."""
    return subprocess.run(
        ["sh", "-c", line.replace("$0", '"$0" -m tileyard'), sys.executable],
        cwd=cli.cwd,
        env=cli.environment(),
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )


def test_closed_streams_are_no_fault(cli: CommandLine) -> None:
    """Without standard output and input, a command does its work and has its status."""
    (cli.cwd / "suite.toml").write_text(SUITE, encoding="utf-8")
    done = run_shell(cli, "exec $0 test suite.toml >&- <&-")
    assert done.returncode == 0
    assert re.fullmatch(r"report: tileyard report \S+ -o report.html\n", done.stderr)
    assert recorded(cli.home) == 1


def test_limits_of_the_shell_on_files(cli: CommandLine) -> None:
    """Be it their number or the size of files: one line, no bug of ours, no advice to move the store."""
    line = (
        "for n in 6 7 8; do (ulimit -n $n; exec $0 lease --devices cpu -- true); echo $? >&2; done"
    )
    said = run_shell(cli, line).stderr.splitlines()
    assert all(one.startswith("tileyard: ") or one in ("0", "2", "69") for one in said), said
    (cli.cwd / "suite.toml").write_text(SUITE, encoding="utf-8")
    with files_up_to(8192):
        done = refuse_run(cli, "test", "suite.toml")
    assert "ulimit -f" in read_line(cli, done)
    assert "move it away" not in done.stderr


def test_a_damaged_byte_of_the_store(cli: CommandLine) -> None:
    """In the name of a table, or in the header: one line says what to do."""
    TrialStore.open(cli.home).close()
    whole = (cli.home / "store.db").read_bytes()
    for place in (whole.index(b"tabletrials") + 6, 60):
        (cli.home / "store.db").write_bytes(
            whole[:place] + bytes([whole[place] ^ 0x80]) + whole[place + 1 :]
        )
        done = cli.run_here("history")
        assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
        assert "move it away" in done.stderr


def test_a_store_of_a_newer_version(cli: CommandLine) -> None:
    """A store that a later version wrote is left alone."""
    cli.home.mkdir()
    with closing(sqlite3.connect(cli.home / "store.db")) as database, database:
        database.execute("pragma user_version = 9999")
    before = (cli.home / "store.db").read_bytes()
    line = read_line(cli, cli.run("tune", LIGHT))
    expected = "newer"
    assert expected in line
    assert (cli.home / "store.db").read_bytes() == before

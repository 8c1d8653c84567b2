"""Nothing that other users put into a folder is run, loaded or imported by who works there."""

import ast
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.conftest import KERNELS, CommandLine
from tests.faults.test_leases import as_nobody
from tests.in_process import no_engine, run_here
from tests.unit.store.older import make_store

import tileyard
from tileyard.artifacts.objects import ObjectStore
from tileyard.base.decoding import decode_json
from tileyard.base.errors import HomeError
from tileyard.store.trials import TrialQuery, TrialStore
from tileyard.testing.stores import make_trial
from tileyard.verbs.site.plan.folder import MANIFEST
from tileyard.verbs.site.result import Manifest
from tileyard.workers.python_imports import PROBE
from tileyard.workers.run_records import find_run

STRANGER = 65534
CONSOLE_SCRIPT = str(Path(sys.executable).parent / "tileyard")
PLANTED = ("tileyard", "msgspec", "numpy", "psutil", "sqlalchemy", "json", "logging", "secrets")
"""Modules that Tileyard's processes import."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user"),
]
SUITE = """
name = "mine"
[run]
argv = ["true"]
[[testcase]]
name = "one"
[[testcase.case]]
name = "a"
"""


@dataclass
class SharedFolder:
    """A folder like /tmp, in which a stranger may put things; ``proof`` exists if one was executed."""

    path: Path
    proof: Path
    locks: Path

    def plant(self, name: str, text: str) -> None:
        """Write a file of the stranger's."""
        file = self.path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        for path in (file, *file.parents):
            if self.path in path.parents:
                os.chown(path, STRANGER, STRANGER)

    def run(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run the command that is installed, as root, in this folder."""
        return subprocess.run(
            [CONSOLE_SCRIPT, *arguments],
            cwd=self.path,
            env={**self.environment(), **variables},
            capture_output=True,
            text=True,
            check=False,
        )

    def run_here(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command that needs no engine likewise, in this process."""
        with no_engine():
            return run_here(arguments, self.path, self.environment())

    def environment(self) -> dict[str, str]:
        """That of a shell which has set nothing of ours but the lock directory."""
        outer = {key: text for key, text in os.environ.items() if not key.startswith("TILEYARD_")}
        return {**outer, "TILEYARD_LOCK_DIR": str(self.locks)}


@pytest.fixture
def shared(tmp_path: Path) -> SharedFolder:
    """Empty, sticky, and writable for everybody."""
    path = tmp_path / "shared"
    path.mkdir()
    path.chmod(0o1777)
    return SharedFolder(path, tmp_path / "proof", tmp_path / "locks")


def _declare(shared: SharedFolder, folder: str) -> None:
    device = f'name = "npu:0"\nid = "x"\nprobe = ["touch", "{shared.proof}"]\n'
    shared.plant(f"{folder}/devices.toml", f"[[device]]\n{device}")


@pytest.mark.parametrize(
    "arguments",
    [
        ("devices", "probe", "npu:0"),
        ("doctor",),
        ("trials",),
        ("lease", "--devices", "npu:0", "--", "true"),
    ],
    ids=lambda arguments: arguments[0],
)
def test_a_strangers_home_is_refused(shared: SharedFolder, arguments: tuple[str, ...]) -> None:
    """It is beside the working directory; its devices are not probed, and the message names it."""
    _declare(shared, ".tileyard")
    is_real = arguments[0] in ("devices", "lease")
    done = (shared.run if is_real else shared.run_here)(*arguments)
    home = shared.path / ".tileyard"
    assert done.returncode in (2, 69)
    assert f"{home} belongs to another user (uid {STRANGER})" in done.stderr
    assert f"set TILEYARD_HOME to {home} if it is to be trusted" in done.stderr
    assert not shared.proof.exists()


def test_a_strangers_project_is_passed_over(shared: SharedFolder) -> None:
    """Its pyproject.toml does not make the home beside it the one of folders below."""
    shared.plant("pyproject.toml", "")
    _declare(shared, ".tileyard")
    mine = shared.path / "mine"
    mine.mkdir()
    own = SharedFolder(mine, shared.proof, shared.locks)
    assert own.run_here("devices", "probe", "cpu").returncode == 0
    assert not shared.proof.exists()


def test_no_home_is_made_in_a_strangers_folder(shared: SharedFolder, tmp_path: Path) -> None:
    """Its owner could replace it; what needs no home works there."""
    shared.plant("theirs/file", "")
    theirs = SharedFolder(shared.path / "theirs", shared.proof, shared.locks)
    assert theirs.run("lease", "--", "true").returncode == 0
    suite = tmp_path / "suite.toml"
    suite.write_text(SUITE)
    done = theirs.run("test", str(suite))
    assert done.returncode == 2
    assert f"{theirs.path} belongs to another user" in done.stderr
    assert not (theirs.path / ".tileyard").exists()


def test_a_home_that_is_named_is_used(shared: SharedFolder) -> None:
    """To name it is how to say that its owner is trusted."""
    _declare(shared, ".tileyard")
    home = str(shared.path / ".tileyard")
    shared.run("devices", "probe", "npu:0", TILEYARD_HOME=home)
    assert shared.proof.exists()


def _plant_modules(shared: SharedFolder) -> Path:
    """Have a stranger put modules and compilers there; a file of kernels beside them."""
    for name in PLANTED:
        shared.plant(f"{name}.py", f"open({str(shared.proof)!r}, 'w')\nraise SystemExit(7)\n")
    for name in ("cc", "gcc", "clang"):
        shared.plant(name, f'#!/bin/sh\ntouch {shared.proof}\nexec /usr/bin/{name} "$@"\n')
        (shared.path / name).chmod(0o755)
    kernels = shared.path / "mine.py"
    kernels.write_bytes((KERNELS / "elementwise.py").read_bytes())
    return kernels


def test_nothing_planted_is_run(shared: SharedFolder, cli: CommandLine) -> None:
    """Neither the engine nor its workers import a module, or run a compiler, of the working directory."""
    kernels = _plant_modules(shared)
    (cli.cwd / "mine").mkdir()
    suite = cli.cwd / "mine" / "suite.toml"
    suite.write_text(SUITE)
    variables = {"TILEYARD_HOME": str(cli.home), "PATH": f":{os.environ['PATH']}"}
    tune = ("tune", f"{kernels}::gelu", "--arg", "N=128", "--trials", "1")
    tuned = shared.run(*tune, **variables)
    assert tuned.returncode == 0, tuned.stderr
    tested = shared.run("test", str(suite), **variables)
    assert tested.returncode == 0, tested.stdout + tested.stderr
    assert not shared.proof.exists()


@pytest.mark.sweep(0)
def test_nothing_planted_is_run_to_build_for_a_gpu(shared: SharedFolder, cli: CommandLine) -> None:
    """Nor does a compile worker for GPUs import a module, or run a compiler, of the working directory."""
    kernels = _plant_modules(shared)
    build = ("compile", f"{kernels}::gelu", "--target", "cuda:sm_80", "--arg", "N=128")
    variables = {"TILEYARD_HOME": str(cli.home), "PATH": f":{os.environ['PATH']}"}
    built = shared.run(*build, **variables)
    assert built.returncode == 0, built.stdout + built.stderr
    assert not shared.proof.exists()


def test_every_python_is_told_to_import_nothing_from_where_it_is_started() -> None:
    """Each command line with ``-m MODULE`` or ``-c PROGRAM`` in it says ``-P`` right before that. But for
    scripts that are compared: ``exec`` finds modules beside them, and each starts in a folder made for it.
    What asks a step's Python about itself works with older ones, and takes the folder off first. ``--norc``
    is bash's, and what recognizes commands of workflows starts none.
    """
    commands = [
        (f"{file.name}:{node.lineno}", words[place - 1])
        for file in Path(tileyard.__file__).parent.rglob("*.py")
        for text in [file.read_text(encoding="utf-8")]
        if any(quoted in text for quoted in ('"-m"', '"-c"', "'-m'", "'-c'"))
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Tuple | ast.List)
        for words in [[e.value if isinstance(e, ast.Constant) else "" for e in node.elts]]
        for place, word in enumerate(words)
        if word in ("-m", "-c")
    ]
    assert len(commands) > 10
    without = [place for place, before in commands if before not in ("-P", "/bin/sh", "--norc")]
    modules = {place.partition(":")[0] for place in without}
    told = {name for name in modules if not name.startswith("workflow_")}
    assert told == {"side_suites.py", "step_identity.py"}
    probe = ast.parse(PROBE).body
    expected = ["import sys", "sys.path[:] = [place for place in sys.path if place]"]
    assert [ast.unparse(one) for one in probe[:2]] == expected


def test_modules_of_ones_own_working_directory_are_imported(cli: CommandLine) -> None:
    """A kernel file finds what is beside the command, as long as nobody else may write there."""
    (cli.cwd / "mine.py").write_text("print('imported mine')\nNAME = 'mine'\n")
    (cli.cwd / "kernels").mkdir()
    file = cli.cwd / "kernels" / "file.py"
    file.write_text(f"import mine\n{(KERNELS / 'light.py').read_text()}")
    own = SharedFolder(cli.cwd, cli.cwd / "proof", cli.cwd / "locks")
    variables = {"TILEYARD_HOME": str(cli.home)}
    found = own.run("tune", str(file), "--arg", "Q=1", **variables)
    assert "no argument 'Q'" in found.stderr
    refused = own.run("tune", str(file), "--arg", "Q=1", PYTHONSAFEPATH="1", **variables)
    assert "No module named 'mine'" in refused.stderr
    cli.cwd.chmod(0o1777)
    refused = own.run("tune", str(file), "--arg", "Q=1", **variables)
    assert "No module named 'mine'" in refused.stderr


PROGRAMS = """
name = "programs"
[build]
argv = ["sh", "-c", "umask > {out}/built; cp built.sh {out}/"]
inputs = ["built.sh"]
[golden]
argv = ["sh", "-c", "echo hello > {out}/hello; cp {suite}/built.sh {out}/"]
[run]
argv = ["sh", "-c", "./built.sh && {build}/built.sh && umask && echo x >> hello && umask > mask"]
[check]
argv = ["true"]
[[testcase]]
name = "one"
[[testcase.case]]
name = "a"
"""


def _open_bits(home: Path) -> dict[str, int]:
    """Of all that is in a home and was not made by programs of the user's: what others may do."""
    return {
        str(path.relative_to(home)): path.lstat().st_mode & 0o077
        for path in (home, *home.rglob("*"))
        if not path.is_symlink() and path.name != "mask"
    }


@pytest.mark.parametrize("mode", [None, 0o2770])
def test_all_in_a_home_is_for_those_it_is_open_to(cli: CommandLine, mode: int | None) -> None:
    """A new one is its user's alone, an older opened one its group's; programs have the user's umask."""
    script = cli.cwd / "built.sh"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    (cli.cwd / "suite.toml").write_text(PROGRAMS)
    if mode is not None:
        cli.home.mkdir()
        cli.home.chmod(mode)
    kernel = f"{KERNELS / 'elementwise.py'}::gelu"
    for arguments in (
        ("test", "suite.toml", "--keep-work"),
        ("tune", kernel, "--arg", "N=128", "--trials", "1"),
    ):
        done = cli.run(*arguments)
        assert done.returncode == 0, done.stdout + done.stderr
    ours = _open_bits(cli.home)
    assert {
        ".gitignore",
        "store.db",
        "runs",
        "objects",
        "objects/trees",
        "work",
        "logs",
    } <= ours.keys()
    of_group = {0o070, 0o060, 0o040, 0o050} if mode else {0}
    assert {path: hex(bits) for path, bits in ours.items() if bits not in of_group} == {}
    if mode is not None:
        groups = {
            path
            for path in cli.home.rglob("*")
            if path.is_dir() and not path.stat().st_mode & 0o2000
        }
        assert not [path for path in groups if "trees" not in path.parts]
    (mask,) = cli.home.rglob("mask")
    assert int(mask.read_text(), 8) == os.umask(os.umask(0o022))
    assert mask.stat().st_mode & 0o777 == 0o644


def test_a_strangers_link_is_not_written_through(shared: SharedFolder, cli: CommandLine) -> None:
    """A report that is to be written into a shared folder replaces no file elsewhere."""
    mine = cli.cwd / "mine"
    mine.write_text("mine")
    suite = cli.cwd / "suite.toml"
    suite.write_text(SUITE)
    link = shared.path / "junit.xml"
    link.symlink_to(mine)
    os.lchown(link, STRANGER, STRANGER)
    done = shared.run("test", str(suite), "--junit", str(link), TILEYARD_HOME=str(cli.home))
    assert f"cannot write {link}: it is a link of another user" in done.stderr
    assert mine.read_text() == "mine"


def test_a_shared_home_serves_its_group(cli: CommandLine) -> None:
    """Another member finds what was recorded and stored, and adds to it; who is not a member sees nothing."""
    cli.cwd.chmod(0o711)
    cli.home.mkdir()
    os.chown(cli.home, 0, STRANGER)
    cli.home.chmod(0o2770)
    (cli.cwd / "suite.toml").write_text(SUITE)
    assert cli.run("test", "suite.toml").returncode == 0

    def work_there() -> str:
        with TrialStore.open(cli.home) as store:
            (trial,) = store.list_trials(TrialQuery(limit=0))
        objects = ObjectStore(cli.home / "objects")
        added = objects.put_bytes(b"added")
        return f"{trial.outcome} {find_run(objects, trial.keys.run) is not None} {added}"

    added = ObjectStore(cli.home / "other").put_bytes(b"added")
    assert as_nobody(work_there) == f"passed True {added}"
    assert ObjectStore(cli.home / "objects").get_bytes(added) == b"added"
    os.chown(cli.home, 0, 0)
    assert as_nobody(work_there) == "HomeError"


def test_a_home_of_others_that_may_be_read_is_read_as_it_is(cli: CommandLine) -> None:
    """Also while its owner records. Nothing is added to it, and who would record there is refused."""
    cli.cwd.chmod(0o711)
    site, older = cli.cwd / "site", cli.cwd / "older"
    for home in (cli.home, older):
        home.mkdir(0o755)
    of_suite = {"case": "s/a", "testcase": "s", "kernel": "", "arguments": {}, "run_s": 1.0}

    def read_all() -> str:
        if os.geteuid():
            with pytest.raises(HomeError, match="cannot write to"):
                TrialStore.open(cli.home)
        arguments = (
            ("trials",),
            ("history",),
            ("history", "s/a"),
            ("site", "site"),
        )
        done = [run_here(one, cli.cwd, cli.environment({})) for one in arguments]
        assert not any(one.returncode for one in done), "".join(one.stderr for one in done)
        (run,) = decode_json((site / MANIFEST).read_bytes(), Manifest).runs.values()
        return f"{run} {(cli.home / 'store.db-wal').exists()}"

    with TrialStore.open(cli.home) as store:
        store.record(make_trial("t1", **of_suite))
    assert read_all() == "1 False"  # imports all, which the other user may not be able to read
    subprocess.run(["chown", "-R", str(STRANGER), str(site)], check=True)
    there = sorted(cli.home.iterdir())
    assert as_nobody(read_all) == "1 False"
    with TrialStore.open(cli.home) as store:
        store.record(make_trial("t2", **of_suite))
        assert as_nobody(read_all) == "2 True"
    assert sorted(cli.home.iterdir()) == there
    make_store(older)
    done = cli.environment({"TILEYARD_HOME": str(older)})
    assert "cannot be upgraded here" in as_nobody(
        lambda: run_here(("trials",), cli.cwd, done).stderr
    )


def test_who_only_reads_a_home_of_others_is_told_what_its_owner_must_do(cli: CommandLine) -> None:
    """It is never advice to move files of others away, and no row is read from a file that changes."""
    cli.cwd.chmod(0o711)
    cli.home.mkdir(0o755)
    file, log, index = (cli.home / f"store.db{end}" for end in ("", "-wal", "-shm"))

    def read(meanwhile: Callable[[], object] = lambda: None) -> str:
        try:
            with TrialStore.open(cli.home, to_read=True) as store:
                meanwhile()
                return f"{len(store.list_trials(TrialQuery(limit=0)))} trials"
        except HomeError as error:
            return str(error)

    never = "never indexed: its store.db is missing or empty (a user who may write"
    assert never in as_nobody(read)
    file.touch()
    assert never in as_nobody(read)
    with TrialStore.open(cli.home) as store:
        store.record(make_trial("t1"))
        logged, there = log.read_bytes(), file.read_bytes()
    assert read() == as_nobody(read) == "1 trials"
    whole = file.read_bytes()
    file.chmod(0o666)  # its changes are those of an owner who records
    told = f"{file} was written while it was read (run the command again)"
    assert as_nobody(lambda: read(lambda: file.write_bytes(whole))) == told
    assert as_nobody(lambda: read(lambda: file.write_bytes(b"torn" * 999))) == told
    assert "(only a user who may write" in as_nobody(read)
    file.write_bytes(there)
    log.write_bytes(logged)
    assert "takes a readable store.db-shm (a user who may write" in as_nobody(read)
    assert not index.exists()
    assert read() == "1 trials"  # what the message asks for
    assert as_nobody(read) == "1 trials"

"""Two users who do not trust each other, and a host on which they meet."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import msgspec
import pytest
from tests.in_process import no_engine, run_here

ROOT = Path(__file__).parent.parent.parent
DEADLINE_S = 30.0
INTERPRETERS = (sys.executable, "/usr/bin/python3.11", "/usr/bin/python3")
"""The one that runs the tests may lie where other users cannot get to."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Who is not root cannot act as two users."""
    needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be several users")
    for item in items:
        if "users" in item.fixturenames and Path(__file__).parent in item.path.parents:  # type: ignore
            item.add_marker(needs_root)


@dataclass(frozen=True)
class User:
    """A user of the host. ``call`` forks this process, ``start`` begins a command of its own."""

    uid: int

    def call(self, step: Callable[[], object]) -> str:
        """Do something as this user; what it raised, or its answer, in words."""
        read_end, write_end = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                self._become()
                answer = str(step())
            except BaseException as error:  # noqa: BLE001 - the child must end here, whatever it was
                answer = f"{type(error).__name__}: {error}"
            os.write(write_end, answer.encode())
            os._exit(0)
        os.close(write_end)
        with os.fdopen(read_end, "rb") as answers:
            answer = answers.read().decode()
        os.waitpid(child, 0)
        return answer

    def hold(
        self, step: Callable[[], object], meanwhile: Callable[[], object] = signal.pause
    ) -> "Held":
        """Do something as this user in a process that stays until it is ended, busy with ``meanwhile``."""
        read_end, write_end = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                self._become()
                kept = step()
                os.write(write_end, b"done")
                os.close(write_end)
                while kept is not self:
                    meanwhile()
            finally:
                os._exit(1)
        os.close(write_end)
        with os.fdopen(read_end, "rb") as answers:
            assert answers.read() == b"done"
        return Held(child)

    def start(self, argv: list[str], env: Mapping[str, str], folder: Path) -> subprocess.Popen[str]:
        """Begin a command as this user."""
        return subprocess.Popen(
            argv,
            env=dict(env),
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            user=self.uid,
            group=self.uid,
            extra_groups=[],
        )

    def _become(self) -> None:
        os.setgroups([])
        os.setresgid(self.uid, self.uid, self.uid)
        os.setresuid(self.uid, self.uid, self.uid)


class Held:
    """A process of another user that stays until its block ends."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


@pytest.fixture
def users() -> tuple[User, User]:
    """A, who is attacked, and B, who attacks."""
    return User(65533), User(65534)


@dataclass(frozen=True)
class Host:
    """A host with one device ``npu:0``, and a folder for its lock directory, as /run/lock is."""

    folder: Path
    python: str

    @property
    def locks(self) -> Path:
        """Where the lock directory is, or is to be."""
        return self.folder / "run" / "locks"

    @property
    def record(self) -> Path:
        """The record of the only lease that there is."""
        (path,) = self.locks.joinpath("leases").iterdir()
        return path

    def environment(self, user: User) -> dict[str, str]:
        """What a command of this user gets."""
        return {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": os.pathsep.join(map(str, (ROOT / "src", *site_folders()))),
            "PYTHONDONTWRITEBYTECODE": "1",
            "TILEYARD_HOME": str(self.folder / f"home-{user.uid}"),
            "TILEYARD_LOCK_DIR": str(self.locks),
            "TILEYARD_HOST_CONFIG": str(self.folder / "etc"),
        }

    def start(self, user: User, *arguments: str) -> subprocess.Popen[str]:
        """Begin ``tileyard`` as a user."""
        argv = [self.python, "-m", "tileyard", *arguments]
        return user.start(argv, self.environment(user), self.folder)

    def run(self, user: User, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run ``tileyard`` as a user, to its end."""
        with self.start(user, *arguments) as process:
            out, err = process.communicate("", DEADLINE_S)
        return subprocess.CompletedProcess(arguments, process.returncode, out, err)

    def lease(self, user: User, script: str = "echo leased") -> subprocess.CompletedProcess[str]:
        """Run a command with the device, as a user."""
        return self.run(user, "lease", "--devices", "npu:0", "--", "sh", "-c", script)

    def can_lease(self, user: User) -> bool:
        """Whether the user gets the device; a refusal is shown."""
        done = self.lease(user)
        assert (done.returncode, done.stdout, done.stderr) == (0, "leased\n", "")
        return True

    def install(self, *options: str) -> subprocess.CompletedProcess[str]:
        """What root does, once; this process is root's."""
        argv = ("devices", "--install", "--tmpfiles", str(self.folder / "etc"), *options)
        with no_engine():
            return run_here(argv, self.folder, self.environment(User(0)))


def site_folders() -> list[str]:
    """Where what Tileyard needs is installed."""
    return [str(Path(msgspec.__file__).parent.parent)]


@pytest.fixture(scope="session")
def python() -> str:
    """An interpreter that other users can run, and that finds this checkout."""
    env = {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), *site_folders()])}
    for path in INTERPRETERS:
        argv = [path, "-c", "import msgspec, numpy, tileyard.verbs.lease.command"]
        try:
            done = subprocess.run(
                argv, env=env, cwd="/", user=65533, group=65533, extra_groups=[], capture_output=True,
                check=False
            )  # fmt: skip
        except OSError:
            continue
        if done.returncode == 0:
            return path
    pytest.skip("other users can run no Python 3.11, or cannot read this checkout")


@pytest.fixture
def host(tmp_path: Path, python: str) -> Host:
    """A host of which root has made nothing yet."""
    tmp_path.chmod(0o755)
    (tmp_path / "run").mkdir()
    (tmp_path / "run").chmod(0o1777)
    (tmp_path / "etc").mkdir(mode=0o755)
    text = '[[device]]\nname = "npu:0"\nid = "card-0"\n'
    (tmp_path / "etc" / "devices.toml").write_text(text, encoding="utf-8")
    return Host(tmp_path, python)

"""What all tests share: a home of their own, and the command line as a user runs it."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from _pytest.assertion import rewrite
from hypothesis import HealthCheck, settings
from tests.costs import Costs, Counting, read_budget
from tests.in_process import no_engine, run_here
from tests.parts import choose_part
from tests.warm_python import KERNELS as KERNELS_AHEAD
from tests.warm_python import close_all, use_compiled, warm

from tileyard.devices import reprobing

# How long an example takes says nothing on a machine that others use, too.
settings.register_profile(
    "shared",
    max_examples=100 if "TILEYARD_SWEEPS" in os.environ else 40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("shared")

ROOT = Path(__file__).parent.parent
collect_ignore = ["pages/project"]  # what the commands of pages work on
KERNELS = ROOT / "tests" / "kernels"
BUDGET = ROOT / "tests" / "budget.toml"
LONG = ("e2e", "faults", "security", "differential")
OWN_FOLDER = pytest.StashKey[Path]()
"""The folder that this run made for its tests."""
SHARED = "shared"
"""The folder of ``shared_folder``."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what a sweep need not run, and other parts; files of long tests come first, so that none is
    left for the end. Raises UsageError where finding tests has imported what takes seconds, once for each
    test process.
    """
    if found := [name for name in ("tilelang", "torch") if name in sys.modules]:
        raise pytest.UsageError(
            f"{' and '.join(found)} imported to find tests: import in a fixture"
        )
    left_out = set() if "TILEYARD_SWEEPS" in os.environ else list_left_out(items)
    left_out |= list_other_parts(item for item in items if item not in left_out)
    if left_out:
        config.hook.pytest_deselected(items=[item for item in items if item in left_out])
        items[:] = [item for item in items if item not in left_out]
    items.sort(key=lambda item: item.path.parent.name not in LONG)


def list_left_out(items: Iterable[pytest.Item]) -> set[pytest.Item]:
    """Cases of tests marked ``sweep`` but for as many as the mark says, which are the same ones each time."""
    sweeps: dict[str, list[pytest.Item]] = {}
    sizes: dict[str, int] = {}
    for item in items:
        for mark in item.iter_markers("sweep"):
            test = item.nodeid.partition("[")[0]
            sizes[test] = mark.args[0]
            sweeps.setdefault(test, []).append(item)
    left_out: set[pytest.Item] = set()
    for test, cases in sweeps.items():
        cases.sort(key=lambda item: item.nodeid)
        kept = random.Random(0).sample(cases, min(sizes[test], len(cases)))
        left_out.update(cases)
        left_out.difference_update(kept)
    return left_out


def list_other_parts(items: Iterable[pytest.Item]) -> set[pytest.Item]:
    """What belongs to other parts than ``TILEYARD_PART``, as in ``2/6``; nothing where it is empty or not
    set."""
    part, found = os.environ.get("TILEYARD_PART", ""), list(items)
    if not part:
        return set()
    seconds = {file: cost.cpu_s for file, cost in read_budget(BUDGET).items()}
    chosen = choose_part((item.nodeid for item in found), part, seconds)
    return {item for item in found if item.nodeid not in chosen}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare what is printed of costs."""
    text = "print what each folder, each file and the 50 dearest tests cost"
    parser.addoption("--cost-table", action="store_true", help=text)
    parser.addoption("--cost-file", type=Path, help="write what each test costs to a file, as JSON")


@pytest.fixture(autouse=True)
def all_cores() -> Iterator[None]:
    """Give the test process its cores back: a launch on a device pins the thread that makes it."""
    cores = os.sched_getaffinity(0)
    yield
    os.sched_setaffinity(0, cores)


DECIDED = {"TILEYARD_PLUGINS": "cpu=tileyard.testing.doubles.scripted:ScriptedTarget"}
"""Variables with which ``cpu`` has scripted times: a study ends alike on a machine that does other work."""
ONE_CORE = ("--devices", f"cpu:cores={min(os.sched_getaffinity(0))}")
"""The device of kernels whose real times decide: threads of two virtual cores wait for each other, and most
processes that time them count as disturbed then.
"""


@dataclass
class CommandLine:
    """Runs ``tileyard`` in a process of its own, in a home and with locks of its own."""

    cwd: Path
    env: dict[str, str] = field(default_factory=dict)

    @property
    def home(self) -> Path:
        """The store's directory."""
        return Path(self.env.get("TILEYARD_HOME", self.cwd / "home"))

    def environment(self, extra: Mapping[str, str] | None = None) -> dict[str, str]:
        """The whole environment of a command, which knows nothing of pytest: TVM asks for its variable. Nor
        of the target that other tests have chosen for TileLang in their own process, nor of its threads.
        """
        ours = ("PYTEST_", "TILELANG_DEFAULT_TARGET", "OPENBLAS_NUM_THREADS")
        outer = {key: text for key, text in os.environ.items() if not key.startswith(ours)}
        own = {
            "TILEYARD_HOME": str(self.home),
            "TILEYARD_LOCK_DIR": str(self.cwd / "locks"),
            "COLUMNS": "200",
        }
        return {**outer, **own, **self.env, **(extra or {})}

    def share(self, answers: Path) -> None:
        """Have the home know what authors told other tests: nobody imports TileLang to be told again. What is
        built and what is run is the home's own.
        """
        (self.home / "objects" / "records").mkdir(parents=True)
        for name in ("records/answer", *(f"{number:02x}" for number in range(256))):
            (answers / name).mkdir(parents=True, exist_ok=True)
            (self.home / "objects" / name).symlink_to(answers / name)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Begin a command."""
        return subprocess.Popen(
            [sys.executable, "-m", "tileyard", *arguments],
            cwd=self.cwd,
            env=self.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str, **extra: str) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        is_of_kernels = any(".py" in argument for argument in arguments)
        module = KERNELS_AHEAD if is_of_kernels else "tileyard"
        return warm(module).run(arguments, self.cwd, self.environment(extra))

    def run_here(self, *arguments: str, **extra: str) -> subprocess.CompletedProcess[str]:
        """Run a command to its end in this process; the test fails if it would start an engine."""
        with no_engine():
            return run_here(arguments, self.cwd, self.environment(extra))

    def run_json(self, *arguments: str) -> dict[str, Any]:
        """Run a command with --json and decode what it prints."""
        done = self.run(*arguments, "--json")
        assert done.stdout, done.stderr
        decoded: dict[str, Any] = json.loads(done.stdout)
        return decoded


def pytest_configure(config: pytest.Config) -> None:
    """Give this run a folder of its own, and have programs be interrupted. Each pytest that is started closes
    the folder that it would share with others to all other users. A program that a shell begins in the
    background ignores interrupts, as all that it starts do.
    """
    if config.option.basetemp is None:
        config.option.basetemp = tempfile.mkdtemp(prefix="tileyard-tests-")
        config.stash[OWN_FOLDER] = Path(config.option.basetemp)
    if config.getoption("dist", "no") == "no" or hasattr(
        config, "workerinput"
    ):  # not the process that only hands tests out
        folder = Path(config.option.basetemp)
        folder.parent.mkdir(parents=True, exist_ok=True)
        if hasattr(config, "workerinput"):
            rewrite_share(config)
        use_compiled(str(find_shared(folder) / "compiled"))
        config.pluginmanager.register(Counting(folder.with_name(f"{folder.name}-starts")))
    if not hasattr(config, "workerinput"):
        is_whole = "TILEYARD_SWEEPS" in os.environ
        budget = {} if is_whole else read_budget(BUDGET)
        config.pluginmanager.register(
            Costs(budget, config.getoption("cost_file"), has_table=config.getoption("cost_table"))
        )
    os.environ["PATH"] += (
        f"{os.pathsep}{Path(sys.executable).parent}"  # Ninja, if it is nowhere else
    )
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def rewrite_share(config: pytest.Config) -> None:
    """Rewrite the assertions of a share of the test files: all processes find all files at the same time,
    and each would rewrite them all.
    """
    number = int(config.workerinput["workerid"].removeprefix("gw"))  # type: ignore[attr-defined]
    count = config.workerinput["workercount"]  # type: ignore[attr-defined]
    for path in sorted(Path(__file__).parent.rglob("test_*.py"))[number::count]:
        pyc = rewrite.get_cache_dir(path) / f"{path.stem}{rewrite.PYC_TAIL}"
        if not pyc.exists() or pyc.stat().st_mtime < path.stat().st_mtime:
            pyc.parent.mkdir(parents=True, exist_ok=True)
            source_hash, code = rewrite._rewrite_test(path, config)
            rewrite._write_pyc(config.stash[rewrite.assertstate_key], code, source_hash, pyc)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Keep the folder of a run only where somebody may want to look into it."""
    if exitstatus == 0 and OWN_FOLDER in session.config.stash:
        shutil.rmtree(session.config.stash[OWN_FOLDER], ignore_errors=True)


def pytest_unconfigure(config: pytest.Config) -> None:
    """End the processes that run commands, and remove what all test processes shared."""
    close_all()
    for process in reprobing._lingering:  # told to end, and waited for by nobody else
        process.wait()
    factory: pytest.TempPathFactory = config._tmp_path_factory  # type: ignore[attr-defined]
    if not hasattr(config, "workerinput") and factory._basetemp is not None:
        shutil.rmtree(factory._basetemp / SHARED, ignore_errors=True)


def shared_folder(base: Path) -> Path:
    """A folder for what is dear to make and large: one for all processes of a test run, and gone with it."""
    folder = find_shared(base)
    folder.mkdir(exist_ok=True)
    return folder


def find_shared(base: Path) -> Path:
    """Where it is."""
    return (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / SHARED


@pytest.fixture
def cli(tmp_path: Path) -> CommandLine:
    """A command line with a fresh home."""
    return CommandLine(tmp_path)


@pytest.fixture
def answers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What authors have told tests that ``share`` it, by content."""
    return shared_folder(tmp_path_factory.getbasetemp()) / "answers"


@pytest.fixture
def knowing(tmp_path_factory: pytest.TempPathFactory, answers: Path) -> CommandLine:
    """A command line with a home that is fresh but for what authors answer. Answers are those for one working
    directory, so each such test has the same, emptied.
    """
    folder = tmp_path_factory.getbasetemp() / "knowing"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    cli = CommandLine(folder)
    cli.share(answers)
    return cli


@pytest.fixture(autouse=True)
def _reachable(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Tests that act as other users get through to their folders, however deep these lie. Where tests run in
    several processes, each has its folders one level deeper.
    """
    base = tmp_path_factory.getbasetemp()
    for folder in (base, base.parent, base.parent.parent):
        if Path(tempfile.gettempdir()) in folder.parents:
            folder.chmod(folder.stat().st_mode | 0o111)

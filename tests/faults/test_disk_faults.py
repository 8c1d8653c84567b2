"""Every n-th write, open and rename of any process fails: the run ends, and the next completes it."""

import errno
import json
import os
import queue
import random
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from tests.conftest import ROOT, CommandLine
from tests.faults.study_engine import FAULTS
from tests.warm_python import WarmPython

from tileyard.store.events import list_run_files, read_run
from tileyard.store.trials import TrialQuery, TrialStore

EVERY = int(os.environ.get("TILEYARD_DISK_FAULTS", "0"))
"""Every so many calls fail, each in a run of its own; 0 for a few of them."""
LANES = 3 if EVERY else 1
"""So many runs go side by side."""
CASES = 20
DEADLINE_S = 120.0
LAYOUT = struct.Struct("@6q4096s")
"""``struct control`` of disk_faults.c."""
NEVER = 1 << 62
ENDS = {
    "wrong": "mismatch",
    "segv": "crashed",
    "refused": "compile_error",
    "error": "runtime_error",
}
"""How simulated kernels end that do this."""
SUITE = """
name = "s"
[[testcase]]
name = "t"
build = ["sh", "-c", "echo built; echo b > {out}/b"]
golden = ["sh", "-c", "echo {seed} > {out}/g"]
run = ["sh", "-c", "echo ran; cat {build}/b g > o"]
check = ["sh", "-c", "echo checked; test -s o"]
case = [{cases}]
"""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600 + (4 * 3600 if EVERY else 0))]


@dataclass(frozen=True, kw_only=True)
class Fault:
    """Which calls fail, how, and whether all that come after do, too, as on a full disk."""

    number: int
    error: int
    stays: bool

    def __str__(self) -> str:
        return f"{errno.errorcode[self.error]} at call {self.number}{' and later' * self.stays}"


@dataclass(frozen=True, kw_only=True)
class Done:
    """How a run ended: what it said of each case, None where it came to no result."""

    status: int
    outcomes: Mapping[str, str] | None
    stderr: str


class Faults:
    """The shared file that says which call fails, and counts them. ``root`` is the folder above them."""

    def __init__(self, library: Path, folder: Path) -> None:
        self.path = folder / "control"
        self.env = {"LD_PRELOAD": str(library), "DISK_FAULTS": str(self.path)}

    def plan(self, root: Path, fault: Fault | None = None, *, reading: bool = False) -> None:
        """Begin to count; without a fault nothing fails."""
        first, last, error = NEVER, NEVER, 0
        if fault is not None:
            first, error = fault.number, fault.error
            last = NEVER if fault.stays else fault.number
            reading = fault.error == errno.EIO
        packed = LAYOUT.pack(0, 0, first, last, error, reading, os.fsencode(root))
        self.path.write_bytes(packed)

    def count(self) -> int:
        """The calls so far."""
        return int(LAYOUT.unpack(self.path.read_bytes())[0])


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library that is preloaded."""
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc")
    library = tmp_path_factory.mktemp("disk_faults") / "disk_faults.so"
    source = Path(__file__).with_name("disk_faults.c")
    build = ["gcc", "-O1", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"]
    subprocess.run(build, check=True)
    return library


class SuiteRuns:
    """A suite of programs on a device: engine, compile worker, step host and runner. ``calls`` is about how
    many can fail in a run, and one of each of the ``sampled`` kinds does in a short test.
    """

    calls = 500
    sampled = (1, 2)
    count = CASES if EVERY else 8
    clean: Final[Mapping[str, str]] = {f"t/{number}": "passed" for number in range(count)}

    def __init__(self, folder: Path, library: Path) -> None:
        self.faults = faults = Faults(library, folder)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("LD_PRELOAD", str(library))
            self._python = WarmPython("tileyard")
        env = {**faults.env, "TILEYARD_HOST_CONFIG": str(folder)}
        self._cli = CommandLine(folder, env)
        cases = ", ".join(f'{{ name = "{number}" }}' for number in range(self.count))
        (folder / "suite.toml").write_text(SUITE.replace("{cases}", cases))
        (folder / "devices.toml").write_text('[[device]]\nname = "board:0"\nid = "disk"\n')
        self.home = self._cli.home

    def run(self) -> Done:
        """Run what no earlier run has proven."""
        words = ("test", "suite.toml", "--devices", "board:0", "--changed", "any", "--json")
        env = self._cli.environment()
        done = self._python.run(words, self._cli.cwd, env)
        verdicts = json.loads(done.stdout)["verdicts"] if done.stdout else None
        outcomes = verdicts and {
            v["case"]: v["outcome"].replace("skipped", "passed") for v in verdicts
        }
        return Done(status=done.returncode, outcomes=outcomes, stderr=done.stderr)

    def close(self) -> None:
        """Run nothing more."""
        self._python.close()


class StudyRuns:
    """A study of simulated kernels: driver, compile workers, runners and judge."""

    calls = 500
    sampled = (0,)
    clean: Final[Mapping[str, str]] = {
        str(n): ENDS.get(FAULTS.get(n, ""), "passed") for n in range(CASES)
    }

    def __init__(self, folder: Path, library: Path) -> None:
        self.faults = Faults(library, folder)
        self._folder = folder
        self._env = {**os.environ, **self.faults.env}
        self.home = folder / "home"

    def run(self) -> Done:
        """Run what no earlier run has."""
        command = [sys.executable, "-m", "tests.faults.study_engine", str(self._folder), str(CASES)]
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=self._env,
            capture_output=True,
            text=True,
            check=False,
            timeout=DEADLINE_S,
        )
        outcomes = dict(json.loads(done.stdout)["configs"]) if done.stdout else None
        return Done(status=done.returncode, outcomes=outcomes, stderr=done.stderr)

    def close(self) -> None:
        """Each run is a process that has ended by now."""


Runs = SuiteRuns | StudyRuns


def check_fault(runs: Runs, fault: Fault) -> None:
    """One run with the fault, and one without."""
    shutil.rmtree(runs.home, ignore_errors=True)
    runs.faults.plan(runs.home, fault)
    first = runs.run()
    runs.faults.plan(runs.home)
    assert "Traceback" not in first.stderr, first.stderr
    if first.outcomes is None:
        assert first.status in (2, 3), first
        assert first.stderr.strip(), first
    else:
        wrong = {
            case: outcome
            for case, outcome in first.outcomes.items()
            if outcome not in (runs.clean[case], "infra_error")
        }
        assert not wrong, first.stderr
    trials = read_trials(runs.home)
    assert len({trial.id for trial in trials}) == len(trials)
    second = runs.run()
    assert second.outcomes == runs.clean, second.stderr


def read_trials(home: Path) -> list[Any]:
    """All that is recorded; of events at most the last line may be torn."""
    if not home.is_dir():
        return []
    assert all(read_run(path).skipped <= 1 for path in list_run_files(home))
    with TrialStore.open(home) as store:
        return store.list_trials(TrialQuery(limit=0))


KINDS = [(errno.ENOSPC, False, 1), (errno.ENOSPC, True, 10), (errno.EIO, False, 10)]
"""An error, whether it stays, and every how many of the calls that fail once it is tried at."""


def choose_faults(runs: Runs) -> Iterator[Fault]:
    """Every so many calls of an undisturbed run, or a few of them."""
    generator = random.Random(type(runs).__name__)
    for kind, (error, stays, step) in enumerate(KINDS):
        numbers: Iterable[int] = ()
        if EVERY:
            runs.faults.plan(runs.home, reading=error == errno.EIO)
            assert runs.run().outcomes == runs.clean
            numbers = range(1, runs.faults.count() + 1, EVERY * step)
            shutil.rmtree(runs.home)
        elif kind in runs.sampled:
            numbers = [generator.randrange(1, runs.calls)]
        for number in numbers:
            yield Fault(number=number, error=error, stays=stays)


@pytest.mark.parametrize("kind", [SuiteRuns, StudyRuns])
def test_a_disk_that_fails_anywhere_ends_no_run(
    kind: type[Runs], tmp_path: Path, library: Path
) -> None:
    """No case is blamed, records are readable, and the next run finds what an undisturbed one does."""
    idle: queue.SimpleQueue[Runs] = queue.SimpleQueue()
    with ExitStack() as stack:
        for lane in range(LANES):
            (folder := tmp_path / str(lane)).mkdir()
            idle.put(stack.enter_context(closing(kind(folder, library))))

        def find_error(fault: Fault) -> Exception | None:
            runs = idle.get()
            try:
                check_fault(runs, fault)
            except Exception as error:  # noqa: BLE001 - all are shown in the end
                sys.stdout.write(f"{fault}: {error}\n")
                sys.stdout.flush()
                error.add_note(f"with {fault}")
                return error
            finally:
                idle.put(runs)
            return None

        first = idle.get()
        chosen = list(choose_faults(first))
        idle.put(first)
        with ThreadPoolExecutor(LANES) as pool:
            failed = [error for error in pool.map(find_error, chosen) if error is not None]
    if failed:
        raise ExceptionGroup(f"{len(failed)} of {len(chosen)} faults", failed)
    sys.stdout.write(f"{len(chosen)} faults of {kind.__name__}\n")

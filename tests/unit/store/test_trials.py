"""The store in SQLite keeps the contract of stores, and what SQLite promises beside it."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.full_files import files_up_to

from tileyard.base.errors import HomeError
from tileyard.base.model import Outcome
from tileyard.store.base import REUSABLE
from tileyard.store.trials import TrialQuery, TrialStore
from tileyard.testing import StoreContract
from tileyard.testing.stores import OpenStore, make_trial


class TestSqlite(StoreContract):
    """The store of a data directory."""

    @pytest.fixture
    def open_store(self, tmp_path: Path) -> OpenStore:
        """Opens the store of the test's own folder."""
        return lambda: TrialStore.open(tmp_path)


def test_what_says_nothing_of_a_kernel_is_not_reusable() -> None:
    """Faults of devices and hosts, builds, and cases that did not run."""
    expected = frozenset(
        {
            Outcome.INFRA_ERROR,
            Outcome.NOT_RUN,
            Outcome.QUEUE_TIMEOUT,
            Outcome.SKIPPED,
            Outcome.COMPILE_ERROR,
        }
    )
    assert frozenset(Outcome) - REUSABLE == expected


def test_a_full_disk_takes_nothing_and_breaks_nothing(tmp_path: Path) -> None:
    """All or none of what is recorded at once; the same store takes it once there is room."""
    trials = [make_trial(f"r1.{number}", message="x" * 500_000) for number in range(9)]
    with TrialStore.open(tmp_path) as store:
        with files_up_to(200_000), pytest.raises(HomeError, match=r"store\.db: disk I/O error"):
            store.record_all(trials)
        assert store.list_trials(TrialQuery()) == []
        store.record_all(trials)
        assert store.has_all([trial.id for trial in trials])


WRITER = """
import sys
from pathlib import Path
from tileyard.base.model import Keys, Outcome, Trial
from tileyard.store.trials import TrialStore
home, name, count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
with TrialStore.open(home) as store:
    for i in range(count):
        store.record(Trial(id=f"{name}{i}", run=name, case="c", batch="b", kernel="k", arguments={},
                           config={}, target="cpu", outcome=Outcome.PASSED, started_at=float(i)))
        print(i, flush=True)
"""


def start_writer(home: Path, name: str, count: int) -> "subprocess.Popen[bytes]":
    """A process that opens the store and records trials."""
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(home), name, str(count)], stdout=subprocess.PIPE
    )


@pytest.mark.slow
def test_processes_may_open_and_record_at_once(tmp_path: Path) -> None:
    """Of processes that all find no store each makes the same one, and none loses a trial."""
    writers = [start_writer(tmp_path, name, 100) for name in "abc"]
    expected = {f"{name}{i}" for name in "abc" for i in range(100)}

    for writer in writers:
        writer.communicate()

    with TrialStore.open(tmp_path) as store:
        found = store.list_trials(TrialQuery(limit=0))
    assert len(found) == len(expected)
    assert {trial.id for trial in found} == expected


@pytest.mark.slow
def test_recorded_trial_survives_the_death_of_its_process(tmp_path: Path) -> None:
    """What ``record`` returned for is there after SIGKILL, at whatever moment."""
    writer = start_writer(tmp_path, "a", 1_000_000)
    assert writer.stdout is not None
    for _ in range(50):
        writer.stdout.readline()
    writer.send_signal(signal.SIGKILL)
    told = 50 + len(writer.communicate()[0].splitlines())

    with TrialStore.open(tmp_path) as store:
        found = {trial.id for trial in store.list_trials(TrialQuery(limit=0))}

    # The last line may be cut: the trial it announces was recorded before.
    assert {f"a{i}" for i in range(told - 1)} <= found

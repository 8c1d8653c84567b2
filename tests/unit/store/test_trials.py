"""The table of trials: append-only, found by key, listed newest first."""

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tileyard.errors import UsageError
from tileyard.model import BuildKey, Keys, MeasurementKey, Mismatch, Outcome, Trial
from tileyard.store.lookups import BUILD_FAILURES, REUSABLE
from tileyard.store.runs import RunSummary
from tileyard.store.trials import TrialQuery, TrialStore

MakeTrial = Callable[..., Trial]


def test_trial_comes_back_whole(tmp_path: Path, make_trial: MakeTrial) -> None:
    """Every field of a trial survives, nested records and other processes' handles included."""
    expected = make_trial(
        "t1",
        build="b",
        run_key="r",
        measurement_key="m",
        mismatch=Mismatch(output="C", index=(1, 2), got="nan", want="1", wrong=3, total=4),
        message='quoted "text" and ünïcode',
        lease=7,
    )
    with TrialStore.open(tmp_path) as store:
        store.record(expected)

    with TrialStore.open(tmp_path) as store:
        assert store.get_trial("t1") == expected


def test_trial_is_recorded_once(tmp_path: Path, make_trial: MakeTrial) -> None:
    """An id that exists is refused, and what was recorded first stays."""
    expected = make_trial("t1")
    with TrialStore.open(tmp_path) as store:
        store.record(expected)

        with pytest.raises(ValueError, match="t1 is recorded already"):
            store.record(make_trial("t1", outcome=Outcome.CRASHED))

        assert store.get_trial("t1") == expected


@pytest.mark.parametrize("outcome", list(Outcome))
def test_measurement_is_found_where_its_outcome_says_something_of_the_kernel(
    tmp_path: Path, make_trial: MakeTrial, outcome: Outcome
) -> None:
    """Faults of the infrastructure and cases that did not run are never reused."""
    trial = make_trial("t1", measurement_key="m", outcome=outcome)
    expected = trial if outcome in REUSABLE else None
    with TrialStore.open(tmp_path) as store:
        store.record(trial)

        assert store.find_measured(MeasurementKey("m")) == expected
    assert not REUSABLE & {
        Outcome.INFRA_ERROR,
        Outcome.NOT_RUN,
        Outcome.QUEUE_TIMEOUT,
        Outcome.SKIPPED,
        Outcome.COMPILE_ERROR,
    }


def test_latest_measurement_is_found(tmp_path: Path, make_trial: MakeTrial) -> None:
    """Of several trials with a key the one that started last counts, and among equals the last."""
    expected = make_trial("t3", measurement_key="m", started_at=9.0)
    with TrialStore.open(tmp_path) as store:
        store.record(make_trial("t1", measurement_key="m", started_at=9.0))
        store.record(make_trial("t2", measurement_key="m", started_at=8.0))
        store.record(expected)
        store.record(make_trial("t4", measurement_key="m", started_at=7.0))
        store.record(make_trial("t5", measurement_key="other", started_at=10.0))

        assert store.find_measured(MeasurementKey("m")) == expected


def test_empty_key_finds_nothing(tmp_path: Path, make_trial: MakeTrial) -> None:
    """A step that was not reached has no identity."""
    with TrialStore.open(tmp_path) as store:
        store.record(make_trial("t1", outcome=Outcome.TIMEOUT))

        assert store.find_measured(MeasurementKey("")) is None
        assert store.find_build_failure(BuildKey("")) is None


@pytest.mark.parametrize("outcome", list(Outcome))
def test_build_failure_is_found_where_it_says_something_of_the_source(
    tmp_path: Path, make_trial: MakeTrial, outcome: Outcome
) -> None:
    """A build that was refused, hung or ran out of memory is not tried again."""
    trial = make_trial("t1", build="b", outcome=outcome)
    expected = trial if outcome in BUILD_FAILURES else None
    with TrialStore.open(tmp_path) as store:
        store.record(trial)

        assert store.find_build_failure(BuildKey("b")) == expected


def test_timeout_of_a_run_is_no_build_failure(tmp_path: Path, make_trial: MakeTrial) -> None:
    """A trial that has a run key was built."""
    with TrialStore.open(tmp_path) as store:
        store.record(make_trial("t1", build="b", run_key="r", outcome=Outcome.TIMEOUT))

        assert store.find_build_failure(BuildKey("b")) is None


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (TrialQuery(), ["t4", "t3", "t2", "t1"]),
        (TrialQuery(limit=2), ["t4", "t3"]),
        (TrialQuery(limit=0), ["t4", "t3", "t2", "t1"]),
        (TrialQuery(kernel="softmax"), ["t2"]),
        (TrialQuery(run="r2"), ["t3"]),
        (TrialQuery(target="sim:h100"), ["t4"]),
        (TrialQuery(outcome=Outcome.CRASHED), ["t4", "t3"]),
        (TrialQuery(outcome=Outcome.CRASHED, run="r1"), ["t4"]),
        (TrialQuery(kernel="%"), []),
    ],
)
def test_trials_are_listed_newest_first(
    tmp_path: Path, make_trial: MakeTrial, query: TrialQuery, expected: list[str]
) -> None:
    """Filters combine; the limit keeps the newest."""
    crashed = Outcome.CRASHED
    with TrialStore.open(tmp_path) as store:
        store.record(make_trial("t3", started_at=3.0, run="r2", outcome=crashed))
        store.record(make_trial("t1", started_at=1.0))
        store.record(make_trial("t4", started_at=4.0, target="sim:h100", outcome=crashed))
        store.record(make_trial("t2", started_at=2.0, kernel="softmax"))

        assert [trial.id for trial in store.list_trials(query)] == expected


def test_trial_is_found_by_the_beginning_of_its_id(tmp_path: Path, make_trial: MakeTrial) -> None:
    """A prefix is enough where it fits one trial; a whole id wins over longer ones."""
    with TrialStore.open(tmp_path) as store:
        for name in ("ab", "abc", "xyz"):
            store.record(make_trial(name))

        assert store.get_trial("x").id == "xyz"
        assert store.get_trial("ab").id == "ab"


@pytest.mark.parametrize(
    ("prefix", "message"),
    [("q", "no trial"), ("", "no trial"), ("%", "no trial"), ("AB", "no trial"), ("a", "several")],
)
def test_id_that_names_no_single_trial_is_refused(
    tmp_path: Path, make_trial: MakeTrial, prefix: str, message: str
) -> None:
    """Nothing is guessed: unknown, empty and ambiguous prefixes are the user's to mend."""
    with TrialStore.open(tmp_path) as store:
        store.record(make_trial("ab"))
        store.record(make_trial("abc"))

        with pytest.raises(UsageError, match=message):
            store.get_trial(prefix)


def test_runs_are_summarised_newest_first(tmp_path: Path, make_trial: MakeTrial) -> None:
    """A run is told by its kernels, how many trials it has, and how many of these are well."""
    expected = [
        RunSummary(
            run="r2",
            target="cpu",
            kernels=("gemm",),
            trials=1,
            well=0,
            first_started_at=9.0,
            last_started_at=9.0,
        ),
        RunSummary(
            run="r1",
            target="cpu",
            kernels=("gemm", "softmax"),
            trials=3,
            well=2,
            first_started_at=1.0,
            last_started_at=3.0,
        ),
    ]
    with TrialStore.open(tmp_path) as store:
        store.record(make_trial("a", started_at=1.0))
        store.record(make_trial("b", started_at=2.0, kernel="softmax", outcome=Outcome.UNCHECKED))
        store.record(make_trial("c", started_at=3.0, outcome=Outcome.TIMEOUT))
        store.record(make_trial("d", started_at=9.0, run="r2", outcome=Outcome.MISMATCH))

        assert store.list_runs() == expected
        assert store.list_runs(limit=1) == expected[:1]


WRITER = """
import sys
from pathlib import Path
from tileyard.model import Keys, Outcome, Trial
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


def test_keys_are_searched_as_they_are(tmp_path: Path, make_trial: MakeTrial) -> None:
    """A key is one value, not a pattern."""
    trial = make_trial("t1", keys=Keys(measurement=MeasurementKey("abc")))
    with TrialStore.open(tmp_path) as store:
        store.record(trial)

        assert store.find_measured(MeasurementKey("a%")) is None

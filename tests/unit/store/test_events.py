"""Event streams: one line for each event, readable after a kill, enough to rebuild the table."""

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from tests.full_files import files_up_to

from tileyard.base.errors import HomeError
from tileyard.base.events import (
    EVENT_VERSION,
    BuildEnded,
    BuildStarted,
    CaseEnded,
    CaseLeft,
    CasePlanned,
    CaseStarted,
    DeviceAsked,
    DeviceAwaited,
    DeviceLeased,
    DevicePaused,
    DeviceReleased,
    Event,
    HostJoined,
    HostLost,
    JudgeAnswered,
    Note,
    PairsCounted,
    PreparationEnded,
    RepetitionStarted,
    RunEnded,
    RunStarted,
    StepEnded,
    StudyAdvanced,
    TargetsBuilt,
)
from tileyard.base.model import Case, Device, KernelWork, Mismatch, Outcome, Trial
from tileyard.store.events import (
    EventLog,
    EventTail,
    StreamState,
    is_recorded,
    is_under_way,
    list_run_files,
    read_events,
    read_run,
    read_state,
    run_file,
)
from tileyard.store.trials import TrialQuery, TrialStore

MakeTrial = Callable[..., Trial]


def run_started(version: int = EVENT_VERSION) -> RunStarted:
    """The first event of a run."""
    return RunStarted(run="r1", at=0.0, title="", target="cpu", devices=(), version=version)


def write(home: Path, run: str, *events: Event) -> Path:
    """A stream with these events."""
    with EventLog(home, run) as log:
        for event in events:
            log.append(event)
        return log.path


def test_every_kind_of_event_comes_back(tmp_path: Path, make_trial: MakeTrial) -> None:
    """Events are told apart by their tags, and none loses a field."""
    device = Device(name="cpu:0", kind="cpu", identity="zen3", cores=(0, 1))
    mismatch = Mismatch(output="C", index=(0,), got="nan", want="inf", wrong=1, total=2)
    work = KernelWork(kernel="gemm", config={"a": 1, "b": True, "c": 1.5})
    expected: list[Event] = [
        RunStarted(run="r1", at=0.5, title="gemm", target="cpu", devices=(device,)),
        CasePlanned(case=Case(id="c1", work=work)),
        PreparationEnded(case="c1", at=0.9, seconds=0.25),
        BuildStarted(case="c1", at=1.0, host="far", worker=3),
        BuildEnded(case="c1", at=2.0, ok=True, reused=False),
        TargetsBuilt(built=1, total=2),
        DeviceAsked(device="cpu:0", at=2.1),
        DeviceAwaited(device="cpu:0", at=2.2, place=1, holder="ada, pid 7"),
        DeviceLeased(device="cpu:0", at=2.3, lease=8),
        DevicePaused(device="cpu:0", at=2.5, reason="quiet"),
        CaseStarted(case="c1", device="cpu:0", at=3.0),
        CaseLeft(case="c1", device="cpu:0", at=3.4),
        JudgeAnswered(cases=("c1",), at=3.45, seconds=0.01),
        DeviceReleased(device="cpu:0", at=3.5),
        StepEnded(case="c1", step="check", at=3.6, seconds=0.1),
        CaseEnded(trial=make_trial("t1", outcome=Outcome.MISMATCH, mismatch=mismatch), at=3.65),
        Note(text="two\nlines", level="warning"),
        HostLost(host="far", at=3.7, why="gone"),
        HostJoined(host="near", at=3.8, devices=(device,)),
        PairsCounted(decided=1, undecided=2, left_s=3.5),
        StudyAdvanced(expected_gain=0.02, left_s=None, rejected={"`where`": 3}),
        RepetitionStarted(strategy="grid", file="a.jsonl", left={"grid": 2}),
        RunEnded(run="r1", at=4.0, reason="done"),
    ]

    path = write(tmp_path, "r1", *expected)

    assert list(read_events(path)) == expected
    assert {type(event) for event in expected} == set(Event.__args__)
    assert len(path.read_bytes().splitlines()) == len(expected)


def test_stream_is_json_lines_with_a_version(tmp_path: Path) -> None:
    """A program that knows nothing of ours can read it."""
    path = write(tmp_path, "r1", run_started())
    expected = {"type": "run_started", "version": EVENT_VERSION}

    found = msgspec.json.decode(path.read_bytes())

    assert path == tmp_path / "runs" / "r1.jsonl"
    assert found | expected == found


def test_event_is_in_the_file_as_soon_as_it_is_appended(tmp_path: Path) -> None:
    """Another process sees it, and a kill cannot take it back."""
    expected: list[Event] = [Note(text="one")]
    with EventLog(tmp_path, "r1") as log:
        log.append(expected[0])

        assert list(read_events(log.path)) == expected


def test_resumed_run_goes_on_after_a_torn_line(tmp_path: Path) -> None:
    """Half a line of a killed writer costs that one event and none after it."""
    path = write(tmp_path, "r1", Note(text="one"), Note(text="two"))
    path.write_bytes(path.read_bytes()[:-5])

    write(tmp_path, "r1", Note(text="three"))

    assert list(read_events(path)) == [Note(text="one"), None, Note(text="three")]


def test_unreadable_lines_are_counted(tmp_path: Path, make_trial: MakeTrial) -> None:
    """Damage in a stream is told, and the trials around it are kept."""
    trial = make_trial("t1")
    path = write(tmp_path, "r1", CaseEnded(trial=trial))
    with path.open("ab") as file:
        file.write(b'not json\n\xff\xfe\n{"type": "unknown"}\n\n')

    found = read_run(path)

    assert found.trials == (trial,)
    assert found.skipped == 3


@pytest.mark.parametrize("at", ["-1", "1e300", "1e999", "null", "true"])
def test_events_at_times_that_cannot_be_are_unreadable(tmp_path: Path, at: str) -> None:
    """They would be without a date, and make a timeline without an end."""
    with EventLog(tmp_path, "r") as log:
        log.append(RunEnded(run="r", at=12345.0, reason="done"))
    path = run_file(tmp_path, "r")
    path.write_text(path.read_text().replace("12345.0", at))
    assert list(read_events(path)) == [None]


def test_newer_stream_is_refused(tmp_path: Path) -> None:
    """Events of a newer version are not guessed at."""
    path = write(tmp_path, "r1", run_started(EVENT_VERSION + 1))

    with pytest.raises(HomeError, match=r"r1\.jsonl was written by a newer version"):
        list(read_events(path))


@pytest.mark.parametrize("name", ["", "../r1", "a/b", ".hidden"])
def test_run_name_that_cannot_be_a_file_is_refused(tmp_path: Path, name: str) -> None:
    """A run's name cannot lead out of the directory of runs."""
    with pytest.raises(HomeError, match="cannot be the name of a run"):
        run_file(tmp_path, name)


def test_stream_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    """A file in the way of the directory is reported with its path."""
    (tmp_path / "runs").write_bytes(b"")

    with pytest.raises(HomeError, match=r"cannot write to .*r1\.jsonl"):
        EventLog(tmp_path, "r1")


def test_what_a_full_disk_does_not_take_is_written_later(tmp_path: Path) -> None:
    """A line that was cut goes on where it was cut, and none is lost or torn."""
    expected = [Note(text=str(number)) for number in range(3)]
    with EventLog(tmp_path, "r1") as log:
        log.append(expected[0])
        size = log.path.stat().st_size
        log.add(expected[1])
        with files_up_to(size + 5), pytest.raises(HomeError, match=r"cannot write to .*r1\.jsonl"):
            log.flush()
        assert log.path.stat().st_size == size + 5
        log.append(expected[2])
    assert list(read_events(log.path)) == expected


def test_a_stream_is_closed_also_where_the_disk_is_full(tmp_path: Path) -> None:
    """Leaving its block raises nothing: whoever flushed it knows."""
    with files_up_to(0), EventLog(tmp_path, "r1") as log:
        log.add(Note(text="lost"))
    assert log.path.read_bytes() == b""


def test_stream_that_is_not_there_is_named(tmp_path: Path) -> None:
    """Reading a run that left no stream says which file is missing."""
    with pytest.raises(HomeError, match=r"cannot read .*r9\.jsonl"):
        list(read_events(run_file(tmp_path, "r9")))


def record_both_ways(home: Path, trials: list[Trial]) -> list[Trial]:
    """Record trials in the table and in their runs' streams; the table's list of them."""
    with TrialStore.open(home) as store:
        for trial in trials:
            with EventLog(home, trial.run) as log:
                log.append(run_started())
                log.append(CaseEnded(trial=trial))
            store.record(trial)
        return store.list_trials(TrialQuery(limit=0))


def test_rebuilt_table_equals_the_one_that_was_recorded(
    tmp_path: Path, make_trial: MakeTrial
) -> None:
    """Every trial is back, whole, findable and in the same order, with two runs side by side."""
    expected = record_both_ways(
        tmp_path,
        [
            make_trial("t1", run="r2", started_at=1.0, measurement_key="m"),
            make_trial("t2", run="r1", started_at=2.0, measurement_key="m"),
            make_trial("t3", run="r2", started_at=3.0, outcome=Outcome.COMPILE_ERROR),
            make_trial("t4", run="r2", started_at=3.0),
        ],
    )
    for path in tmp_path.glob("store.*"):
        path.unlink()

    with TrialStore.open(tmp_path) as store:
        assert store.list_trials(TrialQuery(limit=0)) == expected
    assert [path.name for path in list_run_files(tmp_path)] == ["r1.jsonl", "r2.jsonl"]


def test_a_table_made_anew_holds_each_trial_once(tmp_path: Path, make_trial: MakeTrial) -> None:
    """Also one that a stream tells of twice."""
    expected = record_both_ways(tmp_path, [make_trial("t1")])
    write(tmp_path, "r1", CaseEnded(trial=make_trial("t1")))
    for path in tmp_path.glob("store.*"):
        path.unlink()
    with TrialStore.open(tmp_path) as store:
        assert store.list_trials(TrialQuery(limit=0)) == expected


def test_a_stream_is_recorded_once_the_table_has_all_its_trials(
    make_trial: MakeTrial, tmp_path: Path
) -> None:
    """One that cannot be read as a whole tells of something that nobody else knows."""
    with EventLog(tmp_path, "r") as log:
        for number in (1, 2):
            log.append(CaseEnded(trial=make_trial(f"r.{number}")))
    path = run_file(tmp_path, "r")
    with TrialStore.open(tmp_path / "other") as store:
        store.record(make_trial("r.1"))
        assert not is_recorded(path, store.has_all)
        store.record(make_trial("r.2"))
        assert is_recorded(path, store.has_all)
        assert store.has_all([])
        with path.open("a") as file:
            file.write('{"type": "case_en')
        assert not is_recorded(path, store.has_all)


def test_a_stream_is_followed_as_it_grows(tmp_path: Path) -> None:
    """Each event comes once, also one whose line was written in two parts; what cannot be read is skipped."""
    first, second, third = (Note(text=text) for text in ("a", "b", "c"))
    with EventLog(tmp_path, "r1") as log:
        tail = EventTail(log.path)
        assert [*tail.read()] == []
        log.append(first)
        log.append(second)
        assert [*tail.read()] == [first, second]
        line = msgspec.json.encode(third) + b"\n"
        with log.path.open("ab") as file:
            file.write(b"nonsense\n" + line[:5])
            file.flush()
            assert [*tail.read()] == []
            file.write(line[5:])
        assert [*tail.read()] == [third]
        assert [*tail.read()] == []


def test_the_ends_of_a_stream_say_how_a_run_is(tmp_path: Path) -> None:
    """It is under way while its log is open, and has ended after its last event; otherwise it was killed."""
    begun, ended = run_started(), RunEnded(run="r1", at=2.0, reason="done")
    with EventLog(tmp_path, "r1") as log:
        assert read_state(log.path) == StreamState(begun=None, ended=None, is_open=True)
        log.append(begun)
        log.append(Note(text="x" * 9999))
        assert read_state(log.path) == StreamState(begun=begun, ended=None, is_open=True)
        with EventLog(tmp_path, "r1"):  # of another process that adds trials
            assert is_under_way(log.path)
    assert read_state(log.path) == StreamState(begun=begun, ended=None, is_open=False)
    with EventLog(tmp_path, "r1") as log:
        log.append(ended)
        assert read_state(log.path) == StreamState(begun=begun, ended=ended, is_open=False)
    with pytest.raises(HomeError, match="No such file"):
        read_state(tmp_path / "none")

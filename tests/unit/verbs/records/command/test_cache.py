"""What the command that looks after a home removes of what runs have told."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tileyard.artifacts.objects import ObjectStore
from tileyard.base.events import CaseEnded
from tileyard.base.model import Outcome, Trial
from tileyard.cli.main import main
from tileyard.store.events import EventLog
from tileyard.store.trials import TrialQuery, TrialStore


def make_trial(run: str) -> Trial:
    """The one trial of a run."""
    return Trial(
        id=f"{run}.1",
        run=run,
        case="t/a",
        batch="b",
        kernel="t",
        arguments={},
        config={},
        target="command",
        outcome=Outcome.PASSED,
        run_s=3.0,
    )


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with two old runs, of which one was recorded."""
    home = tmp_path / "home"
    monkeypatch.setenv("TILEYARD_HOME", str(home))
    ObjectStore(home / "objects").put_bytes(b"x")
    with TrialStore.open(home) as store:
        store.record(make_trial("recorded"))
    for run in ("recorded", "alone"):
        with EventLog(home, run) as log:
            log.append(CaseEnded(trial=make_trial(run)))
        os.utime(log.path, (1, 1))
    return home


def list_streams(home: Path) -> set[str]:
    """The runs whose raw events are there."""
    return {path.stem for path in (home / "runs").iterdir()}


def damage(home: Path) -> None:
    """Make the store one that nobody can read."""
    for path in home.glob("store.db*"):
        path.write_bytes(b"no database" * 100)


def test_history_stays_and_raw_events_go(home: Path) -> None:
    """Those of which nothing else is left stay, too."""
    assert main(["cache", "gc", "--keep-days", "14"]) == 0
    assert list_streams(home) == {"alone"}
    with TrialStore.open(home) as store:
        (kept,) = store.list_trials(TrialQuery())
    assert (kept.id, kept.run_s) == ("recorded.1", 3.0)


@pytest.mark.parametrize(
    ("arguments", "before"),
    [
        (["--max-size", "0"], lambda home: None),
        (["--keep-days", "14", "--dry-run"], lambda home: None),
        (["--keep-days", "14"], damage),
    ],
)
def test_raw_events_stay_unless_it_is_safe_and_asked_for(
    arguments: list[str], before: Callable[[Path], None], home: Path
) -> None:
    """Size alone does not take them, and neither does a store that cannot be read."""
    before(home)
    assert main(["cache", "gc", *arguments]) == 0
    assert list_streams(home) == {"alone", "recorded"}

"""Which runs there are, and the states of those under way."""

import asyncio
import threading
from pathlib import Path

import pytest
from tests.unit.show.run_events import begun, ended, planned, started

from tileyard.base.errors import HomeError
from tileyard.base.events import CaseEnded, RunEnded
from tileyard.base.model import Outcome
from tileyard.store.events import EventLog, list_run_files, run_file
from tileyard.store.trials import open_store
from tileyard.testing.stores import make_trial
from tileyard.verbs.serve.plan.runs import (
    LATEST,
    MOST_FOLDS,
    POLL_S,
    Folds,
    RunFold,
    find_line,
    find_open,
    list_lines,
)

DONE = RunEnded(run="r", at=9.0, reason="done")


def test_runs_under_way_are_those_that_are_written(tmp_path: Path) -> None:
    """The latest first; neither one that has ended, nor one whose process is gone."""
    with EventLog(tmp_path, "a"), EventLog(tmp_path, "c"), EventLog(tmp_path, "b") as ended_now:
        with EventLog(tmp_path, "killed") as killed:
            killed.append(started())
        ended_now.append(DONE)
        assert [line.run for line in find_open(list_run_files(tmp_path))] == ["c", "a"]
    assert find_open(list_run_files(tmp_path)) == []


def test_runs_are_those_with_a_stream_or_trials(tmp_path: Path) -> None:
    """By name, the latest first; a page of them goes on where the one before has ended."""
    with open_store(tmp_path) as store:
        store.record_all([make_trial(f"{run}.1", run=run) for run in ("a", "c", "e")])
        for run in ("b", "c", "d"):
            with EventLog(tmp_path, run) as log:
                log.append(started())
        files = list_run_files(tmp_path)
        pages = [list_lines(tmp_path, files, store, 2, before) for before in ("", "d", "b", "a")]
        assert [[line.run for line in page] for page in pages] == [
            ["e", "d"],
            ["c", "b"],
            ["a"],
            [],
        ]
        of_c = pages[1][0]
        assert (of_c.stream.begun, of_c.span and of_c.span.trials) == (started(), 1)
        assert [line.run for line in list_lines(tmp_path, files, None, 9)] == ["d", "c", "b"]


def test_a_stream_that_cannot_be_read_says_nothing(tmp_path: Path) -> None:
    """A name that is none is refused."""
    file = run_file(tmp_path, "r")
    file.parent.mkdir()
    file.write_bytes(b"\xff\n{}\n")
    assert find_line(tmp_path, "r") == find_line(tmp_path, "r")
    assert find_line(tmp_path, "r").stream.begun is None
    with pytest.raises(HomeError, match="cannot be the name of a run"):
        find_line(tmp_path, "../r")


def look(fold: RunFold) -> tuple[int, int, list[str]]:
    """Numbers of ended and of open cases, and what ended last."""
    return fold.view.ended, len(fold.view.open), [one.trial.case for one in fold.latest]


def test_a_fold_follows_its_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes what was written since, as often as it is looked at, but for a moment."""
    now_s = [100.0]
    monkeypatch.setattr("tileyard.verbs.serve.plan.runs.monotonic", lambda: now_s[0])

    async def use() -> None:
        with EventLog(tmp_path, "r") as log:
            async with Folds(tmp_path).hold("r") as fold:
                assert await fold.look(look) == (0, 0, [])
                for event in (started(), planned("a"), planned("b"), begun("a")):
                    log.append(event)
                now_s[0] += POLL_S / 2
                assert await fold.look(look) == (0, 0, [])
                now_s[0] += POLL_S
                assert await fold.look(look) == (0, 2, [])
                log.append(ended("a", Outcome.CRASHED))
                now_s[0] += POLL_S
                assert await fold.look(look) == (1, 1, ["a"])
                for i in range(2 * LATEST):
                    log.append(ended(f"c{i}"))
                now_s[0] += POLL_S
                _, _, latest = await fold.look(look)
                assert latest == [f"c{i}" for i in range(2 * LATEST)][: LATEST - 1 : -1]

    asyncio.run(use())


def test_the_clock_of_a_fold_is_that_of_its_events(tmp_path: Path) -> None:
    """So what began before anybody looked has run for as long as it has."""

    async def use() -> None:
        with EventLog(tmp_path, "r") as log:
            log.append(started())
            log.append(planned("a"))
            log.append(CaseEnded(trial=make_trial("t1"), at=40.0))
            log.append(begun("a"))
            async with Folds(tmp_path).hold("r") as fold:
                (running,) = await fold.look(lambda fold: fold.view.running(50.0))
                assert (running.ran_s, fold.at_s) == (10.0, 40.0)

    asyncio.run(use())


def test_there_is_one_fold_of_a_run(tmp_path: Path) -> None:
    """For all who hold it, and a few more for those who come back; a name that is none is refused."""

    async def use() -> None:
        folds = Folds(tmp_path)
        async with folds.hold("r") as one, folds.hold("r") as other:
            assert one is other
            for i in range(3 * MOST_FOLDS):
                async with folds.hold(f"r{i}"):
                    pass
            async with folds.hold("r") as again:
                assert again is one
            assert len(folds._folds) == MOST_FOLDS + 1
        with pytest.raises(HomeError):
            async with folds.hold("../r"):
                pass

    asyncio.run(use())


def test_a_fold_is_looked_at_by_one_at_a_time(tmp_path: Path) -> None:
    """Also if one that looks is cancelled: its thread goes on with the state."""
    began, goes_on = threading.Event(), threading.Event()
    looks = list[str]()

    def look_slowly(_: RunFold) -> None:
        began.set()
        goes_on.wait(30)
        looks.append("slow")

    async def use() -> None:
        with EventLog(tmp_path, "r"):
            async with Folds(tmp_path).hold("r") as fold:
                slow = asyncio.create_task(fold.look(look_slowly))
                await asyncio.to_thread(began.wait, 30)
                slow.cancel()
                later = asyncio.create_task(fold.look(lambda _: looks.append("later")))
                await asyncio.wait([later], timeout=0.05)
                goes_on.set()
                await later
        assert looks == ["slow", "later"]

    asyncio.run(use())


def test_a_run_that_is_removed_cannot_be_looked_at(tmp_path: Path) -> None:
    """It is an error in words."""

    async def use() -> None:
        async with Folds(tmp_path).hold("r") as fold:
            with pytest.raises(HomeError, match="No such file"):
                await fold.look(look)

    asyncio.run(use())

"""How long cases of suites ran is read from columns, also in stores that are older than these."""

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

from tileyard.model import Outcome, Trial
from tileyard.store.run_times import RunTimeQuery
from tileyard.store.trials import TrialQuery, TrialStore

MakeTrial = Callable[..., Trial]


def make_older(home: Path) -> None:
    """Turn a store into one from before there were suites."""
    with sqlite3.connect(home / "store.db") as database:
        database.execute("DROP INDEX trials_of_suites")
        database.execute("ALTER TABLE trials DROP COLUMN run_s")
    database.close()


def test_the_latest_runs_of_each_case_are_read(tmp_path: Path, make_trial: MakeTrial) -> None:
    """At most so many of each case as are asked for, the oldest first."""
    with TrialStore.open(tmp_path) as store:
        for i in range(5):
            for case in ("sums/b", "sums/a"):
                store.record(
                    make_trial(f"{case}{i}", case=case, started_at=float(i), run_s=i + 0.5)
                )
        found = store.list_run_times(RunTimeQuery(latest=2))

    expected = [("sums/a", 3.5), ("sums/a", 4.5), ("sums/b", 3.5), ("sums/b", 4.5)]
    assert [(time.case, time.run_s) for time in found] == expected


@pytest.mark.parametrize(
    "fields",
    [
        {"case": "c0001"},
        {"reused": True},
        {"outcome": Outcome.SKIPPED},
        {"outcome": Outcome.NOT_RUN},
        {"target": "cpu"},
        {"started_at": 9.0},
    ],
)
def test_what_says_nothing_of_a_case_is_left_out(
    tmp_path: Path, make_trial: MakeTrial, fields: dict[str, object]
) -> None:
    """Trials of studies, remembered ones, cases that did not run, other targets and older ones."""
    usual: dict[str, object] = {"case": "s/a", "target": "command", "started_at": 20.0}
    query = RunTimeQuery(target="command", since=10.0)
    expected = ["s/a"]
    with TrialStore.open(tmp_path) as store:
        store.record(make_trial("t1", **usual))
        store.record(make_trial("t2", **(usual | fields)))
        found = store.list_run_times(query)

    assert [time.case for time in found] == expected


@pytest.mark.parametrize(
    "fields",
    [
        {"case": "c0001"},
        {"reused": True},
        {"outcome": Outcome.TIMEOUT},
        {"run_s": 0.0},
        {"target": "cpu"},
        {"device": "npux:0"},
    ],
)
def test_times_case_by_case(
    tmp_path: Path, make_trial: MakeTrial, fields: dict[str, object]
) -> None:
    """What came to its own end on this class of devices, with when it began; a time limit is no duration."""
    usual: dict[str, object] = {
        "case": "s/a",
        "kernel": "s",
        "target": "command",
        "device": "npu:1",
        "run_s": 2.5,
        "started_at": 20.0,
    }
    asked = ((Outcome.PASSED, Outcome.MISMATCH), "command", "npu")
    with TrialStore.open(tmp_path) as store:
        store.record(make_trial("t1", **usual))
        store.record(make_trial("t2", **(usual | fields)))
        store.record(make_trial("t3", **(usual | {"started_at": 10.0, "device": "npu"})))
        [found] = store.list_case_times(*asked)
        said = store.describe_skipped()

    assert (found.case, found.testcase, said) == ("s/a", "s", "")
    expected = [(10.0, 2.5), (20.0, 2.5)]
    assert sorted(zip(found.started_at, found.run_s, strict=True)) == expected


def test_an_older_store_gains_run_times_and_loses_nothing(
    tmp_path: Path, make_trial: MakeTrial
) -> None:
    """What it holds stays, and what is recorded from now on has its time."""
    with TrialStore.open(tmp_path) as store:
        store.record(make_trial("t1", run_s=3.0))
    make_older(tmp_path)
    expected = [7.0]

    with TrialStore.open(tmp_path) as store:
        store.record(make_trial("t2", case="s/a", run_s=7.0, started_at=2.0))
        assert [trial.id for trial in store.list_trials(TrialQuery())] == ["t2", "t1"]
        assert [time.run_s for time in store.list_run_times(RunTimeQuery())] == expected


def test_a_store_can_go_back_to_an_older_version(tmp_path: Path, make_trial: MakeTrial) -> None:
    """Rows that an older Tileyard writes have no time of their own, which counts as not known."""
    with TrialStore.open(tmp_path) as store:
        store.record(make_trial("t1", case="s/a", run_s=7.0))
    with sqlite3.connect(tmp_path / "store.db") as database:
        database.execute("UPDATE trials SET run_s = NULL")
    database.close()
    expected = [0.0]

    with TrialStore.open(tmp_path) as store:
        assert [time.run_s for time in store.list_run_times(RunTimeQuery())] == expected


def test_records_are_not_read(tmp_path: Path) -> None:
    """The index holds all that is asked for, by the statements that are really executed."""
    asked: list[tuple[str, Any]] = []
    expected = "USING COVERING INDEX trials_of_suites"
    with TrialStore.open(tmp_path) as store, store._engine.connect() as connection:
        event.listen(store._engine, "before_cursor_execute", lambda *e: asked.append(e[2:4]))
        store.list_run_times(RunTimeQuery(target="command", since=1.0))
        store.list_case_times([Outcome.PASSED], "command", "npu")
        assert len(asked) == 2
        plans = [
            connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {text}", values).all()
            for text, values in tuple(asked)
        ]
    assert all(expected in str(plan) for plan in plans), plans

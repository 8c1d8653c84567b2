"""How long cases of suites ran is read from columns, and rows that make no sense cost only themselves."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

from tileyard.base.model import Outcome, Trial
from tileyard.store.trials import TrialQuery, TrialStore

MakeTrial = Callable[..., Trial]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ("run_s = 'soon'", ""),
        ("run_s = 2e6", ""),
        ("started_at = 'then'", ""),
        ("started_at = 2e11", ""),
        ("testcase = x'ff'", ""),
        ("case_id = CAST(x'ff' AS TEXT)", ""),
        ("run_s = NULL", "still"),
    ],
)
def test_rows_that_make_no_sense_are_counted(
    tmp_path: Path, make_trial: MakeTrial, change: str, expected: str
) -> None:
    """What others wrote into the file is passed over; one that an older version wrote has no time."""
    usual = {"case": "s/a", "testcase": "s", "run_s": 1.0}
    with TrialStore.open(tmp_path) as store:
        store.record(make_trial("t1", **usual))
        store.record(make_trial("t2", **(usual | {"case": "s/b", "started_at": 2.0})))
        with closing(sqlite3.connect(tmp_path / "store.db")) as database, database:
            database.execute(f"UPDATE suite_trials SET {change} WHERE case_id = 's/b'")
        times = store.list_case_times([Outcome.PASSED], 2.0)
        assert [(one.case, list(one.before_s)) for one in times] == [("s/a", [1.0])]
        told = "" if expected else "skipped what cannot be read: 1 row of"
        assert store.describe_skipped().startswith(told)
        assert len(store.list_run_times()) == (2 if expected else 1)


def test_how_long_sanitized_builds_ran_is_not_kept(tmp_path: Path, make_trial: MakeTrial) -> None:
    """They would count as times of the case."""
    usual = {"case": "s/a", "testcase": "s", "run_s": 1.0}
    with TrialStore.open(tmp_path) as store:
        store.record(make_trial("t1", **usual, target="cpu:native,sanitize=1"))
        assert store.list_case_times([Outcome.PASSED], 2.0) == []
        assert [one.run_s for one in store.list_run_times()] == [0.0]
        assert [trial.run_s for trial in store.list_trials(TrialQuery())] == [1.0]


def test_records_are_not_read(tmp_path: Path) -> None:
    """The tables of suites hold all that is asked for, by the statements that are really executed."""
    asked: list[tuple[str, Any]] = []
    with TrialStore.open(tmp_path) as store, store._database.reading() as connection:
        engine = connection.engine
        event.listen(engine, "before_cursor_execute", lambda *e: asked.append(e[2:4]))
        store.list_run_times("command")
        store.list_case_times([Outcome.PASSED], 1.0, "command", "npu")
        assert len(asked) == 2
        plans = [
            connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {text}", values).all()
            for text, values in tuple(asked)
        ]
    scan = "SCAN suite_trials"  # in its order; what several suites may have is also sorted by suite
    expected = [[scan], [scan, "USE TEMP B-TREE FOR GROUP BY"]]
    assert [[row[-1] for row in plan] for plan in plans] == expected

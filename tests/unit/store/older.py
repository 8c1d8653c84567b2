"""A store and a stream as version 1 wrote them."""

import sqlite3
from contextlib import closing
from pathlib import Path

SCHEMA = """
CREATE TABLE trials (
    number INTEGER NOT NULL, id TEXT NOT NULL, run TEXT NOT NULL, case_id TEXT NOT NULL, kernel TEXT NOT NULL,
    target TEXT NOT NULL, device TEXT NOT NULL, outcome TEXT NOT NULL, control BOOLEAN NOT NULL,
    reused BOOLEAN NOT NULL, started_at FLOAT NOT NULL, median_ns FLOAT, run_s FLOAT, build_key TEXT NOT NULL,
    golden_key TEXT NOT NULL, run_key TEXT NOT NULL, measurement_key TEXT NOT NULL, record BLOB NOT NULL,
    PRIMARY KEY (number), UNIQUE (id));
CREATE INDEX trials_by_start ON trials (started_at);
CREATE INDEX trials_by_run ON trials (run, started_at);
CREATE INDEX trials_by_kernel ON trials (kernel, started_at);
CREATE INDEX trials_by_failed_build ON trials (build_key, started_at) WHERE run_key = '';
CREATE INDEX trials_by_measurement ON trials (measurement_key, started_at);
CREATE INDEX trials_of_suites ON trials (case_id, started_at, kernel, target, device, outcome, run_s, reused)
    WHERE instr(case_id, '/') > 0;
CREATE INDEX trials_of_suites_by_run_key ON trials (run_key, started_at) WHERE instr(case_id, '/') > 0;
PRAGMA application_id = 1414089797;
PRAGMA user_version = 1;
PRAGMA journal_mode = WAL;
"""

WITHOUT_SUITES = """
DROP INDEX trials_of_suites;
DROP INDEX trials_of_suites_by_run_key;
DROP INDEX trials_by_failed_build;
ALTER TABLE trials DROP COLUMN run_s;
"""
"""What makes it one from before there were suites."""


def tell(  # noqa: PLR0913 - fields of a trial, by name
    trial: str,
    case: str,
    kernel: str,
    arguments: str,
    config: str = "{}",
    *,
    target: str = "command",
    started_at: float = 1.0,
) -> bytes:
    """A trial that passed in run ``r`` and took as many seconds as it started after the epoch."""
    return (
        f'{{"id":"{trial}","run":"r","case":"{case}","batch":"b","kernel":"{kernel}","arguments":{arguments},'
        f'"config":{config},"target":"{target}","outcome":"passed","device":"npu:0","control":false,'
        '"message":"","keys":{"build":"","binary":"","golden":"","run":"k","measurement":"m"},'
        f'"measurement":null,"mismatch":null,"started_at":{started_at},"build_s":0.0,"run_s":{started_at},'
        '"lease":1,"log":"","limits":{"elaborate_s":60.0,"golden_s":300.0,"build_s":120.0,"run_s":60.0,'
        '"memory_bytes":8589934592},"reused":false,"attempts":[]}'
    ).encode()


TRIALS = (
    tell("t1", "dir/a/x", "dir/a", '{"case":"x"}'),
    tell("t2", "dir/a/x~2", "dir/a", '{"case":"x","attempt":2}', started_at=2.0),
    tell("t3", "dir/a/x~3", "dir/a", '{"case":"x~3"}', started_at=3.0),
    tell("t4", "c0001", "gemm", '{"M":64}', '{"block":8}', target="cpu", started_at=4.0),
    tell("t5", "gemm/block=8", "gemm", '{"M":64}', '{"block":8}', target="cpu", started_at=5.0),
    tell("t6", "tests/a.py/test_b[1]", "test_b", "{}", target="pytest", started_at=6.0),
)
"""Two attempts at a case, a case that looks like a third, two trials of a kernel, and a test."""


def make_store(home: Path) -> None:
    """A store of version 1 with TRIALS."""
    with closing(sqlite3.connect(home / "store.db")) as database, database:
        database.executescript(SCHEMA)
        for record in TRIALS:
            database.execute(
                "INSERT INTO trials SELECT NULL, ?1->>'id', 'r', ?1->>'case', ?1->>'kernel', ?1->>'target',"
                " 'npu:0', 'passed', 0, 0, ?1->>'started_at', NULL, ?1->>'run_s', '', '', 'k', 'm', ?2",
                (record.decode(), record),
            )


def make_stream(home: Path) -> None:
    """An event stream of version 1 with TRIALS, each of which was planned."""
    started = (
        '{"type":"run_started","run":"r","at":0.0,"title":"","target":"","devices":[],"version":1}'
    )
    planned = '{"type":"case_planned","case":{"id":"c","kernel":"k","arguments":{}},"batch":""}'
    lines = [started]
    for record in TRIALS:
        lines += [planned, f'{{"type":"case_ended","trial":{record.decode()}}}']
    (home / "runs").mkdir()
    (home / "runs" / "r.jsonl").write_text("\n".join(lines))

"""The order of tests, and what of them is remembered."""

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tileyard.base.model import Outcome
from tileyard.pytest_plugin.far_records import Hold, TestFacts
from tileyard.pytest_plugin.recording import (
    TrialWriter,
    case_of,
    read_durations,
    sort_longest_first,
)
from tileyard.store.base import TrialQuery
from tileyard.store.trials import TrialStore


def items(*names: str) -> list[Any]:
    """Tests of one file."""
    return [SimpleNamespace(nodeid=f"t.py::{name}") for name in names]


@pytest.mark.parametrize(
    ("nodeid", "expected"),
    [
        ("a/t.py::test_x", "a/t.py/test_x"),
        ("t.py::TestA::test_x[1-/]", "t.py/TestA::test_x[1-/]"),
        ("t.yaml", "t.yaml/test"),
    ],
)
def test_a_test_is_a_case_of_its_file(nodeid: str, expected: str) -> None:
    """The testcase is the file, the name the rest."""
    assert case_of(nodeid) == expected


def test_the_longest_come_first_and_the_unknown_before_them() -> None:
    """An unknown parametrisation counts as its function; what is not known at all is run first."""
    durations = {"t.py/a": 1.0, "t.py/b": 3.0, "t.py/c[1]": 2.0, "t.py/c": 2.0}
    found = items("a", "b", "c[2]", "new")
    sort_longest_first(found, durations, 1)
    expected = ["new", "b", "c[2]", "a"]
    assert [item.nodeid.removeprefix("t.py::") for item in found] == expected


def test_every_process_gets_a_long_one_first_and_a_short_one_next() -> None:
    """Where pairs are handed out, no process begins with two of the longest."""
    durations = {f"t.py/{name}": float(9 - number) for number, name in enumerate("abcdef")}
    found = items(*"fedcba")
    sort_longest_first(found, durations, 2)
    expected = list("aebfcd")
    assert [item.nodeid.removeprefix("t.py::") for item in found] == expected


@pytest.mark.slow
def test_tests_are_trials_that_survive_the_loss_of_the_table(tmp_path: Path) -> None:
    """What was written is read back as durations, by case and by function, also where the table is gone."""
    hold = Hold(test="t.py::a", device="cpu:0", lease=7, at=0.0, held_s=0.1, waited_s=0.0)
    with TrialStore.open(tmp_path) as store:
        writer = TrialWriter(tmp_path, store, "r1", tmp_path)
        for seconds, name in ((1.0, "a[1]"), (3.0, "a[2]")):
            facts = TestFacts(seconds=seconds, outcome=Outcome.PASSED, holds=(hold,))
            writer.write(f"t.py::{name}", facts)
        writer.close("done")
        before = read_durations(store)
    for path in tmp_path.glob("store.*"):
        path.unlink()
    with TrialStore.open(tmp_path) as store:
        after = read_durations(store)
    expected = {"t.py/a": 2.0, "t.py/a[1]": 1.0, "t.py/a[2]": 3.0}
    assert before == expected
    assert after == expected


def test_a_run_without_tests_leaves_no_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is written, and git is not asked, before the first test has ended."""
    (tmp_path / ".git").touch()
    asked = tmp_path / "asked"
    (tmp_path / "git").write_text(f"#!/bin/sh\ntouch {asked}\necho '# branch.oid abc'\n")
    (tmp_path / "git").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    with TrialStore.open(tmp_path) as store:
        writer = TrialWriter(tmp_path, store, "r1", tmp_path)
        writer.close("done")
        assert not (tmp_path / "runs").exists()
        assert not asked.exists()
        writer.write("t.py::a", TestFacts(seconds=1.0, outcome=Outcome.PASSED, holds=()))
        writer.close("done")
        assert [one.revision for one in store.list_trials(TrialQuery())] == ["abc"]

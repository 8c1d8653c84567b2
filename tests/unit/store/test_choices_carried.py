"""Trials carried to another home: once each, with the choices they led to, and none of a bad file."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.unit.store.test_choices import FIRST

from tileyard.base.errors import UsageError
from tileyard.base.model import Trial
from tileyard.store.base import TrialQuery
from tileyard.store.choices import (
    add_choices,
    decode_trials,
    encode_trials,
    import_trials,
    list_choices,
)
from tileyard.store.trials import open_store

MakeTrial = Callable[..., Trial]
CHOICE = msgspec.structs.replace(FIRST, trial="r1.1")


def test_what_is_imported_is_there_once(make_trial: MakeTrial, tmp_path: Path) -> None:
    """Also in a store that is made again from its streams; a later choice stays, and logs are left behind."""
    trials = [
        make_trial("r1.1", log="logs/r1/a.log"),
        make_trial("r1.2"),
        make_trial("r2.1", run="r2"),
    ]
    other = msgspec.structs.replace(FIRST, trial="r9.1")
    found, choices = decode_trials(encode_trials(trials, [CHOICE, other]), "t.jsonl")
    assert found == [msgspec.structs.replace(trial, log="") for trial in trials]
    assert choices == [CHOICE]
    later = msgspec.structs.replace(CHOICE, trial="r3.1")
    with open_store(tmp_path) as store:
        store.record(trials[2])
        assert import_trials(tmp_path, store, found, choices) == found[:2]
        add_choices(tmp_path, [later])
        assert import_trials(tmp_path, store, found, choices) == []
    assert list_choices(tmp_path) == [later]
    for path in tmp_path.glob("store.db*"):
        path.unlink()
    with open_store(tmp_path) as store:
        assert {trial.id for trial in store.list_trials(TrialQuery())} == {"r1.1", "r1.2"}


def test_another_trial_of_the_same_id_is_refused(make_trial: MakeTrial, tmp_path: Path) -> None:
    """By name, and nothing is imported."""
    trials = [make_trial("r1.1"), make_trial("r1.2", message="other")]
    with open_store(tmp_path) as store:
        store.record(make_trial("r1.2"))
        with pytest.raises(UsageError, match=r"another trial has the id r1\.2 in "):
            import_trials(tmp_path, store, trials, [CHOICE])
        assert [trial.id for trial in store.list_trials(TrialQuery())] == ["r1.2"]
    assert list_choices(tmp_path) == []


def rename(data: bytes, old: str, new: str) -> bytes:
    """The file with another text in the place of one."""
    assert old.encode() in data
    return data.replace(old.encode(), new.encode())


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda data: b"", "t.jsonl:1: .*truncated"),
        (lambda data: b"\xff", "t.jsonl:1: "),
        (lambda data: data.partition(b"\n")[2], "t.jsonl:1: .*must be `trials 1`"),
        (lambda data: rename(data, "trials 1", "trials 2"), r"t.jsonl:1: .*\$.tileyard"),
        (lambda data: data[:-9], "t.jsonl:3: .*truncated"),
        (lambda data: rename(data, '"id":"r1.2"', '"id":"r2.2"'), "t.jsonl:3: .*'r2.2' cannot be"),
        (lambda data: rename(data, '"id":"r1.2"', '"id":"r1.x"'), "t.jsonl:3: .*'r1.x' cannot be"),
        (lambda data: rename(data, '"run":"r1"', '"run":"../r"'), "t.jsonl:2: .*'../r' cannot be"),
        (lambda data: rename(data, '"r1.2"', '"r1.1"'), "t.jsonl:3: .*r1.1 occurs twice"),
    ],
)
def test_a_bad_file_is_named_with_its_line(
    make_trial: MakeTrial,
    change: Callable[[bytes], bytes],
    says: str,
) -> None:
    """Whatever is wrong: what it is, whose trials they are, or how often they are there."""
    trials: list[Any] = [make_trial("r1.1"), make_trial("r1.2", message="other")]
    with pytest.raises(UsageError, match=says):
        decode_trials(change(encode_trials(trials, [])), "t.jsonl")

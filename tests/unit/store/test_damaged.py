"""A store with changed bytes, or that cannot grow: one line, and no trial is lost by following it."""

import random
import resource
from collections.abc import Callable
from pathlib import Path

import pytest

from tileyard.base.errors import HomeError
from tileyard.base.model import Trial
from tileyard.store.trials import TrialQuery, TrialStore

MakeTrial = Callable[..., Trial]
FLIPS = 120
MOST_BYTES = 8192


def test_no_changed_byte_is_a_bug_of_ours(tmp_path: Path, make_trial: MakeTrial) -> None:
    """Half are in the first page, with tables' names: the store is refused in one line, or read so far."""
    home = tmp_path / "home"
    with TrialStore.open(home) as store:
        store.record_all([make_trial(f"t{number}") for number in range(20)])
    whole = (home / "store.db").read_bytes()
    at = whole.index(b"tabletrials") + 6
    negative_version = 60
    chance = random.Random(3)
    places = [at, negative_version]
    places += [chance.randrange(4096 if n % 2 else len(whole)) for n in range(FLIPS)]
    refused: list[str] = []
    for place in places:
        changed = bytearray(whole)
        changed[place] ^= 0x80 if place in (at, negative_version) else chance.choice([1, 0x80, 255])
        for name in ("store.db-wal", "store.db-shm"):
            (home / name).unlink(missing_ok=True)
        (home / "store.db").write_bytes(changed)
        try:
            with TrialStore.open(home) as store:
                assert len(store.list_trials(TrialQuery(limit=0))) <= 20
                store.list_run_times()
                store.describe_skipped()
        except HomeError as error:
            refused.append(str(error))
    assert 2 <= len(refused) < FLIPS
    assert not any("\n" in message for message in refused)


def test_a_store_that_may_not_grow_is_not_to_be_moved_away(
    tmp_path: Path, make_trial: MakeTrial
) -> None:
    """A limit on the size of files is no damage; with more room, everything is there."""
    with TrialStore.open(tmp_path) as store:
        store.record_all([make_trial("t1")])
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (MOST_BYTES, limits[1]))
    try:
        with pytest.raises(HomeError) as caught, TrialStore.open(tmp_path) as store:
            store.record_all([make_trial(f"more{number}") for number in range(200)])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert "ulimit -f" in caught.value.hint
    assert "move it away" not in str(caught.value)
    with TrialStore.open(tmp_path) as store:
        assert [trial.id for trial in store.list_trials(TrialQuery())] == ["t1"]

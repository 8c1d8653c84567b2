"""Results of runs, kept for reports."""

import os
import random
from pathlib import Path

import msgspec
import pytest
from tests.full_files import files_up_to
from tests.unit.show.test_views import result

from tileyard.base.errors import HomeError, UsageError
from tileyard.base.events import RunStarted
from tileyard.store.events import EventLog, find_run_file, run_file
from tileyard.store.results import has_result, keep_result, list_kept, read_result
from tileyard.verbs.tune.result import StudyResult


def test_a_result_comes_back_as_it_was(tmp_path: Path) -> None:
    """With the name of its class."""
    keep_result(tmp_path, "b", result())
    keep_result(tmp_path, "a", result())
    kept = read_result(tmp_path, "a")
    assert kept.kind == "StudyResult"
    assert msgspec.msgpack.decode(kept.result, type=StudyResult) == result()
    assert has_result(tmp_path, "b")
    assert not has_result(tmp_path, "c")
    assert not has_result(tmp_path, "")


def test_the_last_run_is_the_one_that_began_last(tmp_path: Path) -> None:
    """For results and streams alike, whatever the times of their files: a copy has other ones."""
    names = ("20261130-2359-ffff", "20261201-0704-aaaa", "20261201-0704-0000")
    for at, name in enumerate(names):
        keep_result(tmp_path, name, result())
        with EventLog(tmp_path, name) as log:
            log.append(RunStarted(title="tune", run=name, at=at))
        for file in (tmp_path / "results" / f"{name}.zst", log.path):
            os.utime(file, (9 - at, 9 - at))
    assert [*list_kept(tmp_path)] == [*reversed(names)]
    assert find_run_file(tmp_path).stem == names[-1]


def test_what_is_removed_meanwhile_was_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `tileyard cache gc` does: neither a result nor a stream."""
    keep_result(tmp_path, "r", result())
    with EventLog(tmp_path, "r"):
        pass
    file, gone = run_file(tmp_path, "r"), run_file(tmp_path, "r-gone")
    monkeypatch.setattr("tileyard.store.events.list_run_files", lambda _: [file, gone])
    monkeypatch.setattr(Path, "glob", lambda *_: [tmp_path / "results" / "r.zst", gone])
    assert [*list_kept(tmp_path)] == ["r"]
    assert find_run_file(tmp_path) == file
    monkeypatch.setattr(Path, "glob", lambda *_: [gone])
    assert not [*list_kept(tmp_path)]


def test_a_missing_result_is_one_line(tmp_path: Path) -> None:
    """As is a name that no run can have."""
    with pytest.raises(UsageError, match="the result of run 'a' is not kept"):
        read_result(tmp_path, "a")
    assert not [*list_kept(tmp_path)]
    with pytest.raises(HomeError, match="cannot be the name of a run"):
        read_result(tmp_path, "../a")


@pytest.mark.parametrize("keep", [0, 1, 100, -1])
def test_a_damaged_result_is_one_line(tmp_path: Path, keep: int) -> None:
    """Cut anywhere, or one byte more."""
    keep_result(tmp_path, "a", result())
    file = tmp_path / "results" / "a.zst"
    whole = file.read_bytes()
    file.write_bytes(whole[:keep] if keep >= 0 else b"x" + whole)
    with pytest.raises(HomeError, match="is damaged"):
        read_result(tmp_path, "a")


@pytest.mark.parametrize("seed", range(50))
def test_no_changed_bit_is_read(tmp_path: Path, seed: int) -> None:
    """Wherever it is: a report with another number would be believed."""
    keep_result(tmp_path, "a", result())
    file = tmp_path / "results" / "a.zst"
    content, draw = bytearray(file.read_bytes()), random.Random(seed)
    content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
    file.write_bytes(content)
    with pytest.raises(HomeError, match="is damaged"):
        read_result(tmp_path, "a")


def test_a_full_disk_is_one_line(tmp_path: Path) -> None:
    """And leaves nothing of the result."""
    with files_up_to(100), pytest.raises(HomeError, match="cannot write to"):
        keep_result(tmp_path, "a", result())
    assert not list((tmp_path / "results").iterdir())


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    """The file in its place stays."""
    (tmp_path / "results").write_bytes(b"")
    with pytest.raises(HomeError, match="cannot write to"):
        keep_result(tmp_path, "a", result())

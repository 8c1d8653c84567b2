"""Folders that are kept where they were made."""

from pathlib import Path

import pytest

from tileyard.artifacts.collection import Keep, collect
from tileyard.artifacts.folders import KeptFolder, open_kept
from tileyard.artifacts.objects import ObjectStore
from tileyard.base.errors import UsageError
from tileyard.base.model import Digest

KEY = Digest("4" * 40)


def make(home: Path, text: str = "made") -> KeptFolder:
    """A folder with one file in it."""
    kept = open_kept(home, KEY)
    assert kept is not None
    assert not kept.is_made
    assert kept.clear()
    (kept.content / "out").mkdir()
    (kept.content / "out" / "binary").write_text(text)
    kept.publish()
    return kept


def test_what_was_made_is_found_where_it_was_made(tmp_path: Path) -> None:
    """By any number of users at a time, read-only."""
    made = make(tmp_path)
    found = [open_kept(tmp_path, KEY) for _ in range(2)]
    assert all(one is not None and one.is_made for one in found)
    assert (made.content / "out" / "binary").read_text() == "made"
    assert (made.content / "out" / "binary").stat().st_mode & 0o222 == 0


def test_one_makes_it_alone(tmp_path: Path) -> None:
    """Others get nothing until it is complete, and none makes anew what another uses."""
    first = open_kept(tmp_path, KEY)
    second = open_kept(tmp_path, KEY)
    assert first is not None
    assert second is not None
    assert not first.clear()  # the other one may be about to make it
    assert second.clear()
    assert open_kept(tmp_path, KEY) is None
    second.publish()
    third = open_kept(tmp_path, KEY)
    assert third is not None
    assert third.is_made


@pytest.mark.parametrize("name", ["content/out/binary", "content/out/added", "listing"])
def test_damage_is_noticed(tmp_path: Path, name: str) -> None:
    """What does not hold what its listing says is not made."""
    make(tmp_path)
    path = tmp_path / "kept" / KEY / name
    for folder in (path.parent, path):
        if folder.exists():
            folder.chmod(0o755)
    path.write_text("else")
    if path.name == "binary":
        path.chmod(0o444)
    again = open_kept(tmp_path, KEY)
    assert again is not None
    assert not again.is_made


def test_what_cannot_be_kept_is_refused(tmp_path: Path) -> None:
    """A link that leads out of the folder, in words."""
    kept = open_kept(tmp_path, KEY)
    assert kept is not None
    assert kept.clear()
    (kept.content / "link").symlink_to("/etc")
    with pytest.raises(UsageError, match="leaves the tree"):
        kept.publish()
    assert not kept.is_made


def test_a_collection_removes_what_nobody_uses(tmp_path: Path) -> None:
    """And nothing that a process uses or makes."""
    ObjectStore(tmp_path / "objects").put_bytes(b"")
    made = make(tmp_path)
    assert collect(tmp_path, Keep(max_bytes=0)).in_use_bytes > 0
    assert (made.content / "out" / "binary").is_file()
    made.close()
    done = collect(tmp_path, Keep(max_bytes=0))
    assert [one.what for one in done.freed] == ["compile steps of tests"]
    assert not (tmp_path / "kept" / KEY).exists()

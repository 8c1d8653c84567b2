"""What programs leave on another host: trees that go there, and folders that come back."""

import os
import socket
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tileyard.artifacts.folders import Listing, TreeFile, encode_listing, read_listing
from tileyard.artifacts.objects import ObjectStore
from tileyard.artifacts.trees import Trees
from tileyard.base.model import Digest
from tileyard.engine.hosts.works import (
    SMALL_BYTES,
    ArrivedTrees,
    CaseFolders,
    apply_work,
    find_changed,
    keep_work,
    list_work,
)

NAMES = st.sampled_from(["a", "b", "-x y", "ü\n", "{suite}", ".h", "n" * 200])
PATHS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)
CONTENT = st.one_of(
    st.tuples(st.just("file"), st.sampled_from([b"", b"one", b"two" * 5000]), st.booleans()),
    st.tuples(st.just("link"), st.sampled_from(["a", "../a", "b/a", "nowhere"]), st.just(False)),
    st.tuples(st.just("folder"), st.just(""), st.just(False)),
)
FOLDERS = st.dictionaries(PATHS, CONTENT, max_size=8)


def make(folder: Path, content: dict[str, tuple[str, bytes | str, bool]]) -> None:
    """Make a folder with this content; what is below a file, or leads out, is left out."""
    folder.mkdir()
    for path, (kind, what, is_executable) in content.items():
        place = folder / (f"{path}.link" if kind == "link" else path)  # no link leads to another
        parents = [one for one in place.parents if one.is_relative_to(folder)]
        if os.path.lexists(place) or any(one.is_symlink() or one.is_file() for one in parents):
            continue
        place.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(what, bytes):
            place.write_bytes(what)
            place.chmod(0o755 if is_executable else 0o644)
        elif kind == "link" and (what[0] != "." or place.parent != folder):
            place.symlink_to(what)
        elif kind == "folder":
            place.mkdir()


@settings(deadline=None, max_examples=30)
@given(before=FOLDERS, after=FOLDERS)
def test_a_folder_is_the_same_there_and_back(
    before: dict[str, tuple[str, bytes | str, bool]],
    after: dict[str, tuple[str, bytes | str, bool]],
) -> None:
    """With links, executable bits, empty folders and odd names: a tree goes there by its listing, and of what
    a program left only what has changed comes back.
    """
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        here, there = Trees(ObjectStore(root / "here")), ObjectStore(root / "there")
        make(root / "before", before)
        make(root / "after", after)
        tree = here.put(root / "before")
        golden = here.listing(tree)
        arrived = ArrivedTrees(root / "agent", there)
        lacking = arrived.assemble(encode_listing(golden))
        files = [one for one in golden.entries.items() if isinstance(one[1], TreeFile)]
        assert {*lacking} == {one.digest for _, one in files}
        for path, _ in files:
            arrived.files.put_file(here.path(tree) / path)
        assert arrived.assemble(encode_listing(golden)) == ()
        assert read_listing(arrived.trees.path(tree)) == golden

        work, refused = list_work(root / "after", golden)
        kept = ObjectStore(root / "kept")
        digest = keep_work(work, golden, root / "after", kept)
        for path in find_changed(work, golden).values():
            assert golden.entries.get(path) != work.entries[path]
        (root / "data").mkdir()
        here.copy(tree, root / "data")
        apply_work(work, golden, root / "data", kept)
        assert (refused, kept.get_bytes(digest)) == ((), encode_listing(work))
        assert read_listing(root / "data") == work == read_listing(root / "after")


def test_what_no_tree_can_hold_is_left_out_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pipes, sockets, links that lead out, names that are no text; links to golden data are that data."""
    monkeypatch.chdir(tmp_path)  # the name of a socket is short
    golden, work = Path("golden"), Path("work")
    golden.mkdir()
    (golden / "in").write_text("data")
    listing = read_listing(golden)
    work.mkdir()
    (work / "in").symlink_to(tmp_path / "golden" / "in")
    (work / "out").symlink_to("/etc/hosts")
    (work / "up").symlink_to("../golden/in")
    os.mkfifo(work / "pipe")
    os.mkdir(os.fsencode(work) + b"/\xff")  # noqa: PTH102 - a name that is no text
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("work/socket")
        found, refused = list_work(work, listing, tmp_path / "golden")
    assert found == listing
    assert len(refused) == 5
    assert not any("\n" in line for line in refused)


def test_a_suite_has_one_writable_copy(tmp_path: Path) -> None:
    """What a program writes there stays away from the tree."""
    (tmp_path / "suite").mkdir()
    (tmp_path / "suite" / "part").write_text("data")
    arrived = ArrivedTrees(tmp_path / "agent", ObjectStore(tmp_path / "objects"))
    tree = arrived.trees.put(tmp_path / "suite")
    folder = arrived.open_suite(tree)
    (folder / "part").write_text("other")
    assert arrived.open_suite(tree) == folder
    assert (arrived.trees.path(tree) / "part").read_text() == "data"


def test_suites_with_other_files_share_what_both_name(tmp_path: Path) -> None:
    """A file takes its room once, however many cases name it with others, and is one file, as in the suite's
    own folder; equal files beside it stay apart, and what a program has changed is not handed on.
    """
    arrived = ArrivedTrees(tmp_path / "agent", ObjectStore(tmp_path / "objects"))
    folders = []
    for number in range(4):
        suite = tmp_path / f"suite{number}"
        suite.mkdir()
        (suite / "large").write_bytes(bytes(1 << 16))
        (suite / "twin").write_bytes(bytes(1 << 16))
        (suite / f"own{number}").write_text("own")
        if number == 3:
            (folders[0] / "twin").write_text("changed")
        folders.append(arrived.open_suite(arrived.trees.put(suite)))
    large = {(folder / "large").stat().st_ino for folder in folders}
    twins = [(folder / "twin").stat().st_ino for folder in folders]
    assert (len(large), len({*twins[:3]}), large & {*twins}) == (1, 1, set())
    assert twins[3] != twins[0]
    assert (folders[3] / "twin").read_bytes() == bytes(1 << 16)
    (folders[0] / "large").write_text("written")
    tree = arrived.trees.put(tmp_path / "suite0")
    assert (arrived.trees.path(tree) / "large").stat().st_size == 1 << 16


def test_an_empty_folder_comes_back_empty(tmp_path: Path) -> None:
    """Without a golden step there is nothing to compare with."""
    (tmp_path / "work").mkdir()
    assert list_work(tmp_path / "work", Listing(entries={})) == (Listing(entries={}), ())


def test_what_is_small_can_be_told_with_the_end_of_a_case(tmp_path: Path) -> None:
    """The listing with the files that are kept; nothing of what is larger, or was not there."""
    arrived = ArrivedTrees(tmp_path / "agent", ObjectStore(tmp_path / "objects"))
    folders = CaseFolders(tmp_path / "cases", arrived)
    work, golden = tmp_path / "work", Listing(entries={})
    work.mkdir()
    (work / "out").write_bytes(b"x")
    listing, _ = list_work(work, golden)
    small = keep_work(listing, golden, work, folders.kept)
    assert folders.read_small(small) == (encode_listing(listing), b"x")
    (work / "more").write_bytes(bytes(SMALL_BYTES))
    listing, _ = list_work(work, golden)
    assert folders.read_small(keep_work(listing, golden, work, folders.kept)) == ()
    assert folders.read_small(Digest("")) == ()

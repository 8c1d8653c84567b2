"""Trees: directories by content, verified, read-only, safe between processes."""

import os
import resource
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tileyard.artifacts.copying import copy_file, remove_folder
from tileyard.artifacts.folders import TreeFile, TreeFolder, TreeLink
from tileyard.artifacts.objects import ObjectStore, digest_bytes
from tileyard.artifacts.trees import Trees
from tileyard.base.errors import DamagedError, HomeError, UsageError
from tileyard.base.model import Digest

ONE_TMP_PATH = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=25
)


@pytest.fixture
def trees(tmp_path: Path) -> Trees:
    """Trees in a fresh store."""
    return Trees(ObjectStore(tmp_path / "objects"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a program, a file, a link and an empty directory."""
    folder = tmp_path / "folder"
    (folder / "bin").mkdir(parents=True)
    (folder / "empty").mkdir()
    (folder / "bin" / "tool").write_text("#!/bin/sh\n")
    (folder / "bin" / "tool").chmod(0o700)
    (folder / "data").write_bytes(b"x" * 5)
    (folder / "bin" / "link").symlink_to("../data")
    return folder


def open_up(folder: Path) -> None:
    """Let a test change what a tree holds."""
    for path in (folder, *folder.rglob("*")):
        if not path.is_symlink():
            path.chmod(0o755)


def test_a_part_of_a_tree_is_linked_into_folders_of_its_own(
    trees: Trees, folder: Path, tmp_path: Path
) -> None:
    """Its files are links, others are not there, and beside them something can be written."""
    digest = trees.put(folder)
    into = tmp_path / "into"
    into.mkdir()
    trees.link(digest, into, "b[a-i]n")
    assert sorted(path.name for path in into.rglob("*")) == ["bin", "link", "tool"]
    assert (into / "bin" / "tool").readlink() == (trees.path(digest) / "bin" / "tool").absolute()
    assert (into / "bin" / "link").read_bytes() == b"xxxxx"
    (into / "bin" / "output").write_text("beside them")
    trees.path(digest)


def test_a_part_without_files_is_refused(trees: Trees, folder: Path, tmp_path: Path) -> None:
    """The message names what there is."""
    digest = trees.put(folder)
    for part in ("bin/other", "empty"):
        with pytest.raises(
            UsageError, match=f"no file in '{part}', only in 'bin', 'data', 'empty'"
        ):
            trees.link(digest, tmp_path, part)


def test_what_was_written_through_a_link_is_found_in_its_part(
    trees: Trees, folder: Path, tmp_path: Path
) -> None:
    """Other parts of the tree are as good as before, and in use until it is made anew."""
    digest = trees.put(folder)
    trees.link(digest, tmp_path, "data")
    trees.path(digest, "bin")
    target = trees.path(digest, "data") / "data"
    target.chmod(0o600)
    (tmp_path / "data").write_bytes(b"y")
    target.chmod(0o444)
    assert not trees.is_as_verified(digest, "data")
    assert trees.is_as_verified(digest, "bin")
    trees.path(digest, "bin")
    with pytest.raises(DamagedError, match="'data' was changed"):
        trees.path(digest, "data")
    assert not trees.has(digest)
    place = trees.path(digest, "bin")
    place.chmod(0o700)
    target.unlink()
    with pytest.raises(DamagedError, match="'data' is gone"):
        trees.path(digest, "data")
    assert trees.put(folder) == digest
    assert (trees.path(digest, "data") / "data").read_bytes() == b"xxxxx"


def test_sound_files_are_there_while_a_damaged_tree_is_made_anew(
    trees: Trees, folder: Path
) -> None:
    """Links to them lead to a file at any time; afterwards no process finds that they have changed."""
    digest = trees.put(folder)
    other = Trees(ObjectStore(folder.parent / "objects"))
    place = other.path(digest, "bin")
    missing, stopped = [], threading.Event()

    def look() -> None:
        while not stopped.is_set():
            if not (place / "bin" / "tool").exists():
                missing.append(place)

    reader = threading.Thread(target=look)
    reader.start()
    for _ in range(20):
        (place / "data").chmod(0o600)
        (place / "data").write_bytes(b"y")
        trees.put(folder)
        assert (place / "data").read_bytes() == b"xxxxx"
    stopped.set()
    reader.join()
    assert (missing, other.is_as_verified(digest, "bin")) == ([], True)


def test_tree_holds_what_the_folder_held(trees: Trees, folder: Path) -> None:
    """Files with their mode, links and empty directories are there, and cannot be written."""
    expected = {
        "bin/link": TreeLink(target="../data"),
        "bin/tool": TreeFile(digest=digest_bytes(b"#!/bin/sh\n"), size=10, is_executable=True),
        "data": TreeFile(digest=digest_bytes(b"xxxxx"), size=5),
        "empty": TreeFolder(),
    }

    digest = trees.put(folder)
    place = trees.path(digest)

    assert trees.has(digest)
    assert trees.listing(digest).entries == expected
    assert (place / "bin" / "link").read_bytes() == b"xxxxx"
    assert list((place / "empty").iterdir()) == []
    modes = {p.name: p.lstat().st_mode & 0o777 for p in place.rglob("*") if not p.is_symlink()}
    assert modes == {"bin": 0o500, "tool": 0o500, "data": 0o400, "empty": 0o500}
    assert place.stat().st_mode & 0o777 == 0o500


def test_same_content_is_the_same_tree(trees: Trees, folder: Path, tmp_path: Path) -> None:
    """Times, owners' rights and the folder's name take no part; content and mode do."""
    digest = trees.put(folder)
    inode = trees.path(digest).stat().st_ino
    other = tmp_path / "other"
    folder.rename(other)
    os.utime(other / "data", (1, 1))
    (other / "data").chmod(0o600)
    expected = digest

    assert trees.put(other) == expected
    assert trees.path(digest).stat().st_ino == inode
    (other / "data").chmod(0o700)
    assert trees.put(other) != expected


def test_empty_folder_is_a_tree(trees: Trees, tmp_path: Path) -> None:
    """A step that made nothing has a result, too."""
    (tmp_path / "empty").mkdir()

    digest = trees.put(tmp_path / "empty")

    assert list(trees.path(digest).iterdir()) == []


def test_tree_shares_nothing_with_its_folder(trees: Trees, folder: Path) -> None:
    """Writing to the folder later, or to a copy, does not reach the tree."""
    digest = trees.put(folder)
    copy = folder.parent / "copy"
    copy.mkdir()
    trees.copy(digest, copy)
    (folder / "data").write_bytes(b"y" * 5)
    (copy / "data").write_bytes(b"z" * 5)
    (copy / "empty" / "new").write_bytes(b"")
    expected = b"xxxxx"

    assert (Trees(ObjectStore(trees._objects.root)).path(digest) / "data").read_bytes() == expected
    assert (copy / "bin" / "link").read_bytes() == b"zzzzz"
    assert (copy / "bin" / "tool").stat().st_mode & 0o777 == 0o755
    assert (copy / "data").stat().st_nlink == 1


def test_adopted_folder_is_gone(trees: Trees, folder: Path) -> None:
    """A folder that is handed over becomes the tree, or is removed where the tree is there."""
    expected = trees.put(folder)

    assert trees.adopt(folder) == expected
    assert not folder.exists()
    again = folder.parent / "again"
    again.mkdir()
    trees.copy(expected, again)
    fresh = Trees(ObjectStore(folder.parent / "second"))
    assert fresh.adopt(again) == expected
    assert not again.exists()
    assert (fresh.path(expected) / "data").read_bytes() == b"xxxxx"


def test_copy_over_a_file_is_refused(trees: Trees, folder: Path, tmp_path: Path) -> None:
    """What lies in the folder already is never overwritten or written through."""
    digest = trees.put(folder)
    into = tmp_path / "into"
    into.mkdir()
    (into / "data").symlink_to("elsewhere")

    with pytest.raises(HomeError, match="data"):
        trees.copy(digest, into)

    assert not (into / "elsewhere").exists()


def make_pipe(path: Path) -> None:
    """A named pipe."""
    os.mkfifo(path)


def make_socket(path: Path) -> None:
    """A socket."""
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))


def make_link_out(path: Path) -> None:
    """A link to a file outside."""
    path.symlink_to("/etc/passwd")


def make_name_of_bytes(path: Path) -> None:
    """A file whose name is not text."""
    Path(os.fsdecode(os.fsencode(path) + b"\xff")).write_bytes(b"")


@pytest.mark.parametrize("make", [make_pipe, make_socket, make_link_out, make_name_of_bytes])
def test_what_no_tree_can_hold_is_refused_in_one_line(
    make: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pipes, sockets, links that lead out and names that are not text: nothing is written."""
    assert callable(make)
    folder = tmp_path / "folder"
    folder.mkdir()
    monkeypatch.chdir(folder)  # a socket's path must be short
    make(Path("odd"))

    with pytest.raises(UsageError, match="odd") as caught:
        Trees(ObjectStore(tmp_path / "objects")).put(folder)

    assert "\n" not in str(caught.value)
    assert not (tmp_path / "objects").exists()


def test_what_is_no_folder_is_refused(trees: Trees, tmp_path: Path) -> None:
    """A file and a name of nothing are no tree."""
    (tmp_path / "file").write_bytes(b"")

    for name in ("file", "nothing"):
        with pytest.raises(UsageError, match=name):
            trees.put(tmp_path / name)


def change_content(place: Path) -> None:
    """Same size, other bytes."""
    (place / "data").write_bytes(b"yyyyy")
    (place / "data").chmod(0o444)


def change_mode(place: Path) -> None:
    """A file becomes writable."""
    (place / "data").chmod(0o644)


def remove_entry(place: Path) -> None:
    """A file is gone."""
    (place / "data").unlink()


def add_entry(place: Path) -> None:
    """A file is new."""
    (place / "empty" / "new").write_bytes(b"")


def turn_link(place: Path) -> None:
    """A link leads elsewhere."""
    (place / "bin" / "link").unlink()
    (place / "bin" / "link").symlink_to("/etc/passwd")


def swap_file(place: Path) -> None:
    """A link stands where a file was."""
    (place / "data").unlink()
    (place / "data").symlink_to("bin/tool")


CHANGES = [
    (change_content, "'data' was changed"),
    (change_mode, "'data' was changed"),
    (remove_entry, "'data' is gone"),
    (add_entry, "'empty/new' was added"),
    (turn_link, "'bin/link' was changed"),
    (swap_file, "'data' was changed"),
]


@pytest.mark.parametrize("is_known", [True, False])
@pytest.mark.parametrize(("change", "expected"), CHANGES)
def test_changed_tree_is_refused_moved_aside_and_made_anew(
    trees: Trees, folder: Path, change: object, expected: str, is_known: bool
) -> None:
    """Damage is noticed by who verified the tree before and by who did not."""
    assert callable(change)
    digest = trees.put(folder)
    place = trees.path(digest)
    open_up(place)
    (place / "bin" / "tool").chmod(0o555)
    (place / "data").chmod(0o444)
    change(place)
    reader = trees if is_known else Trees(ObjectStore(trees._objects.root))

    with pytest.raises(DamagedError, match=digest) as caught:
        reader.path(digest)

    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not reader.has(digest)
    assert not reader._objects.has(digest)
    assert trees.put(folder) == digest
    assert (reader.path(digest) / "data").read_bytes() == b"xxxxx"


def test_contents_are_digested_once_a_process(
    trees: Trees, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tree that was good is read again only when a stamp of it has changed."""
    digest = trees.put(folder)
    place = trees.path(digest)
    read: list[Path] = []
    monkeypatch.setattr(
        "tileyard.artifacts.trees.compare_contents", lambda found, _: read.append(found)
    )

    trees.path(digest)
    expected: list[Path] = []
    assert read == expected

    os.utime(place / "data", (1, 1))
    trees.path(digest)
    assert read == [place]


@pytest.mark.parametrize("is_sound", [True, False])
def test_directory_that_was_left_without_its_listing_is_no_obstacle(
    trees: Trees, folder: Path, is_sound: bool
) -> None:
    """What a killed process put there is taken over if it is sound, and replaced if it is not."""
    digest = trees.put(folder)
    place = trees.path(digest)
    trees._objects.path(digest).unlink()
    inode = place.stat().st_ino
    if not is_sound:
        place.chmod(0o755)
        (place / "data").unlink()
    fresh = Trees(ObjectStore(trees._objects.root))
    assert not fresh.has(digest)

    assert fresh.put(folder) == digest

    expected = is_sound
    assert (fresh.path(digest).stat().st_ino == inode) is expected
    assert (place / "data").read_bytes() == b"xxxxx"
    assert list((trees._root / "tmp").iterdir()) == []


def test_missing_tree_is_named(trees: Trees, folder: Path) -> None:
    """A listing whose directory is gone, and a digest of nothing, are damage and not a crash."""
    digest = trees.put(folder)
    trees.path(digest).rename(folder.parent / "elsewhere")

    assert not trees.has(digest)
    for missing in (digest, digest_bytes(b"never")):
        with pytest.raises(DamagedError, match="is missing"):
            trees.path(missing)


def test_digest_of_a_blob_is_no_tree(trees: Trees) -> None:
    """A blob that is no listing does not pass for a tree."""
    digest = trees._objects.put_bytes(b"just bytes")

    assert not trees.has(digest)
    with pytest.raises(DamagedError, match="listing"):
        trees.path(digest)
    with pytest.raises(DamagedError, match="cannot be the name"):
        trees.path(Digest("../../etc"))


names = st.text(st.characters(codec="utf-8", exclude_characters="/\0"), min_size=1, max_size=8)


@pytest.mark.slow
@given(
    files=st.dictionaries(
        names.filter(lambda name: name not in (".", "..")), st.binary(max_size=20), max_size=6
    )
)
@ONE_TMP_PATH
def test_any_names_and_contents_come_back(
    tmp_path_factory: pytest.TempPathFactory, files: dict[str, bytes]
) -> None:
    """What is put is what a copy holds, whatever the names."""
    base = tmp_path_factory.mktemp("any")
    (base / "in").mkdir()
    (base / "out").mkdir()
    for name, data in files.items():
        (base / "in" / name).write_bytes(data)
    trees = Trees(ObjectStore(base / "objects"))
    expected = files

    trees.copy(trees.put(base / "in"), base / "out")

    assert {path.name: path.read_bytes() for path in (base / "out").iterdir()} == expected


PUTTER = """
import sys
import threading
from pathlib import Path
from tileyard.artifacts.objects import ObjectStore
from tileyard.artifacts.trees import Trees
trees = Trees(ObjectStore(Path(sys.argv[1])))
for _ in range(20):
    digest = trees.put(Path(sys.argv[2]))
    assert (trees.path(digest) / "data").read_bytes() == b"xxxxx"
"""


@pytest.mark.slow
def test_processes_may_put_the_same_tree_at_once(tmp_path: Path, folder: Path) -> None:
    """Four processes put one tree again and again and leave one whole tree and no rubbish."""
    root = tmp_path / "objects"
    putters = [
        subprocess.Popen([sys.executable, "-c", PUTTER, str(root), str(folder)]) for _ in range(4)
    ]
    expected = [0, 0, 0, 0]

    assert [putter.wait() for putter in putters] == expected
    assert list((root / "trees" / "tmp").iterdir()) == []
    assert len(list((root / "trees").glob("??/*"))) == 1


@pytest.mark.slow
@pytest.mark.parametrize("name", ["d", "d" * 200], ids=["deep", "long"])
def test_a_folder_of_any_depth_is_removed(tmp_path: Path, name: str) -> None:
    """Folders nested too deeply for a path or for a recursion go with all that is in them."""
    top = tmp_path / "top"
    top.mkdir()
    handle = os.open(top, os.O_RDONLY)
    for _ in range(1500):
        os.mkdir(name, dir_fd=handle)
        inner = os.open(name, os.O_RDONLY, dir_fd=handle)
        os.close(handle)
        handle = inner
    os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=handle))
    os.fchmod(handle, 0o500)
    os.close(handle)
    remove_folder(top)
    assert not top.exists()


def test_what_the_host_cannot_read_is_not_the_users_to_fix(tmp_path: Path) -> None:
    """A process without descriptors says nothing of the file; one that is missing does."""
    source = tmp_path / "source"
    source.write_bytes(b"x")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.dup(0)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
    try:
        with pytest.raises(HomeError, match="Too many open files"):
            copy_file(source, tmp_path / "copy", 0o600)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    with pytest.raises(UsageError, match="No such file"):
        copy_file(tmp_path / "none", tmp_path / "copy", 0o600)

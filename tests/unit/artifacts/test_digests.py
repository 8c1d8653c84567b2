"""The files that a step's result depends on. Installed packages are known by their content, which is not read
again while nothing has changed.
"""

import base64
import hashlib
import os
import shutil
from pathlib import Path

import pytest

from tileyard.artifacts.digests import KIND, InstalledPackages, find_files
from tileyard.artifacts.objects import ObjectStore, digest_parts


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("src", ["src/a.c", "src/in/b.c"]),
        ("src/*", ["src/a.c"]),
        ("src/**", ["src/a.c", "src/in/b.c"]),
        ("**", ["src/a.c", "src/in/b.c"]),
        ("src/**/*.h", []),
    ],
)
def test_patterns_name_files(tmp_path: Path, pattern: str, expected: list[str]) -> None:
    """A folder and ``**`` stand for all files at any depth."""
    for name in ("src/a.c", "src/in/b.c", "src/.git/c"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    found = {str(path.relative_to(tmp_path)) for path in find_files(tmp_path, pattern)}
    assert sorted(found) == expected


MARK = "known"


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    """A folder with one package whose files are not older than its record, so that they are read."""
    folder = tmp_path / "site-packages"
    (folder / "pack" / "inner").mkdir(parents=True)
    (folder / "pack-1.0.dist-info").mkdir()
    hashed = base64.urlsafe_b64encode(hashlib.sha256(b"one = 1\n").digest()).decode().rstrip("=")
    record = folder / "pack-1.0.dist-info" / "RECORD"
    record.write_text(f"pack/inner/one.py,sha256={hashed},8\n")
    (folder / "pack-1.0.dist-info" / "METADATA").write_text("Name: pack\n")
    (folder / "pack" / "inner" / "one.py").write_text("one = 1\n")
    return folder


def digest(folder: Path, objects: ObjectStore, settled_s: float = 0.0) -> str:
    """What a new process says of the folder."""
    return InstalledPackages(objects, settled_s).digest([str(folder)])


def list_kept(objects: ObjectStore) -> list[Path]:
    """What is kept of folders."""
    return [path for path in (objects.root / "records" / KIND).rglob("*") if path.is_file()]


def mark(objects: ObjectStore) -> None:
    """Have what is kept be recognized."""
    for path in list_kept(objects):
        objects.put_record(KIND, path.name, MARK.encode())


def test_what_is_known_is_not_read_again(packages: Path, objects: ObjectStore) -> None:
    """The next process finds the digest, in a record of some bytes."""
    first = digest(packages, objects)
    assert digest(packages, objects) == first
    (kept,) = list_kept(objects)
    assert kept.stat().st_size < 200
    mark(objects)
    assert digest(packages, objects) == digest_of(MARK)


def digest_of(known: str) -> str:
    """The digest of one folder of which this is known."""
    return digest_parts(known)


@pytest.mark.parametrize("change", ["edit", "exchange", "add", "remove", "record"])
def test_a_changed_folder_is_read(packages: Path, objects: ObjectStore, change: str) -> None:
    """A file of equal size and time, another in its place, one more, one less, another record."""
    first, path = digest(packages, objects), packages / "pack" / "inner" / "one.py"
    mark(objects)
    status = path.stat()
    match change:
        case "edit":
            while path.stat().st_ctime_ns == status.st_ctime_ns:  # it is counted in steps
                path.write_text("one = 2\n")
                os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
        case "exchange":
            (packages.parent / "other").write_text("one = 3\n")
            (packages.parent / "other").replace(path)
        case "add":
            (packages / "more.py").write_text("")
        case "remove":
            path.unlink()
        case _:
            with (packages / "pack-1.0.dist-info" / "RECORD").open("a") as record:
                record.write("pack/two.py,sha256=abc,1\n")
    second = digest(packages, objects)
    assert second != digest_of(MARK)
    assert (second == first) == (change == "record")


def test_the_same_content_elsewhere_has_the_same_digest(
    packages: Path, objects: ObjectStore
) -> None:
    """A copy with times of its own is read, and is the same."""
    first = digest(packages, objects)
    shutil.copytree(packages, packages.parent / "copy")
    assert digest(packages.parent / "copy", objects) == first
    assert len(list_kept(objects)) == 2


def test_what_has_just_changed_is_not_kept(packages: Path, objects: ObjectStore) -> None:
    """A further change within the step of the file system's clock would not be seen."""
    digest(packages, objects, settled_s=1e9)
    assert list_kept(objects) == []

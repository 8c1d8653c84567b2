"""The files of the log of leases, and root's settings for leases."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.full_files import files_up_to

from tileyard.processes.keeper.files import OPEN
from tileyard.processes.keeper.log import DAY_S, FILES, Log, append, list_files, remove_old
from tileyard.processes.keeper.rules import SETTINGS, Rules, read_rules

LIMIT_BYTES = 1 << 20
UID = os.geteuid()


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[int]:
    """A folder for the log."""
    fd = os.open(tmp_path, OPEN)
    yield fd
    os.close(fd)


def texts(folder: Path) -> list[str]:
    """The content of all files, by name."""
    return [path.read_text(encoding="ascii") for path in sorted(folder.iterdir())]


def test_lines_go_to_one_file_that_all_can_read(folder: int, tmp_path: Path) -> None:
    """It begins with its name, and has the same mode under any umask."""
    before = os.umask(0o077)
    append(folder, "one .", LIMIT_BYTES, 1)
    append(folder, "two .", LIMIT_BYTES, 1)
    os.umask(before)
    (path,) = tmp_path.iterdir()
    assert path.read_text(encoding="ascii") == f"{path.name}\n\none .\n\ntwo .\n"
    expected = 0o100644
    assert path.stat().st_mode == expected


def test_another_file_under_the_name_of_one_is_left_alone(folder: int, tmp_path: Path) -> None:
    """A second name of a file of this user, or a link to it, gets no line."""
    precious = tmp_path.parent / f"{tmp_path.name}-precious"
    precious.write_text("mine\n", encoding="ascii")
    append(folder, "one .", LIMIT_BYTES, 1)
    (path,) = tmp_path.iterdir()
    for plant in (lambda: os.link(precious, path), lambda: path.symlink_to(precious)):
        path.unlink()
        plant()
        append(folder, "two .", LIMIT_BYTES, 1)
        assert precious.read_text(encoding="ascii") == "mine\n"
    precious.unlink()


def test_the_oldest_go_first(folder: int, tmp_path: Path) -> None:
    """Files older than the days to keep, and those beyond the limit of a user's bytes."""
    for hour in range(4):
        path = tmp_path / f"{UID}.20200101-0{hour}0000.aa"
        path.write_bytes(b"x" * 100)
    (tmp_path / f"{UID + 1}.20200101-000000.aa").write_bytes(b"x")  # its owner is somebody else
    oldest = tmp_path / f"{UID}.20200101-020000.aa"
    os.utime(oldest, (0, oldest.stat().st_mtime - 2 * DAY_S))
    remove_old(folder, list_files(folder, UID), 250, 1)
    assert [file.name[-9:-7] for file in list_files(folder, UID)] == ["03"]
    expected = 2
    assert len(list(tmp_path.iterdir())) == expected


def test_a_user_has_a_limited_number_of_bytes(folder: int, tmp_path: Path) -> None:
    """However many leases there are: new lines replace the oldest."""
    limit_bytes = 1600
    for number in range(200):
        append(folder, f"{number:020d} .", limit_bytes, 1)
    paths = list(tmp_path.iterdir())
    assert len(paths) > 1
    assert sum(path.stat().st_size for path in paths) <= limit_bytes
    assert max(path.stat().st_size for path in paths) <= limit_bytes // FILES + 60
    assert any(f"{199:020d} ." in text for text in texts(tmp_path))


def test_what_cannot_be_written_is_lost(tmp_path: Path) -> None:
    """A disk that is full, or a file in the place of the folder: no error, and the next line is whole."""
    root = os.open(tmp_path, OPEN)
    (tmp_path / "log").touch()
    lost = Log(root, str(tmp_path), Rules())
    lost.begin(1, ["npu:0"], "command")
    lost.end("code 0")
    (tmp_path / "log").unlink()
    log = Log(root, str(tmp_path), Rules())
    with files_up_to(80):
        log.begin(2, ["npu:0"], "command")
    log.end("code 0")
    log.end("code 1")
    (text,) = texts(tmp_path / "log")
    lines = text.splitlines()
    assert [line for line in lines if line.endswith(" .")] == [lines[-1]]
    assert lines[-1].startswith("end number=2 ")
    assert lines[-1].endswith(" how=code%200 .")
    os.close(root)


def test_settings_are_read_as_they_were_written() -> None:
    """And words of a later version, or damaged ones, change nothing else."""
    rules = Rules(
        "keep_days=7 priority=0 lease_s:npu=0 lease_s=3600 lease_s:cuda=60 new=1 lease_s=x"
    )
    rules.log = "/var/log/a b%"
    again = Rules(rules.format())
    assert vars(again) == vars(rules)
    assert (again.keep_days, again.priority) == (7, 0)
    limits = [again.find_limit_s(names) for names in (["npu:0"], ["sim:1"], ["sim:1", "cuda:0"])]
    expected = [0, 3600, 60]
    assert limits == expected


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_settings_count_only_from_the_owner_of_the_directory(folder: int, tmp_path: Path) -> None:
    """Otherwise there are none."""
    path = tmp_path / SETTINGS
    path.write_text("priority=5\n", encoding="ascii")
    own = read_rules(folder).priority
    os.chown(path, 65534, 65534)
    strangers = read_rules(folder).priority
    expected = (5, None)
    assert (own, strangers) == expected

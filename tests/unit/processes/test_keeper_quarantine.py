"""Quarantine is what several users state in one directory, none of whom can remove the others' words."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tileyard.processes.keeper.files import make_directory
from tileyard.processes.keeper.quarantine import (
    find_quarantine,
    lift_quarantine,
    open_quarantines,
    put_in_quarantine,
    state_again,
)

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs two users")


def locks_in(folder: Path, *names: str) -> list[str]:
    """Lock files of these names, as a device lists them."""
    return [str(folder / f"{name}.lock") for name in names]


def as_user(uid: int, action: Callable[[], object]) -> int:
    """Do something in a child as another user; 0 if it went well, 1 if the system refused."""
    child = os.fork()
    if child == 0:
        code = 2
        try:
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            action()
            code = 0
        except OSError:
            code = 1
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """A lock directory that other users can reach."""
    folder = tmp_path / "locks"
    make_directory(str(folder))
    for parent in (tmp_path, tmp_path.parent, tmp_path.parent.parent):
        parent.chmod(parent.stat().st_mode | 0o111)
    return folder


def test_a_device_is_in_quarantine_while_any_of_its_locks_is(tmp_path: Path) -> None:
    """Who wants one of two cores that were found sick together does not get it."""
    put_in_quarantine(locks_in(tmp_path, "cpu-0", "cpu-1"), "cpu:0", "wrong sums")
    found = find_quarantine(locks_in(tmp_path, "cpu-1"))
    expected = ("cpu:0", "wrong sums", os.geteuid(), os.getpid())
    assert found is not None
    assert (found.device, found.reason, found.uid, found.by) == expected
    assert find_quarantine(locks_in(tmp_path, "cpu-2", "cpu")) is None


def test_what_was_stated_first_stays(tmp_path: Path) -> None:
    """The first reason is the one that people look into."""
    locks = locks_in(tmp_path, "device-a")
    put_in_quarantine(locks, "npu:0", "first")
    put_in_quarantine(locks, "npu:0", "second")
    with open_quarantines(locks) as quarantines:
        expected = ["first"]
        assert [one.reason for one in quarantines.find("device-a")] == expected


def test_lifting_leaves_nothing(tmp_path: Path) -> None:
    """Whose statement it is removes it, and lifting what is well is harmless."""
    locks = locks_in(tmp_path, "cpu-0", "cpu-1")
    lift_quarantine(locks)
    put_in_quarantine(locks, "cpu:0", "wrong sums")
    lift_quarantine(locks)
    expected: list[str] = []
    assert find_quarantine(locks) is None
    assert os.listdir(tmp_path / "quarantine") == expected  # noqa: PTH208 - names are enough


def test_names_that_only_begin_alike_are_other_devices(tmp_path: Path) -> None:
    """``device-a`` is not meant by what is said of ``device-a.1``."""
    put_in_quarantine(locks_in(tmp_path, "device-a.1"), "npu:1", "dead")
    (tmp_path / "quarantine/device-a.2").touch()
    assert find_quarantine(locks_in(tmp_path, "device-a")) is None


def test_what_cannot_be_understood_counts_and_what_is_planted_does_not(tmp_path: Path) -> None:
    """Half a file keeps a device out of use; a link, a pipe and a folder say nothing."""
    folder = tmp_path / "quarantine"
    folder.mkdir()
    (folder / "cpu-0").write_bytes(b'{"device": "cp')
    (folder / "cpu-1").symlink_to(folder / "cpu-0")
    os.mkfifo(folder / "cpu-2")
    (folder / "cpu-3").mkdir()
    found = find_quarantine(locks_in(tmp_path, "cpu-0"))
    expected = "its quarantine file cannot be read"
    assert found is not None
    assert found.reason == expected
    assert find_quarantine(locks_in(tmp_path, "cpu-1", "cpu-2", "cpu-3")) is None


@as_root
def test_anybody_may_lift_and_state_anew(shared: Path) -> None:
    """A user who cannot remove a statement lifts it; what a third one states then counts again."""
    locks = locks_in(shared, "device-a")
    assert as_user(1001, lambda: put_in_quarantine(locks, "npu:0", "dead")) == 0
    assert as_user(1002, (shared / "quarantine/device-a").unlink) == 1
    assert as_user(1002, lambda: lift_quarantine(locks)) == 0
    assert find_quarantine(locks) is None
    assert as_user(1003, lambda: put_in_quarantine(locks, "npu:0", "dead again")) == 0
    found = find_quarantine(locks)
    expected = ("dead again", 1003)
    assert found is not None
    assert (found.reason, found.uid) == expected


@as_root
def test_a_lift_means_no_later_statement(shared: Path) -> None:
    """Who lifts has seen what is lifted: a statement made or renewed meanwhile goes on counting."""
    locks = locks_in(shared, "device-a")
    path = shared / "quarantine/device-a"
    assert as_user(1001, lambda: put_in_quarantine(locks, "npu:0", "dead")) == 0
    assert as_user(1002, lambda: lift_quarantine(locks)) == 0
    text = path.read_text(encoding="utf-8")
    expected = "dead"
    assert as_user(1001, lambda: path.write_text(text, encoding="utf-8")) == 0
    found = find_quarantine(locks)
    assert found is not None
    assert found.reason == expected


@as_root
def test_leftovers_go_with_their_owners_next_lift(shared: Path) -> None:
    """Once the owner of a lifted statement tidies up, and then the lifter, nothing is left."""
    locks = locks_in(shared, "device-a")
    as_user(1001, lambda: put_in_quarantine(locks, "npu:0", "dead"))
    as_user(1002, lambda: lift_quarantine(locks))
    assert len(os.listdir(shared / "quarantine")) == 2  # noqa: PTH208 - names are enough
    as_user(1001, lambda: lift_quarantine(locks))
    as_user(1002, lambda: lift_quarantine(locks))
    expected: list[str] = []
    assert os.listdir(shared / "quarantine") == expected  # noqa: PTH208 - names are enough


def test_a_second_name_of_a_statement_says_nothing(tmp_path: Path) -> None:
    """Nobody can make one user's words about one device count for another."""
    put_in_quarantine(locks_in(tmp_path, "device-a"), "npu:0", "dead")
    os.link(tmp_path / "quarantine/device-a", tmp_path / "quarantine/device-b")
    found = find_quarantine(locks_in(tmp_path, "device-a"))
    expected = "dead"
    assert found is not None
    assert found.reason == expected
    assert find_quarantine(locks_in(tmp_path, "device-b")) is None


def test_a_lift_that_is_no_list_lifts_nothing(tmp_path: Path) -> None:
    """Whatever else is written into such a file, the device stays where it is."""
    locks = locks_in(tmp_path, "cpu-0")
    put_in_quarantine(locks, "cpu:0", "wrong sums")
    found = find_quarantine(locks)
    assert found is not None
    lift = tmp_path / f"quarantine/{found.name}@lifted.x"
    for content in ({"lifts": found.token}, {"lifts": [1]}, [found.token], None):
        lift.write_text(json.dumps(content), encoding="utf-8")
        expected = "wrong sums"
        again = find_quarantine(locks)
        assert again is not None
        assert again.reason == expected
    lift.write_text(json.dumps({"lifts": [found.token]}), encoding="utf-8")
    assert find_quarantine(locks) is None


def test_sick_parts_of_a_host_are_listed(tmp_path: Path) -> None:
    """Lock files that are in quarantine are named; those whose statements were lifted are not."""
    put_in_quarantine(locks_in(tmp_path, "cpu-0", "device-a", "device-b"), "x", "sick")
    with open_quarantines(locks_in(tmp_path, "device-b")) as quarantines:
        quarantines.write("device-b@lifted.x", {"lifts": [quarantines.find("device-b")[0].token]})
        state_again(locks_in(tmp_path, "device-a"), "x", "sick again")
        expected = {"cpu-0", "device-a"}
        assert quarantines.list_parts() == expected

"""Who holds a device and who waits for it, read from the files that leases leave."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tileyard.base.errors import UsageError
from tileyard.base.model import Device
from tileyard.devices.base import name_user
from tileyard.devices.holding import HeldLease
from tileyard.devices.locks import prepare_directory
from tileyard.devices.occupancy import open_directory, read_occupancy, try_hold
from tileyard.processes.keeper.deciding import Choice, Wish
from tileyard.processes.keeper.holding import LeaseFacts
from tileyard.processes.keeper.turns import name_request


def device(tmp_path: Path, name: str, *parts: str) -> Device:
    """A device of these parts."""
    locks = tuple(str(tmp_path / "locks" / f"{part}.lock") for part in parts)
    return Device(name=name, kind="npu", identity="x", locks=locks)


def test_where_there_is_no_directory_nobody_holds_anything(tmp_path: Path) -> None:
    """Looking makes nothing."""
    (found,) = read_occupancy([device(tmp_path, "npu:0", "a")], tmp_path / "locks")
    expected = (None, 0)
    assert (found.holder, found.queue) == expected
    assert not (tmp_path / "locks").exists()


def test_nobody_becomes_owner_of_the_directory_by_looking(tmp_path: Path) -> None:
    """Where there is none yet a device is free to be probed, and none is made."""
    with try_hold(device(tmp_path, "npu:0", "a")) as held:
        assert held
    expected = False
    assert (tmp_path / "locks").exists() is expected


def test_a_process_that_holds_a_device_itself_is_named_by_its_own_command(tmp_path: Path) -> None:
    """And by the test of pytest's that it runs, not by what its keeper watches."""
    prepare_directory(tmp_path / "locks")
    one = device(tmp_path, "npu:0", "a")
    held = HeldLease((one,), 30.0)
    (found,) = read_occupancy([one], tmp_path / "locks")
    held.release()
    assert found.holder is not None
    expected = " ".join([*sys.orig_argv, os.environ["PYTEST_CURRENT_TEST"]])
    assert found.holder.command == expected[:400]


def test_a_holder_is_named(tmp_path: Path) -> None:
    """User, process, command and time are told, for every device that shares a part with it."""
    prepare_directory(tmp_path / "locks")
    one, two, other = (
        device(tmp_path, "npu:0", "a", "b"),
        device(tmp_path, "npu:1", "b"),
        device(tmp_path, "npu:2", "c"),
    )
    with try_hold(one, "sleep 1") as held:
        assert held
        first, second, third = read_occupancy([one, two, other], tmp_path / "locks")
        expected = (name_user(os.geteuid()), os.getpid(), "sleep 1 npu:0")
        assert first.holder is not None
        holder = first.holder
        assert (holder.user, holder.pid, holder.command) == expected
        assert holder.since > 1.5e9
        assert second.holder is not None
        assert (second.holder.device, second.holder.number) == ("npu:0", holder.number)
        assert third.holder is None
        with try_hold(two) as second_held:
            assert not second_held
    assert read_occupancy([one], tmp_path / "locks")[0].holder is None


def test_numbers_grow_from_lease_to_lease(tmp_path: Path) -> None:
    """A probe is a lease like any other."""
    prepare_directory(tmp_path / "locks")
    wanted = device(tmp_path, "npu:0", "a")
    numbers = []
    for _ in range(3):
        with try_hold(wanted):
            holder = read_occupancy([wanted], tmp_path / "locks")[0].holder
            assert holder is not None
            numbers.append(holder.number)
    expected = sorted(set(numbers))
    assert numbers == expected
    assert len(numbers) == 3


def test_a_probe_does_not_vouch_for_what_a_killed_holder_left(tmp_path: Path) -> None:
    """The next holder still looks for the processes of a lease that had no clean end."""
    prepare_directory(tmp_path / "locks")
    wanted = device(tmp_path, "npu:0", "a")
    with open_directory(tmp_path / "locks") as directory:
        facts = LeaseFacts("sleep 9", "5d1c").format("npu:0")
        os.close(directory.add_record("a", 4, facts))  # as if its holder had been killed
        with try_hold(wanted) as held:
            assert held
        records = directory.read_records("a", directory.list_numbers()["a"])
    expected = [False, False]
    assert [record.is_clean for record in records] == expected
    assert records[1].number == 4


def test_a_probe_leaves_one_record(tmp_path: Path) -> None:
    """Where all ended well, only the newest number has to be remembered."""
    prepare_directory(tmp_path / "locks")
    for _ in range(3):
        with try_hold(device(tmp_path, "npu:0", "a")):
            pass
    with open_directory(tmp_path / "locks") as directory:
        expected = 1
        assert len(directory.list_numbers()["a"]) == expected


def test_who_waits_is_counted_for_every_device_that_would_do(tmp_path: Path) -> None:
    """A request for either of two devices waits in both queues, and in no other."""
    prepare_directory(tmp_path / "locks")
    devices = [device(tmp_path, f"npu:{n}", part) for n, part in enumerate("abc")]
    with try_hold(devices[0]), open_directory(tmp_path / "locks") as directory:
        either = Wish((Choice("npu:0", ("a",)), Choice("npu:1", ("b",))))
        first = Wish((Choice("npu:0", ("a",)),))
        fds = [directory.add_request(name_request(0), wish, "x") for wish in (either, first)]
        expected = [2, 1, 0]
        assert [o.queue for o in read_occupancy(devices, tmp_path / "locks")] == expected
        for fd in fds:
            os.close(fd)
        assert [o.queue for o in read_occupancy(devices, tmp_path / "locks")] == [0, 0, 0]


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda folder: folder.touch(), "is a link or a file"),
        (lambda folder: folder.symlink_to("/tmp"), "is a link or a file"),
        (lambda folder: (folder.mkdir(), folder.chmod(0o777)), "is not sticky"),
    ],
)
def test_an_odd_directory_is_refused_in_one_line(
    tmp_path: Path, spoil: Callable[[Path], object], message: str
) -> None:
    """A file, a link and a directory that anyone can rearrange tell nothing."""
    spoil(tmp_path / "locks")
    with pytest.raises(UsageError, match=message) as raised:
        read_occupancy([], tmp_path / "locks")
    expected = 0
    assert str(raised.value).count("\n") == expected

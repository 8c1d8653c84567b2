"""Who holds a device and who waits for it, according to the host's lock directory."""

import contextlib
import fcntl
import secrets
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from tileyard.base.errors import UsageError
from tileyard.base.model import Device, Record
from tileyard.devices.base import name_user
from tileyard.devices.locks import explaining, prepare_directory
from tileyard.processes.keeper.deciding import Choice
from tileyard.processes.keeper.directory import LeaseRecord, LockDirectory, Request
from tileyard.processes.keeper.files import is_replaced
from tileyard.processes.keeper.holding import Holding, LeaseFacts, forget_earlier, take_parts
from tileyard.processes.keeper.quarantine import name_part

LOCK_LIMIT_S, PAUSE_S = 2.0, 0.01


class Holder(Record):
    """The holder of a device, ``since`` in seconds since the epoch, ``number`` the lease's.
    ``user`` comes from the kernel; ``pid``, of its container, and ``command`` from itself.
    ``device`` is what was leased, maybe another one with a shared part.
    """

    device: str
    user: str
    pid: int
    command: str
    since: float
    number: int


class Occupancy(Record):
    """The holder of a device, if any, and the number of waiting requests that it would satisfy."""

    holder: Holder | None = None
    queue: int = 0


def is_wanted(device: Device, lock_dir: Path) -> bool:
    """Whether somebody waits for a device; False as long as that cannot be read."""
    try:
        (found,) = read_occupancy((device,), lock_dir)
    except (UsageError, OSError):
        return False
    return found.queue > 0


def read_occupancy(devices: Sequence[Device], lock_dir: Path) -> tuple[Occupancy, ...]:
    """The occupancy of each device, none without a lock directory. Raises UsageError if that is invalid."""
    if not lock_dir.exists():
        return tuple(Occupancy() for _ in devices)
    with open_directory(lock_dir) as directory:
        requests = read_requests(directory)
        numbers = directory.list_numbers()
        wanted = [{p for choice in r.wish.choices for p in choice.parts} for r in requests]
        return tuple(
            Occupancy(
                holder=_find_holder(directory, parts_of(device), numbers),
                queue=sum(not parts.isdisjoint(parts_of(device)) for parts in wanted),
            )
            for device in devices
        )


def list_leased(lock_dir: Path) -> tuple[str, ...]:
    """The names of all devices that are leased now. Raises UsageError as above."""
    if not lock_dir.exists():
        return ()
    with open_directory(lock_dir) as directory:
        records = (
            record
            for part, numbers in directory.list_numbers().items()
            for record in directory.read_records(part, numbers)
        )
        return tuple(sorted({record.device for record in records if record.is_live}))


@contextlib.contextmanager
def try_hold(
    device: Device, command: str = "tileyard devices probe", *, rest_s: float = 0.0
) -> Iterator[bool]:
    """Hold a device for the block, for a probe, unless somebody has it; yields whether it is held.
    It takes no place in the queue; quarantine is no hindrance, unless a sick part was held within
    ``rest_s``. No lock directory is made. Raises UsageError if that cannot be used.
    """
    lock_dir = Path(device.locks[0]).parent if device.locks else None
    if lock_dir is None or not lock_dir.exists():
        yield True
        return
    prepare_directory(lock_dir)
    with open_directory(lock_dir) as directory:
        holding = _take(directory, device, command, rest_s)
        try:
            yield holding is not None
        finally:
            if holding is not None:
                if (
                    not holding.unclean
                ):  # otherwise the next holder looks for leftovers of killed ones
                    forget_earlier(directory, holding)
                holding.release(is_clean=not holding.unclean)


@contextlib.contextmanager
def open_directory(lock_dir: Path) -> Iterator[LockDirectory]:
    """The lock directory. Raises UsageError if it cannot be used or trusted."""
    with explaining(lock_dir):
        directory = LockDirectory(str(lock_dir))
    try:
        yield directory
    finally:
        directory.close()


def keep_from_deciding(root: int) -> bool:
    """Lock an open lock directory: no lease is granted until ``unlock``. False if a stranger has it."""
    deadline = time.monotonic() + LOCK_LIMIT_S
    while time.monotonic() < deadline:
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(root, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        time.sleep(PAUSE_S)
    return False


def read_requests(directory: LockDirectory) -> list[Request]:
    """All waiting requests, in order. Those of this user whose owners died are removed."""
    found = (directory.read_request(one.name) for one in directory.list_requests())
    return [request for request in found if request is not None]


def parts_of(device: Device) -> tuple[str, ...]:
    """The parts that must be free for a lease of the device, in the lock directory's names."""
    return tuple(map(name_part, device.locks))


def _find_holder(
    directory: LockDirectory, parts: Sequence[str], numbers: dict[str, list[int]]
) -> Holder | None:
    for part in parts:
        for record in directory.read_records(part, numbers.get(part, [])):
            if record.is_live:
                return Holder(
                    device=record.device,
                    user=name_user(record.uid),
                    pid=record.pid,
                    command=record.command,
                    since=record.since,
                    number=record.number,
                )
    return None


def _is_rested(
    directory: LockDirectory,
    parts: Sequence[str],
    records: dict[str, list[LeaseRecord]],
    rest_s: float,
) -> bool:
    """Whether nobody has held a sick part for a while; future times, from a clock set back, do not count."""
    now_ns = time.time_ns()
    sick = [part for part in parts if directory.quarantines.find(part)]
    changes = [record.changed_ns for part in sick for record in records[part]]
    return not any(0 <= now_ns - changed_ns < rest_s * 1e9 for changed_ns in changes)


def _take(directory: LockDirectory, device: Device, command: str, rest_s: float) -> Holding | None:
    if not keep_from_deciding(directory.root):
        return None
    try:
        if is_replaced(directory.root, directory.path):
            return None
        parts = parts_of(device)
        numbers = directory.list_numbers()
        records = {part: directory.read_records(part, numbers.get(part, [])) for part in parts}
        if any(record.is_live for several in records.values() for record in several):
            return None
        if rest_s and not _is_rested(directory, parts, records, rest_s):
            return None
        facts = LeaseFacts(f"{command} {device.name}", secrets.token_hex(8))
        with explaining(Path(directory.path)):
            return take_parts(directory, (Choice(device.name, parts),), records, numbers, facts)
    finally:
        directory.unlock()

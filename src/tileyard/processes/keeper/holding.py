"""A lease that is held: its records, and how it is given back."""

import os
import time

from .deciding import Choice
from .directory import (
    MAX_COMMAND,
    LeaseRecord,
    LockDirectory,
    mark_ended,
    mark_session,
    next_number,
)
from .files import escape, remove
from .tree import start_of


class LeaseFacts:
    """What a lease's records say of its holder.

    ``tree`` is the token that its processes carry, ``outer`` are those of the leases under which the
    holder itself runs. ``process_space`` tells containers apart, whose process numbers mean nothing
    to each other.
    """

    def __init__(self, command: str, tree: str, outer: tuple[str, ...] = ()) -> None:
        self.command = command
        self.tree = tree
        self.outer = outer
        self.pid = os.getpid()
        self.start = start_of(self.pid)
        self.process_space = find_process_space()

    def format(self, device: str) -> list[tuple[str, str]]:
        """The lines of a record."""
        return [
            ("device", escape(device)),
            ("tree", self.tree),
            ("pid", str(self.pid)),
            ("start", str(self.start)),
            ("space", str(self.process_space)),
            ("since", f"{time.time():.3f}"),
            ("command", escape(self.command[:MAX_COMMAND])),
        ]


def find_process_space() -> int:
    """The number of this process's PID namespace, 0 where the kernel does not say."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return 0


class Granted:
    """A device of a holding and the number of its lease."""

    def __init__(self, choice: Choice, number: int) -> None:
        self.choice = choice
        self.number = number


class Holding:
    """A lease of one or several devices. It ends with its process, at the latest.

    ``taken_ns`` is when it was decided. ``unclean`` are records of earlier leases of these devices whose holders were killed: what is
    left of them has to be ended before the devices are used.
    """

    def __init__(
        self, granted: list[Granted], fds: list[int], earlier: dict[str, list[LeaseRecord]]
    ) -> None:
        self.granted = granted
        self.taken_ns = time.time_ns()
        self.unclean = find_unclean(earlier)
        self.earlier = [record for records in earlier.values() for record in records]
        self._fds = fds

    def note_session(self, session: int) -> None:
        """Say for later which session the leased tree is."""
        for fd in self._fds:
            mark_session(fd, session)

    def release(self, *, is_clean: bool = True) -> None:
        """Give the devices back, which wakes who is next. Harmless when repeated.

        ``is_clean`` says that nothing is left of this tree, nor of those in ``unclean``.
        """
        for fd in self._fds:
            if is_clean:
                try:
                    mark_ended(fd)
                except OSError:
                    pass  # the next holder then looks for what is not there
            os.close(fd)
        self._fds.clear()


def take_parts(
    directory: LockDirectory,
    devices: tuple[Choice, ...],
    records: dict[str, list[LeaseRecord]],
    numbers: dict[str, list[int]],
    facts: LeaseFacts,
) -> Holding | None:
    """The lease of these devices, all of them or none; None if somebody else decided at the same time.

    ``records`` and ``numbers`` are what there is of earlier leases, by part, highest first. Raises
    RefusedError or OSError, and has then taken nothing.
    """
    number = next_number()
    parts = {part: device.device for device in devices for part in device.parts}
    fds: list[int] = []
    is_taken = False
    try:
        for part, device in parts.items():
            fds.append(directory.add_record(part, number, facts.format(device)))
        is_taken = not directory.has_rivals(parts, number, numbers)
    except FileExistsError:
        pass
    finally:
        if not is_taken:
            for part, fd in zip(parts, fds, strict=False):
                remove(directory.leases, f"{part}.{number}")
                os.close(fd)
    if not is_taken:
        return None
    granted = [Granted(device, number) for device in devices]
    return Holding(granted, fds, {part: records[part] for part in parts})


def find_unclean(earlier: dict[str, list[LeaseRecord]]) -> list[LeaseRecord]:
    """The leases of each part that had no clean end, unless a later one tells that nothing is left.

    Only the same user's later lease, root's and this user's own are believed: the word of anybody
    else would let a stranger hide what a killed holder has left.
    """
    found = []
    for records in earlier.values():
        believed: set[int] = set()
        for record in sorted(records, key=lambda one: one.number, reverse=True):
            if record.is_clean:
                believed.add(record.uid)
            elif record.is_ours and believed.isdisjoint((record.uid, 0, os.geteuid())):
                found.append(record)
    return found


def forget_earlier(directory: LockDirectory, holding: Holding) -> None:
    """Remove what earlier leases of the same devices have left: this user's, or all if this one is root."""
    for record in holding.earlier:
        if os.geteuid() in (0, record.uid):
            remove(directory.leases, f"{record.part}.{record.number}")

"""A lease that is held: its records, and how it is given back."""

import os
import time

from .deciding import Choice
from .directory import MAX_COMMAND, LeaseRecord, LockDirectory, mark_ended, mark_session
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
    """The lease of these devices, all of them or none; None if somebody else was faster.

    ``records`` and ``numbers`` are what there is of earlier leases, by part, highest first. Raises
    RefusedError or OSError, and has then taken nothing.
    """
    granted: list[Granted] = []
    fds: list[int] = []
    made: list[str] = []
    try:
        for device in devices:
            number = 1 + max(numbers.get(part, [0])[0] for part in device.parts)
            for part in device.parts:
                fds.append(directory.add_record(part, number, facts.format(device.device)))
                made.append(f"{part}.{number}")
            granted.append(Granted(device, number))
    except FileExistsError:
        pass
    else:
        made.clear()
        parts = [part for device in devices for part in device.parts]
        return Holding(granted, fds, {part: records[part] for part in parts})
    finally:
        if made:
            for name in made:
                remove(directory.leases, name)
            for fd in fds:
                os.close(fd)
    return None


def find_unclean(earlier: dict[str, list[LeaseRecord]]) -> list[LeaseRecord]:
    """Of each part, the leases that had no clean end since the last one that had."""
    found = []
    for records in earlier.values():
        for record in records:
            if record.is_clean:
                break
            if record.is_ours:
                found.append(record)
    return found


def forget_earlier(directory: LockDirectory, holding: Holding) -> None:
    """Take away what this user's earlier leases of the same devices have left in the directory."""
    for record in holding.earlier:
        if record.uid == os.geteuid():
            remove(directory.leases, f"{record.part}.{record.number}")

"""What killed holders of this user have left behind."""

import os
from collections.abc import Iterator

from tileyard.devices.occupancy import open_directory, read_requests
from tileyard.doctor.findings import Finding, Level
from tileyard.processes.keeper.directory import LeaseRecord, LockDirectory
from tileyard.processes.keeper.tree import all_pids, read_process
from tileyard.settings import Settings

SUBJECT = "leftovers"


def check_leftovers(settings: Settings) -> Iterator[Finding]:
    """No process lives on whose lease is over; requests of the dead are taken away by looking."""
    if not settings.lock_dir.exists():
        return
    with open_directory(settings.lock_dir) as directory:
        read_requests(directory)
        records = list(_find_unclean(directory))
    found = False
    for record in records:
        if pids := find_marked(record.tree):
            found = True
            yield Finding(
                subject=SUBJECT,
                level=Level.WARN,
                message=f"lease {record.number} of {record.device} ({record.command}) was killed, "
                f"and left processes {', '.join(map(str, pids))}",
                todo=f"the next lease of {record.device} ends them; or end them by hand",
            )
    if not found:
        yield Finding(subject=SUBJECT, level=Level.OK, message="nothing of dead leases is left")


def find_marked(tree: str) -> list[int]:
    """Processes of this user that carry a lease's token in their environment."""
    mark = tree.encode()
    return [
        pid for pid in all_pids() if pid != os.getpid() and mark in read_process(pid, "environ")
    ]


def _find_unclean(directory: LockDirectory) -> Iterator[LeaseRecord]:
    """The newest record of each part, where it is this user's and its holder did not end it."""
    for part, numbers in directory.list_numbers().items():
        for record in directory.read_records(part, numbers[:1]):
            is_mine = record.is_ours and record.uid == os.geteuid()
            if is_mine and record.tree and not (record.is_live or record.is_clean):
                yield record

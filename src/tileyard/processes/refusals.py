"""What a keeper reports, and what to tell people when it refused to start something."""

import os
from collections.abc import Mapping
from typing import Final

from tileyard.errors import NestedLeaseError, SickDeviceError, WorkerStartError
from tileyard.model import Record
from tileyard.processes.records import LeaseRequest

REFUSALS: Final = {
    "lock": "the lock directory cannot be used",
    "planted": "the lock directory, or a folder in it, is a link or a file",
    "foreign": "the lock directory, or a folder in it, belongs to another user, who could take leases away",
    "incomplete": "a folder of the lock directory is missing, which only root can make",
    "unsafe": "the lock directory, or a folder in it, is not sticky: anyone could remove a lease",
    "replaced": "the lock directory was replaced meanwhile; ask again",
    "nested": "it is asked for under a lease of the same device, and would wait for itself",
    "sick": "too few of its devices are fit for use",
    "quarantine": "a device that is not fit for use cannot be put in quarantine",
    "session": "it cannot lead a session",
    "memory": "its memory limit cannot be set",
    "cores": "its cores are not available",
    "cwd": "its working directory cannot be entered",
    "argv": "its program cannot be run",
}
REFUSAL_ERRORS: Final = {"sick": SickDeviceError, "nested": NestedLeaseError}


class Report(Record):
    """One line from the keeper; which fields count depends on ``event``."""

    event: str
    position: int = 0
    holder: str = ""
    leases: tuple[int, ...] = ()
    choices: tuple[int, ...] = ()
    text: str = ""
    pid: int = 0
    errno: int | None = 0
    pids: tuple[int, ...] = ()
    code: int | None = None
    signal: int | None = None
    told: int = 0
    peak_rss_bytes: int = 0
    survivors: tuple[int, ...] = ()
    lingers: int = 0

    @property
    def refused_step(self) -> str:
        """The step at which the keeper gave up, empty if it did not."""
        return self.event.removeprefix("refused_") if self.event.startswith("refused_") else ""


def explain_refusal(
    report: Report, program: str, lease: LeaseRequest | None, details: Mapping[str, str]
) -> WorkerStartError:
    """The error for a report with a ``refused_step``; ``details`` say by step what it was about."""
    step = report.refused_step
    text = details.get(step) or report.text
    if not text and step == "lock" and lease is not None:
        text = " ".join(lease.choices[0].locks)
    message = f"cannot start {program}: {REFUSALS[step]}"
    if text:
        message += f": {text}"
    if report.errno:
        message += f": {os.strerror(report.errno)}"
    return REFUSAL_ERRORS.get(step, WorkerStartError)(message)

"""Builds the command line of a keeper, parses its reports, and explains why it refused to start something."""

import contextlib
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tileyard.base.errors import NestedLeaseError, SickDeviceError, WorkerStartError
from tileyard.base.model import Device, Record
from tileyard.processes import keeper
from tileyard.processes.records import LeaseRequest

START: Final = str(Path(keeper.__file__).with_name("start.py"))
PYTHON: Final = (sys.executable, "-S", "-E", "-I", "-X", "utf8")  # so that all bytes pass
REFUSALS: Final = {
    "lock": "the lock directory cannot be used",
    "planted": "the lock directory, or a folder in it, is a link or a file",
    "foreign": "the lock directory, or a folder in it, belongs to another user, who could take leases away",
    "incomplete": "a folder of the lock directory is missing, which only root can make",
    "unsafe": "the lock directory, or a folder in it, is not sticky: anyone could remove a lease",
    "replaced": "the lock directory was replaced meanwhile; ask again",
    "priority": "its priority is higher than root allows",
    "quarantine": "a faulty device cannot be put in quarantine",
    "session": "it cannot lead a session",
    "memory": "its memory limit cannot be set",
    "cores": "its cores are not available",
    "cwd": "its working directory cannot be entered",
    "argv": "its program cannot be run",
}
REFUSAL_ERRORS: Final = {"sick": SickDeviceError, "nested": NestedLeaseError}


JOB: Final = "TILEYARD_JOB"
"""The variable that names the job whose turn a lease takes."""
CI_RUNS: Final = (
    "GITHUB_RUN_ID", "CI_PIPELINE_ID", "BUILDKITE_BUILD_ID", "CIRCLE_WORKFLOW_ID",
    "BUILD_BUILDID", "BUILD_TAG",
)  # fmt: skip
"""Variables of GitHub, GitLab, Buildkite, CircleCI, Azure and Jenkins that name a whole run."""
NO_SESSION: Final = "4294967295"


def _find_session() -> str:
    """The login session, if the kernel keeps account of them, otherwise that of the terminal."""
    with contextlib.suppress(OSError):
        number = Path("/proc/self/sessionid").read_text(encoding="ascii").strip()
        if number != NO_SESSION:
            return f"login {number}"
    return f"session {os.getsid(0)}"


SESSION: Final = _find_session()  # at the start: copies of this process have sessions of their own


def find_job(environ: Mapping[str, str]) -> str:
    """The job that this process belongs to."""
    runs = (f"{name} {environ[name]}" for name in CI_RUNS if environ.get(name))
    return environ.get(JOB) or next(runs, SESSION)


def name_job(environ: Mapping[str, str], host: str) -> str:
    """This process's job as other hosts know it: a session is one of its ``host``."""
    job = find_job(environ)
    return f"{job} of {host}" if job == SESSION else job


def keeper_argv(
    tree: str, options: Sequence[str], lease: LeaseRequest | None, argv: Sequence[str]
) -> list[str]:
    """The argv that starts a keeper of ``argv`` below this process, with a lease if one is requested."""
    line = [
        *PYTHON,
        START,
        f"parent={os.getpid()}",
        f"tree={tree}",
        f"outer={os.environ.get('TILEYARD_TREE', '')}",
        *options,
    ]
    if lease is not None:
        job = find_job(os.environ)
        line += [f"count={lease.count}", f"priority={lease.priority}", f"job={job}"]
        for device in lease.choices:
            line += _describe_device(device)
    return [*line, "--", *argv]


def _describe_device(device: Device) -> list[str]:
    return [
        f"choice={device.name}",
        *(f"lock={lock}" for lock in device.locks),
        *(f"env={name}={text}" for name, text in device.env.items()),
        f"mask={device.mask}",
        f"device-cores={','.join(map(str, device.cores))}",
        *(
            f"probe={word}" for word in device.probe if device.locks
        ),  # else its lender has it probed
        f"probe-limit={device.probe_limit_s:f}",
    ]


class Report(Record):
    """One line from the keeper; ``event`` decides which fields count."""

    event: str
    position: int = 0
    holder: str = ""
    leases: tuple[int, ...] = ()
    choices: tuple[int, ...] = ()
    text: str = ""
    pid: int = 0
    keeper: int = 0
    errno: int | None = 0
    code: int | None = None
    signal: int | None = None
    told: int = 0
    ran_ns: int = 0
    cpu_ns: int = 0
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
    """The error for a report with a ``refused_step``; ``details`` are the objects of the failure, by step."""
    step = report.refused_step
    error = REFUSAL_ERRORS.get(step, WorkerStartError)
    if step == "nested" and lease is not None:
        names = " or ".join(device.name for device in lease.choices[:4])
        return error(
            f"cannot lease {names}: this command already runs under a lease of {report.text}"
        )
    if step == "sick" and lease is not None:
        lacking = "no healthy device" if lease.count == 1 else "too few healthy devices"
        return error(f"{lacking}: {report.text}")
    text = details.get(step) or report.text
    if not text and step == "lock" and lease is not None:
        text = " ".join(lease.choices[0].locks)
    message = f"cannot start {program}: {REFUSALS[step]}"
    if text:
        message += f": {text}"
    if report.errno:
        message += f": {os.strerror(report.errno)}"
    return error(message)

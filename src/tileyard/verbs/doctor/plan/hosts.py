"""Checks other hosts: whether an agent starts there, its line and clock, what differs from this host and
what is shared with it, and the findings of its own doctor.
"""

import asyncio
import contextlib
import os
import socket
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from platform import python_version
from typing import Final

from tileyard.base.clock import Clock
from tileyard.base.decoding import decode_json
from tileyard.base.errors import TileyardError
from tileyard.base.model import Record
from tileyard.base.settings import Settings
from tileyard.devices.base import read_boot_id
from tileyard.devices.cpu import identify_model
from tileyard.engine.foreign_queue.far_side import read_token
from tileyard.engine.foreign_queue.slots import leaving_token
from tileyard.engine.hosts.messages import PROTOCOL, DiagnoseHost, HostDiagnosed, HostTime, TellTime
from tileyard.engine.hosts.naming import HostAnswer, ask_hosts
from tileyard.engine.hosts.parts import PART_BYTES
from tileyard.engine.hosts.session import HostSession
from tileyard.targets.cpu.toolchain import CpuOptions, open_toolchain
from tileyard.targets.cuda.packages import headers_version
from tileyard.verbs.doctor.plan.checks import CHECKS, find_version
from tileyard.verbs.doctor.plan.findings import Diagnosis, Finding, Level, run_checks
from tileyard.verbs.doctor.plan.tokens import SUBJECT, compare_hosts, parse_token, write_token

ROUNDS: Final = 5
"""Round trips, of which the shortest counts."""
SENT_PARTS: Final = 4
"""Parts of an object that are sent to see how fast the line is."""
FAR_S: Final = 1.0
"""Difference of two clocks from which logs can be misread."""
SHOWN: Final = 8
"""Digits of a compiler's fingerprint, which decides what it builds: its version alone does not."""
CPU: Final = "CPU"
COMPILER: Final = "C compiler"
EFFECTS: Final[Mapping[str, str]] = {
    "Python": "plug-ins must run under both",
    "TileLang": "it builds nothing for GPUs, this host builds instead",
    "CUDA": "it builds nothing for GPUs, this host builds instead",
    COMPILER: "it builds nothing for CPUs, this host builds instead",
    CPU: "kernels for CPUs are built there alone",
}
"""By what can differ between hosts, what a difference means."""


class HostReport(Record):
    """What a host reports of itself: its ``name`` for itself, what can differ (see ``EFFECTS``, empty if
    there is none), and findings.
    """

    name: str
    versions: dict[str, str]
    findings: tuple[Finding, ...]


class Line(Record):
    """The way to a host and its clock: ``ahead_s`` is right to half a round trip."""

    round_s: float
    ahead_s: float
    bytes_per_s: float


class Examined(Record):
    """A host, seen from both ends."""

    line: Line
    report: HostReport


def check_hosts(hosts: str, settings: Settings) -> Diagnosis:
    """Check these hosts, all at the same time but for the speed of their lines. Raises UsageError if they
    are none, or the data directory cannot be made.
    """
    settings.make_home()
    measuring = asyncio.Lock()
    findings: list[Finding] = []
    lock_token = ""
    try:
        lock_token = write_token(settings).format()
    except TileyardError as error:
        findings.append(
            Finding(subject=SUBJECT, level=Level.WARN, message=error.message, todo=error.hint)
        )
    with leaving_token(settings.home / "objects") as object_token:
        order = DiagnoseHost(lock_token=lock_token, object_token=object_token)

        async def ask(session: HostSession) -> Examined:
            async with measuring:
                line = await _measure(session)
            report = (await session.ask(order, HostDiagnosed)).report
            return Examined(line=line, report=decode_json(report, HostReport))

        answers = ask_hosts(hosts, settings, ask)
    here = read_versions(settings)
    kinds = {answer.answer.report.versions[CPU] for answer in answers if answer.answer}
    for answer in answers:
        findings += judge_host(answer, here, has_kinds=len(kinds) > 1)
    return Diagnosis(at=Clock().wall_s(), findings=tuple(findings))


def report_here(settings: Settings, order: DiagnoseHost) -> HostReport:
    """The report of this host, for the doctor of another one, which has left tokens."""
    objects = settings.home / "objects"
    is_own = read_token(order.object_token, objects).problem
    is_shared = "is shared: no objects are sent"
    findings = [
        Finding(
            subject="same home",
            level=Level.OK,
            message=f"{settings.home} {'is its own' if is_own else is_shared}",
        )
    ]
    if order.lock_token:
        findings += compare_hosts(settings, parse_token(order.lock_token), read_boot_id())
    findings += run_checks(CHECKS, settings).findings
    return HostReport(
        name=socket.gethostname(), versions=read_versions(settings), findings=tuple(findings)
    )


def read_versions(settings: Settings) -> dict[str, str]:
    """What this host has of everything in ``EFFECTS``; empty texts for what it lacks."""
    compiler = cuda = ""
    with contextlib.suppress(TileyardError):  # the host's own findings say why
        toolchain = open_toolchain(settings.cc, CpuOptions())
        compiler = f"{toolchain.version} ({toolchain.fingerprint()[:SHOWN]})"
    with contextlib.suppress(TileyardError):
        cuda = ".".join(map(str, headers_version()))
    return {
        "Python": python_version(),
        "TileLang": find_version("tilelang"),
        "CUDA": cuda,
        COMPILER: compiler,
        CPU: identify_model(),
    }


async def _measure(session: HostSession) -> Line:
    clock = Clock()
    rounds = []
    for _ in range(ROUNDS):
        sent_at, began_s = clock.wall_s(), clock.monotonic_s()
        told = await session.ask(TellTime(), HostTime)
        took_s = clock.monotonic_s() - began_s
        rounds.append((took_s, told.at - sent_at - took_s / 2))
    round_s, ahead_s = min(rounds)
    data = os.urandom(PART_BYTES)
    began_s = clock.monotonic_s()
    sends = (session.ask(TellTime(data=data), HostTime) for _ in range(SENT_PARTS))
    await asyncio.gather(*sends)
    took_s = clock.monotonic_s() - began_s
    return Line(round_s=round_s, ahead_s=ahead_s, bytes_per_s=SENT_PARTS * PART_BYTES / took_s)


def judge_host(
    answer: HostAnswer[Examined], here: Mapping[str, str], *, has_kinds: bool
) -> Iterator[Finding]:
    """The findings of a host, each with its name before the subject."""
    found = answer.answer
    if found is None:
        yield Finding(subject=f"{answer.host} agent", level=Level.FAIL, message=answer.problem)
        return
    there = found.report.versions
    differing = [what for what in EFFECTS if there[what] != here[what]]
    if CPU in differing:  # it builds for its own
        differing = [what for what in differing if what != COMPILER]
    findings = [
        _judge_agent(found.report, [what for what in EFFECTS if there[what] == here[what] != ""]),
        *(
            Finding(
                subject=what,
                level=Level.WARN,
                message=f"{there[what] or 'none'}, and {here[what] or 'none'} here: {EFFECTS[what]}",
                todo="" if what == CPU else "install the same on both",
            )
            for what in differing
        ),
        *([_KINDS] if has_kinds else []),
        *_judge_line(found.line),
        *found.report.findings,
    ]
    for one in findings:
        yield Finding(
            subject=f"{answer.host} {one.subject}",
            level=one.level,
            message=one.message,
            todo=one.todo,
        )


_KINDS: Final = Finding(
    subject=CPU,
    level=Level.WARN,
    message="the hosts have CPUs of several kinds, and a run that compares times on CPUs takes one",
    todo="name the hosts of each kind in runs of their own",
)


def _judge_agent(report: HostReport, same: list[str]) -> Finding:
    own = f"Tileyard {version('tileyard')} (protocol {PROTOCOL})"
    message = f"starts on {report.name} with {', '.join([own, *same])} as here"
    return Finding(subject="agent", level=Level.OK, message=message)


def _judge_line(line: Line) -> Iterator[Finding]:
    speed = f"{line.bytes_per_s / 1e6:.0f} MB/s"
    message = f"round trip {1e3 * line.round_s:.1f} ms, {speed}"
    yield Finding(subject="line", level=Level.OK, message=message)
    off_s = abs(line.ahead_s)
    is_far = off_s - line.round_s / 2 > FAR_S
    direction = "ahead of" if line.ahead_s > 0 else "behind"
    yield Finding(
        subject="clock",
        level=Level.WARN if is_far else Level.OK,
        message=f"{off_s:.3f} s {direction} this host's, to within {1e3 * line.round_s / 2:.1f} ms",
        todo="set it: times in logs and of leases there differ; no verdict depends on it"
        if is_far
        else "",
    )

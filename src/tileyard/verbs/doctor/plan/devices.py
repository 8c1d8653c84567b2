"""Checks devices, declared or found: quarantines, probes, what killed holders left, queues of other hosts."""

import os
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from tileyard.base.model import Device
from tileyard.base.settings import Settings
from tileyard.base.wording import count_of
from tileyard.devices.classes import find_class
from tileyard.devices.cpu import find_absent, format_cores, parse_cores
from tileyard.devices.cuda import has_driver, list_visible_gpus, make_gpu
from tileyard.devices.declared import declaration_files, read_devices, read_files
from tileyard.devices.foreign import PREFIX, SUBMISSION_VARIABLE, read_queues
from tileyard.devices.health import (
    GOOD_PROBES_NEEDED,
    Probe,
    Verdict,
    probe_devices,
    read_health,
    run_apart,
)
from tileyard.devices.occupancy import open_directory, read_requests
from tileyard.devices.registry import find_devices
from tileyard.engine.foreign_queue.slots import check_reach
from tileyard.processes.keeper.directory import LeaseRecord, LockDirectory
from tileyard.processes.keeper.tree import all_pids, read_process
from tileyard.verbs.doctor.plan.findings import Finding, Level

JUDGEMENTS = {
    Verdict.GOOD: (Level.OK, "{message}", ""),
    Verdict.BUSY: (Level.OK, "is in use, and was not probed", ""),
    Verdict.UNKNOWN: (
        Level.WARN,
        "cannot be probed: {message}",
        "make the probe's command work for this user",
    ),
    Verdict.FAILED: (
        Level.FAIL,
        "fails its probe: {message}",
        "run tileyard devices probe {device}, which puts it into quarantine",
    ),
}
"""For each verdict of a probe: its level, the line about it, and advice."""
QUEUE_WAIT_S: Final = 60.0
"""Seconds within which a queue must give a device for this check."""
REACH_LEVELS: Final[Mapping[bool | None, Level]] = {
    True: Level.OK,
    False: Level.FAIL,
    None: Level.WARN,
}


def check_declarations(settings: Settings) -> Iterator[Finding]:
    """The files that declare devices are valid, and name cores of this host."""
    devices, slots = read_devices(settings)
    files = [str(path) for path in declaration_files(settings) if path.is_file()]
    what = f"{count_of(len(devices), 'device')} and {count_of(slots, 'simulator')} in {', '.join(files)}"
    yield Finding(
        subject="declared devices",
        level=Level.OK,
        message=what if files else "no file declares any",
    )
    for found, place in read_files(settings):
        for one in found.device:
            absent = find_absent(parse_cores(one.cores, one.name)) if one.cores else ()
            if absent:
                yield Finding(
                    subject=one.name,
                    level=Level.WARN,
                    message=(
                        f"{place.document.path} gives it cores {format_cores(absent)}, which "
                        f"this host does not have"
                    ),
                    todo="correct `cores` of its declaration",
                )


def check_gpus(settings: Settings) -> Iterator[Finding]:
    """Check that NVML lists GPUs if NVIDIA's driver is installed."""
    if not has_driver():
        yield Finding(subject="GPUs", level=Level.OK, message="there is no NVIDIA driver")
        return
    found = list_visible_gpus()
    if found.failure:
        yield Finding(
            subject="GPUs",
            level=Level.FAIL,
            message=f"there is an NVIDIA driver, but: {found.failure}",
            todo="install what is missing, or declare the GPUs in devices.toml",
        )
    else:
        names = ", ".join(
            f"{make_gpu(gpu, settings.lock_dir).name} {gpu.product}" for gpu in found.gpus
        )
        yield Finding(subject="GPUs", level=Level.OK, message=names or "NVML lists none")


def check_devices(settings: Settings) -> Iterator[Finding]:
    """Probe every device that is not in use or in quarantine; the results change nothing."""
    well: list[Device] = []
    for device in find_devices(settings):
        health = read_health(device)
        if health.is_well:
            well.append(device)
            continue
        yield Finding(
            subject=device.name,
            level=Level.FAIL,
            message=f"is in quarantine: {health.reason} (by {health.user})",
            todo=f"run tileyard devices probe {device.name} until {GOOD_PROBES_NEEDED} in a row are "
            f"good, or tileyard devices readmit {device.name}",
        )
    yield from map(_judge, run_apart(probe_devices([device for device in well if device.probe])))
    for device in well:
        if not device.probe and find_class(device.kind).is_probed:
            yield Finding(
                subject=device.name,
                level=Level.WARN,
                message="has no probe: a fault of it would go unnoticed",
                todo="add probe = [...] to its declaration",
            )


def _judge(probe: Probe) -> Finding:
    level, message, todo = JUDGEMENTS[probe.verdict]
    return Finding(
        subject=probe.device,
        level=level,
        message=message.format(message=probe.message) or "answers its probe",
        todo=todo.format(device=probe.device),
    )


def check_leftovers(settings: Settings) -> Iterator[Finding]:
    """Check that no process outlives its lease; reading the requests removes those of dead processes."""
    if not settings.lock_dir.exists():
        return
    with open_directory(settings.lock_dir) as directory:
        read_requests(directory)
        records = list(_find_unclean(directory))
    left = [(record, pids) for record in records if (pids := find_marked(record.tree))]
    for record, pids in left:
        yield Finding(
            subject="leftovers",
            level=Level.WARN,
            message=f"lease {record.number} of {record.device} ({record.command}) was killed, "
            f"and left processes {', '.join(map(str, pids))}",
            todo=f"the next lease of {record.device} ends them; or end them by hand",
        )
    if not left:
        yield Finding(subject="leftovers", level=Level.OK, message="nothing of dead leases is left")


def find_marked(tree: str) -> list[int]:
    """Processes of this user with a lease's token in their environment."""
    mark = tree.encode()
    return [
        pid for pid in all_pids() if pid != os.getpid() and mark in read_process(pid, "environ")
    ]


def _find_unclean(directory: LockDirectory) -> Iterator[LeaseRecord]:
    """The newest record of each part, if it is this user's and its holder did not end it."""
    for part, numbers in directory.list_numbers().items():
        for record in directory.read_records(part, numbers[:1]):
            is_mine = record.is_ours and record.uid == os.geteuid()
            if is_mine and record.tree and not (record.is_live or record.is_clean):
                yield record


def check_queues(settings: Settings) -> Iterator[Finding]:
    """Write a file into the object store and read it back through each declared queue."""
    if os.environ.get(SUBMISSION_VARIABLE):
        return  # this is a far side itself
    for queue in read_queues(settings):
        brief = msgspec.structs.replace(queue, queue_limit_s=min(queue.queue_limit_s, QUEUE_WAIT_S))
        reach = check_reach(brief, settings.make_home() / "objects")
        yield Finding(
            subject=PREFIX + reach.queue,
            level=REACH_LEVELS[reach.ok],
            message=reach.message,
            todo=reach.hint,
        )

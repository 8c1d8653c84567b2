"""Devices: declared, found, in quarantine, probed."""

from collections.abc import Iterator

from tileyard.devices.cuda import has_driver, make_gpus
from tileyard.devices.declared import declaration_files, read_devices
from tileyard.devices.health import GOOD_PROBES_NEEDED, read_health
from tileyard.devices.probes import Probe, Verdict, probe_devices, run_apart
from tileyard.devices.registry import find_devices, list_visible_gpus
from tileyard.doctor.findings import Finding, Level
from tileyard.model import Device
from tileyard.settings import Settings

LEVELS = {
    Verdict.GOOD: Level.OK,
    Verdict.BUSY: Level.OK,
    Verdict.UNKNOWN: Level.WARN,
    Verdict.FAILED: Level.FAIL,
}


def check_declarations(settings: Settings) -> Iterator[Finding]:
    """The files that declare devices are valid."""
    devices, slots = read_devices(settings)
    files = [str(path) for path in declaration_files(settings) if path.is_file()]
    what = f"{len(devices)} devices and {slots} simulators in {', '.join(files)}"
    yield Finding(
        subject="declared devices",
        level=Level.OK,
        message=what if files else "no file declares any",
    )


def check_gpus(settings: Settings) -> Iterator[Finding]:
    """NVML lists GPUs where NVIDIA's driver is there."""
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
        return
    devices = make_gpus(found.gpus, settings.lock_dir)
    names = ", ".join(
        f"{device.name} {gpu.product}" for device, gpu in zip(devices, found.gpus, strict=True)
    )
    yield Finding(subject="GPUs", level=Level.OK, message=names or "NVML lists none")


def check_devices(settings: Settings) -> Iterator[Finding]:
    """Every device that is not in use or in quarantine answers its probe; nothing follows from it."""
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
    probes = run_apart(probe_devices([device for device in well if device.probe]))
    for probe in probes:
        yield _judge(probe)
    for device in well:
        if not device.probe and device.kind != "sim":
            yield Finding(
                subject=device.name,
                level=Level.WARN,
                message="has no probe: a fault of it would go unnoticed",
                todo="add probe = [...] to its declaration",
            )


def _judge(probe: Probe) -> Finding:
    words = {
        Verdict.GOOD: probe.message or "answers its probe",
        Verdict.BUSY: "is in use, and was not probed",
        Verdict.UNKNOWN: f"cannot be probed: {probe.message}",
        Verdict.FAILED: f"fails its probe: {probe.message}",
    }
    todo = {
        Verdict.UNKNOWN: "make the probe's command work for this user",
        Verdict.FAILED: f"run tileyard devices probe {probe.device}, which puts it into quarantine",
    }
    return Finding(
        subject=probe.device,
        level=LEVELS[probe.verdict],
        message=words[probe.verdict],
        todo=todo.get(probe.verdict, ""),
    )

"""The devices of this host, and their names.
``cpu`` and ``cpu:0`` are all cores of this process, ``cpu:cores=0-1,3`` a declared set, ``sim:0`` a
simulator, ``cuda`` all of a class, ``auto`` the accelerators or else the CPU. A declared device
replaces a found one of the same name or lock.
"""

import sys
from collections.abc import Sequence

from tileyard.base.errors import UsageError
from tileyard.base.model import Device
from tileyard.base.settings import Settings
from tileyard.base.wording import name_some
from tileyard.devices.base import Found, class_of, device_lock
from tileyard.devices.classes import CLASSES
from tileyard.devices.cpu import core_locks, format_cores, identify_cpu, parse_cores, require_cores
from tileyard.devices.declared import make_simulators, read_devices

AUTO = "auto"
CORES = "cpu is all cores, cpu:cores=0-1,3 a set of them"
CPU_PROBE = "tileyard.devices.cpu_probe"


def find_devices(settings: Settings, found: Sequence[Found] | None = None) -> tuple[Device, ...]:
    """Every device of this host: CPU, accelerators (``found``, if given), simulators. Raises UsageError."""
    declared, slots = read_devices(settings)
    found = find_accelerators(AUTO, settings) if found is None else found
    return (
        _make_cpu("cpu:0", settings.cores, settings),
        *declared,
        *_without(found, declared),
        *make_simulators(slots, settings.lock_dir),
    )


def resolve_devices(name: str, settings: Settings) -> tuple[Device, ...]:
    """The devices of a name: ``auto``, a class, a device's name, UUID or PCI address. Looks only
    where it can refer to: no driver for a CPU. Raises UsageError if there is none.
    """
    kind = class_of(name)
    if kind == "cpu":
        return (_parse_cpu(name, settings),)
    declared, slots = read_devices(settings)
    simulators = tuple(make_simulators(slots, settings.lock_dir))
    if kind == "sim":
        return _require(_select(name, simulators), name, settings)
    looked = find_accelerators(name, settings)
    accelerators = (*declared, *_without(looked, declared))
    if name == AUTO:
        return accelerators or (_parse_cpu("cpu:0", settings),)
    found = _select(name, accelerators) or _named_by_id(name, accelerators, settings)
    return _require(found, name, settings, [one.failure for one in looked if one.failure])


def parse_device(name: str, settings: Settings) -> Device:
    """The one device of this name. Raises UsageError if there is none, or more than one."""
    devices = resolve_devices(name, settings)
    if len(devices) > 1:
        names = ", ".join(device.name for device in devices)
        raise UsageError(f"{name!r} matches several devices", f"name one of {names}")
    return devices[0]


def require_apart(devices: Sequence[Device]) -> None:
    """Raise UsageError if two of these have a lock, and so a core, in common."""
    owner_of: dict[str, str] = {}
    for device in devices:
        for lock in device.locks:
            other = owner_of.setdefault(lock, device.name)
            if other != device.name:
                raise UsageError(
                    f"devices {other} and {device.name} share a core, so only one of them can be "
                    "held at a time",
                    "name devices that have nothing in common",
                )


def find_accelerators(name: str, settings: Settings) -> tuple[Found, ...]:
    """The found and undeclared devices of the classes that a name can refer to; ``auto`` refers to all."""
    return tuple(
        one.find(settings)
        for one in CLASSES.values()
        if name == AUTO or name.lower().startswith(one.prefixes)
    )


def _select(name: str, devices: Sequence[Device]) -> tuple[Device, ...]:
    exact = tuple(device for device in devices if device.name == name)
    return exact or tuple(device for device in devices if device.kind == name)


def _named_by_id(name: str, devices: Sequence[Device], settings: Settings) -> tuple[Device, ...]:
    lock = device_lock(name, settings.lock_dir)
    return tuple(device for device in devices if device.locks[0] == lock)


def _require(
    devices: tuple[Device, ...], name: str, settings: Settings, failures: Sequence[str] = ()
) -> tuple[Device, ...]:
    """The devices; ``failures`` are why some could not be found. Raises UsageError if there are none."""
    if not devices:
        known = name_some(device.name for device in find_devices(settings))
        why = "".join(f"; {failure}" for failure in failures)
        raise UsageError(f"there is no device {name!r} on this host{why}", f"devices: {known}")
    return devices


def _without(found: Sequence[Found], declared: Sequence[Device]) -> tuple[Device, ...]:
    names = {device.name for device in declared}
    locks = {device.locks[0] for device in declared}
    return tuple(
        device
        for one in found
        for device in one.devices
        if device.name not in names and device.locks[0] not in locks
    )


def _parse_cpu(name: str, settings: Settings) -> Device:
    which = name.partition(":")[2]
    if which in ("", "0"):
        return _make_cpu("cpu:0", settings.cores, settings)
    if not which.startswith("cores="):
        raise UsageError(f"there is no device {name!r} on this host", CORES)
    subject = f"device {name!r}"
    cores = parse_cores(which.removeprefix("cores="), subject)
    require_cores(cores, settings.cores, subject)
    return _make_cpu(f"cpu:cores={format_cores(cores)}", cores, settings)


def _make_cpu(name: str, cores: tuple[int, ...], settings: Settings) -> Device:
    return Device(
        name=name,
        kind="cpu",
        identity=identify_cpu(cores),
        cores=cores,
        locks=core_locks(cores, settings.lock_dir),
        probe=(sys.executable, "-P", "-m", CPU_PROBE, *map(str, cores)),
    )

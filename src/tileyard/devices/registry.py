"""The devices of this host, and how people name them.

So far these are its CPUs: ``cpu`` and ``cpu:0`` are all cores that this process may use,
``cpu:cores=0-1,3`` is a declared set of them.
"""

from collections.abc import Iterable
from pathlib import Path

from tileyard.devices.cpu import identify_cpu, physical_core
from tileyard.errors import UsageError
from tileyard.model import Device
from tileyard.settings import Settings

SYNTAX = "write cpu, cpu:0 or cpu:cores=0-1,3"
MAX_CORES = 8192  # as many as Linux can be built for


def find_devices(settings: Settings) -> tuple[Device, ...]:
    """What there is when nobody names anything: the CPU with all cores of the settings."""
    return (parse_device("cpu:0", settings),)


def parse_device(name: str, settings: Settings) -> Device:
    """The device of this name. Raises UsageError if there is none."""
    kind, _, which = name.partition(":")
    if kind != "cpu":
        raise UsageError(f"there is no device {name!r} on this host", SYNTAX)
    if which in ("", "0"):
        return _make_cpu("cpu:0", settings.cores, settings)
    if not which.startswith("cores="):
        raise UsageError(f"there is no device {name!r} on this host", SYNTAX)
    cores = parse_cores(which.removeprefix("cores="), name)
    missing = sorted(set(cores) - set(settings.cores))
    if missing:
        raise UsageError(
            f"device {name!r} names cores {format_cores(missing)}, which are not available",
            f"available are {format_cores(settings.cores)}",
        )
    return _make_cpu(f"cpu:cores={format_cores(cores)}", cores, settings)


def parse_cores(text: str, name: str) -> tuple[int, ...]:
    """``0-1,3`` as ascending numbers; ``name`` is what an error is about."""
    cores: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.partition("-")
        last = last if dash else first
        if not (first.isdecimal() and last.isdecimal()) or int(first) > int(last):
            raise UsageError(f"device {name!r} has no valid set of cores: {part!r}", SYNTAX)
        if int(last) >= MAX_CORES:
            raise UsageError(
                f"device {name!r} names a core above {MAX_CORES - 1}: {part!r}", SYNTAX
            )
        cores.update(range(int(first), int(last) + 1))
    return tuple(sorted(cores))


def format_cores(cores: Iterable[int]) -> str:
    """Ascending numbers as ``0-1,3``."""
    spans: list[list[int]] = []
    for core in sorted(cores):
        if spans and spans[-1][1] == core - 1:
            spans[-1][1] = core
        else:
            spans.append([core, core])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in spans)


def _make_cpu(name: str, cores: tuple[int, ...], settings: Settings) -> Device:
    return Device(
        name=name,
        kind="cpu",
        identity=identify_cpu(cores),
        cores=cores,
        locks=cpu_locks(cores, settings.lock_dir),
    )


def cpu_locks(cores: Iterable[int], lock_dir: Path) -> tuple[str, ...]:
    """One lock file for each physical core, ascending.

    Sets that overlap, or that share a core through hardware threads, exclude each other; and since
    everyone takes them in this order, nobody waits in a circle.
    """
    physical = sorted({physical_core(core) for core in cores})
    return tuple(str(lock_dir / f"cpu-{core}.lock") for core in physical)

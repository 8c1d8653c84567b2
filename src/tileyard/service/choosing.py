"""Which devices a run uses: those that are named, else all of the target's class."""

from collections.abc import Sequence

from tileyard.artifacts.compat import FIRST_DRIVERS
from tileyard.devices.cores import format_cores
from tileyard.devices.foreign import ForeignQueue
from tileyard.devices.queues import find_queue, is_queue
from tileyard.devices.registry import resolve_devices
from tileyard.errors import UsageError
from tileyard.model import Device
from tileyard.settings import Settings
from tileyard.targets.cuda.architectures import parse_architecture
from tileyard.targets.cuda.packages import CUDA_MAJOR

CLASSES = ("cpu", "sim", "cuda")
"""Targets whose name says what they run on. Every other target is taken to run on a CPU."""


def choose_devices(names: Sequence[str], target: str, settings: Settings) -> tuple[Device, ...]:
    """The devices of a run, each once, in the order in which they are named.

    A name may be that of a class, or of a queue: then it stands for the queue's slots. Raises
    UsageError for one that there is not, for one that cannot run what the target builds, and for two
    devices that cannot be held at the same time.
    """
    kind = target.partition(":")[0]
    chosen: dict[str, Device] = {}
    for name in names or (kind if kind in CLASSES else "cpu",):
        slots = find_queue(name, settings).make_devices() if is_queue(name) else ()
        for device in slots or resolve_devices(name, settings):
            require_fit(target, device)
            chosen[device.name] = device
    owner_of: dict[str, str] = {}
    for device in chosen.values():
        for lock in device.locks:
            other = owner_of.setdefault(lock, device.name)
            if other != device.name:
                raise UsageError(
                    f"devices {other} and {device.name} share a core, so only one of them can be "
                    "held at a time",
                    "name devices that have nothing in common",
                )
    return tuple(chosen.values())


def require_fit(target: str, device: Device) -> None:
    """Raise UsageError where it is known, before anything is built, that a device runs no such artifact."""
    kind, _, name = target.partition(":")
    if {kind, device.kind} == {"cpu", "cuda"}:
        raise UsageError(f"{device.name} runs nothing that is built for {target}")
    if kind != "cuda":
        return
    wanted = parse_architecture(name)
    if device.arch and not wanted.fits(parse_architecture(device.arch).capability):
        raise UsageError(
            f"what is built for {target} runs on GPUs of capability {wanted.runs_on}, "
            f"and {device.name} is {device.arch}"
        )
    if device.driver_api and int(device.driver_api.partition(".")[0]) < CUDA_MAJOR:
        raise UsageError(
            f"what is built for {target} is compiled by CUDA {CUDA_MAJOR}, and the driver of "
            f"{device.name} knows CUDA {device.driver_api}",
            f"update the driver to {FIRST_DRIVERS[CUDA_MAJOR]} or newer",
        )


def choose_queues(names: Sequence[str], settings: Settings) -> tuple[ForeignQueue, ...]:
    """The queues among the names, each once. Raises UsageError for one that is not declared."""
    return tuple(find_queue(name, settings) for name in dict.fromkeys(names) if is_queue(name))


def share_cores(target: str, count: int, settings: Settings) -> tuple[str, ...]:
    """The names of so many CPU devices that share the cores evenly; none for the target's usual ones.

    Raises UsageError where there are not so many cores.
    """
    if not count or target.partition(":")[0] in CLASSES[1:]:
        return ()
    cores = settings.cores
    if count > len(cores):
        raise UsageError(f"{count} slots for kernels need as many cores", f"there are {len(cores)}")
    shares = (cores[len(cores) * i // count : len(cores) * (i + 1) // count] for i in range(count))
    return tuple(f"cpu:cores={format_cores(share)}" for share in shares)

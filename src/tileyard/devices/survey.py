"""All devices of a host at one moment: health, holder, queue, and how busy they are.

Beside them stand the queues through which devices of others can be had.
"""

import contextlib
import time
from collections.abc import Callable, Iterator

import msgspec

from tileyard.clock import Clock, SystemClock
from tileyard.devices.activity import read_core_times, share_busy
from tileyard.devices.cuda import GpuList
from tileyard.devices.health import Health, read_health
from tileyard.devices.locks import install_command, is_for_all
from tileyard.devices.names import device_lock
from tileyard.devices.occupancy import Holder, Occupancy, list_leased, read_occupancy
from tileyard.devices.queue_states import QueueState, survey_queues
from tileyard.devices.registry import find_devices, list_visible_gpus, parse_device
from tileyard.errors import UsageError
from tileyard.model import Device, Record
from tileyard.settings import LOCK_DIR, Settings

WINDOW_S = 0.5
SURVEY_VERSION = 1


class DeviceState(Record):
    """One device.

    ``busy_share`` is the share of the window in which it worked, whoever made it work: for cores
    by the kernel's account, for GPUs NVML's figure; None where nobody knows. ``held_idle_share`` is
    the share of the window in which it was held and did not work: 0 if nobody held it, None if it
    changed hands meanwhile, if only a part of it was held, or if its work is not known.
    """

    name: str
    kind: str = msgspec.field(name="class")
    identity: str
    health: Health
    holder: Holder | None
    queue: int
    busy_share: float | None
    held_idle_share: float | None


class Survey(Record):
    """Every device ``at`` a time in seconds since the epoch, seen through a window of ``window_s``.

    ``queues`` are those that are declared: their devices are not this host's. ``notes`` say what
    could not be found out.
    """

    at: float
    lock_dir: str
    window_s: float
    devices: tuple[DeviceState, ...]
    queues: tuple[QueueState, ...] = ()
    notes: tuple[str, ...] = ()
    version: int = SURVEY_VERSION


def survey_devices(
    settings: Settings,
    window_s: float = WINDOW_S,
    *,
    clock: Clock | None = None,
    pause: Callable[[float], None] = time.sleep,
) -> Survey:
    """Look at every device of the host for ``window_s``.

    Raises UsageError where a declaration is not valid or the lock directory is not what it must be.
    """
    gpus = list_visible_gpus()
    devices = (*find_devices(settings, gpus), *_find_leased_cores(settings))
    earlier, times = read_occupancy(devices, settings.lock_dir), read_core_times()
    pause(window_s)
    later, times_after = read_occupancy(devices, settings.lock_dir), read_core_times()
    worked = _gpu_shares(gpus, settings)
    states = []
    for device, before, after in zip(devices, earlier, later, strict=True):
        busy = share_busy(times, times_after, device.cores) if device.kind == "cpu" else None
        busy = worked.get(device.locks[0], busy)
        states.append(_describe(device, before, after, busy))
    return Survey(
        at=(clock or SystemClock()).wall_s(),
        lock_dir=str(settings.lock_dir),
        window_s=window_s,
        devices=tuple(states),
        queues=survey_queues(settings),
        notes=tuple(_find_notes(settings, gpus)),
    )


def _find_notes(settings: Settings, gpus: GpuList) -> Iterator[str]:
    if gpus.failure:
        yield f"GPUs are not listed: {gpus.failure}"
    locks = settings.lock_dir
    if locks == LOCK_DIR and locks.exists() and not is_for_all(locks):
        yield f"devices are leased by one user alone: to share them run {install_command(locks)}"


def share_held_idle(
    name: str, before: Occupancy, after: Occupancy, busy: float | None
) -> float | None:
    """The share of a window in which the device of this name was held and did not work."""
    if before.holder is None and after.holder is None:
        return 0.0
    same = before.holder is not None and before.holder == after.holder
    if not same or busy is None or after.holder is None or after.holder.device != name:
        return None
    return 1.0 - busy


def _find_leased_cores(settings: Settings) -> tuple[Device, ...]:
    """Core sets that somebody holds now: nobody can list them all, but these are of interest."""
    found = []
    for name in list_leased(settings.lock_dir):
        if name.startswith("cpu:cores="):
            with contextlib.suppress(UsageError):  # cores that this process may not use
                found.append(parse_device(name, settings))
    return tuple(found)


def _describe(
    device: Device, before: Occupancy, after: Occupancy, busy: float | None
) -> DeviceState:
    return DeviceState(
        name=device.name,
        kind=device.kind,
        identity=device.identity,
        health=read_health(device),
        holder=after.holder,
        queue=after.queue,
        busy_share=busy,
        held_idle_share=share_held_idle(device.name, before, after, busy),
    )


def _gpu_shares(gpus: GpuList, settings: Settings) -> dict[str, float]:
    """By lock, the utilisation that NVML states."""
    return {
        device_lock(gpu.uuid, settings.lock_dir): gpu.busy_percent / 100
        for gpu in gpus.gpus
        if gpu.busy_percent is not None
    }

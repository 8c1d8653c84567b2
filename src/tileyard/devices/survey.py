"""All devices of a host at one moment: health, holder, queue, and load as the kernel or NVML has it."""

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from tileyard.base.errors import UsageError
from tileyard.base.model import Device, Record
from tileyard.base.settings import LOCK_DIR, Settings
from tileyard.devices.base import Found
from tileyard.devices.classes import find_class
from tileyard.devices.cpu import physical_core
from tileyard.devices.foreign import QueueState, survey_queues
from tileyard.devices.health import Health, find_probe_problem, read_health
from tileyard.devices.lease_log import LeaseRules, read_lease_rules
from tileyard.devices.locks import install_command, is_for_all
from tileyard.devices.occupancy import Holder, Occupancy, list_leased, read_occupancy
from tileyard.devices.registry import AUTO, find_accelerators, find_devices, parse_device

WINDOW_S = 0.5
BUSY_SHARE = 0.5
SURVEY_VERSION = 1
IDLE_FIELDS = (3, 4)  # idle, and idle while something is read or written
FIELDS = 8  # those after it are part of these


class CoreTime(Record):
    """Time that a core has worked, and time that it has existed, in ticks since the host's start."""

    busy: int
    total: int


def read_core_times(root: Path = Path("/")) -> dict[int, CoreTime]:
    """Times of every core; empty if the kernel shows none."""
    try:
        text = (root / "proc/stat").read_text(encoding="ascii")
    except OSError:
        return {}
    times: dict[int, CoreTime] = {}
    for line in text.splitlines():
        name, *fields = line.split()
        number = name.removeprefix("cpu")
        if name.startswith("cpu") and number.isdecimal():
            ticks = [int(field) for field in fields[:FIELDS]]
            idle = sum(ticks[field] for field in IDLE_FIELDS)
            times[int(number)] = CoreTime(busy=sum(ticks) - idle, total=sum(ticks))
    return times


def share_busy(
    before: Mapping[int, CoreTime], after: Mapping[int, CoreTime], cores: Iterable[int]
) -> float | None:
    """The share of the time between two counts in which these cores worked; None if unknown."""
    busy = total = 0
    for core in cores:
        if core not in before or core not in after:
            return None
        busy += after[core].busy - before[core].busy
        total += after[core].total - before[core].total
    return min(1.0, max(0.0, busy / total)) if total > 0 else None


def find_free_cores(
    cores: Sequence[int],
    window_s: float = WINDOW_S,
    *,
    pause: Callable[[float], None] = time.sleep,
    root: Path = Path("/"),
) -> tuple[int, ...]:
    """Those of ``cores`` idle for half of a window, with the hardware threads they share; all if
    none or unknown. ``root`` contains ``proc`` and ``sys``.
    """
    before = read_core_times(root)
    pause(window_s)
    after = read_core_times(root)
    busy = {
        physical_core(core, root)
        for core in after
        if (share_busy(before, after, (core,)) or 0.0) > BUSY_SHARE
    }
    return tuple(core for core in cores if physical_core(core, root) not in busy) or tuple(cores)


class DeviceState(Record):
    """One device. ``busy_share`` is the share of the window in which any process used it, None if unknown;
    ``held_idle_share`` that in which it was held idle: 0 if not held, None if it changed hands, was held in
    part, or its work is unknown. ``unknown``: why nobody can tell whether it is well.
    """

    name: str
    kind: str = msgspec.field(name="class")
    identity: str
    health: Health
    holder: Holder | None
    queue: int
    busy_share: float | None
    held_idle_share: float | None
    unknown: str = ""


class Survey(Record):
    """Every device ``at`` seconds since the epoch, in a window of ``window_s``, and declared
    ``queues``, whose devices are not this host's. ``rules`` are root's, ``notes`` state what is unknown.
    """

    at: float
    lock_dir: str
    window_s: float
    devices: tuple[DeviceState, ...]
    queues: tuple[QueueState, ...] = ()
    rules: LeaseRules = LeaseRules()
    notes: tuple[str, ...] = ()
    version: int = SURVEY_VERSION


def survey_devices(
    settings: Settings,
    window_s: float = WINDOW_S,
    *,
    pause: Callable[[float], None] = time.sleep,
) -> Survey:
    """Observe all devices for ``window_s``. Raises UsageError: invalid declaration or lock directory."""
    found = find_accelerators(AUTO, settings)
    devices = (*find_devices(settings, found), *_find_leased_cores(settings))
    earlier, times = read_occupancy(devices, settings.lock_dir), read_core_times()
    pause(window_s)
    later, times_after = read_occupancy(devices, settings.lock_dir), read_core_times()
    worked = {lock: share for one in found for lock, share in one.busy.items()}
    states = []
    for device, before, after in zip(devices, earlier, later, strict=True):
        is_cores = find_class(device.kind).is_cores
        busy = share_busy(times, times_after, device.cores) if is_cores else None
        busy = worked.get(device.locks[0], busy)
        states.append(
            DeviceState(
                name=device.name,
                kind=device.kind,
                identity=device.identity,
                health=read_health(device),
                holder=after.holder,
                queue=after.queue,
                busy_share=busy,
                held_idle_share=share_held_idle(device.name, before, after, busy),
                unknown=find_probe_problem(device),
            )
        )
    return Survey(
        at=time.time(),
        lock_dir=str(settings.lock_dir),
        window_s=window_s,
        devices=tuple(states),
        queues=survey_queues(settings),
        rules=read_lease_rules(settings.lock_dir),
        notes=tuple(_find_notes(settings, found)),
    )


def _find_notes(settings: Settings, found: Sequence[Found]) -> Iterator[str]:
    yield from (one.failure for one in found if one.failure)
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
    """Core sets that somebody holds now: not all sets can be listed, but these are of interest."""
    found = []
    for name in list_leased(settings.lock_dir):
        if name.startswith("cpu:cores="):
            with contextlib.suppress(UsageError):  # cores that this process may not use
                found.append(parse_device(name, settings))
    return tuple(found)

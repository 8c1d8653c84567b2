"""Selects the devices of a run: those that are named, otherwise all of the target's class."""

import asyncio
import os
import socket
from collections.abc import Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pkgutil import resolve_name
from typing import TYPE_CHECKING

from tileyard.base.errors import InterruptedRunError, UsageError
from tileyard.base.model import QUEUE_LIMIT_S, Device
from tileyard.base.settings import Settings
from tileyard.devices.classes import find_class, find_cpu_kinds
from tileyard.devices.cpu import format_cores, share_out
from tileyard.devices.foreign import ForeignQueue, find_queue, is_queue
from tileyard.devices.holding import join_devices
from tileyard.devices.registry import require_apart, resolve_devices
from tileyard.processes.keeper_line import SESSION, find_job
from tileyard.targets.registry import BUILT_IN, find_needs, is_timed

if TYPE_CHECKING:
    from tileyard.engine.hosts.slots import RemoteDevices
    from tileyard.service.bench import Bench


@dataclass(frozen=True, kw_only=True)
class More:
    """What hosts offer besides named devices: groups of these, of these ``counts``, and anonymous ``slots``
    of each host, -1 for one per core.
    """

    slots: int = 0
    counts: Collection[int] = ()


NO_MORE = More()


def choose_devices(names: Sequence[str], target: str, settings: Settings) -> tuple[Device, ...]:
    """A run's devices, each once, in order of their names; a class's, or a queue's slots. Raises
    UsageError for one unknown, unfit for the target, or not to be held with another.
    """
    chosen: dict[str, Device] = {}
    for name in names or (find_needs(target).device_class,):
        slots = find_queue(name, settings).make_devices() if is_queue(name) else ()
        for device in slots or _resolve(name, target, settings, is_named=bool(names)):
            require_fit(target, device)
            chosen[device.name] = device
    require_apart(tuple(chosen.values()))
    return tuple(chosen.values())


async def find_devices(
    bench: "Bench", hosts: str, names: Sequence[str], target: str, queue_limit_s: float
) -> tuple[str, tuple[Device, ...]]:
    """A run's target and devices, whose times are compared, as above; the devices of these ``hosts``, whose
    agents are started, and the target for them, if there are any. Raises TileyardError.
    """
    if not hosts:
        return target, choose_devices(names, target, bench.settings)
    names = names or (find_needs(target).device_class,)
    found = await use_hosts(bench, hosts, names, queue_limit_s)
    require_one_cpu(found, "times are compared on one kind")
    target = settle_for(target, found)
    for device in found:
        require_fit(target, device)
    have_alike_join(bench, target, found)
    return target, found


def have_alike_join(bench: "Bench", target: str, found: Sequence[Device]) -> None:
    """Have hosts join a run whose times are compared only if their devices fit the target, and are of the
    kinds of those that were found.
    """
    if bench.hosts is not None:
        bench.hosts.also_require(partial(_require_usable, target, found))


def _require_usable(target: str, found: Sequence[Device], device: Device) -> None:
    """Raise UsageError for a device that joins a run on those that were found, and is of another kind."""
    require_fit(target, device)
    if device.identity not in {one.identity for one in found}:
        raise UsageError(f"{device.name} is {device.identity}, and no device of the run is")


async def use_hosts(
    bench: "Bench",
    hosts: str,
    names: Sequence[str] = (),
    queue_limit_s: float = QUEUE_LIMIT_S,
    more: More = NO_MORE,
) -> tuple[Device, ...]:
    """Start agents, which build for the run; their devices of these names, and ``more``. Raises
    TileyardError, InterruptedRunError if the run is stopped before they are there.
    """
    from tileyard.engine.hosts.naming import parse_hosts
    from tileyard.engine.hosts.slots import RemoteDevices

    if queues := [name for name in names if is_queue(name)]:
        raise UsageError(f"--hosts: {queues[0]} is a queue of this host")
    others = RemoteDevices(parse_hosts(hosts), bench.settings)
    others.emit = bench.conversation.tell_event  # until the run has listeners
    bench.use_hosts(others)
    job = find_job(os.environ)
    named = "" if job == SESSION else f" job {job},"
    title = f"tileyard,{named} on {socket.gethostname()}"
    counts = sorted(count for count in more.counts if count > 1)
    finding = others.find(
        names, title=title, queue_limit_s=queue_limit_s, slots=more.slots, counts=counts
    )
    return await _wait_unless_stopped(finding, bench.stopping)


async def _wait_unless_stopped(
    finding: Coroutine[object, object, tuple[Device, ...]], stopping: asyncio.Event
) -> tuple[Device, ...]:
    """What is found. Nothing runs meanwhile that a run which is stopped would have to finish."""
    waiting = asyncio.create_task(finding)
    stopped = asyncio.create_task(stopping.wait())
    try:
        await asyncio.wait({waiting, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if not waiting.done():
            raise InterruptedRunError("the run was ended while it waited for its hosts")
        return waiting.result()
    finally:
        waiting.cancel()
        stopped.cancel()
        await asyncio.gather(waiting, stopped, return_exceptions=True)


async def find_calm(
    bench: "Bench", hosts: str, names: Sequence[str], target: str, queue_limit_s: float
) -> tuple[str, tuple[Device, ...], tuple[str, ...]]:
    """A run's target, and devices with notes as in ``choose_calm``, which may be of these ``hosts``."""
    if not hosts:
        choosing = asyncio.to_thread(choose_calm, names, target, bench.settings)
        return target, *await choosing
    target, found = await find_devices(bench, hosts, names, target, queue_limit_s)
    require_one_kind(found)
    return target, found, ()


def _resolve(name: str, target: str, settings: Settings, *, is_named: bool) -> tuple[Device, ...]:
    """The devices of a name, or of the class of a target, which can be built for without one."""
    try:
        return resolve_devices(name, settings)
    except UsageError as error:
        if is_named:
            raise
        hint = f"tileyard compile --target {target} builds for it without one"
        raise UsageError(error.message, hint) from None


def require_timed(target: str) -> None:
    """Raise UsageError for a target whose builds are checked, and not timed."""
    if not is_timed(target):
        raise UsageError(
            f"{target} builds for checks, and its times say nothing",
            "name the target without it, and add --sanitize for the check",
        )


def settle_target(target: str, names: Sequence[str], settings: Settings) -> str:
    """The target, given the named devices' architecture if it has none. Raises UsageError for several."""
    needs = find_needs(target)
    if not needs.native or ":" in target:
        return target
    try:
        devices = [
            device
            for name in names or (needs.device_class,)
            if not is_queue(name)
            for device in resolve_devices(name, settings)
        ]
    except UsageError:
        return target  # loading it gives a better error
    return settle_for(target, devices)


def settle_for(target: str, devices: Sequence[Device]) -> str:
    """The target, given these devices' architecture if it has none. Raises UsageError for several."""
    needs = find_needs(target)
    if not needs.native or ":" in target:
        return target
    found = {resolve_name(needs.native)(device) for device in devices if device.arch}
    if len(found) > 1:
        raise UsageError(
            f"the devices have different architectures: {', '.join(sorted(found))}",
            f"name the target as one of them, as in {target}:{min(found)}",
        )
    return f"{target}:{found.pop()}" if found else target


def add_joined(
    devices: Sequence[Device], needs: Mapping[int, str], hosts: "RemoteDevices | None" = None
) -> tuple[Device, ...]:
    """These devices, and groups, which other ``hosts`` offer: ``needs`` are numbers needed at once. Raises
    UsageError if too few.
    """
    found = list(devices)
    for count, case in sorted(needs.items()):
        if count == 1:
            joined = tuple(devices)
        elif hosts is None:
            joined = join_devices(devices, count)
        else:
            joined = tuple(one for one in hosts.joined if one.count == count)
        if not joined:
            names = ", ".join(device.name for device in devices)
            kind = "one kind" if hosts is None else "one kind on one host"
            raise UsageError(
                f"case {case} needs {count} devices of {kind}, and there are {names}",
                "devices are of one kind if they have the same `identity`",
            )
        found += joined if count > 1 else ()
    return tuple(found)


def choose_calm(
    names: Sequence[str], target: str, settings: Settings
) -> tuple[tuple[Device, ...], tuple[str, ...]]:
    """Devices for times that are compared, and notes on them: all that are named, else one, of cores without
    other work. Takes half a second on CPUs. Raises as ``choose_devices``, and for several kinds.
    """
    devices = choose_devices(names, target, settings)
    if names:
        require_one_kind(devices)
    if names or not all(find_class(device.kind).is_cores for device in devices):
        return devices if names else devices[:1], ()
    from tileyard.devices.survey import (
        find_free_cores,
    )  # with asyncio, which others need not wait for

    free = find_free_cores(settings.cores)
    if free == settings.cores:
        return devices, ()
    others = format_cores(core for core in settings.cores if core not in free)
    note = f"timed on CPU {format_cores(free)} only: other work keeps CPU {others} busy"
    return choose_devices((f"cpu:cores={format_cores(free)}",), target, settings), (note,)


def require_one_kind(devices: Sequence[Device]) -> None:
    """Raise UsageError for devices whose times cannot be compared."""
    for other in devices[1:]:
        if other.identity != devices[0].identity:
            raise UsageError(
                f"{devices[0].name} is {devices[0].identity}, and {other.name} is {other.identity}",
                "times are compared on devices of one kind: name the others in a run of their own",
            )


def require_one_cpu(devices: Sequence[Device], why: str) -> None:
    """Raise UsageError, with the reason, if there are CPUs of several kinds among the devices."""
    kinds = find_cpu_kinds(devices)
    if len(kinds) > 1:
        each = (f"{found[0].name} is {kind}" for kind, found in kinds.items())
        hint = f"{why}: name those of each in a run of their own"
        raise UsageError(f"CPUs of several kinds: {', '.join(each)}", hint)


def require_fit(target: str, device: Device) -> None:
    """Raise UsageError if it is known, before anything is built, that a device cannot run the artifact."""
    needs = find_needs(target)
    others = {find_needs(one).device_class for one in BUILT_IN} - {needs.device_class}
    if needs.is_bound and device.kind in others:
        raise UsageError(f"{device.name} runs nothing that is built for {target}")
    if needs.fit:
        resolve_name(needs.fit)(target, device)


def choose_queues(names: Sequence[str], settings: Settings) -> tuple[ForeignQueue, ...]:
    """The queues among the names, each once. Raises UsageError for an undeclared one."""
    return tuple(find_queue(name, settings) for name in dict.fromkeys(names) if is_queue(name))


def share_cores(target: str, count: int, settings: Settings) -> tuple[str, ...]:
    """Names of as many CPU devices as share the cores; empty: the usual. Raises UsageError if too few."""
    if not count or not find_class(find_needs(target).device_class).is_cores:
        return ()
    cores = settings.cores
    if count > len(cores):
        raise UsageError(f"{count} slots for kernels need as many cores", f"there are {len(cores)}")
    return tuple(f"cpu:cores={format_cores(share)}" for share in share_out(cores, count))

"""Several devices that are held at once, as one: all of them are granted, or none."""

from collections.abc import Sequence
from itertools import groupby

import msgspec

from tileyard.base.model import Device
from tileyard.devices.foreign import QUEUE_KIND
from tileyard.devices.names import index_of
from tileyard.processes.keeper.worker import variables_of


def join_devices(devices: Sequence[Device], count: int) -> tuple[Device, ...]:
    """Groups of ``count`` neighbours of one kind and identity; of a queue, slots that ask for that number."""
    found: list[Device] = []
    for (kind, _), group in groupby(sorted(devices, key=_kind_of), _kind_of):
        alike = list(group)
        if kind == QUEUE_KIND:
            found += [_ask_for(device, count) for device in alike]
        else:
            starts = range(len(alike) - count + 1)
            found += [hold_together(alike[start : start + count]) for start in starts]
    return tuple(found)


def hold_together(members: Sequence[Device]) -> Device:
    """Devices of one kind as one; programs find them by variables that list all of them."""
    first = members[0]
    return Device(
        name=f"{first.kind}:{','.join(index_of(one.name) for one in members)}",
        kind=first.kind,
        identity=f"{len(members)} x {first.identity}",
        cores=tuple(core for one in members for core in one.cores),
        locks=tuple(lock for one in members for lock in one.locks),
        env=variables_of((one.name, one.env, one.mask) for one in members),
        mask=first.mask,
        arch=first.arch,
        driver_api=first.driver_api,
        count=len(members),
        members=tuple(members),
    )


def _ask_for(slot: Device, count: int) -> Device:
    identity = f"{count} x {slot.identity}"
    return msgspec.structs.replace(
        slot, name=f"{slot.name}*{count}", identity=identity, count=count
    )


def _kind_of(device: Device) -> tuple[str, str]:
    return device.kind, device.identity

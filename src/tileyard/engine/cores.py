"""Decides who may use which cores now: a device has its own to itself while a batch is timed on it."""

from collections.abc import Iterable

from tileyard.engine.lending import Borrowing, Lease, Lending
from tileyard.engine.ready import Ready
from tileyard.engine.stages import Site


def is_shared(device: Borrowing, site: Site) -> bool:
    """Whether building, or the author, needs cores that this device owns."""
    cores = device.site.cores
    return (
        not site.overlap or not cores.isdisjoint(site.workers) or not cores.isdisjoint(site.author)
    )


def is_judged_here(device: Borrowing, entry: Ready, site: Site) -> bool:
    """Whether the judge needs cores that this device owns; if the batch is interleaved, any core counts."""
    return entry.interleaved or not site.overlap or not device.site.cores.isdisjoint(site.judge)


def is_quiet(
    device: Borrowing, entry: Ready, site: Site, building: Iterable[int], *, asking: bool
) -> bool:
    """Whether nothing is built or asked on the device's cores; if the batch is interleaved, on any
    core. ``building`` are the workers that build; ``asking``: the author is answering a question.
    """
    busy = {site.workers[worker] for worker in building}
    if entry.interleaved or not site.overlap:
        return not busy and not asking
    return device.site.cores.isdisjoint(busy | site.author if asking else busy)


def find_held(devices: Lending, site: Site, *, for_judge: bool = False) -> frozenset[int]:
    """Cores on which nothing may start: a device is timing on them, or about to. The judge may use
    those of a device that waits for it.
    """
    held: frozenset[int] = frozenset()
    for device in devices:
        if device.lease is not Lease.HELD or device.lingering:
            continue
        if for_judge and (device.pausing or (device.is_busy and not device.timed)):
            continue
        if device.exclusive or not site.overlap:
            return frozenset(site.workers) | site.author | site.judge
        if device.timed or not device.is_busy:
            held |= device.site.cores
    return held

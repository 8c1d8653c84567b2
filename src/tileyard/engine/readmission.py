"""Brings back devices that a run has given up: those of this host once a probe finds them well."""

import asyncio
import os
from collections.abc import Callable, Iterable, Sequence

from tileyard.devices.reprobing import Reprobing
from tileyard.engine.commands import Readmitted
from tileyard.engine.provider import Slot


class Readmission:
    """Has devices of a run probed, or their hosts called. ``tell`` receives the facts that follow."""

    def __init__(
        self, slots: Iterable[Slot], interval_s: float, tell: Callable[[Readmitted], None]
    ) -> None:
        self._slots = {slot.device.name: slot for slot in slots}
        self._devices = {name: slot.device for name, slot in self._slots.items()}
        self._recovering: dict[str, asyncio.Task[None]] = {}
        self._interval_s = interval_s
        self._tell = tell
        self._reprobing: Reprobing | None = None
        self._unread = b""

    def look_after(self, names: Sequence[str]) -> None:
        """From now on probe these devices and no others, while they are in quarantine. Does not wait."""
        self._stop_probing()
        for name in self._recovering.keys() - {*names}:
            self._recovering.pop(name).cancel()
        for name in names:
            if name not in self._recovering:
                self._recovering[name] = asyncio.create_task(self._recover(name))
        if not names:
            return
        devices = [self._devices[name] for name in names]
        timed = {c for name, one in self._devices.items() if name not in names for c in one.cores}
        cores = frozenset(os.sched_getaffinity(0) - timed)
        self._reprobing = Reprobing(devices, self._interval_s, cores)
        if self._reprobing.look():
            asyncio.get_running_loop().add_reader(self._reprobing.news, self._hear)

    def close(self) -> None:
        """Stop. The process that probes gives back the devices that it still has."""
        self._stop_probing()
        while self._recovering:
            self._recovering.popitem()[1].cancel()

    async def _recover(self, name: str) -> None:
        await self._slots[name].recover()
        self._recovering.pop(name, None)
        self._tell(Readmitted(device=name))

    def _stop_probing(self) -> None:
        if self._reprobing is None:
            return
        self._stop_hearing()
        self._reprobing.stop()
        self._reprobing, self._unread = None, b""

    def _hear(self) -> None:
        if self._reprobing is None:
            return
        data = os.read(self._reprobing.news, 1 << 16)
        if not data:  # it ended by itself: the lock directory cannot be used
            self._stop_hearing()
        *names, self._unread = (self._unread + data).split(b"\n")
        for name in names:
            self._tell(Readmitted(device=name.decode()))

    def _stop_hearing(self) -> None:
        if self._reprobing is not None and self._reprobing.news >= 0:
            asyncio.get_running_loop().remove_reader(self._reprobing.news)

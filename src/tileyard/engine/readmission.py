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
        self._ending: set[asyncio.Task[None]] = set()
        self._interval_s = interval_s
        self._tell = tell
        self._reprobing: Reprobing | None = None
        self._unread = b""

    def add(self, slots: Iterable[Slot]) -> None:
        """Look after further devices."""
        self._slots |= {slot.device.name: slot for slot in slots}
        self._devices = {name: slot.device for name, slot in self._slots.items()}

    def look_after(self, names: Sequence[str]) -> None:
        """From now on probe these devices and no others, while they are in quarantine. Does not wait."""
        self._stop_probing()
        for name in self._recovering.keys() - {*names}:
            self._forget(name)
        for name in names:
            if name not in self._recovering:
                recovering = self._recover(name, {t for t in self._ending if t.get_name() == name})
                self._recovering[name] = asyncio.create_task(recovering, name=name)
        if not names:
            return
        devices = [self._devices[name] for name in names]
        timed = {c for name, one in self._devices.items() if name not in names for c in one.cores}
        cores = frozenset(os.sched_getaffinity(0) - timed)
        self._reprobing = Reprobing(devices, self._interval_s, cores)
        if self._reprobing.look():
            asyncio.get_running_loop().add_reader(self._reprobing.news, self._hear)

    async def close(self) -> None:
        """Stop. The process that probes gives back the devices that it still has."""
        self._stop_probing()
        for name in tuple(self._recovering):
            self._forget(name)
        await asyncio.gather(*self._ending, return_exceptions=True)

    def _forget(self, name: str) -> None:
        """Have a device recover no longer; what that had begun may need a moment to end."""
        task = self._recovering.pop(name)
        task.cancel()
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _recover(self, name: str, before: set[asyncio.Task[None]]) -> None:
        """Tell once a device is well again, in a task of its own: after those ``before``."""
        await asyncio.gather(*map(asyncio.shield, before), return_exceptions=True)
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

"""Brings devices in quarantine back to a run: a separate process probes them while they are needed."""

import asyncio
import os
from collections.abc import Callable, Iterable, Sequence

from tileyard.base.model import Device
from tileyard.devices.reprobing import Reprobing
from tileyard.engine.commands import Fact, Readmitted


class Readmission:
    """Has devices of a run probed. ``tell`` receives the facts that follow."""

    def __init__(
        self, devices: Iterable[Device], interval_s: float, tell: Callable[[Fact], None]
    ) -> None:
        self._devices = {device.name: device for device in devices}
        self._interval_s = interval_s
        self._tell = tell
        self._reprobing: Reprobing | None = None
        self._unread = b""

    def look_after(self, names: Sequence[str]) -> None:
        """From now on probe these devices and no others, while they are in quarantine. Does not wait."""
        self.close()
        if not names:
            return
        devices = [self._devices[name] for name in names]
        timed = {c for name, one in self._devices.items() if name not in names for c in one.cores}
        cores = frozenset(os.sched_getaffinity(0) - timed)
        self._reprobing = Reprobing(devices, self._interval_s, cores)
        if self._reprobing.look():
            asyncio.get_running_loop().add_reader(self._reprobing.news, self._hear)

    def close(self) -> None:
        """Stop. That process gives back the devices that it still probes."""
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

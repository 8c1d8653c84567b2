"""Starts ``reprobe``, which probes devices in quarantine, while somebody waits; it ends with its pipe."""

import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from tileyard.base.model import Device, Record
from tileyard.processes.keeper.quarantine import find_quarantine

if TYPE_CHECKING:
    import subprocess

INTERVAL_S: Final = 60.0
"""Seconds for which a device in quarantine is left alone after a probe, or after its last holder."""
LOOKS_PER_INTERVAL: Final = 6
LIFELINE: Final = "lifeline"

_lingering: "list[subprocess.Popen[bytes]]" = []
"""Processes that were ordered to end and may still run."""


class Job(Record):
    """The task of the process: the devices to look after."""

    devices: tuple[Device, ...]
    interval_s: float


class Reprobing:
    """Probes those of ``devices`` in quarantine, from the first look that finds one. ``news`` can
    be read once a look was True: a line with the name of each recovered device. ``cores`` can be
    disturbed, empty for those of the sick devices; ``every_s`` is the interval of looks.
    """

    every_s = INTERVAL_S / LOOKS_PER_INTERVAL

    def __init__(
        self,
        devices: Sequence[Device],
        interval_s: float = INTERVAL_S,
        cores: frozenset[int] = frozenset(),
    ) -> None:
        self.news = -1
        self._devices = tuple(device for device in devices if device.locks)
        self._interval_s = interval_s
        self._cores = cores
        self._process: subprocess.Popen[bytes] | None = None
        self._lifeline = -1

    def look(self) -> bool:
        """Start the process if needed, never waiting; returns whether it was. A failure is tried again."""
        _reap()
        if self._process is not None:
            return False
        sick = [device for device in self._devices if find_quarantine(device.locks)]
        if not sick:
            return False
        try:
            with _on_cores(self._cores or {core for one in sick for core in one.cores}):
                self._start()
        except OSError:
            return False
        return True

    def stop(self) -> None:
        """Have it end, without waiting for that. Harmless when repeated."""
        if self._process is not None and self._process.stdout is not None:
            os.close(self._lifeline)
            self._process.stdout.close()
            _lingering.append(self._process)
            self._process, self.news = None, -1
        _reap()

    def _start(self) -> None:
        import subprocess  # slow to load: only for processes that wait

        job = Job(devices=self._devices, interval_s=self._interval_s)
        with contextlib.ExitStack() as theirs, contextlib.ExitStack() as ours:
            told = os.memfd_create("tileyard-reprobe")  # a pipe might be too short for all of it
            theirs.callback(os.close, told)
            os.write(told, msgspec.json.encode(job))
            os.lseek(told, 0, os.SEEK_SET)
            line, lifeline = os.pipe()
            theirs.callback(os.close, line)
            ours.callback(os.close, lifeline)
            self._process = subprocess.Popen(
                (sys.executable, "-P", "-m", "tileyard.devices.reprobe", f"{LIFELINE}={line}"),
                stdin=told,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                pass_fds=(line,),
                start_new_session=True,  # Ctrl-C is not for it
            )
            self._lifeline = lifeline
            ours.pop_all()
        if self._process.stdout is not None:
            self.news = self._process.stdout.fileno()
            os.set_blocking(self.news, False)


@contextlib.contextmanager
def _on_cores(cores: frozenset[int] | set[int]) -> Iterator[None]:
    """Pin processes started in the block to these cores, for their whole life; no effect without cores."""
    before = os.sched_getaffinity(0)
    try:
        if cores:
            os.sched_setaffinity(0, cores)  # of this thread alone, and inherited
        yield
    finally:
        os.sched_setaffinity(0, before)


def _reap() -> None:
    _lingering[:] = [process for process in _lingering if process.poll() is None]

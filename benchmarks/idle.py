"""How much of their time devices idle although something is ready, on simulated devices that sleep.

The same study with 1, 2, 4 and 8 devices, and in the same minute without overlap, with static shares
(each device has its part of the configs dealt out ahead of time), and with one device. Runs take
from a tenth to three times their mean, as configs of a kernel do.

Idle share: of the time during which something was ready, summed over the devices, the part in
which a device ran nothing. What the start of a device's first runner costs is shown apart: it does
not grow with the study. A last case that others wait for costs nothing here: nothing is ready then.
"""

import argparse
import asyncio
import os
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tileyard.base.events import BuildEnded, CaseEnded, CaseStarted, DeviceAsked, Event
from tileyard.base.model import Device, Value
from tileyard.engine.driver import Driver

sys.path[:0] = [str(Path(__file__).parents[1])]
from tests.simulated_yard import (
    FixedSource,
    drive,
    open_simulated_yard,
    plan_cases,
    simulated_devices,
)

RUN_S = 0.1
BUILD_S = 0.03
COMPILE_WORKERS = 4
"""Which sleep too, so that they are not held to this machine's cores."""


class Idleness:
    """A listener that adds up, between two events, who could have run something and did not. A device that
    was asked for and has not begun its first case is starting: its runner is.
    """

    def __init__(self, devices: int) -> None:
        self._devices = devices
        self._ready: set[str] = set()
        self._running: dict[str, str] = {}
        self._starting: set[str] = set()
        self._at = time.perf_counter()
        self.idle_s = 0.0
        self.starting_s = 0.0
        self.wanted_s = 0.0
        self.busy_s = 0.0

    def __call__(self, event: Event) -> None:
        """Account for the time since the last event."""
        now = time.perf_counter()
        lasted, self._at = now - self._at, now
        self.busy_s += lasted * len(self._running)
        if self._ready:
            self.wanted_s += lasted * self._devices
            # One ready case can occupy one idle device.
            idle = min(self._devices - len(self._running), len(self._ready))
            starting = min(idle, len(self._starting))
            self.starting_s += lasted * starting
            self.idle_s += lasted * (idle - starting)
        match event:
            case BuildEnded(case=case, ok=True):
                self._ready.add(case)
            case DeviceAsked(device=device):
                self._starting.add(device)
            case CaseStarted(case=case, device=device):
                self._ready.discard(case)
                self._starting.discard(device)
                self._running[device] = case
            case CaseEnded(trial=trial):
                self._ready.discard(trial.case)
                # Where the next case has begun already, the device has gone on without a pause.
                if self._running.get(trial.device) == trial.case:
                    del self._running[trial.device]
            case _:
                pass


def configs(count: int, build_s: float = BUILD_S) -> list[dict[str, Value]]:
    """Kernels that differ in how long they run; every one is built."""
    generator = random.Random(1)
    spread = [min(max(generator.lognormvariate(-0.3, 0.8), 0.1), 3.0) for _ in range(count)]
    return [
        {"n": n, "build_s": build_s, "run_s": RUN_S * share, "sample_ns": 1000.0 + n}
        for n, share in enumerate(spread)
    ]


async def study(
    folder: Path, wanted: list[dict[str, Value]], devices: tuple[Device, ...], *, overlap: bool
) -> Idleness:
    """Run these configs on these devices."""
    source = FixedSource(plan_cases(iter(wanted)))
    idleness = Idleness(len(devices))
    cores = tuple(os.sched_getaffinity(0))
    with open_simulated_yard(
        folder, devices, cores, overlap=overlap, compile_workers=COMPILE_WORKERS
    ) as yard:
        yard.listeners.append(idleness)
        await drive(Driver(source, yard, folder.name))
    return idleness


async def measure(
    wanted: list[dict[str, Value]], devices: int, *, overlap: bool = True, shares: bool = False
) -> float:
    """One study; prints its line and returns its seconds."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        every = simulated_devices(devices, folder / "locks")
        parts = list(_deal(wanted, every, folder)) if shares else [(folder / "all", wanted, every)]
        began = time.perf_counter()
        idle = await asyncio.gather(
            *(study(place, part, owners, overlap=overlap) for place, part, owners in parts)
        )
        seconds = time.perf_counter() - began
    wanted_s = sum(i.wanted_s for i in idle)
    share = sum(i.idle_s for i in idle) / wanted_s
    starting = sum(i.starting_s for i in idle) / wanted_s
    busy = sum(i.busy_s for i in idle) / (seconds * devices)
    how = "static shares" if shares else "overlap" if overlap else "no overlap"
    print(
        f"{devices} devices  {how:14} {seconds:6.2f} s   idle while ready {share:5.1%}, "
        f"and {starting:5.1%} while runners start   busy {busy:5.1%}",
        flush=True,
    )
    return seconds


def _deal(
    wanted: list[dict[str, Value]], devices: tuple[Device, ...], folder: Path
) -> Iterator[tuple[Path, list[dict[str, Value]], tuple[Device, ...]]]:
    """Each device's part, in a study of its own."""
    for number, device in enumerate(devices):
        yield folder / f"part{number}", wanted[number :: len(devices)], (device,)


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=60, help="configs for each device")
    parser.add_argument("--devices", type=int, nargs="*", default=[1, 2, 4, 8])
    parser.add_argument("--build-s", type=float, default=BUILD_S, help="what a build takes")
    parser.add_argument("--alone", action="store_true", help="nothing beside it to compare with")
    options = parser.parse_args()
    for devices in options.devices:
        wanted = configs(options.cases * devices, options.build_s)
        overlap = asyncio.run(measure(wanted, devices))
        if options.alone:
            continue
        others = {"--no-overlap": asyncio.run(measure(wanted, devices, overlap=False))}
        if devices > 1:
            others["static shares"] = asyncio.run(measure(wanted, devices, shares=True))
            others["one device"] = asyncio.run(measure(wanted, 1))
        ratios = ", ".join(f"{name} {seconds / overlap:.2f} x" for name, seconds in others.items())
        print(f"    beside it: {ratios}\n")


if __name__ == "__main__":
    main()

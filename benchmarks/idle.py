"""How much of their time devices idle although something is ready, on simulated devices that sleep.

The same study with 1, 2, 4 and 8 devices, and in the same minute without overlap, with static shares
(each device has its part of the configs dealt out ahead of time), and with one device. Runs take
from a tenth to three times their mean, as configs of a kernel do.

Idle share: of the time during which something was ready, summed over the devices, the part in
which a device ran nothing. What the start of a device's first runner costs is shown apart: it does
not grow with the study. A last case that others wait for costs nothing here: nothing is ready then.

Gaps: what lies between two cases of a device for whatever reason, from start to start without the time that
its runner measured. A strategy that computes leaves nothing ready, and holds up the engine: only gaps show
that. With --strategy the study's configs are chosen while others run, and random ones are beside it.
"""

import argparse
import asyncio
import os
import random
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np

from tileyard.base.clock import Clock
from tileyard.base.events import BuildEnded, CaseEnded, CaseStarted, DeviceAsked, Event
from tileyard.base.model import Device, Limits, Value
from tileyard.engine.driver import Driver
from tileyard.engine.provider import CaseSource
from tileyard.verbs.tune.options import TuneRequest
from tileyard.verbs.tune.plan.space import OpenSpace
from tileyard.verbs.tune.plan.strategies.base import Points, make_strategy
from tileyard.verbs.tune.plan.study import Place, Study

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
        self._begun: defaultdict[str, list[tuple[float, str]]] = defaultdict(list)
        self._ran_s: dict[str, float] = {}

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
                self._begun[device].append((now, case))
            case CaseEnded(trial=trial):
                self._ready.discard(trial.case)
                self._ran_s[trial.case] = trial.run_s
                # Where the next case has begun already, the device has gone on without a pause.
                if self._running.get(trial.device) == trial.case:
                    del self._running[trial.device]
            case _:
                pass

    def list_gaps_s(self) -> Iterator[float]:
        """The gaps between the cases of a device. If one is noticed late, the next one is shorter for it."""
        for begun in self._begun.values():
            for (first_s, case), (second_s, _) in pairwise(begun):
                yield second_s - first_s - self._ran_s[case]


def configs(count: int, build_s: float = BUILD_S) -> list[dict[str, Value]]:
    """Kernels that differ in how long they run; every one is built."""
    generator = random.Random(1)
    spread = [min(max(generator.lognormvariate(-0.3, 0.8), 0.1), 3.0) for _ in range(count)]
    return [
        {"n": n, "build_s": build_s, "run_s": RUN_S * share, "sample_ns": 1000.0 + n}
        for n, share in enumerate(spread)
    ]


def plan_fixed(wanted: list[dict[str, Value]]) -> FixedSource:
    """These configs in their order."""
    return FixedSource(plan_cases(iter(wanted)))


def open_study(strategy: str, trials: int, build_s: float) -> Study:
    """A study of a space with 64 times as many such configs, of which the strategy chooses."""
    some = configs(64, build_s)
    axes = {name: tuple(one[name] for one in some) for name in ("run_s", "sample_ns")}
    points = Points({"n": tuple(range(-(-trials // 64))), "build_s": (build_s,), **axes})
    space = OpenSpace(
        kernel="simulated",
        arguments={},
        size=points.size,
        flops=0.0,
        wanted=trials,
        points=points,
        strategy=make_strategy(strategy, points, trials=trials, seed=0),
    )
    request = TuneRequest(trials=trials, finalists=1, limits=Limits(memory_bytes=0))
    return Study(request, space, Clock(), Place(target="grouped"))


async def study(
    folder: Path, source: CaseSource, devices: tuple[Device, ...], changes: dict[str, object]
) -> Idleness:
    """Run the cases of this source on these devices."""
    idleness = Idleness(len(devices))
    cores = tuple(os.sched_getaffinity(0))
    target = "grouped" if isinstance(source, Study) else "simulated"
    with open_simulated_yard(
        folder, devices, cores, target, compile_workers=COMPILE_WORKERS, **changes
    ) as yard:
        yard.listeners.append(idleness)
        await drive(Driver(source, yard, folder.name))
    return idleness


async def measure(
    how: str, sources: Sequence[CaseSource], devices: int, **changes: object
) -> float:
    """A study, or one for each device, in yards with these changes; prints their line and returns seconds."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        every = simulated_devices(devices, folder / "locks")
        began = time.perf_counter()
        idle = await asyncio.gather(
            *(
                study(folder / f"part{number}", source, every[number :: len(sources)], changes)
                for number, source in enumerate(sources)
            )
        )
        seconds = time.perf_counter() - began
    wanted_s = sum(i.wanted_s for i in idle)
    share = sum(i.idle_s for i in idle) / wanted_s
    starting = sum(i.starting_s for i in idle) / wanted_s
    busy = sum(i.busy_s for i in idle) / (seconds * devices)
    gaps_ms = [1e3 * gap_s for one in idle for gap_s in one.list_gaps_s()]
    late, longest = np.quantile(gaps_ms, (0.99, 1.0))
    print(
        f"{devices} devices  {how:14} {seconds:6.2f} s   idle while ready {share:5.1%}, "
        f"and {starting:5.1%} while runners start   busy {busy:5.1%}   "
        f"gaps {np.mean(gaps_ms):.1f} ms on average, p99 {late:.0f} ms, at most {longest:.0f} ms",
        flush=True,
    )
    return seconds


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=60, help="configs for each device")
    parser.add_argument("--devices", type=int, nargs="*", default=[1, 2, 4, 8])
    parser.add_argument("--build-s", type=float, default=BUILD_S, help="what a build takes")
    parser.add_argument("--alone", action="store_true", help="nothing beside it to compare with")
    parser.add_argument("--strategy", help="which chooses the configs")
    parser.add_argument("--group-size", type=int, help="builds in a request, so more are in flight")
    options = parser.parse_args()
    for devices in options.devices:
        count = options.cases * devices
        if options.strategy:
            for name in dict.fromkeys([options.strategy, *([] if options.alone else ["random"])]):
                source = open_study(name, count, options.build_s)
                asyncio.run(measure(name, [source], devices, group_size=options.group_size))
            continue
        wanted = configs(count, options.build_s)
        overlap = asyncio.run(measure("overlap", [plan_fixed(wanted)], devices))
        if options.alone:
            continue
        apart = measure("no overlap", [plan_fixed(wanted)], devices, overlap=False)
        others = {"--no-overlap": asyncio.run(apart)}
        if devices > 1:
            shares = [plan_fixed(wanted[number::devices]) for number in range(devices)]
            others["static shares"] = asyncio.run(measure("static shares", shares, devices))
            others["one device"] = asyncio.run(measure("one device", [plan_fixed(wanted)], 1))
        ratios = ", ".join(f"{name} {seconds / overlap:.2f} x" for name, seconds in others.items())
        print(f"    beside it: {ratios}\n")


if __name__ == "__main__":
    main()

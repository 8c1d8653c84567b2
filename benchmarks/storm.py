"""A storm of faults: how each case ended, and how soon after a fault its device is asked for again.

200 cases on one simulated device, two in five with a fault planted. Recovery is the time from the
fault (for a hang: from the moment at which its limit fired) until the tree is confirmed gone and the
device is asked for anew; the start of the next runner is shown apart.
"""

import argparse
import asyncio
import os
import sys
import tempfile
import time
from collections import Counter, defaultdict
from pathlib import Path

from tileyard.base.events import CaseStarted, DeviceAsked, DeviceLeased, Event
from tileyard.base.model import Limits
from tileyard.engine.driver import Driver

sys.path[:0] = [str(Path(__file__).parents[1])]
from tests.faults.planted_faults import OUTCOME_OF, plant_faults
from tests.simulated_yard import (
    FixedSource,
    drive,
    open_simulated_yard,
    plan_cases,
    simulated_devices,
)

LIMITS = Limits(run_s=1.0, build_s=1.5, memory_bytes=4 << 30)
FATAL = {"hang": 1.0, "segv": 0.0, "abort": 0.0, "killed": 0.0, "killed_once": 0.0}
"""Faults that end the runner, and how long after the case began they strike."""


class Recovery:
    """A listener that takes the times between a fault and what follows."""

    def __init__(self, fault_of: dict[str, str]) -> None:
        self._fault_of = fault_of
        self._struck = ("", 0.0)
        self._asked_at = 0.0
        self.recovered_s: dict[str, list[float]] = defaultdict(list)
        self.started_s: list[float] = []

    def __call__(self, event: Event) -> None:
        """Note the moment."""
        now = time.perf_counter()
        match event:
            case CaseStarted(case=case):
                fault = self._fault_of[case]
                self._struck = (fault, now + FATAL.get(fault, 0.0))
            case DeviceAsked():
                fault, at = self._struck
                if fault in FATAL:
                    self.recovered_s[fault].append(now - at)
                self._asked_at = now
            case DeviceLeased():
                self.started_s.append(now - self._asked_at)
            case _:
                pass


async def storm(folder: Path, count: int) -> None:
    """Run it, and print."""
    planted = list(plant_faults(count, folder))
    batches = list(plan_cases(iter(planted), limits=LIMITS))
    fault_of = {b.id: str(p["fault"]) for b, p in zip(batches, planted, strict=True)}
    recovery = Recovery(fault_of)
    source = FixedSource(iter(batches))
    devices = simulated_devices(1, folder / "locks")
    began = time.perf_counter()
    with open_simulated_yard(folder, devices, tuple(os.sched_getaffinity(0))) as yard:
        yard.listeners.append(recovery)
        await drive(Driver(source, yard, "storm"))
    seconds = time.perf_counter() - began
    wrong = [t for t in source.trials if t.outcome is not OUTCOME_OF[fault_of[t.case]]]
    ended = Counter(str(trial.outcome) for trial in source.trials)
    print(f"{count} cases in {seconds:.1f} s, {len(wrong)} with a wrong outcome: {dict(ended)}")
    for fault, times in sorted(recovery.recovered_s.items()):
        middle = sorted(times)[len(times) // 2]
        print(f"{fault:12} asked again after {middle:6.3f} s (median), {max(times):6.3f} s (most)")
    starts = sorted(recovery.started_s)
    print(
        f"start of a runner: {starts[len(starts) // 2]:.3f} s (median), {starts[-1]:.3f} s (most)"
    )


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=200)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        asyncio.run(storm(Path(name), options.cases))


if __name__ == "__main__":
    main()

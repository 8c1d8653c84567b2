"""A kernel that takes the device from its process: it is blamed alone, and the rest runs in a fresh runner.

Real processes throughout; only the device is simulated. In a process whose context is lost nothing runs.
"""

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest
from tests.simulated_yard import (
    FixedSource,
    drive,
    open_simulated_yard,
    plan_cases,
    simulated_devices,
)

from tileyard.base.events import DeviceLeased, Event
from tileyard.base.model import Batch, Device, Limits, Outcome, TimingPolicy, Trial, Value
from tileyard.engine.driver import Driver

LIMITS = Limits(run_s=20.0, build_s=5.0, memory_bytes=4 << 30)
DEADLINE_S = 60.0

pytestmark = pytest.mark.slow


def run_together(
    folder: Path, configs: list[Mapping[str, Value]], **changes: object
) -> tuple[dict[str, Trial], list[Event]]:
    """Run these configs as one batch, on a device whose probes are counted in the file ``probes``."""
    (bare,) = simulated_devices(1, folder / "locks")
    probe = ("sh", "-c", f"echo probed >> {folder / 'probes'}")
    device: Device = msgspec.structs.replace(bare, probe=probe)
    timing = TimingPolicy(max_samples=12, warmup_ns=0)
    cases = [b.cases[0] for b in plan_cases(iter(configs), limits=LIMITS, timing=timing)]
    batch = msgspec.structs.replace(Batch(id="batch", cases=tuple(cases)), **changes)
    source = FixedSource(iter([batch]))
    events: list[Event] = []

    async def main() -> None:
        with open_simulated_yard(folder, (device,), tuple(os.sched_getaffinity(0))) as yard:
            yard.listeners.append(events.append)
            async with asyncio.timeout(DEADLINE_S):
                await drive(Driver(source, yard, "run"))

    asyncio.run(main())
    return {trial.case: trial for trial in source.trials}, events


@pytest.mark.parametrize("fault", ["lost", "lost_timing"])
def test_only_the_case_that_lost_the_context_is_blamed(tmp_path: Path, fault: str) -> None:
    """Its message is the kernel's own; the rest of the batch passes, under a lease after a probe."""
    configs: list[Mapping[str, Value]] = [{"n": 0}, {"n": 1, "fault": fault}, {"n": 2}, {"n": 3}]
    trials, events = run_together(tmp_path, configs, order="fixed")
    expected = [Outcome.PASSED, Outcome.RUNTIME_ERROR, Outcome.PASSED, Outcome.PASSED]
    found = sorted(trials.values(), key=lambda trial: trial.case)
    assert [trial.outcome for trial in found] == expected
    assert found[1].message == "the context is lost, as requested"
    assert all(trial.attempts == () for trial in found)
    first, second = (event.lease for event in events if isinstance(event, DeviceLeased))
    assert [trial.lease for trial in found] == [first, first, second, second]
    assert (tmp_path / "probes").read_text() == "probed\n"


def test_members_of_an_interleaved_batch_are_timed_again_without_it(tmp_path: Path) -> None:
    """Whoever fails while all are timed in turn is left out; the others are timed in a fresh runner."""
    configs: list[Mapping[str, Value]] = [
        {"n": 0},
        {"n": 1, "fault": "lost_timing"},
        {"n": 2, "sample_ns": 2000.0},
    ]
    trials, _ = run_together(tmp_path, configs, order="interleaved", rounds=6)
    expected = [Outcome.PASSED, Outcome.RUNTIME_ERROR, Outcome.PASSED]
    found = sorted(trials.values(), key=lambda trial: trial.case)
    assert [trial.outcome for trial in found] == expected
    medians = [trial.measurement.median_ns for trial in found if trial.measurement is not None]
    assert medians == [1000.0, 2000.0]

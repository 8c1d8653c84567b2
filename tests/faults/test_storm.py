"""A storm of faults through the real engine: every case has its one right outcome, nothing is left."""

import asyncio
import os
import sys
from collections import Counter
from pathlib import Path

import psutil
import pytest
from tests.faults.planted_faults import OUTCOME_OF, plant_faults
from tests.simulated_yard import (
    FixedSource,
    drive,
    open_simulated_yard,
    plan_cases,
    simulated_devices,
)

from tileyard.base.events import CaseEnded, Event
from tileyard.base.model import Batch, Case, Device, Limits, Outcome, Trial
from tileyard.engine.driver import Driver
from tileyard.processes.supervise import LeaseRequest, Worker, WorkerCommand
from tileyard.testing.doubles.simulated import CLAIMS_VARIABLE

ATTEMPTS_OF = {"killed_once": 1, "killed": 2}
"""How often such a case is lost before the attempt that counts."""

COUNT = int(os.environ.get("TILEYARD_STORM", "24"))
"""How many cases the storm has; 200 for the figures."""
LIMITS = Limits(run_s=1.0, build_s=1.5, memory_bytes=4 << 30)
DOUBLES = "tileyard.testing.doubles.simulated"
OUTSIDER = f"from {DOUBLES} import *; claim_device(Device(name='{{}}', kind='', identity=''))"

pytestmark = pytest.mark.slow


async def contend(device: Device, folder: Path) -> None:
    """Take and give back a device over and over, as another user of the host would."""
    command = WorkerCommand(
        argv=(sys.executable, "-c", OUTSIDER.format(device.name)),
        env=dict(os.environ),
        cwd=str(folder),
        log=str(folder / "outsider.log"),
        lease=LeaseRequest(choices=(device,)),
    )
    while True:
        async with await Worker.start(command) as worker:
            await worker.ended()


async def run_storm(folder: Path, batches: list[Batch], devices: tuple[Device, ...]) -> list[Trial]:
    """Run batches while somebody else wants the first device too."""
    source = FixedSource(iter(batches))
    ended: Counter[str] = Counter()

    def count(event: Event) -> None:
        if isinstance(event, CaseEnded):
            ended[event.trial.case] += 1

    with open_simulated_yard(folder, devices, tuple(os.sched_getaffinity(0))) as yard:
        yard.listeners.append(count)
        rival = asyncio.create_task(contend(devices[0], folder))
        try:
            await drive(Driver(source, yard, "storm"))
        finally:
            rival.cancel()
            await asyncio.gather(rival, return_exceptions=True)
    assert set(ended.values()) == {1}
    return source.trials


def test_every_case_of_a_storm_has_its_one_right_outcome(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hangs, crashes, kills, memory and daemons: each is told for what it is, the healthy ones pass."""
    claims = tmp_path / "claims"
    claims.mkdir()
    monkeypatch.setenv(CLAIMS_VARIABLE, str(claims))
    planted = list(plant_faults(COUNT, tmp_path))
    batches = list(plan_cases(iter(planted), limits=LIMITS))
    devices = simulated_devices(2, tmp_path / "locks")
    trials = asyncio.run(run_storm(tmp_path, batches, devices))
    fault_of = {b.id: str(p["fault"]) for b, p in zip(batches, planted, strict=True)}
    expected = {case: OUTCOME_OF[fault] for case, fault in fault_of.items()}
    assert {trial.case: trial.outcome for trial in trials} == expected
    for trial in trials:
        assert len(trial.attempts) == ATTEMPTS_OF.get(fault_of[trial.case], 0), trial
        assert trial.outcome is Outcome.PASSED or trial.message
    assert not (claims / "violations").exists()
    assert leftovers(tmp_path) == []


def leftovers(folder: Path) -> list[psutil.Process]:
    """Processes that still work below this folder."""
    found = []
    for process in psutil.process_iter():
        try:
            if str(folder) in f"{' '.join(process.cmdline())} {process.cwd()}":
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
            continue
    return found


def test_a_hot_batch_blames_only_the_case_that_was_running(tmp_path: Path) -> None:
    """In one batch of eight the crash is one case's, and the other seven pass."""
    configs = [{"n": n, "fault": "segv" if n == 4 else ""} for n in range(8)]
    singles = plan_cases(iter(configs), limits=LIMITS)
    cases: tuple[Case, ...] = tuple(batch.cases[0] for batch in singles)
    devices = simulated_devices(1, tmp_path / "locks")
    trials = asyncio.run(run_storm(tmp_path, [Batch(id="hot", cases=cases)], devices))
    expected = {f"c{n:06d}": Outcome.CRASHED if n == 4 else Outcome.PASSED for n in range(8)}
    assert {trial.case: trial.outcome for trial in trials} == expected

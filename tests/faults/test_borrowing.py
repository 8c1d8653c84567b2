"""The engine borrows devices that others want too: it waits, goes on building, and gives them up."""

import asyncio
import os
import select
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest
from tests.endings import has_ended
from tests.simulated_yard import (
    FixedSource,
    drive,
    open_simulated_yard,
    plan_cases,
    simulated_devices,
)

from tileyard.base.events import (
    BuildEnded,
    CaseEnded,
    CaseStarted,
    DeviceAsked,
    DeviceAwaited,
    DeviceLeased,
    DeviceReleased,
    Event,
)
from tileyard.base.model import Device, Limits, Outcome, Trial, Value
from tileyard.devices.occupancy import read_occupancy
from tileyard.engine.driver import Driver
from tileyard.processes.keeper.quarantine import put_in_quarantine
from tileyard.processes.supervise import LeaseRequest, Worker, WorkerCommand
from tileyard.testing.doubles.simulated import CLAIMS_VARIABLE

LIMITS = Limits(run_s=20.0, build_s=1.0, memory_bytes=4 << 30)
DEADLINE_S = 60.0

pytestmark = pytest.mark.slow


class Run:
    """One run of simulated cases; ``events`` are all that were told."""

    def __init__(self, folder: Path, devices: tuple[Device, ...], **changes: object) -> None:
        self._folder = folder
        self._devices = devices
        self._changes = changes
        self.events: list[Event] = []
        self.holders: set[str] = set()
        self.changed = asyncio.Event()

    async def finish(self, *configs: Mapping[str, Value]) -> dict[str, Trial]:
        """Run these configs; their trials by case."""
        target = str(self._changes.get("target", "simulated"))
        source = FixedSource(plan_cases(iter(configs), limits=LIMITS, target=target))
        cores = tuple(os.sched_getaffinity(0))
        with open_simulated_yard(self._folder, self._devices, cores, **self._changes) as yard:
            yard.listeners.append(self._note)
            async with asyncio.timeout(DEADLINE_S):
                await drive(Driver(source, yard, "run"))
        return {trial.case: trial for trial in source.trials}

    def _note(self, event: Event) -> None:
        self.events.append(event)
        if isinstance(event, CaseStarted):
            found = read_occupancy(self._devices, self._folder / "locks")
            self.holders |= {one.holder.command for one in found if one.holder is not None}
        self.changed.set()

    def count(self, *kinds: type) -> int:
        """How many events of these kinds there were."""
        return sum(isinstance(event, kinds) for event in self.events)


async def hold(device: Device, folder: Path) -> Worker:
    """Have a device as somebody else does."""
    command = WorkerCommand(
        argv=("sleep", "1000"),
        env=dict(os.environ),
        cwd=str(folder),
        lease=LeaseRequest(choices=(device,)),
    )
    return await Worker.start(command)


def test_building_goes_on_while_a_device_is_waited_for(tmp_path: Path) -> None:
    """All is built while somebody else has the device, then runs; others read which run that is."""

    async def main() -> None:
        (device,) = simulated_devices(1, tmp_path / "locks")
        run = Run(tmp_path, (device,), title="tileyard tune add, run r")
        configs = [{"n": n, "sample_ns": float(n)} for n in range(6)]
        async with await hold(device, tmp_path):
            running = asyncio.create_task(run.finish(*configs))
            while run.count(BuildEnded) < 6 or not run.count(DeviceAwaited):
                run.changed.clear()
                await run.changed.wait()
            assert run.count(CaseStarted, DeviceLeased) == 0
        trials = await running
        expected = dict.fromkeys(trials, Outcome.PASSED)
        assert {case: trial.outcome for case, trial in trials.items()} == expected
        assert len(trials) == 6
        assert run.holders == {"tileyard tune add, run r"}

    asyncio.run(main())


def test_a_device_that_others_keep_ends_cases_at_the_queue_limit(tmp_path: Path) -> None:
    """They end as what they are, within the limit that the message names."""

    async def main() -> None:
        (device,) = simulated_devices(1, tmp_path / "locks")
        run = Run(tmp_path, (device,), queue_limit_s=0.5)
        async with await hold(device, tmp_path):
            trials = await run.finish(*({"n": n} for n in range(3)))
        expected = [Outcome.QUEUE_TIMEOUT] * 3
        assert [trial.outcome for trial in trials.values()] == expected
        assert all("queue limit of 0.5 s" in trial.message for trial in trials.values())

    asyncio.run(main())


def test_another_device_takes_over_while_one_is_waited_for(tmp_path: Path) -> None:
    """Who waits for a device that somebody else has does not keep cases from a free one."""

    async def main() -> None:
        devices = simulated_devices(2, tmp_path / "locks")
        run = Run(tmp_path, devices)
        async with await hold(devices[0], tmp_path):
            trials = await run.finish(*({"n": n} for n in range(4)))
        expected = {devices[1].name}
        assert {trial.device for trial in trials.values()} == expected
        assert {trial.outcome for trial in trials.values()} == {Outcome.PASSED}

    asyncio.run(main())


def test_a_device_that_others_want_is_passed_on_between_two_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a turn, whether or not there is more to run; the rest runs in the next one."""
    monkeypatch.setattr("tileyard.engine.borrowing.TURN_S", 0.0)

    async def main() -> None:
        (device,) = simulated_devices(1, tmp_path / "locks")
        run = Run(tmp_path, (device,))
        running = asyncio.create_task(run.finish(*({"n": n, "run_s": 0.3} for n in range(8))))
        while not run.count(CaseStarted):
            run.changed.clear()
            await run.changed.wait()
        async with await hold(device, tmp_path):
            pass
        trials = await running
        assert [trial.outcome for trial in trials.values()] == [Outcome.PASSED] * 8
        assert run.count(DeviceLeased) >= 2

    asyncio.run(main())


def test_a_sick_device_comes_back_while_a_run_waits(tmp_path: Path) -> None:
    """Three good probes are made beside the run, and then everything runs there."""

    async def main() -> None:
        first, second = simulated_devices(2, tmp_path / "locks")
        second = msgspec.structs.replace(second, probe=("true",))
        put_in_quarantine(second.locks, second.name, "its probe failed")
        run = Run(tmp_path, (first, second), reprobe_s=0.05)
        async with await hold(first, tmp_path):
            trials = await run.finish(*({"n": n} for n in range(4)))
        expected = {second.name}
        assert {trial.device for trial in trials.values()} == expected
        assert {trial.outcome for trial in trials.values()} == {Outcome.PASSED}

    asyncio.run(main())


def test_a_probe_that_hangs_holds_no_run_up(tmp_path: Path) -> None:
    """The run ends as soon as its cases have, and the probe after it."""
    note = tmp_path / "pid"

    async def main() -> None:
        first, second = simulated_devices(2, tmp_path / "locks")
        script = f"echo $$ > {note}.draft; mv {note}.draft {note}; exec sleep 1000"
        second = msgspec.structs.replace(second, probe=("sh", "-c", script), probe_limit_s=1000.0)
        put_in_quarantine(second.locks, second.name, "its probe failed")
        run = Run(tmp_path, (first, second), reprobe_s=0.05)
        async with await hold(first, tmp_path):
            running = asyncio.create_task(run.finish(*({"n": n} for n in range(4))))
            async with asyncio.timeout(DEADLINE_S):
                while not note.exists():
                    await asyncio.to_thread(select.select, [], [], [], 0.01)
        trials = await running
        expected = {first.name}
        assert {trial.device for trial in trials.values()} == expected

    asyncio.run(main())
    assert has_ended(int(note.read_text(encoding="ascii")), DEADLINE_S)


def test_what_a_device_failed_is_run_again_on_another_one(tmp_path: Path) -> None:
    """The trial says where it had been lost, under which lease, and how."""

    async def main() -> None:
        run = Run(tmp_path, simulated_devices(2, tmp_path / "locks"))
        note = str(tmp_path / "killed")
        trials = await run.finish({"fault": "killed_once", "note": note})
        (trial,) = trials.values()
        expected = Outcome.PASSED
        assert trial.outcome is expected
        (attempt,) = trial.attempts
        assert {attempt.device, trial.device} == {"board:0", "board:1"}
        assert attempt.lease != trial.lease
        assert "SIGKILL" in attempt.message

    asyncio.run(main())


def test_what_a_case_prints_is_in_its_log_however_it_ends(tmp_path: Path) -> None:
    """Its own words and nobody else's; a case that says nothing has no log, and no file is left over."""

    async def main() -> None:
        run = Run(tmp_path, simulated_devices(1, tmp_path / "locks"))
        trials = await run.finish(
            {"says": "one"}, {"says": "two", "fault": "segv"}, {}, {"says": "three"}
        )
        home = tmp_path / "home"
        expected = ["one\n", "two\n", "", "three\n"]
        found = [
            trials[case].log and (home / trials[case].log).read_text() for case in sorted(trials)
        ]
        assert found == expected
        assert not list((home / "logs").glob("runner-*"))
        assert len(list((home / "logs" / "run").iterdir())) == 3

    asyncio.run(main())


def test_a_lease_is_asked_for_after_the_build_and_ends_with_the_work(tmp_path: Path) -> None:
    """The events of a run: built, asked for, leased, run, given up."""

    async def main() -> None:
        run = Run(tmp_path, simulated_devices(1, tmp_path / "locks"))
        await run.finish({"build_s": 0.05})
        kinds = (BuildEnded, DeviceAsked, DeviceLeased, CaseStarted, CaseEnded)
        expected = list(kinds)
        assert [type(event) for event in run.events if isinstance(event, kinds)] == expected
        assert run.count(DeviceReleased) <= 1

    asyncio.run(main())


def test_what_is_too_large_asks_for_no_device(tmp_path: Path) -> None:
    """Its trial names the limit, as its build does."""

    async def main() -> None:
        run = Run(tmp_path, simulated_devices(1, tmp_path / "locks"))
        (trial,) = (await run.finish({"fault": "refused", "note": "registers"})).values()
        assert (trial.outcome, trial.exceeds) == (Outcome.COMPILE_ERROR, "registers")
        assert run.count(DeviceAsked) == run.count(CaseStarted) == 0

    asyncio.run(main())


def test_a_group_blames_the_config_that_broke_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of kernels that are built together, the one that crashes or hangs is told for it alone."""
    monkeypatch.setenv(CLAIMS_VARIABLE, str(tmp_path))
    faults = ["", "build_crash", "", "refused", "", "build_hang", "", ""]

    async def main() -> None:
        devices = simulated_devices(1, tmp_path / "locks")
        run = Run(tmp_path, devices, target="grouped", group_size=8, compile_workers=1)
        configs = [{"n": n, "sample_ns": 1.0 + n, "fault": f} for n, f in enumerate(faults)]
        trials = await run.finish(*configs)
        expected = {
            "": Outcome.PASSED,
            "build_crash": Outcome.CRASHED,
            "refused": Outcome.COMPILE_ERROR,
            "build_hang": Outcome.TIMEOUT,
        }
        found = {str(trial.config["fault"]): trial.outcome for trial in trials.values()}
        assert found == expected
        assert "build limit of 1 s" in trials["c000005"].message

    asyncio.run(main())
    sizes = [int(size) for size in (tmp_path / "groups").read_text().split()]
    assert max(sizes) > 1

"""Devices in quarantine are probed while somebody waits: seldom, by one for all, and never a person's."""

import asyncio
import os
import select
import sys
from pathlib import Path

import msgspec
import psutil
import pytest
from tests.endings import has_ended

from tileyard.base.model import Device
from tileyard.devices.health import quarantine_device, read_health, readmit_device
from tileyard.devices.locks import prepare_directory
from tileyard.devices.occupancy import try_hold
from tileyard.devices.reprobe import is_curable, look_after
from tileyard.devices.reprobing import Reprobing
from tileyard.processes.keeper.quarantine import put_in_quarantine

DEADLINE_S = 60.0
HOUR_S = 3600.0
PROBE = "import sys; open(sys.argv[1], 'a').write('probed\\n')"
HANGING = (
    "import os, sys, time; f = open(sys.argv[1], 'w'); f.write(str(os.getpid())); f.close(); "
    "time.sleep(3600)"
)

pytestmark = pytest.mark.slow


@pytest.fixture
def device(tmp_path: Path) -> Device:
    """A device that its holder was found to have left sick; its probe is good, and counted."""
    made = Device(
        name="npu:0",
        kind="npu",
        identity="x",
        locks=(str(tmp_path / "locks/device-a.lock"), str(tmp_path / "locks/cpu-1.lock")),
        probe=(sys.executable, "-S", "-c", PROBE, str(tmp_path / "probed")),
    )
    prepare_directory(tmp_path / "locks")
    put_in_quarantine(made.locks, made.name, "its probe failed")
    return made


def probes(tmp_path: Path) -> int:
    """How many probes were made."""
    path = tmp_path / "probed"
    return path.read_text(encoding="ascii").count("probed") if path.exists() else 0


def look(device: Device, interval_s: float, rounds: int, waiters: int = 1) -> list[str]:
    """Who came back while so many wait, each of whom looks so often."""
    told: list[str] = []

    async def wait() -> None:
        left = rounds
        done = asyncio.Event()

        async def pause(seconds: float) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                done.set()
                await asyncio.Event().wait()  # for good
            await asyncio.sleep(0)

        looking = asyncio.create_task(look_after(device, interval_s, told.append, pause))
        await done.wait()
        looking.cancel()

    async def main() -> None:
        async with asyncio.timeout(DEADLINE_S):
            await asyncio.gather(*(wait() for _ in range(waiters)))

    asyncio.run(main())
    return told


def test_three_good_probes_bring_it_back_and_that_is_told(device: Device, tmp_path: Path) -> None:
    """After that nothing more is probed."""
    expected = [device.name]
    assert look(device, interval_s=0.0, rounds=5) == expected
    assert read_health(device).is_well
    assert probes(tmp_path) == 3


def test_many_who_wait_make_one_probe_an_interval(device: Device, tmp_path: Path) -> None:
    """However often each of them looks."""
    expected = 1
    assert look(device, interval_s=HOUR_S, rounds=3, waiters=5) == []
    assert probes(tmp_path) == expected
    assert len(read_health(device).probes) == expected


def test_a_device_is_left_alone_for_a_while_after_its_holder(
    device: Device, tmp_path: Path
) -> None:
    """What was held just now has been probed just now, or is not rested."""
    with try_hold(device) as had:
        assert had
    expected = 0
    look(device, interval_s=HOUR_S, rounds=2)
    assert probes(tmp_path) == expected


def test_only_what_is_sick_has_to_rest(device: Device, tmp_path: Path) -> None:
    """Others go on using a part of the device that is well: that puts nothing off."""
    readmit_device(device)
    put_in_quarantine(device.locks[:1], device.name, "dead")
    with try_hold(msgspec.structs.replace(device, locks=device.locks[1:])):
        pass
    expected = 1
    look(device, interval_s=HOUR_S, rounds=2)
    assert probes(tmp_path) == expected


def test_a_clock_that_was_set_back_puts_nothing_off(
    device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lease that ended in the future is no reason to wait until then."""
    with try_hold(device):
        pass
    monkeypatch.setattr("tileyard.devices.occupancy.time.time_ns", lambda: 10**9)
    expected = 1
    look(device, interval_s=HOUR_S, rounds=1)
    assert probes(tmp_path) == expected


def test_what_a_person_keeps_away_is_not_probed(device: Device, tmp_path: Path) -> None:
    """Also where it was sick already; a person who readmits it is seen."""
    quarantine_device(device, "its fan comes on Monday")
    assert not is_curable(device)
    assert look(device, interval_s=0.0, rounds=4) == []
    expected = 0
    assert probes(tmp_path) == expected
    assert not read_health(device).is_well


@pytest.mark.parametrize("probe", [(), ("/no/such/program",)])
def test_what_cannot_be_probed_takes_nobodys_turn(
    device: Device, tmp_path: Path, probe: tuple[str, ...]
) -> None:
    """Another user may have the program."""
    expected = 0
    look(msgspec.structs.replace(device, probe=probe), interval_s=HOUR_S, rounds=2)
    assert len(list((tmp_path / "locks/leases").iterdir())) == expected


def test_a_process_of_its_own_looks_after_it(device: Device, tmp_path: Path) -> None:
    """It says who came back, and is not even started while all are well."""
    reprobing = Reprobing((device,), interval_s=0.0)
    try:
        assert reprobing.look()
        assert not reprobing.look()
        select.select([reprobing.news], [], [], DEADLINE_S)
        expected = b"npu:0\n"
        assert os.read(reprobing.news, 100) == expected
        assert probes(tmp_path) == 3
    finally:
        reprobing.stop()
    well = Reprobing((device,), interval_s=0.0)
    assert not well.look()
    well.stop()


@pytest.mark.parametrize(("owned", "asked"), [((0,), ()), ((), (1,)), ((0,), (1,))])
def test_it_runs_where_it_disturbs_nobody(
    device: Device, owned: tuple[int, ...], asked: tuple[int, ...]
) -> None:
    """On the cores that it was given, or on those of what is sick; the caller keeps its own."""
    allowed = sorted(os.sched_getaffinity(0))
    if len(allowed) < 2:
        pytest.skip("needs two cores")
    sick = msgspec.structs.replace(device, cores=tuple(allowed[n] for n in owned))
    before = set(psutil.Process().children())
    reprobing = Reprobing((sick,), HOUR_S, frozenset(allowed[n] for n in asked))
    assert reprobing.look()
    (process,) = set(psutil.Process().children()) - before
    expected = [allowed[n] for n in asked or owned]
    assert process.cpu_affinity() == expected
    assert sorted(os.sched_getaffinity(0)) == allowed
    reprobing.stop()
    assert has_ended(process.pid, DEADLINE_S)


def test_who_stops_waits_for_nothing_and_leaves_nothing(device: Device, tmp_path: Path) -> None:
    """A probe that hangs holds the device; with its process it is ended, and the device is free."""
    note = tmp_path / "pid"
    os.mkfifo(note)
    probe = (sys.executable, "-S", "-c", HANGING, str(note))
    before = set(psutil.Process().children())
    reprobing = Reprobing((msgspec.structs.replace(device, probe=probe),), interval_s=0.0)
    assert reprobing.look()
    (process,) = set(psutil.Process().children()) - before
    pid = int(note.read_text(encoding="ascii"))
    with try_hold(device) as had:
        expected = False
        assert had is expected
    reprobing.stop()
    assert has_ended(process.pid, DEADLINE_S)
    assert has_ended(pid)
    with try_hold(device) as had:
        assert had

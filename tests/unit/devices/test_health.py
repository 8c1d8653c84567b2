"""A sick device goes into quarantine, and comes back after three good probes or by a person."""

import asyncio
import os
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from tileyard.base.errors import UsageError
from tileyard.base.model import Device
from tileyard.devices import health
from tileyard.devices.base import name_user
from tileyard.devices.health import (
    Probe,
    ProbeReport,
    Verdict,
    is_kept_away,
    probe_now,
    quarantine_device,
    read_health,
    readmit_device,
)
from tileyard.devices.locks import prepare_directory

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs two users")


@pytest.fixture
def device(tmp_path: Path) -> Device:
    """A device with two locks, whose probe fails while there is a file ``sick``, or ``unclear``."""
    folder = tmp_path / "locks"
    code = (
        "import os, sys; os.chdir(sys.argv[1]); print('fan is dead'); "
        "sys.exit(75 if os.path.exists('unclear') else os.path.exists('sick'))"
    )
    made = Device(
        name="npu:0",
        kind="npu",
        identity="x",
        locks=(str(folder / "device-a.lock"), str(folder / "cpu-1.lock")),
        probe=(sys.executable, "-c", code, str(tmp_path)),
    )
    prepare_directory(folder)
    for parent in (tmp_path, tmp_path.parent, tmp_path.parent.parent):
        parent.chmod(parent.stat().st_mode | 0o111)
    return made


def probe(device: Device) -> ProbeReport:
    """One probe now."""
    return asyncio.run(probe_now(device))


@pytest.fixture
def _in_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Probes that need no process: other users may not be allowed to run this interpreter."""

    async def answer(device: Device, *, rest_s: float = 0.0) -> Probe:
        verdict = Verdict.FAILED if (tmp_path / "sick").exists() else Verdict.GOOD
        return Probe(device=device.name, verdict=verdict, message="fan is dead", at=time.time())

    monkeypatch.setattr(health, "probe_device", answer)


def leftovers(device: Device) -> list[str]:
    """Files about quarantine."""
    folder = Path(device.locks[0]).parent / "quarantine"
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def as_user(uid: int, action: Callable[[], object]) -> None:
    """Do something in a child as another user, to whom it must succeed."""
    child = os.fork()
    if child == 0:
        try:
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            action()
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0


def test_a_device_of_which_nothing_is_said_is_well(device: Device) -> None:
    """No directory has to be there, and readmitting what is well changes nothing."""
    elsewhere = msgspec.structs.replace(device, locks=("/nowhere/device-a.lock",))
    expected = (True, True, False)
    assert (
        read_health(device).is_well,
        read_health(elsewhere).is_well,
        readmit_device(device),
    ) == expected


def test_quarantine_says_why_who_and_since_when(device: Device) -> None:
    """Whoever looks sees the reason."""
    quarantine_device(device, "smoke")
    found = read_health(device)
    expected = ("smoke", name_user(os.geteuid()), False)
    assert (found.reason, found.user, found.is_well) == expected
    assert found.since > 1.5e9
    other = msgspec.structs.replace(device, name="cpu:cores=1", locks=device.locks[1:])
    assert read_health(other).device == "npu:0"


def test_a_person_readmits(device: Device) -> None:
    """After that the device is well, and nothing is left of its quarantine."""
    quarantine_device(device, "smoke")
    expected: list[str] = []
    assert readmit_device(device)
    assert read_health(device).is_well
    assert leftovers(device) == expected


@pytest.mark.slow
def test_three_good_probes_in_a_row_readmit(device: Device) -> None:
    """Each is kept with its time; the third brings the device back."""
    quarantine_device(device, "smoke")
    counts = []
    for _ in range(3):
        report = probe(device)
        counts.append((report.probe.verdict, len(report.health.probes), report.readmitted))
        assert all(kept.at > 1.5e9 for kept in report.health.probes)
    good = Verdict.GOOD
    expected = [(good, 1, False), (good, 2, False), (good, 0, True)]
    assert counts == expected
    assert read_health(device).is_well
    assert leftovers(device) == []


@pytest.mark.slow
def test_a_failed_probe_starts_over(device: Device, tmp_path: Path) -> None:
    """Two good ones before a bad one count no more, and the first reason stays."""
    quarantine_device(device, "smoke")
    probe(device)
    probe(device)
    (tmp_path / "sick").touch()
    failed = probe(device)
    expected = (Verdict.FAILED, "smoke", 0)
    assert (failed.probe.verdict, failed.health.reason, len(failed.health.probes)) == expected
    (tmp_path / "sick").unlink()
    assert [probe(device).readmitted for _ in range(3)] == [False, False, True]


@pytest.mark.slow
def test_a_failed_probe_puts_a_device_into_quarantine(device: Device, tmp_path: Path) -> None:
    """Its last line is the reason. A good one does nothing to a device that is well."""
    assert probe(device).health.is_well
    (tmp_path / "sick").touch()
    expected = "its probe failed: fan is dead"
    assert probe(device).health.reason == expected


@pytest.mark.slow
def test_what_a_person_says_of_a_sick_device_is_kept_and_shown_first(
    device: Device, tmp_path: Path
) -> None:
    """Also where a probe has put it into quarantine before, and then it is left alone."""
    (tmp_path / "sick").touch()
    probe(device)
    assert not is_kept_away(device)
    quarantine_device(device, "fan replaced")
    assert is_kept_away(device)
    assert re.match("fan replaced; its probe failed", read_health(device).reason)


@pytest.mark.slow
def test_a_probe_that_cannot_tell_changes_nothing(device: Device, tmp_path: Path) -> None:
    """Neither does it condemn a device, nor count for one, nor against one."""
    (tmp_path / "unclear").touch()
    assert probe(device).health.is_well
    quarantine_device(device, "smoke")
    (tmp_path / "unclear").unlink()
    probe(device)
    (tmp_path / "unclear").touch()
    expected = (Verdict.UNKNOWN, 1)
    report = probe(device)
    assert (report.probe.verdict, len(report.health.probes)) == expected


@as_root
@pytest.mark.usefixtures("_in_process")
def test_users_probe_for_each_other(device: Device) -> None:
    """Good probes of several users add up, and anyone's third one readmits for everyone."""
    as_user(1001, lambda: quarantine_device(device, "smoke"))
    as_user(1002, lambda: probe(device))
    as_user(1003, lambda: probe(device))
    expected = {"1002", "1003"}
    found = read_health(device)
    assert {kept.user for kept in found.probes} == expected
    assert found.user == "1001"
    as_user(1002, lambda: probe(device))
    assert read_health(device).is_well


@as_root
@pytest.mark.slow
@pytest.mark.usefixtures("_in_process")
def test_a_failure_found_by_another_user_starts_over(device: Device, tmp_path: Path) -> None:
    """Nobody's good probes outweigh what somebody else found after them."""
    as_user(1001, lambda: quarantine_device(device, "smoke"))
    as_user(1002, lambda: probe(device))
    as_user(1002, lambda: probe(device))
    (tmp_path / "sick").touch()
    as_user(1003, lambda: probe(device))
    (tmp_path / "sick").unlink()
    as_user(1002, lambda: probe(device))
    found = read_health(device)
    expected = ("smoke; its probe failed: fan is dead", 1)
    assert (found.reason, len(found.probes)) == expected


@as_root
@pytest.mark.usefixtures("_in_process")
def test_who_finds_it_sick_again_starts_the_others_over(device: Device, tmp_path: Path) -> None:
    """A failed probe by whoever stated it first renews the statement, and keeps its reason."""
    as_user(1001, lambda: quarantine_device(device, "smoke"))
    as_user(1002, lambda: probe(device))
    as_user(1002, lambda: probe(device))
    (tmp_path / "sick").touch()
    as_user(1001, lambda: probe(device))
    found = read_health(device)
    expected = ("smoke", 0)
    assert (found.reason, len(found.probes)) == expected


@as_root
@pytest.mark.slow
@pytest.mark.usefixtures("_in_process")
def test_probes_of_an_earlier_quarantine_do_not_count(device: Device) -> None:
    """What another user found before the device was readmitted says nothing about the next time."""
    as_user(1001, lambda: quarantine_device(device, "smoke"))
    as_user(1002, lambda: probe(device))
    as_user(1002, lambda: probe(device))
    as_user(1001, lambda: readmit_device(device))
    assert any("probes" in name for name in leftovers(device))
    as_user(1001, lambda: quarantine_device(device, "fire"))
    as_user(1003, lambda: probe(device))
    found = read_health(device)
    expected = ("fire", 1)
    assert (found.reason, len(found.probes)) == expected


@as_root
@pytest.mark.usefixtures("_in_process")
def test_what_is_stated_during_a_probe_outweighs_it(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A good probe speaks only about what was known when it began."""
    quarantine_device(device, "smoke")
    probe(device)
    probe(device)

    async def disturbed(probed: Device, *, rest_s: float = 0.0) -> object:
        as_user(1001, lambda: health.quarantine.state_again(probed.locks, "npu:0", "fire"))
        return await original(probed)

    original = health.probe_device
    monkeypatch.setattr(health, "probe_device", disturbed)
    report = probe(device)
    expected = (False, False)
    assert (report.readmitted, report.health.is_well) == expected


@as_root
def test_a_directory_that_is_closed_is_an_error(device: Device) -> None:
    """Who may not write there is told so in one line."""
    folder = Path(device.locks[0]).parent
    (folder / "quarantine").chmod(0o755)

    def refused() -> None:
        with pytest.raises(UsageError, match=rf"{folder} cannot be used: Permission denied"):
            quarantine_device(device, "smoke")

    expected = None
    assert as_user(1001, refused) is expected

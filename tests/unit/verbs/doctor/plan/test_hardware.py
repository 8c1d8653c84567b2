"""Devices, as a doctor finds them."""

import sys

import pytest

from tileyard.base.settings import Settings
from tileyard.devices.gpus import Gpu, GpuList
from tileyard.devices.health import quarantine_device, read_health
from tileyard.devices.locks import prepare_directory
from tileyard.devices.occupancy import try_hold
from tileyard.devices.registry import parse_device
from tileyard.verbs.doctor.plan import devices
from tileyard.verbs.doctor.plan.devices import check_declarations, check_devices
from tileyard.verbs.doctor.plan.findings import Finding, Level, run_checks

DECLARED = f"""
[[device]]
name = "npu:0"
id = "a"
probe = ["{sys.executable}", "-c", "print('42 C')"]

[[device]]
name = "npu:1"
id = "b"
probe = ["{sys.executable}", "-c", "import sys; sys.exit('fan is dead')"]

[[device]]
name = "npu:2"
id = "c"

[[device]]
name = "npu:3"
id = "d"
probe = ["npu-smi-that-is-not-there"]

[simulators]
slots = 1
"""


@pytest.fixture
def declared(settings: Settings) -> Settings:
    """A host with devices that are well, sick, without a probe, and with one that is missing."""
    settings.host_config.mkdir()
    (settings.host_config / "devices.toml").write_text(DECLARED, encoding="utf-8")
    prepare_directory(settings.lock_dir)
    return settings


def test_cores_that_the_host_does_not_have_are_a_warning(declared: Settings) -> None:
    """They are left out of leases, since a container may see only some."""
    with (declared.host_config / "devices.toml").open("a", encoding="utf-8") as file:
        file.write('[[device]]\nname = "npu:4"\nid = "e"\ncores = "0,8000-8003"\n')
    valid, absent = check_declarations(declared)
    expected = (Level.OK, Level.WARN, "npu:4")
    assert (valid.level, absent.level, absent.subject) == expected
    assert "gives it cores 8000-8003, which this host does not have" in absent.message


def by_name(findings: list[Finding]) -> dict[str, tuple[Level, str]]:
    """What is said of each device."""
    return {finding.subject: (finding.level, finding.message) for finding in findings}


@pytest.mark.slow
def test_every_device_is_probed(declared: Settings) -> None:
    """What their probes say is told, and what cannot be told is a warning; nothing follows."""
    found = by_name(list(check_devices(declared)))
    expected = {
        "npu:0": (Level.OK, "42 C"),
        "npu:1": (Level.FAIL, "fails its probe: fan is dead"),
        "npu:2": (Level.WARN, "has no probe: a fault of it would go unnoticed"),
        "npu:3": (
            Level.WARN,
            "cannot be probed: its probe npu-smi-that-is-not-there is not a program that can be run",
        ),
    }
    assert {name: found[name] for name in expected} == expected
    assert "sim:0" not in found
    assert read_health(parse_device("npu:1", declared)).is_well


@pytest.mark.slow
def test_devices_in_use_and_in_quarantine_are_not_probed(declared: Settings) -> None:
    """A holder is not disturbed, and a device in quarantine is known to be sick."""
    quarantine_device(parse_device("npu:1", declared), "smoke")
    with try_hold(parse_device("npu:0", declared)):
        found = by_name(list(check_devices(declared)))
    expected = (Level.OK, "is in use, and was not probed")
    assert found["npu:0"] == expected
    assert found["npu:1"][0] is Level.FAIL
    assert found["npu:1"][1].startswith("is in quarantine: smoke")


def test_declarations_are_counted_or_refused(declared: Settings) -> None:
    """A file that is not valid fails with file and key."""
    (well,) = check_declarations(declared)
    file = declared.host_config / "devices.toml"
    expected = f"4 devices and 1 simulator in {file}"
    assert well.message == expected
    file.write_text("[[devices]]", encoding="utf-8")
    (broken,) = run_checks([("declared devices", check_declarations)], declared).findings
    assert broken.level is Level.FAIL
    assert broken.message == f"{file}:1: devices: unknown table"


@pytest.mark.parametrize(
    ("is_there", "found", "expected"),
    [
        (False, GpuList(), (Level.OK, "there is no NVIDIA driver")),
        (
            True,
            GpuList(failure="NVML did not answer within 30 s"),
            (Level.FAIL, "there is an NVIDIA driver, but: NVML did not answer within 30 s"),
        ),
        (
            True,
            GpuList(gpus=(Gpu(index=1, slice=2, uuid="MIG-a", product="H200"),)),
            (Level.OK, "cuda:1.2 H200"),
        ),
    ],
)
def test_gpus_are_listed_where_there_is_a_driver(
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    is_there: bool,
    found: GpuList,
    expected: tuple[Level, str],
) -> None:
    """A driver that does not answer is a failure; none at all is not."""
    monkeypatch.setattr(devices, "has_driver", lambda: is_there)
    monkeypatch.setattr(devices, "list_visible_gpus", lambda: found)
    (finding,) = devices.check_gpus(settings)
    assert (finding.level, finding.message) == expected

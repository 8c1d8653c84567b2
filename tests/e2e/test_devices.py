"""``tileyard devices`` and ``tileyard doctor`` as a user runs them."""

import json
from pathlib import Path

import pytest
from tests.e2e.own_process import OwnProcess, in_a_process

pytestmark = pytest.mark.slow

DECLARED = """
[[device]]
name = "npu:0"
id = "0000:c1:00.0"
probe = ["test", "!", "-e", "SICK"]
"""


@pytest.fixture
def host(tmp_path: Path) -> OwnProcess:
    """A host with one declared accelerator, which is sick while there is a file ``sick``."""
    (tmp_path / "etc").mkdir()
    text = DECLARED.replace("SICK", str(tmp_path / "sick"))
    (tmp_path / "etc/devices.toml").write_text(text, encoding="utf-8")
    return OwnProcess(tmp_path, {"TILEYARD_HOST_CONFIG": str(tmp_path / "etc")})


def test_devices_are_listed(host: OwnProcess) -> None:
    """People get a table, machines one document with the same facts."""
    shown = in_a_process(host).run("devices")
    survey = host.run_json("devices", "--window", "10ms")
    expected = {"cpu:0": "cpu", "npu:0": "npu"}
    listed = {device["name"]: device["class"] for device in survey["devices"]}
    assert {name: listed[name] for name in expected} == expected
    assert {"health", "holder", "queue", "busy_share", "held_idle_share"} <= set(
        survey["devices"][0]
    )
    assert shown.returncode == 0
    assert all(name in shown.stdout for name in expected)


def test_a_sick_device_leaves_and_comes_back(host: OwnProcess, tmp_path: Path) -> None:
    """A failed probe puts it into quarantine, three good ones or a person bring it back."""
    (tmp_path / "sick").touch()
    failed = host.run("devices", "probe", "npu:0")
    (tmp_path / "sick").unlink()
    assert "quarantine: its probe failed" in host.run("devices").stdout
    good = [host.run("devices", "probe", "0000:C1:00.0") for _ in range(3)]
    expected = (1, [0, 0, 0])
    assert (failed.returncode, [done.returncode for done in good]) == expected
    assert "1 of 3 good probes" in good[0].stdout
    assert "npu:0 is back from quarantine" in good[2].stdout
    host.run("devices", "quarantine", "npu", "fan noise")
    back = host.run("devices", "readmit", "npu:0")
    again = host.run("devices", "readmit", "npu:0")
    assert back.stdout == "npu:0 is back from quarantine\n"
    assert again.stdout == "npu:0 was not in quarantine\n"


def test_all_that_is_in_quarantine_can_be_probed_at_once(host: OwnProcess) -> None:
    """For cron: what is well is left alone, and the third good round brings devices back."""
    host.run("devices", "quarantine", "npu:0", "smoke")
    rounds = [host.run("devices", "probe", "--quarantined") for _ in range(4)]
    expected = [0, 0, 0, 0]
    assert [done.returncode for done in rounds] == expected
    assert "2 of 3 good probes" in rounds[1].stdout
    assert "npu:0 is back from quarantine" in rounds[2].stdout
    assert rounds[3].stdout == ""
    assert "cpu:0" not in rounds[0].stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("readmit", "npu:7"), "there is no device 'npu:7' on this host (devices: cpu:0, npu:0)"),
        (("probe",), "name one device, or give --quarantined"),
        (("probe", "--quarantined", "cpu"), "name one device, or give --quarantined"),
        (("readmit",), "Missing argument 'NAME'"),
        (("--window", "soon"), "'soon' is not a duration"),
        (("--install", "--json"), "--json has no effect with --install"),
        (("--install", "--window", "1s"), "--window has no effect with --install"),
    ],
)
def test_bad_requests_are_one_line(
    host: OwnProcess, arguments: tuple[str, ...], message: str
) -> None:
    """Exit status 2, and what was wrong."""
    done = host.run("devices", *arguments)
    expected = 2
    assert done.returncode == expected
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


def test_an_odd_lock_directory_is_refused(host: OwnProcess, tmp_path: Path) -> None:
    """One line says what is odd about it."""
    (tmp_path / "locks").mkdir()
    (tmp_path / "locks").chmod(0o777)
    done = host.run("devices")
    expected = (2, 1)
    assert (done.returncode, done.stderr.count("\n")) == expected
    assert "is not sticky" in done.stderr


def test_a_broken_declaration_names_file_and_key(host: OwnProcess, tmp_path: Path) -> None:
    """So does the doctor, and goes on with the other checks."""
    (tmp_path / "etc/devices.toml").write_text('[[device]]\nname = "npu:0"\n', encoding="utf-8")
    done = host.run("devices")
    expected = "etc/devices.toml:1: device[0]: misses the key `id`"
    assert expected in done.stderr
    config, lease = host.run("config"), host.run("lease", "--", "true")
    assert [one.returncode for one in (done, config, lease)] == [2, 2, 2]
    assert expected in config.stderr
    assert expected in lease.stderr
    diagnosed = host.run("doctor", "--json")
    findings = json.loads(diagnosed.stdout)["findings"]
    assert diagnosed.returncode == 1
    assert [f["message"] for f in findings if f["subject"] == "declared devices"] == [expected]
    assert findings[0]["subject"] == "python"


def test_the_doctor_finds_a_fresh_host_well(host: OwnProcess, tmp_path: Path) -> None:
    """One line a check, none of which fails; nothing is made by looking."""
    done = in_a_process(host).run("doctor")
    expected = 0
    assert done.returncode == expected, done.stdout
    assert "fail" not in [line.split()[0] for line in done.stdout.splitlines()]
    assert not (tmp_path / "locks").exists()
    assert not host.home.exists()


def test_the_doctor_tells_two_lock_directories_apart(host: OwnProcess, tmp_path: Path) -> None:
    """A token that one side writes is found by a side that sees the same directory only."""
    token = host.run("doctor", "--lock-token", "write").stdout.strip()
    same = host.run("doctor", "--lock-token", token)
    other = host.run("doctor", "--lock-token", token, TILEYARD_LOCK_DIR=str(tmp_path / "other"))
    expected = (0, 1)
    assert (same.returncode, other.returncode) == expected
    assert "both sides see" in same.stdout
    assert "does not find the other side's token" in other.stdout

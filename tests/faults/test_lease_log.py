"""The log of leases, and root's limit on their length, with real processes that end in every way."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import CommandLine

from tileyard.processes.keeper.rules import SETTINGS

pytestmark = pytest.mark.slow

DEADLINE_S = 30.0
HOLDER = """
import os, signal, sys, time
from pathlib import Path
from tileyard.base.settings import read_settings
from tileyard.devices.holding import HeldLease
from tileyard.devices.registry import resolve_devices
if sys.argv[1] == "deaf":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
HeldLease(resolve_devices("npu:0", read_settings(os.environ, Path.cwd())), 30.0)
print("held", flush=True)
time.sleep(60)
"""
SUITE = """
name = "s"
[run]
argv = ["sh", "-c", "sleep {case}"]
[[testcase]]
name = "t"
[[testcase.case]]
name = "0"
[[testcase.case]]
name = "60"
"""


@pytest.fixture
def host(tmp_path: Path) -> CommandLine:
    """A host with one declared device."""
    text = '[[device]]\nname = "npu:0"\nid = "card-0"\n'
    (tmp_path / "devices.toml").write_text(text, encoding="utf-8")
    env = {"TILEYARD_HOST_CONFIG": str(tmp_path), "TILEYARD_LOCK_DIR": str(tmp_path / "locks")}
    return CommandLine(tmp_path, env)


def limit_leases(host: CommandLine, limit: str) -> None:
    """What ``devices --install --lease-limit`` does, for a directory that serves one user, too."""
    host.run_here("lease", "--devices", "npu", "--", "true")
    (host.cwd / "locks" / SETTINGS).write_text(f"keep_days=30 {limit}\n", encoding="ascii")


def read_log(host: CommandLine, *arguments: str) -> list[dict[str, Any]]:
    """The leases, as programs get them."""
    done = host.run_here("devices", "log", *arguments, "--json")
    leases: list[dict[str, Any]] = json.loads(done.stdout)["leases"]
    return leases


def ends(host: CommandLine) -> list[tuple[str, int | None]]:
    """How all leases ended, once they have: a device that is probed at the end is still held meanwhile."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        found = [(lease["end"], lease["status"]) for lease in read_log(host)]
        if ("held", None) not in found or time.monotonic() > deadline:
            return found


def test_the_log_says_who_had_what_and_how_it_ended(host: CommandLine) -> None:
    """User, command, device, time, length and end of each lease, all or of one device; people get a table."""
    for script in ("exit 3", "kill -KILL $$", "printf '\\033[31m'"):
        host.run("lease", "--devices", "npu:0", "--", "sh", "-c", script)
    host.run("lease", "--devices", "cpu", "--run-limit", "50ms", "--", "sleep", "60")
    host.run("lease", "--devices", "npu", "--", "/no/such/program")
    expected = [("code", 3), ("signal", 9), ("code", 0), ("told", None), ("not_started", None)]
    assert ends(host) == expected
    first = read_log(host, "npu")[0]
    assert first["command"] == "sh -c exit 3"
    assert first["devices"] == ["npu:0"]
    assert 0 <= first["held_s"] < DEADLINE_S
    assert first["number"] > 0
    assert [lease["devices"] for lease in read_log(host, "cpu:0")] == [["cpu:0"]]
    shown = host.run_here("devices", "log").stdout
    assert re.search(r"npu:0 +\d\.\d s +code 3 +sh -c exit 3\n", shown)
    assert "\033" not in shown


def test_a_killed_keeper_leaves_an_end_that_is_not_known(host: CommandLine) -> None:
    """Until then its lease is held; the next one is logged as any other."""
    with host.start(
        "lease", "--devices", "npu", "--", "sh", "-c", "echo on; exec sleep 60"
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "on\n"
        (held,) = read_log(host)
        expected = ("held", True)
        assert (held["end"], held["held_s"] >= 0) == expected
        os.kill(held["pid"], signal.SIGKILL)
        process.communicate(timeout=DEADLINE_S)
    host.run("lease", "--devices", "npu", "--", "true")
    lost, after = read_log(host)
    assert (lost["end"], lost["held_s"], after["end"]) == ("unknown", None, "code")


def test_a_lease_longer_than_root_allows_is_ended(host: CommandLine) -> None:
    """As by --run-limit, with a line that names the setting; other classes have their own limit, or none."""
    limit_leases(host, "lease_s=0.2 lease_s:cpu=0")
    done = host.run(
        "lease", "--devices", "npu", "--status-file", "status", "--", "sh", "-c", "sleep 60"
    )
    status = json.loads((host.cwd / "status").read_bytes())
    assert (done.returncode, status["state"]) == (124, "max_time")
    text = (
        f"longest lease that root allows ({host.cwd / 'locks' / SETTINGS}): the command was ended"
    )
    assert f"npu:0 was held for 0.2 s, the {text}" in done.stderr
    assert done.stderr.count("\n") == 1
    other = host.run("lease", "--devices", "cpu", "--", "sleep", "0.4")
    assert other.returncode == 0
    expected = [("code", 0), ("lease_limit", None), ("code", 0)]
    assert ends(host) == expected


@pytest.mark.parametrize(
    ("manner", "number"), [("heeding", signal.SIGTERM), ("deaf", signal.SIGKILL)]
)
def test_a_process_that_holds_a_device_itself_ends_with_its_lease(
    host: CommandLine, manner: str, number: signal.Signals
) -> None:
    """It would go on using the device; why it ends is on its stderr. One that ignores TERM is killed."""
    limit_leases(host, "lease_s=0.2")
    argv = [sys.executable, "-c", HOLDER, manner]
    with subprocess.Popen(
        argv, cwd=host.cwd, env=host.environment(), stdout=-1, stderr=-1, text=True
    ) as process:
        out, err = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, out) == (-number, "held\n")
    assert f"root allows ({host.cwd / 'locks' / SETTINGS}): process {process.pid} is ended" in err
    assert host.run("lease", "--devices", "npu", "--", "true").returncode == 0
    assert [end for end, _ in ends(host)] == ["code", "lease_limit", "code"]


def test_a_run_goes_on_under_new_leases(host: CommandLine) -> None:
    """A case that is longer than any lease is an infrastructure fault that names the setting; others pass."""
    (host.cwd / "suite.toml").write_text(SUITE, encoding="utf-8")
    limit_leases(host, "lease_s=0.5")
    done = host.run("test", "suite.toml", "--devices", "npu:0")
    assert done.returncode == 3
    assert "1  passed" in done.stdout
    assert "1  infra_error" in done.stdout
    assert "was ended by its keeper: npu:0 was held for 0.5 s, the longest lease" in done.stdout
    assert ends(host).count(("lease_limit", None)) > 1

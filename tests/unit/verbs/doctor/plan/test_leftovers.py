"""What killed holders have left."""

import os
import subprocess
import sys

import pytest

from tileyard.base.model import Device
from tileyard.base.settings import Settings
from tileyard.devices.locks import prepare_directory
from tileyard.devices.occupancy import open_directory, try_hold
from tileyard.processes.keeper.holding import LeaseFacts
from tileyard.verbs.doctor.plan.devices import check_leftovers
from tileyard.verbs.doctor.plan.findings import Level

TREE = "5d1c2b3a4f5e6d7c"


@pytest.mark.slow
def test_a_process_of_a_dead_lease_is_named(settings: Settings) -> None:
    """It is known by the token of its lease; once it is gone nothing is left."""
    prepare_directory(settings.lock_dir)
    with open_directory(settings.lock_dir) as directory:
        facts = LeaseFacts("sleep 9", TREE).format("npu:0")
        os.close(directory.add_record("device-a", 4, facts))  # as if its holder had been killed
    code = "import sys; print('up', flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, "TILEYARD_TREE": TREE},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as orphan:
        assert orphan.stdout is not None
        orphan.stdout.readline()
        (finding,) = check_leftovers(settings)
        orphan.kill()
    expected = f"lease 4 of npu:0 (sleep 9) was killed, and left processes {orphan.pid}"
    assert (finding.level, finding.message) == (Level.WARN, expected)
    assert [f.level for f in check_leftovers(settings)] == [Level.OK]


def test_what_ended_well_or_still_lives_is_no_leftover(settings: Settings) -> None:
    """Neither a holder of now nor one that gave its lease back is reported."""
    expected = [Level.OK]
    assert list(check_leftovers(settings)) == []
    prepare_directory(settings.lock_dir)
    device = Device(
        name="npu:0", kind="npu", identity="x", locks=(f"{settings.lock_dir}/device-a.lock",)
    )
    with try_hold(device):
        assert [f.level for f in check_leftovers(settings)] == expected
    assert [f.level for f in check_leftovers(settings)] == expected

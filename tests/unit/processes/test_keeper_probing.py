"""After an abnormal end a device is probed before anyone else has it."""

import asyncio
import os
import sys
from pathlib import Path

import pytest

from tileyard.base.errors import SickDeviceError
from tileyard.base.model import Device
from tileyard.processes.supervise import LeaseRequest, Worker, WorkerCommand


def reason_after(tmp_path: Path, *probe: str) -> str:
    """Why the next one does not get a device with this probe after its holder was killed."""
    (tmp_path / "locks").mkdir(exist_ok=True)
    device = Device(
        name="npu:0",
        kind="npu",
        identity="x",
        locks=(str(tmp_path / "locks" / "device-a.lock"),),
        probe=probe,
    )
    command = WorkerCommand(
        argv=(sys.executable, "-c", "import time; time.sleep(3600)"),
        env=dict(os.environ),
        cwd=str(tmp_path),
        lease=LeaseRequest(choices=(device,)),
    )

    async def main() -> str:
        worker = await Worker.start(command)
        await worker.kill("a test", is_suspect=True)
        try:
            async with await Worker.start(command):
                return ""
        except SickDeviceError as error:
            return error.message

    return asyncio.run(main())


@pytest.mark.slow
@pytest.mark.parametrize(("code", "expected"), [(0, ""), (75, ""), (1, "on fire")])
def test_the_probe_decides(tmp_path: Path, code: int, expected: str) -> None:
    """0 is well, 75 says nothing, and anything else takes the device out of use."""
    program = f"import sys; print('on fire'); sys.exit({code})"
    reason = reason_after(tmp_path, sys.executable, "-c", program)
    assert expected in reason
    assert bool(reason) == bool(expected)


@pytest.mark.slow
def test_a_probe_that_cannot_be_run_takes_nothing_from_others(tmp_path: Path) -> None:
    """A tool that is missing for one user says nothing about the device."""
    expected = ""
    assert reason_after(tmp_path, "npu-smi-that-is-not-there") == expected

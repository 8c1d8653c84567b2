"""Probes devices in quarantine from time to time while somebody waits for one of them.
Run as ``python -P -m tileyard.devices.reprobe lifeline=FD``, with a ``Job`` on stdin; ends with
that pipe, and prints the name of each recovered device. Of many on a host, one probes a device per
interval; those that a person put away are left alone.
"""

import asyncio
import contextlib
import os
import shutil
import sys
from collections.abc import Awaitable, Callable

import msgspec

from tileyard.base.errors import UsageError
from tileyard.base.model import Device
from tileyard.devices.health import is_kept_away, probe_now, read_health
from tileyard.devices.reprobing import LIFELINE, LOOKS_PER_INTERVAL, Job


async def look_after(
    device: Device,
    interval_s: float,
    tell: Callable[[str], None],
    pause: Callable[[float], Awaitable[object]] = asyncio.sleep,
) -> None:
    """Probe a device whenever it is in quarantine and due; report its name when recovered. Returns
    only if the lock directory cannot be used.
    """
    was_sick = False
    while True:
        is_sick = not read_health(device).is_well
        if is_sick and is_curable(device):
            try:
                report = await probe_now(device, rest_s=interval_s)
            except UsageError:
                return
            is_sick, was_sick = not report.health.is_well, True
        if was_sick and not is_sick:
            tell(device.name)
        was_sick = is_sick
        await pause(interval_s / LOOKS_PER_INTERVAL)


def is_curable(device: Device) -> bool:
    """Whether good probes can bring a device back: it has a probe, and no person keeps it away."""
    if not device.probe or is_kept_away(device):
        return False
    path = device.env.get("PATH", os.environ.get("PATH"))
    return shutil.which(device.probe[0], path=path) is not None


async def _look_after_all(job: Job, lifeline: int) -> None:
    """Runs until the pipe ends; then a probe in progress is ended first, and its device returned."""
    main = asyncio.gather(*(look_after(device, job.interval_s, _say) for device in job.devices))
    loop = asyncio.get_running_loop()

    def end() -> None:
        loop.remove_reader(lifeline)
        main.cancel()

    loop.add_reader(lifeline, end)
    with contextlib.suppress(asyncio.CancelledError):
        await main


def _say(name: str) -> None:
    with contextlib.suppress(BrokenPipeError):  # then nobody waits any more
        os.write(1, f"{name}\n".encode())


def main() -> None:
    """Read the job from stdin and do it."""
    with open(0, "rb", closefd=False) as file:
        job = msgspec.json.decode(file.read(), type=Job)
    asyncio.run(_look_after_all(job, int(sys.argv[1].removeprefix(f"{LIFELINE}="))))


if __name__ == "__main__":
    main()

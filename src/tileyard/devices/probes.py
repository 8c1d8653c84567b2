"""Probing a device, in a process that can be killed: a hung driver hangs the probe and nothing else.

Also the other question that only a driver answers: which GPUs there are.
"""

import asyncio
import contextlib
import enum
import os
import shutil
import tempfile
from collections.abc import Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from tileyard.clock import Clock, SystemClock
from tileyard.devices.cuda import GpuList, nvml_command
from tileyard.devices.occupancy import try_hold
from tileyard.errors import WorkerLostError
from tileyard.model import Device, Record
from tileyard.processes.keeper.probing import CANNOT_TELL
from tileyard.processes.outcomes import describe_signal
from tileyard.processes.supervise import Ended, Worker, WorkerCommand

LIST_LIMIT_S = 30.0
MESSAGE_LENGTH = 300

T = TypeVar("T")


class Verdict(enum.StrEnum):
    """What a probe says. ``busy``: somebody holds the device; ``unknown``: it could not tell."""

    GOOD = "good"
    FAILED = "failed"
    BUSY = "busy"
    UNKNOWN = "unknown"


class Probe(Record):
    """One probe that was made; ``at`` is when it began, in seconds since the epoch."""

    device: str
    verdict: Verdict
    message: str
    at: float
    seconds: float = 0.0


async def probe_device(
    device: Device, *, held: bool = False, rest_s: float = 0.0, clock: Clock | None = None
) -> Probe:
    """Run the device's probe while nobody else has it, and leave nothing of it behind.

    ``held`` says that the caller holds the device already. Without that a device that is in use is
    not probed but found busy, since a probe would disturb what is measured there; so is one in
    quarantine that somebody has had within ``rest_s``.
    """
    clock = clock or SystemClock()
    at, since = clock.wall_s(), clock.monotonic_s()
    with contextlib.ExitStack() as stack:
        if held or stack.enter_context(try_hold(device, rest_s=rest_s)):
            verdict, message = await _run_probe(device)
        else:
            verdict, message = Verdict.BUSY, "somebody holds it"
    return Probe(
        device=device.name,
        verdict=verdict,
        message=message[:MESSAGE_LENGTH],
        at=at,
        seconds=clock.monotonic_s() - since,
    )


async def probe_devices(devices: Sequence[Device]) -> tuple[Probe, ...]:
    """Probe several devices at the same time; those that share a lock take turns."""
    turns = {lock: asyncio.Lock() for device in devices for lock in device.locks}

    async def probe(device: Device) -> Probe:
        async with contextlib.AsyncExitStack() as stack:
            for lock in device.locks:
                await stack.enter_async_context(turns[lock])
            return await probe_device(device)

    return tuple(await asyncio.gather(*map(probe, devices)))


async def list_gpus(limit_s: float = LIST_LIMIT_S) -> GpuList:
    """Which GPUs NVML knows, or why that cannot be told."""
    with tempfile.TemporaryDirectory(prefix="tileyard-nvml-") as folder:
        command = WorkerCommand(
            argv=nvml_command("list"),
            env=dict(os.environ),
            cwd=folder,
            log=str(Path(folder) / "log"),
        )
        try:
            async with await Worker.start(command) as worker, asyncio.timeout(limit_s):
                return await worker.receive(GpuList)
        except TimeoutError:
            return GpuList(failure=f"NVML did not answer within {limit_s:g} s")
        except WorkerLostError as error:
            return GpuList(failure=error.message)


def run_apart(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end for a caller that is not one, on a loop of its own."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(main)
    with ThreadPoolExecutor(max_workers=1) as pool:
        return pool.submit(asyncio.run, main).result()


async def _run_probe(device: Device) -> tuple[Verdict, str]:
    if not device.probe:
        return Verdict.UNKNOWN, "no probe is known for it"
    environment = {**os.environ, **device.env}
    if shutil.which(device.probe[0], path=environment.get("PATH")) is None:
        return Verdict.UNKNOWN, f"its probe {device.probe[0]} is not a program that can be run"
    with tempfile.TemporaryDirectory(prefix="tileyard-probe-") as folder:
        command = WorkerCommand(
            argv=device.probe, env=environment, cwd=folder, log=str(Path(folder) / "log")
        )
        try:
            async with await Worker.start(command) as worker:
                try:
                    async with asyncio.timeout(device.probe_limit_s):
                        ended = await worker.ended()
                except TimeoutError:
                    ended = await worker.kill(f"limit of {device.probe_limit_s:g} s")
        except WorkerLostError as error:
            return Verdict.UNKNOWN, error.message
    return _judge(ended)


def _judge(ended: Ended) -> tuple[Verdict, str]:
    """What the end of a probe's process means."""
    lines = [line.strip() for line in ended.log_tail.splitlines() if line.strip()]
    said = lines[-1] if lines else ""
    if not ended.confirmed:
        pids = ", ".join(map(str, ended.survivors)) or "none that are visible"
        return Verdict.FAILED, f"its probe left processes that do not end: {pids}"
    if ended.reason:
        return Verdict.FAILED, f"its probe ran past its {ended.reason} and was killed"
    if ended.signal is not None:
        return Verdict.FAILED, f"its probe died of {describe_signal(ended.signal)}"
    if ended.code == CANNOT_TELL:
        return Verdict.UNKNOWN, said or "its probe could not tell"
    if ended.code != 0:
        return Verdict.FAILED, said or f"its probe ended with exit code {ended.code}"
    return Verdict.GOOD, said

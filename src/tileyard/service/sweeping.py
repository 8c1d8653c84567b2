"""Builds cases inside the engine process and runs none of them: no device is asked for."""

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass

from tileyard.engine.anonymous import make_slots
from tileyard.engine.driver import Driver
from tileyard.engine.shelf import Shelf
from tileyard.engine.yard import Yard
from tileyard.events import Note, RunEnded, RunStarted, StopReason
from tileyard.model import Device
from tileyard.service.stopping import stop_when
from tileyard.settings import Settings
from tileyard.tuning.sweep import Sweep
from tileyard.workers.protocol import RunEntry


@dataclass(frozen=True, kw_only=True)
class Swept:
    """How a build of cases ended, and what a runner would need for each that could be built."""

    reason: StopReason
    entries: dict[str, RunEntry]


def sweep_slots(settings: Settings) -> tuple[Device, ...]:
    """What stands in a yard for the devices on which nothing is run."""
    return make_slots(len(settings.cores))


async def build_cases(
    sweep: Sweep, yard: Yard, begin: RunStarted, stopping: asyncio.Event, note: str = ""
) -> Swept:
    """Build every case of ``sweep``; once ``stopping`` is set nothing new is begun.

    The yard's devices are ``sweep_slots``. Its listeners hear ``begin`` first, then the ``note``, if
    there is one. How each case ended is in ``sweep.trials``. Raises ToolMissingError or UsageError where
    the target cannot be used.
    """
    shelf = Shelf(yard.devices)
    async with AsyncExitStack() as stack:
        driver = Driver(sweep, yard, begin.run, shelf)
        await driver.open()
        stack.push_async_callback(driver.close)
        yard.emit(begin)
        if note:
            yard.emit(Note(text=note))
        watching = asyncio.create_task(stop_when(stopping, driver))
        stack.callback(watching.cancel)
        async for _ in driver.trials():
            pass
        reason: StopReason = "interrupted" if stopping.is_set() else "done"
        yard.emit(RunEnded(run=begin.run, at=yard.clock.wall_s(), reason=reason))
    return Swept(reason=reason, entries=shelf.entries)

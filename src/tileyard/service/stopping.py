"""How a run is stopped from outside."""

import asyncio

from tileyard.engine.driver import Driver


async def stop_when(stopping: asyncio.Event, driver: Driver) -> None:
    """Stop a run once ``stopping`` is set."""
    await stopping.wait()
    driver.stop()

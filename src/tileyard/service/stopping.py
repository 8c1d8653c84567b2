"""How a run is stopped from outside."""

import asyncio

from tileyard.engine.driver import Driver
from tileyard.engine.yard import Listener
from tileyard.events import Note

STOPPING = (
    "stopping: what runs is finished, and nothing else is begun; Ctrl-C again ends it at once"
)


async def stop_when(stopping: asyncio.Event, driver: Driver, tell: Listener | None = None) -> None:
    """Stop a run once ``stopping`` is set, and say so."""
    await stopping.wait()
    driver.stop()
    if tell is not None:
        tell(Note(text=STOPPING))

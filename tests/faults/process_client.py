"""A client for tests of the launch: starts the engine below, says its pid, and waits."""

import asyncio
import os
import signal
import sys
from pathlib import Path

from tileyard.base.events import Note
from tileyard.processes.async_wire import AsyncChannel
from tileyard.service.client import start_engine_process


async def serve() -> None:
    """An engine that echoes until its client is gone."""
    channel = AsyncChannel.inherited()
    while (request := await channel.receive(Note)) is not None:
        await channel.send(request)
    channel.close()


def main(mode: str) -> None:
    """Be the engine, or a client that waits, or one that leaves a fork of itself behind."""
    if mode == "engine":
        asyncio.run(serve())
        sys.exit(7)
    engine = start_engine_process([sys.executable, str(Path(__file__)), "engine"], os.environ)
    engine.channel.send(Note(text="hello"))
    engine.channel.receive(Note)
    copy = os.fork() if mode == "fork" else 0
    if mode == "fork" and copy == 0:
        signal.pause()
    os.write(1, f"{engine.process.pid} {copy}\n".encode())
    signal.pause()


if __name__ == "__main__":
    main(sys.argv[1])

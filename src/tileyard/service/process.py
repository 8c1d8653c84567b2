"""The engine process: serves one client, then ends. Started by ``service.client``.

``python -m tileyard.service.process``; asyncio on the main thread, so that workers which follow
their starter's thread into death follow the process.
"""

import asyncio
import contextlib
import logging
import os
import signal
from pathlib import Path

from tileyard.errors import TileyardError
from tileyard.processes.wire import AsyncChannel
from tileyard.service.conversation import Conversation
from tileyard.service.messages import Refused, Stop, StudyEnded
from tileyard.service.tuning import Tuning
from tileyard.settings import read_settings


async def serve(channel: AsyncChannel) -> None:
    """Carry out the client's request and tell it how that ended."""
    conversation = Conversation(channel)
    start = await conversation.wait_start()
    if start is None:
        return
    tuning = Tuning(start, read_settings(os.environ, Path.cwd()), conversation)
    work = asyncio.create_task(tuning.run())

    def stop(request: Stop) -> None:
        if request.now:
            work.cancel()
        else:
            tuning.stop()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, work.cancel)
    reading = asyncio.create_task(conversation.read(stop))
    writing = asyncio.create_task(conversation.write())
    with contextlib.suppress(asyncio.CancelledError):
        try:
            conversation.tell(StudyEnded(result=await work))
        except TileyardError as error:
            conversation.tell(
                Refused(
                    code=error.code,
                    message=error.message,
                    hint=error.hint,
                    exit_status=error.exit_status,
                )
            )
    conversation.finish()
    await writing
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)


def main() -> None:
    """Serve the client that started this process."""
    logging.basicConfig(level=logging.WARNING, format="tileyard engine: %(message)s")
    asyncio.run(_main())


async def _main() -> None:
    await serve(AsyncChannel.inherited())


if __name__ == "__main__":
    main()

"""The engine process, ``python -P -m tileyard.service.process``: serves one client, then ends.
asyncio runs on the main thread, with which workers die.
"""

import asyncio
import contextlib
import logging
import os
import signal
import sys
from pathlib import Path

import msgspec

from tileyard.base.errors import TileyardError
from tileyard.base.settings import read_settings
from tileyard.processes.async_wire import AsyncChannel
from tileyard.processes.keeper.tree import go_on_with_parent_gone
from tileyard.service.bench import Bench
from tileyard.service.conversation import Conversation, Ended, Heard, Refused, Stop
from tileyard.service.opened import carry_out, unpack


async def serve() -> None:
    """Carry out the request of the client that started this process, and report how that ended."""
    conversation = Conversation(AsyncChannel.inherited())
    start = await conversation.wait_start()
    if start is None:
        return
    verb = unpack(start)
    bench = Bench(read_settings(os.environ, Path.cwd()), conversation)
    work = asyncio.create_task(carry_out(verb, bench))

    def stop(request: Stop) -> None:
        bench.stopping.set()
        if request.now:
            conversation.tell(Heard())
            work.cancel()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop, Stop(now=True))
    reading = asyncio.create_task(conversation.read(stop))
    writing = asyncio.create_task(conversation.write())
    with contextlib.suppress(asyncio.CancelledError):
        try:
            conversation.tell(Ended(result=msgspec.msgpack.encode(await work)))
        except TileyardError as error:
            conversation.tell(Refused(code=error.code, message=error.message, hint=error.hint))
    conversation.finish()
    await writing
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)


def main() -> None:
    """Serve the client that started this process."""
    go_on_with_parent_gone()
    logging.basicConfig(level=logging.WARNING, format="tileyard engine: %(message)s")
    asyncio.run(serve())
    # All is closed. To free each module would take another tenth of a second, for which the client waits.
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main()

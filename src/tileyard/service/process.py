"""The engine process: serves one client, then ends. Started by ``service.client``.

``python -P -m tileyard.service.process``; asyncio on the main thread, so that workers which follow
their starter's thread into death follow the process.
"""

import asyncio
import contextlib
import logging
import os
import signal
from pathlib import Path
from typing import assert_never

from tileyard.artifacts.objects import ObjectStore
from tileyard.engine.authors import Author, WorkerAuthor
from tileyard.engine.pass_options import WithPassOptions
from tileyard.engine.remembered import RememberedAuthor
from tileyard.errors import TileyardError
from tileyard.processes.async_wire import AsyncChannel
from tileyard.regress.static import SideBuild
from tileyard.service.choosing import choose_devices
from tileyard.service.conversation import ClientAuthor, Conversation
from tileyard.service.messages import (
    CompileEnded,
    Ended,
    Refused,
    Start,
    StartCompile,
    StartStatic,
    StartTest,
    StartTune,
    StaticEnded,
    Stop,
    StudyEnded,
    SuiteEnded,
)
from tileyard.settings import Settings, read_settings
from tileyard.tuning.request import CompileResult, StudyResult


async def serve(channel: AsyncChannel) -> None:
    """Carry out the client's request and tell it how that ended."""
    conversation = Conversation(channel)
    start = await conversation.wait_start()
    if start is None:
        return
    stopping = asyncio.Event()
    work = asyncio.create_task(_carry_out(start, conversation, stopping))

    def stop(request: Stop) -> None:
        stopping.set()
        if request.now:
            work.cancel()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop, Stop(now=True))
    reading = asyncio.create_task(conversation.read(stop))
    writing = asyncio.create_task(conversation.write())
    with contextlib.suppress(asyncio.CancelledError):
        try:
            conversation.tell(await work)
        except TileyardError as error:
            conversation.tell(Refused(code=error.code, message=error.message, hint=error.hint))
    conversation.finish()
    await writing
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)


async def _carry_out(start: Start, conversation: Conversation, stopping: asyncio.Event) -> Ended:
    match start:
        case StartTune():
            return StudyEnded(result=await _tune(start, conversation, stopping))
        case StartCompile():
            return CompileEnded(result=await _compile(start, conversation, stopping))
        case StartStatic():
            return StaticEnded(result=await _build_static(start, conversation, stopping))
        case StartTest():
            from tileyard.service.suites import SuiteRun

            settings = read_settings(os.environ, Path.cwd())
            run = SuiteRun(start, settings, conversation)
            return SuiteEnded(result=await run.run(stopping))
        case _:
            assert_never(start)


async def _tune(
    start: StartTune, conversation: Conversation, stopping: asyncio.Event
) -> StudyResult:
    settings = read_settings(os.environ, Path.cwd())
    author = _make_author(start, settings, conversation)
    try:
        await author.begin()
        # Half a second of imports, made while the author's process is making its own.
        from tileyard.service.tuning import Tuning

        return await Tuning(start, settings, author, conversation).run(stopping)
    finally:
        await author.close()


async def _compile(
    start: StartCompile, conversation: Conversation, stopping: asyncio.Event
) -> CompileResult:
    settings = read_settings(os.environ, Path.cwd())
    users: Author = ClientAuthor(conversation, settings.cores)
    if start.file:
        users = _author_of_file(start.file, settings, settings.cores, recall=start.reuse)
    author = WithPassOptions(users, start.pass_options)
    try:
        await author.begin()
        await _check_tools(start.target)
        from tileyard.service.compiling import Compiling

        return await Compiling(start, settings, author, conversation).run(stopping)
    finally:
        await author.close()


async def _build_static(
    start: StartStatic, conversation: Conversation, stopping: asyncio.Event
) -> SideBuild:
    settings = read_settings(os.environ, Path.cwd())
    of_file = _author_of_file(start.file, settings, settings.cores, recall=False)
    author = WithPassOptions(of_file, start.pass_options)
    try:
        await author.begin()
        from tileyard.service.static_building import StaticBuilding

        return await StaticBuilding(start, settings, author, conversation).run(stopping)
    finally:
        await author.close()


async def _check_tools(target: str) -> None:
    """Refuse what cannot be built here while the author's process is still importing what it needs."""
    # NumPy's import, which other requests do without.
    from tileyard.targets.registry import BUILT_IN, make_target

    if target.partition(":")[0] in BUILT_IN:
        await asyncio.to_thread(make_target(target, {}).fingerprint)


def _make_author(start: StartTune, settings: Settings, conversation: Conversation) -> Author:
    """The author, kept off the device's cores where there are others."""
    if not start.file:
        return ClientAuthor(conversation, settings.cores)
    devices = choose_devices(start.devices, start.target, settings)
    owned = {core for device in devices for core in device.cores}
    free = tuple(core for core in settings.cores if core not in owned)
    return _author_of_file(start.file, settings, free or settings.cores, recall=start.reuse)


def _author_of_file(
    name: str, settings: Settings, cores: tuple[int, ...], *, recall: bool
) -> Author:
    file, objects = Path(name), ObjectStore(settings.home / "objects")
    return RememberedAuthor(WorkerAuthor(file, settings.home, cores), file, objects, recall=recall)


def main() -> None:
    """Serve the client that started this process."""
    logging.basicConfig(level=logging.WARNING, format="tileyard engine: %(message)s")
    asyncio.run(_main())


async def _main() -> None:
    await serve(AsyncChannel.inherited())


if __name__ == "__main__":
    main()

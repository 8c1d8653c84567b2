"""Has all cases that are ready checked by one process, whose output tells of each."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

from tileyard.artifacts.keys import canonical_json
from tileyard.base.errors import TileyardError
from tileyard.base.model import Batch, Case, Device
from tileyard.engine.hosting import StepHost
from tileyard.workers.command_protocol import CheckBatch
from tileyard.workers.protocol import CaseRan, RunBatch, RunEntry

NO_DEVICE = Device(name="", kind="", identity="")


@dataclass(frozen=True)
class _Ready:
    case: Case
    entry: RunEntry
    ended: asyncio.Future[CaseRan | None]


class HotChecks:
    """The hot checks of one run. Each process runs within ``lane``, and may use ``threads`` threads."""

    def __init__(
        self, host: StepHost, lane: Callable[[], AbstractAsyncContextManager[None]], threads: int
    ) -> None:
        self._host = host
        self._lane = lane
        self._threads = threads
        self._ready: dict[str, list[_Ready]] = {}
        self._running: set[asyncio.Task[None]] = set()

    async def check(self, case: Case, entry: RunEntry) -> CaseRan | None:
        """How the check of a case ended; None if the host could not do it this way."""
        ready = _Ready(case, entry, asyncio.get_running_loop().create_future())
        hot = entry.command.hot if entry.command is not None else None
        alike = canonical_json((case.side, case.testcase, hot, entry.build))
        if alike in self._ready:
            self._ready[alike].append(ready)
        else:
            self._ready[alike] = [ready]
            task = asyncio.create_task(self._run(alike))
            self._running.add(task)
            task.add_done_callback(self._running.discard)
        return await ready.ended

    async def _run(self, alike: str) -> None:
        while self._ready[alike]:
            async with self._lane():
                group, self._ready[alike] = self._ready[alike], []
                await self._run_group(group)
        del self._ready[alike]

    async def _run_group(self, group: Sequence[_Ready]) -> None:
        left = {ready.case.key: ready.ended for ready in group if not ready.ended.done()}
        batch = RunBatch(
            batch=Batch(id="checks", cases=tuple(ready.case for ready in group)),
            entries=tuple(ready.entry for ready in group),
            plugins={},
            device=NO_DEVICE,
        )
        try:
            async for reply in self._host.follow(CheckBatch(run=batch, threads=self._threads)):
                if isinstance(reply, CaseRan) and not left[reply.case].done():
                    left[reply.case].set_result(reply)
        except TileyardError:  # each alone shows for which of them the host failed
            pass
        finally:
            for ended in left.values():
                if not ended.done():
                    ended.set_result(None)

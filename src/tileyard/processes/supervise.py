"""A worker as the engine sees it: start it, talk to it, end it, know that it is gone.

Once ``ended`` has answered, the worker has left no process, descriptor or task behind.
"""

import asyncio
import os
from collections.abc import Callable
from types import TracebackType, UnionType
from typing import Any, Final, NoReturn, Self, TypeVar, overload

from tileyard.errors import WireError, WorkerLostError, WorkerStartError
from tileyard.model import Record
from tileyard.processes.async_wire import AsyncChannel
from tileyard.processes.keeping import CONFIRM_S, KeeperLink
from tileyard.processes.records import Ended, Grant, LeaseRequest, Place, WorkerCommand
from tileyard.processes.wire import CHANNEL_VARIABLE, format_channel

__all__ = ["Ended", "Grant", "LeaseRequest", "Place", "Worker", "WorkerCommand"]

GRACE_S: Final = 0.2
KEEPER_MARGIN_S: Final = 5.0
"""How much longer than it was given a keeper may take before it is given up."""
MUTE_LIMIT_S: Final = 5.0
"""How long a worker may live on once it has closed its channel."""

T = TypeVar("T")


class Worker:
    """A started worker. An ``async with`` on it ends it, at the latest, at the end of the block."""

    def __init__(self, command: WorkerCommand, keeper: KeeperLink, channel: AsyncChannel) -> None:
        """For ``start``."""
        self.command = command
        self._keeper = keeper
        self._channel = channel
        keeper.ended.add_done_callback(lambda _: channel.finish())

    @classmethod
    async def start(
        cls,
        command: WorkerCommand,
        *,
        lock_limit_s: float | None = None,
        waiting: Callable[[Place], None] | None = None,
    ) -> Self:
        """Start a worker; return once it has its devices and runs its program; an early one has none yet.

        ``waiting`` is told its place in the queue whenever that changes.
        Raises TimeoutError if it took longer than ``lock_limit_s``, and WorkerStartError if it
        cannot be. In both cases, and if cancelled, nothing is left of it.
        """
        keeper, channel = _spawn(command)
        keeper.waiting = waiting
        worker = cls(command, keeper, channel)
        await worker._wait_for(keeper.started, lock_limit_s)
        return worker

    async def take_lease(
        self,
        memory_bytes: int,
        *,
        limit_s: float | None = None,
        waiting: Callable[[Place], None] | None = None,
    ) -> None:
        """Wait until an early worker has its devices; from then on its memory is limited.

        Raises as ``start`` does, and then nothing is left of it.
        """
        self._keeper.waiting = waiting
        self._keeper.ask_for_lease(memory_bytes)
        await self._wait_for(self._keeper.leased, limit_s)

    async def _wait_for(
        self, step: asyncio.Future[WorkerStartError | None], limit_s: float | None
    ) -> None:
        """Wait for the keeper; end the worker where it refuses, takes too long, or nobody waits."""
        is_done = False
        try:
            async with asyncio.timeout(limit_s):
                refusal = await asyncio.shield(step)
            if refusal is not None:
                raise refusal
            is_done = True
        finally:
            if not is_done:
                await self.kill("it was not wanted any more")

    @property
    def pid(self) -> int:
        """The leader of the worker's session."""
        return self._keeper.pid

    @property
    def is_over(self) -> bool:
        """It has ended, or its keeper has given it up."""
        return self._keeper.ended.done()

    @property
    def lease(self) -> int:
        """The number of its first lease, 0 where it has none."""
        return self.grants[0].number if self.grants else 0

    @property
    def grants(self) -> tuple[Grant, ...]:
        """The devices that it holds, in the order of its choices."""
        return self._keeper.grants

    async def send(self, record: Record) -> None:
        """Send one message, waiting for room. Raises WorkerLostError once the worker has ended."""
        try:
            await self._channel.send(record)
        except BrokenPipeError:
            await self._raise_lost()

    @overload
    async def receive(self, kind: type[T]) -> T: ...
    @overload
    async def receive(self, kind: UnionType) -> Any: ...  # noqa: ANN401 - the caller names the union again
    async def receive(self, kind: type[T] | UnionType) -> Any:
        """Return the next message of this kind, or of one of a union.

        Raises WorkerLostError once the worker has ended and all that it sent was received. A
        worker that sends something else, or closes its channel, is ended first: whoever catches
        the error finds ``ended`` answered.
        """
        try:
            message = await self._channel.receive(kind)
        except WireError as error:
            await self.kill(f"it sent what cannot be read: {error.message}")
            raise WorkerLostError(
                f"{self._name()} sent what cannot be read: {error.message}"
            ) from error
        if message is None:
            await self._raise_lost()
        return message

    async def ended(self) -> Ended:
        """Wait for the end of the whole tree, by itself or by ``kill``."""
        ended = await asyncio.shield(self._keeper.ended)
        self._channel.finish()  # the callback may be due only after this task
        return ended

    async def kill(
        self, reason: str, grace_s: float = GRACE_S, *, is_suspect: bool = False
    ) -> Ended:
        """End the whole tree and wait until that is confirmed, or known to fail.

        TERM to every process, KILL after ``grace_s``. The first ``reason`` counts; a further call
        can only hasten the end. Harmless once ended. ``is_suspect`` has its devices probed before
        they are given on, as they are after a crash.
        """
        self._keeper.tell_to_end(reason, grace_s, is_suspect=is_suspect)
        try:
            async with asyncio.timeout(grace_s + CONFIRM_S + KEEPER_MARGIN_S):
                return await self.ended()
        except TimeoutError:
            self._keeper.give_up()
            return await self.ended()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.kill("it was not wanted any more")

    async def _raise_lost(self) -> NoReturn:
        try:
            async with asyncio.timeout(MUTE_LIMIT_S):
                await self.ended()
        except TimeoutError:
            await self.kill("it closed its channel and went on")
        raise WorkerLostError(f"{self._name()} ended before it answered")

    def _name(self) -> str:
        return f"worker {self.pid} ({' '.join(self.command.argv[:3])})"


def _spawn(command: WorkerCommand) -> tuple[KeeperLink, AsyncChannel]:
    """A keeper and the engine's ends of the pipes to its worker; the other ends are the worker's."""
    requests_out, requests_in = os.pipe()
    replies_out, replies_in = os.pipe()
    theirs = (requests_out, replies_in)
    try:
        env = {**command.env, CHANNEL_VARIABLE: format_channel(*theirs)}
        keeper = KeeperLink(command, env, theirs)
    except WorkerStartError:
        os.close(requests_in)
        os.close(replies_out)
        raise
    finally:
        os.close(requests_out)
        os.close(replies_in)
    return keeper, AsyncChannel(replies_out, requests_in)

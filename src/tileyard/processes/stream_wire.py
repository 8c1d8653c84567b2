"""Sends the messages of ``wire`` over asyncio's streams: TCP with TLS or without, or a Unix socket."""

import asyncio
import errno
import os
from types import UnionType
from typing import Any, TypeVar, overload

from tileyard.base.model import Record
from tileyard.processes.async_wire import AsyncChannel
from tileyard.processes.wire import READ_BYTES, Inbox, encode_frame

T = TypeVar("T")


class StreamChannel:
    """As ``AsyncChannel``: one task receives, any number may send, and cancelling loses nothing.
    ``is_broken``: the connection ended although the other end, which may still be there, did not hang up.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.inbox = Inbox()
        self.is_broken = False

    async def send(self, record: Record) -> None:
        """Write one message, waiting for room. Raises BrokenPipeError if nobody can read it."""
        try:
            self._writer.write(encode_frame(record))
            await self._writer.drain()
        except (OSError, RuntimeError) as error:  # RuntimeError: closed at this end
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE)) from error

    @overload
    async def receive(self, kind: type[T]) -> T | None: ...
    @overload
    async def receive(self, kind: UnionType) -> Any: ...  # noqa: ANN401 - as in Channel
    async def receive(self, kind: type[T] | UnionType) -> Any:
        """Return what ``Channel.receive`` would; never blocks the loop."""
        while (message := self.inbox.take(kind)) is None:
            try:
                data = await self._reader.read(READ_BYTES)
            except OSError:
                self.is_broken = True
                return None
            if not data:
                return None
            self.inbox.add(data)
        return message

    def close(self) -> None:
        """Hang up at once; the task that receives wakes. Harmless when repeated."""
        self._writer.transport.abort()
        self._reader.feed_eof()


HostChannel = AsyncChannel | StreamChannel
"""What a session between hosts goes through."""

"""The messages of ``wire`` on asyncio: over pipes between processes, or over streams between hosts, TCP with
TLS or without, or a Unix socket.
"""

import asyncio
import contextlib
import errno
import os
from collections.abc import MutableMapping
from types import UnionType
from typing import Any, Self, TypeVar, overload

from tileyard.base.model import Record
from tileyard.processes.wire import READ_BYTES, Inbox, claim_channel, encode_frame

T = TypeVar("T")


class _Readiness:
    """Waits until a pipe can be read, or written; ``stop`` ends a wait early."""

    def __init__(self, fd: int, *, writable: bool) -> None:
        self._fd = fd
        self._writable = writable
        self._future: asyncio.Future[None] | None = None

    @property
    def is_waiting(self) -> bool:
        return self._future is not None

    async def wait(self) -> None:
        loop = asyncio.get_running_loop()
        future = self._future = loop.create_future()
        (loop.add_writer if self._writable else loop.add_reader)(self._fd, self.wake)
        try:
            await future
        finally:
            self.stop()

    def wake(self) -> None:
        if self._future is not None and not self._future.done():
            self._future.set_result(None)

    def stop(self) -> None:
        if self._future is not None:
            loop = self._future.get_loop()
            (loop.remove_writer if self._writable else loop.remove_reader)(self._fd)
            self.wake()
            self._future = None


class AsyncChannel:
    """The asyncio side, without tasks or threads: nothing is read unless ``receive`` waits, one task at a
    time. Sends are queued. Cancelling loses nothing: the rest of a cut ``send`` precedes the next one.
    """

    def __init__(self, read_fd: int, write_fd: int, peer_fd: int = -1) -> None:
        """Own these ends; ``peer_fd`` is a pidfd of a process whose end counts as the channel's."""
        self._read_fd = read_fd
        self._write_fd = write_fd
        self._peer_fd = peer_fd
        self._peer_gone = False
        self._peer_loop: asyncio.AbstractEventLoop | None = None
        self._inbox = Inbox()
        self._unsent = bytearray()
        self._sending = asyncio.Lock()
        self._readable = _Readiness(read_fd, writable=False)
        self._writable = _Readiness(write_fd, writable=True)
        os.set_blocking(read_fd, False)
        os.set_blocking(write_fd, False)

    @classmethod
    def inherited(cls, environ: MutableMapping[str, str] = os.environ) -> Self:
        """The channel to this process's starter; ends with it, even if a fork keeps the pipe open."""
        read_fd, write_fd, peer = claim_channel(environ)
        try:
            peer_fd = os.pidfd_open(peer)
        except OSError:  # gone already, or a kernel before 5.3, where the pipe must do
            peer_fd = -1
        channel = cls(read_fd, write_fd, peer_fd)
        channel._peer_gone = os.getppid() != peer
        return channel

    async def send(self, record: Record) -> None:
        """Write one message, waiting for room. Raises BrokenPipeError if nobody can read it."""
        frame = encode_frame(record)
        async with self._sending:
            self._unsent += frame
            while self._unsent:
                if self._write_fd < 0:
                    raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
                try:
                    del self._unsent[: os.write(self._write_fd, self._unsent)]
                except BlockingIOError:
                    await self._writable.wait()

    @overload
    async def receive(self, kind: type[T]) -> T | None: ...
    @overload
    async def receive(self, kind: UnionType) -> Any: ...  # noqa: ANN401 - as in Channel
    async def receive(self, kind: type[T] | UnionType) -> Any:
        """Return what ``Channel.receive`` would; never blocks the loop."""
        if self._readable.is_waiting:
            raise RuntimeError("another task is receiving from this channel")
        while True:
            message = self._inbox.take(kind)
            if message is not None or self._read_fd < 0:
                return message
            try:
                if not self._read():
                    return None
            except BlockingIOError:
                if self._peer_gone:
                    return None
                self._watch_peer()
                await self._readable.wait()

    def finish(self) -> None:
        """Read what has arrived, for ``receive``, then close: the other side is gone. Repeatable."""
        with contextlib.suppress(BlockingIOError):
            while self._read_fd >= 0 and self._read():
                pass
        self.close()

    def close(self) -> None:
        """Close both ends and wake the tasks that wait on them. Harmless when repeated."""
        self._readable.stop()
        self._writable.stop()
        if self._peer_loop is not None:
            self._peer_loop.remove_reader(self._peer_fd)
            self._peer_loop = None
        for fd in {self._read_fd, self._write_fd, self._peer_fd} - {-1}:
            os.close(fd)
        self._read_fd = self._write_fd = self._peer_fd = -1

    def _read(self) -> bool:
        """Read what has arrived; False at the end. Raises BlockingIOError if nothing has."""
        data = os.read(self._read_fd, READ_BYTES)
        self._inbox.add(data)
        return bool(data)

    def _watch_peer(self) -> None:
        if self._peer_fd >= 0 and self._peer_loop is None:
            self._peer_loop = asyncio.get_running_loop()
            self._peer_loop.add_reader(self._peer_fd, self._note_peer_gone)

    def _note_peer_gone(self) -> None:
        self._peer_gone = True
        if self._peer_loop is not None:  # it stays readable from now on
            self._peer_loop.remove_reader(self._peer_fd)
        self._readable.wake()


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

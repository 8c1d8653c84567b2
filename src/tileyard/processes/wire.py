"""Messages between processes: msgpack of records behind a 4-byte little-endian length, over pipes.

``Channel`` blocks and is for workers and clients; ``AsyncChannel`` is for the engine. Neither
reads ahead of its caller by more than one pipe's content, so a slow reader holds back its writer.
"""

import asyncio
import errno
import functools
import os
from collections.abc import MutableMapping
from types import UnionType
from typing import Any, Final, Self, TypeVar, overload

import msgspec

from tileyard.errors import WireError
from tileyard.model import Record

CHANNEL_VARIABLE: Final = "TILEYARD_CHANNEL"
MAX_MESSAGE_BYTES: Final = 64 << 20
_HEADER_BYTES: Final = 4
_READ_BYTES: Final = 1 << 16

T = TypeVar("T")

_encoder = msgspec.msgpack.Encoder()


@functools.cache
def _decoder(kind: Any) -> msgspec.msgpack.Decoder[Any]:  # noqa: ANN401 - a class or a union of classes
    return msgspec.msgpack.Decoder(kind)


def encode_frame(record: Record) -> bytes:
    """A record as it travels. Raises WireError if it is larger than MAX_MESSAGE_BYTES."""
    buffer = bytearray(_HEADER_BYTES)
    _encoder.encode_into(record, buffer, _HEADER_BYTES)
    size = len(buffer) - _HEADER_BYTES
    if size > MAX_MESSAGE_BYTES:
        raise WireError(
            f"a {type(record).__name__} message of {size} bytes is larger than the limit of "
            f"{MAX_MESSAGE_BYTES} bytes"
        )
    buffer[:_HEADER_BYTES] = size.to_bytes(_HEADER_BYTES, "little")
    return bytes(buffer)


def format_channel(read_fd: int, write_fd: int) -> str:
    """The value of ``TILEYARD_CHANNEL`` for a process that inherits these two ends."""
    return f"{read_fd},{write_fd},{os.getpid()}"


class _Inbox:
    """Bytes that arrived and are not yet messages."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def add(self, data: bytes) -> None:
        self._bytes += data

    def take(self, kind: Any) -> Any:  # noqa: ANN401 - the two receive() overloads give it a type
        """The next whole message, or None if it has not arrived in full."""
        if len(self._bytes) < _HEADER_BYTES:
            return None
        size = int.from_bytes(self._bytes[:_HEADER_BYTES], "little")
        if size > MAX_MESSAGE_BYTES:
            raise WireError(
                f"the other side announced a message of {size} bytes, above the limit of "
                f"{MAX_MESSAGE_BYTES} bytes"
            )
        end = _HEADER_BYTES + size
        if len(self._bytes) < end:
            return None
        body = bytes(self._bytes[_HEADER_BYTES:end])
        del self._bytes[:end]
        try:
            return _decoder(kind).decode(body)
        except msgspec.DecodeError as error:
            raise WireError(
                f"a message of {size} bytes is not what was expected: {error}"
            ) from error


def _claim_channel(environ: MutableMapping[str, str]) -> tuple[int, int, int]:
    """The ends named in the environment, kept from this process's own children."""
    value = environ.pop(CHANNEL_VARIABLE, "")
    try:
        read_fd, write_fd, peer = (int(part) for part in value.split(","))
        os.set_inheritable(read_fd, False)
        os.set_inheritable(write_fd, False)
    except (ValueError, OSError) as error:
        raise WireError(
            f"{CHANNEL_VARIABLE}={value!r} names no open channel",
            "this program is started by tileyard, not by hand",
        ) from error
    return read_fd, write_fd, peer


class Channel:
    """The blocking side. One thread may send while another receives; not more than one of each."""

    def __init__(self, read_fd: int, write_fd: int) -> None:
        self._read_fd = read_fd
        self._write_fd = write_fd
        self._inbox = _Inbox()

    @classmethod
    def inherited(cls, environ: MutableMapping[str, str] = os.environ) -> Self:
        """The channel to the process that started this one; can be taken once."""
        read_fd, write_fd, _ = _claim_channel(environ)
        return cls(read_fd, write_fd)

    def send(self, record: Record) -> None:
        """Write one message, waiting for room. Raises BrokenPipeError if nobody can read it."""
        rest = memoryview(encode_frame(record))
        while rest:
            rest = rest[os.write(self._write_fd, rest) :]

    @overload
    def receive(self, kind: type[T]) -> T | None: ...
    @overload
    def receive(self, kind: UnionType) -> Any: ...  # noqa: ANN401 - the caller names the union again
    def receive(self, kind: type[T] | UnionType) -> Any:
        """The next message, waiting for it; None once the other side is gone.

        A message that was cut short by the other side's end counts as that end. Raises WireError
        if what arrived is too large or not of this kind.
        """
        while True:
            message = self._inbox.take(kind)
            if message is not None:
                return message
            data = os.read(self._read_fd, _READ_BYTES)
            if not data:
                return None
            self._inbox.add(data)

    def close(self) -> None:
        """Close both ends, which the other side sees as the end. Harmless when repeated."""
        for fd in {self._read_fd, self._write_fd} - {-1}:
            os.close(fd)
        self._read_fd = self._write_fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Readiness:
    """Waits until a pipe can be read, or written; ``stop`` ends a wait before its time."""

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
    """The asyncio side, without tasks or threads: nothing is read unless ``receive`` waits for it.

    One task may receive at a time; sends are put in a row. A cancelled ``receive`` loses nothing;
    the rest of a message whose ``send`` was cancelled goes out before the next one.
    """

    def __init__(self, read_fd: int, write_fd: int, peer_fd: int = -1) -> None:
        """Own these ends; ``peer_fd`` is a pidfd of a process whose end counts as the channel's."""
        self._read_fd = read_fd
        self._write_fd = write_fd
        self._peer_fd = peer_fd
        self._peer_gone = False
        self._peer_loop: asyncio.AbstractEventLoop | None = None
        self._inbox = _Inbox()
        self._unsent = bytearray()
        self._sending = asyncio.Lock()
        self._readable = _Readiness(read_fd, writable=False)
        self._writable = _Readiness(write_fd, writable=True)
        os.set_blocking(read_fd, False)
        os.set_blocking(write_fd, False)

    @classmethod
    def inherited(cls, environ: MutableMapping[str, str] = os.environ) -> Self:
        """The channel to the process that started this one; it ends when that process does.

        The pipe alone would stay open while a fork of that process keeps a copy of its end.
        """
        read_fd, write_fd, peer = _claim_channel(environ)
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
                data = os.read(self._read_fd, _READ_BYTES)
            except BlockingIOError:
                if self._peer_gone:
                    return None
                self._watch_peer()
                await self._readable.wait()
                continue
            if not data:
                return None
            self._inbox.add(data)

    def finish(self) -> None:
        """Take in what had arrived, then close: for when the other side is known to be gone.

        ``receive`` still gives those messages. Harmless when repeated.
        """
        while self._read_fd >= 0:
            try:
                data = os.read(self._read_fd, _READ_BYTES)
            except BlockingIOError:
                break
            if not data:
                break
            self._inbox.add(data)
        self.close()

    def close(self) -> None:
        """Close both ends and wake who waits on them. Harmless when repeated."""
        self._readable.stop()
        self._writable.stop()
        if self._peer_loop is not None:
            self._peer_loop.remove_reader(self._peer_fd)
            self._peer_loop = None
        for fd in {self._read_fd, self._write_fd, self._peer_fd} - {-1}:
            os.close(fd)
        self._read_fd = self._write_fd = self._peer_fd = -1

    def _watch_peer(self) -> None:
        if self._peer_fd >= 0 and self._peer_loop is None:
            self._peer_loop = asyncio.get_running_loop()
            self._peer_loop.add_reader(self._peer_fd, self._note_peer_gone)

    def _note_peer_gone(self) -> None:
        self._peer_gone = True
        if self._peer_loop is not None:  # it stays readable from now on
            self._peer_loop.remove_reader(self._peer_fd)
        self._readable.wake()

"""Sends messages between processes: msgpack of records after a 4-byte little-endian length, over
pipes. ``Channel`` blocks; the engine's ``AsyncChannel`` is separate, as asyncio is slow to import.
A slow reader slows down its writer.
"""

import contextlib
import functools
import os
import select
from collections.abc import Iterator, MutableMapping
from types import UnionType
from typing import Any, Final, Self, TypeVar, overload

import msgspec

from tileyard.base.errors import WireError
from tileyard.base.model import Record

CHANNEL_VARIABLE: Final = "TILEYARD_CHANNEL"
MAX_MESSAGE_BYTES: Final = 64 << 20
_HEADER_BYTES: Final = 4
READ_BYTES: Final = 1 << 16

T = TypeVar("T")

_encoder = msgspec.msgpack.Encoder()


@functools.cache
def _decoder(kind: Any) -> msgspec.msgpack.Decoder[Any]:  # noqa: ANN401 - a class or a union of classes
    return msgspec.msgpack.Decoder(kind)


def encode_frame(record: Record) -> bytes:
    """The encoded frame of a record. Raises WireError if it is larger than MAX_MESSAGE_BYTES."""
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


@contextlib.contextmanager
def open_pipes() -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """The ends of a new channel: ours, and those for a process started in the block, each to read
    from and to write to. Theirs are closed after the block, ours if it raises.
    """
    requests_out, requests_in = os.pipe()
    replies_out, replies_in = os.pipe()
    try:
        yield (replies_out, requests_in), (requests_out, replies_in)
    except BaseException:
        os.close(requests_in)
        os.close(replies_out)
        raise
    finally:
        os.close(requests_out)
        os.close(replies_in)


class Inbox:
    """Received bytes that are not yet messages, none of which may have more than ``most_bytes``."""

    def __init__(self, most_bytes: int = MAX_MESSAGE_BYTES) -> None:
        self.most_bytes = most_bytes
        self._bytes = bytearray()

    def __len__(self) -> int:
        return len(self._bytes)

    def add(self, data: bytes) -> None:
        """Add received bytes."""
        self._bytes += data

    def take(self, kind: Any) -> Any:  # noqa: ANN401 - the two receive() overloads give it a type
        """The next whole message, or None if it has not arrived in full."""
        if len(self._bytes) < _HEADER_BYTES:
            return None
        size = int.from_bytes(self._bytes[:_HEADER_BYTES], "little")
        if size > self.most_bytes:
            raise WireError(
                f"the other side announced a message of {size} bytes, above the limit of "
                f"{self.most_bytes} bytes"
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


def claim_channel(environ: MutableMapping[str, str]) -> tuple[int, int, int]:
    """The ends named in the environment, not inherited by this process's own children."""
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


class Channel(contextlib.AbstractContextManager["Channel"]):
    """The blocking side. One thread may send while another receives; not more than one of each."""

    def __init__(self, read_fd: int, write_fd: int) -> None:
        self._read_fd = read_fd
        self._write_fd = write_fd
        self._inbox = Inbox()

    @classmethod
    def inherited(cls, environ: MutableMapping[str, str] = os.environ) -> Self:
        """The channel to the process that started this one; can be taken once."""
        read_fd, write_fd, _ = claim_channel(environ)
        return cls(read_fd, write_fd)

    @classmethod
    @contextlib.contextmanager
    def serving(cls, environ: MutableMapping[str, str] = os.environ) -> Iterator[Self]:
        """The same for a worker. The block ends quietly at the first message without a receiver."""
        with contextlib.suppress(BrokenPipeError):
            yield cls.inherited(environ)

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
        """The next message, waiting for it; None once the other side is gone, even amid a message.
        Raises WireError if it is too large or not of this kind.
        """
        while True:
            message = self._inbox.take(kind)
            if message is not None:
                return message
            data = os.read(self._read_fd, READ_BYTES)
            if not data:
                return None
            self._inbox.add(data)

    def has_news(self) -> bool:
        """Whether something has arrived, or the other side is gone: ``receive`` would not wait long."""
        return bool(self._inbox or select.select([self._read_fd], [], [], 0)[0])

    def close(self) -> None:
        """Close both ends, which the other side sees as the end. Harmless when repeated."""
        for fd in {self._read_fd, self._write_fd} - {-1}:
            os.close(fd)
        self._read_fd = self._write_fd = -1

    def __exit__(self, *_: object) -> None:
        self.close()

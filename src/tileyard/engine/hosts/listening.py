"""The run's end of connections that agents make: listens while the run goes on, and lets in those that were
expected. What strangers send is bounded in size, time and number, and disturbs nobody.
"""

import asyncio
import hashlib
import logging
import os
import socket
import ssl
import struct
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Final

from tileyard.base.errors import HomeError, ToolMissingError, UsageError, WireError
from tileyard.base.modes import make_folder
from tileyard.base.wording import count_of
from tileyard.engine.hosts.meeting import (
    MEET_LIMIT_S,
    STREAM_BYTES,
    Address,
    Arrival,
    Place,
    Ticket,
    admit,
)
from tileyard.processes.async_wire import StreamChannel
from tileyard.processes.supervise import time_limit

MOST_STRANGERS: Final = 32
"""Connections whose ends have not yet recognized each other; one more ends the oldest."""
MOST_FURTHER: Final = 32
"""Agents that may join a run beside those that it waits for."""
log = logging.getLogger(__name__)


class Listener:
    """Where the agents of one run connect to."""

    def __init__(
        self, address: Address, *, is_encrypted: bool | None = None, limit_s: float = MEET_LIMIT_S
    ) -> None:
        """Listen at an address, port 0 for any; with TLS, unless told otherwise, where it leaves this host.
        An agent is recognized within ``limit_s``. Raises UsageError, and ToolMissingError.
        """
        self._limit_s = limit_s
        self._tls, self._fingerprint = None, b""
        if is_encrypted or (is_encrypted is None and not address.is_inside):
            self._tls, self._fingerprint = make_certificate()
        self._socket = bind(address)
        port = 0 if address.path else self._socket.getsockname()[1]
        self.address = Address(host=address.host, port=port, path=address.path)
        self._arrivals: list[Arrival] = []
        self._strangers: dict[asyncio.Task[None], None] = {}
        self._accepting = asyncio.create_task(self._accept())

    def expect(self) -> Arrival:
        """Let in one more agent."""
        self._arrivals = [one for one in self._arrivals if not one.is_spent]
        arrival = Arrival(Ticket.make(self._fingerprint))
        self._arrivals.append(arrival)
        return arrival

    async def close(self) -> None:
        """Let nobody in any more. Sessions go on."""
        tasks = (self._accepting, *self._strangers)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._socket.close()
        for arrival in self._arrivals:
            if not arrival.is_spent:
                arrival.end()
        self._remove()

    def _remove(self) -> None:
        if self.address.path:
            Path(self.address.path).unlink(missing_ok=True)

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _ = await loop.sock_accept(self._socket)
            except OSError as error:  # such as too many open files
                log.info("a connection was not accepted: %s", error)
                await asyncio.sleep(0.1)
                continue
            task = loop.create_task(self._meet(connection))
            self._strangers[task] = None
            task.add_done_callback(self._strangers.pop)
            if len(self._strangers) > MOST_STRANGERS:
                next(iter(self._strangers)).cancel()
            await asyncio.sleep(0)  # or a crowd that waits would hold up all others

    async def _meet(self, connection: socket.socket) -> None:
        """Let an agent in, or end the connection."""
        try:
            async with time_limit(self._limit_s):
                channel = await self._wrap(connection)
                try:
                    await self._admit(channel)
                except BaseException:
                    channel.close()
                    raise
        except (OSError, TimeoutError, WireError) as error:
            log.info("a stranger's connection was ended: %s", str(error) or "it took too long")

    async def _wrap(self, connection: socket.socket) -> StreamChannel:
        if self.address.path:
            _require_own(connection)
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=STREAM_BYTES)
        protocol = asyncio.StreamReaderProtocol(reader)
        transport, _ = await loop.connect_accepted_socket(
            lambda: protocol,
            connection,
            ssl=self._tls,
            ssl_handshake_timeout=None if self._tls is None else MEET_LIMIT_S,
        )
        return StreamChannel(reader, asyncio.StreamWriter(transport, protocol, reader, loop))

    async def _admit(self, channel: StreamChannel) -> None:
        expected = {one.ticket: one for one in self._arrivals if one.is_open}
        arrival = expected[await admit(channel, expected)]
        if not arrival.is_open:
            raise WireError("its token was used at the same time")
        arrival.take(channel)


class AwaitedAgents:
    """Agents that somebody else starts, with the tokens in ``agents/`` of the run's data directory: ``count``
    for which the run waits, and up to MOST_FURTHER others. A token counts once: the file of an
    agent that was lost gets a new one.
    """

    def __init__(self, address: Address, count: int) -> None:
        self._address = address
        self._count = count
        self._listener: Listener | None = None
        self._folder = Path()
        self._arrivals: dict[int, Arrival] = {}
        self.notice = ""

    async def open(self, home: Path, limit_s: float) -> Sequence[Place]:
        """A place for each agent that is to come. See ``Placing``."""
        self._listener = Listener(self._address)
        self._folder = home / "agents"
        numbers = range(1, self._count + 1)
        for number in numbers:
            await self._expect(self._listener, number)
        others = f", and likewise with those up to -{self._count}" if self._count > 1 else ""
        self.notice = (
            f"waiting for {count_of(self._count, 'agent')}: "
            f"tileyard agent --connect {self._listener.address} --token-file {self._file(1)}{others}"
        )
        return [self._place(self._listener, number, limit_s) for number in numbers]

    async def wait_further(self) -> Place | None:
        """A place for one more agent, until there are MOST_FURTHER. See ``Placing``."""
        number = len(self._arrivals) + 1
        if self._listener is None or number > self._count + MOST_FURTHER:
            return None
        await self._expect(self._listener, number)
        return self._place(self._listener, number, None)

    def _place(self, listener: Listener, number: int, limit_s: float | None) -> Place:
        return Place(
            f"agent-{number}", expect=partial(self._expect, listener, number), limit_s=limit_s
        )

    async def _expect(self, listener: Listener, number: int) -> Arrival:
        """The arrival of the agent with this number; a new one has a token of its own."""
        arrival = self._arrivals.get(number)
        if arrival is None or arrival.is_spent:
            arrival = self._arrivals[number] = listener.expect()
            self._write(self._file(number), arrival)
        return arrival

    def _file(self, number: int) -> Path:
        end = Path(self._address.path).name
        if self._listener is not None:
            end = str(self._listener.address.port or end)
        return self._folder / f"{end}-{number}"

    def _write(self, file: Path, arrival: Arrival) -> None:
        """Replace the token in a file, which is whole at any time."""
        new = file.with_name(f"{file.name}.new")
        try:
            make_folder(file.parent)
            new.unlink(missing_ok=True)
            with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as out:
                out.write(f"{arrival.ticket}\n")
            new.replace(file)
        except OSError as error:
            raise HomeError(f"cannot write to {file}: {error.strerror}") from error

    async def close(self) -> None:
        """Remove the tokens. See ``Placing``."""
        for number in self._arrivals:
            self._file(number).unlink(missing_ok=True)
        if self._listener is not None:
            await self._listener.close()


def bind(address: Address) -> socket.socket:
    """A socket that listens at an address, port 0 for any. Raises UsageError."""
    try:
        if address.path:
            listening = socket.socket(socket.AF_UNIX)
            listening.bind(address.path)
            Path(address.path).chmod(0o600)
        else:
            family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
            listening = socket.create_server((address.host, address.port), family=family)
    except OSError as error:
        reason = str(error.strerror or error).partition(" (while")[0]  # it repeats the address
        raise UsageError(f"cannot listen at {address}: {reason}") from error
    listening.listen(MOST_STRANGERS)
    listening.setblocking(False)
    return listening


def _require_own(connection: socket.socket) -> None:
    """Hang up and raise WireError for a process of another user."""
    credentials = connection.getsockopt(
        socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")
    )
    user = struct.unpack("3i", credentials)[1]
    if user not in (0, os.geteuid()):
        connection.close()
        raise WireError(f"it is of the user {user}")


def make_certificate() -> tuple[ssl.SSLContext, bytes]:
    """TLS with a certificate of this run's own, and its SHA-256. Raises ToolMissingError."""
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
    except ImportError as error:
        raise ToolMissingError(
            "agents of other hosts connect with TLS, for which cryptography is not installed",
            "pip install 'tileyard[ray]'",
        ) from error
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "tileyard")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=365))
        .sign(key, hashes.SHA256())
    )
    pem, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    with tempfile.NamedTemporaryFile() as file:  # of mode 0600; OpenSSL reads it from files only
        file.write(key.private_bytes(pem, form, serialization.NoEncryption()))
        file.write(certificate.public_bytes(pem))
        file.flush()
        context.load_cert_chain(file.name)
    der = certificate.public_bytes(serialization.Encoding.DER)
    return context, hashlib.sha256(der).digest()

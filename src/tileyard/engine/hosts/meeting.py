"""How agents come to their hosts, and how an agent and its run recognize each other over a connection that
anyone may open: both prove that they know the agent's token, which neither sends, and with it the
certificate of the connection's TLS.
"""

import asyncio
import hashlib
import hmac
import ipaddress
import os
import re
import secrets
import ssl
import stat
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

import msgspec

from tileyard.base.errors import UsageError, WireError
from tileyard.base.model import Record
from tileyard.processes.async_wire import StreamChannel
from tileyard.processes.supervise import time_limit
from tileyard.processes.wire import MAX_MESSAGE_BYTES

TOKEN: Final = "TILEYARD_AGENT_TOKEN"
"""The variable with an agent's ticket."""
MEET_BYTES: Final = 4096
MEET_LIMIT_S: Final = 10.0
"""The size of a message, and the seconds, until both ends have recognized each other."""
NONCE_BYTES: Final = 32
STREAM_BYTES: Final = 1 << 20
_UNIX = "unix:"
_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Address:
    """A place to connect to: a host and a port, or a Unix socket at ``path``."""

    host: str = ""
    port: int = 0
    path: str = ""

    @classmethod
    def parse(cls, text: str) -> "Address":
        """The address of ``HOST:PORT``, ``[IPV6]:PORT`` or ``unix:PATH``. Raises UsageError."""
        if text.startswith(_UNIX) and text != _UNIX:
            return cls(path=text.removeprefix(_UNIX))
        host, _, port = text.rpartition(":")
        host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
        if not host or not (port.isascii() and port.isdecimal()) or int(port) >= 1 << 16:
            raise UsageError(f"{text!r} is no address", "they are HOST:PORT, or unix:PATH")
        return cls(host=host, port=int(port))

    @property
    def is_inside(self) -> bool:
        """Whether what is sent there stays on this host."""
        try:
            return bool(self.path) or ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{_UNIX}{self.path}" if self.path else f"{host}:{self.port}"


class Ticket(Record):
    """What one agent needs for one run: a ``token``, and the SHA-256 of the run's certificate, empty without
    TLS.
    """

    token: bytes
    fingerprint: bytes = b""

    @classmethod
    def make(cls, fingerprint: bytes) -> "Ticket":
        """A new one."""
        return cls(token=secrets.token_bytes(32), fingerprint=fingerprint)

    @classmethod
    def parse(cls, text: str, variable: str = TOKEN) -> "Ticket":
        """What ``str`` wrote, of a file or a variable. Raises UsageError, without the text."""
        parts = text.strip().split(":")
        if len(parts) > 2 or not all(_DIGEST.fullmatch(part) for part in parts):
            raise UsageError(
                f"no token is in ${variable} or the file",
                "it is 64 hexadecimal digits, or twice as many with a colon between",
            )
        token, *others = map(bytes.fromhex, parts)
        return cls(token=token, fingerprint=b"".join(others))

    def __str__(self) -> str:
        return ":".join(part.hex() for part in (self.token, self.fingerprint) if part)

    def sign(self, role: str, run: bytes, agent: bytes) -> bytes:
        """The proof of the token by the end with this role, for this connection's nonces."""
        said = msgspec.msgpack.encode((role, run, agent, self.fingerprint))
        return hmac.digest(self.token, said, "sha256")


class Challenge(Record):
    """The first message of a run."""

    nonce: bytes


class Proof(Record):
    """The agent's proof for both nonces."""

    nonce: bytes
    proof: bytes


class Welcome(Record):
    """The run's proof for both nonces."""

    proof: bytes


async def admit(channel: StreamChannel, tickets: Iterable[Ticket]) -> Ticket:
    """Recognize an agent by one of these tickets, which counts once. Raises WireError and OSError."""
    channel.inbox.most_bytes = MEET_BYTES
    run = secrets.token_bytes(NONCE_BYTES)
    await channel.send(Challenge(nonce=run))
    said = await channel.receive(Proof)
    if said is None or len(channel.inbox):
        raise WireError("it hung up, or said too much")
    for ticket in tickets:
        if hmac.compare_digest(said.proof, ticket.sign("agent", run, said.nonce)):
            await channel.send(Welcome(proof=ticket.sign("run", run, said.nonce)))
            channel.inbox.most_bytes = MAX_MESSAGE_BYTES
            return ticket
    raise WireError("it has no token of this run, or one that was used")


async def join(address: Address, ticket: Ticket) -> StreamChannel:
    """Connect to the run at an address, and recognize each other. Raises UsageError."""
    if not ticket.fingerprint and not address.is_inside:
        raise UsageError(f"a token without a certificate's digest is not used for {address}")
    try:
        async with time_limit(MEET_LIMIT_S):
            channel = await _connect(address, ticket.fingerprint)
            try:
                await _prove(channel, address, ticket)
            except BaseException:
                channel.close()
                raise
    except (OSError, TimeoutError, WireError) as error:
        raise UsageError(f"no run is met at {address}: {str(error) or 'it is silent'}") from error
    return channel


async def _connect(address: Address, fingerprint: bytes) -> StreamChannel:
    if address.path:
        return StreamChannel(*await asyncio.open_unix_connection(address.path, limit=STREAM_BYTES))
    tls = None
    if fingerprint:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        tls.minimum_version = ssl.TLSVersion.TLSv1_3
        tls.check_hostname = False
        tls.verify_mode = ssl.CERT_NONE  # what counts is the certificate itself, below
    reader, writer = await asyncio.open_connection(
        address.host, address.port, ssl=tls, limit=STREAM_BYTES
    )
    if tls is not None:
        shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True) or b""
        if not hmac.compare_digest(hashlib.sha256(shown).digest(), fingerprint):
            writer.close()
            raise UsageError(f"{address} shows another certificate than the run's")
    return StreamChannel(reader, writer)


async def _prove(channel: StreamChannel, address: Address, ticket: Ticket) -> None:
    channel.inbox.most_bytes = MEET_BYTES
    agent = secrets.token_bytes(NONCE_BYTES)
    challenge = await channel.receive(Challenge)
    if challenge is None:
        raise UsageError(f"no run is met at {address}: it hung up")
    proof = ticket.sign("agent", challenge.nonce, agent)
    await channel.send(Proof(nonce=agent, proof=proof))
    welcome = await channel.receive(Welcome)
    if welcome is None:
        raise UsageError(f"the run at {address} refuses this token: it is another's, or was used")
    if not hmac.compare_digest(welcome.proof, ticket.sign("run", challenge.nonce, agent)):
        raise UsageError(f"what is at {address} does not know this agent's token")
    channel.inbox.most_bytes = MAX_MESSAGE_BYTES


def read_ticket(file: str, variable: str = TOKEN) -> Ticket:
    """The ticket in a file, or without one in the environment, from which it is removed. Raises UsageError,
    also for a file that others may read, or may have written.
    """
    if not file:
        return Ticket.parse(os.environ.pop(variable, ""), variable)
    try:
        with Path(file).open("rb") as opened:
            status = os.fstat(opened.fileno())
            text = opened.read(MEET_BYTES).decode(errors="replace")
    except OSError as error:
        raise UsageError(f"cannot read {file}: {error.strerror}") from None
    if status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & 0o077:
        raise UsageError(f"{file} must belong to this user, and to nobody else: chmod 600 {file}")
    return Ticket.parse(text, variable)


AGENT = ("-P", "-m", "tileyard", "agent")
"""What a Python runs as an agent."""
ANY_CODE = -1000
"""As the ``lost_code`` of a place: any exit code may be that of a lost connection."""
START_LIMIT_S = 60.0
ELSEWHERE = """\
ended=
trap ended=1 HUP INT TERM
cd && scratch=$(mktemp -d -t tileyard-host-XXXXXXXX) || exit
[ "$ended" ] || "$0" "$@" --scratch "$scratch"
status=$?
rm -rf "$scratch"
exit $status
"""
"""Starts an agent of a Python with files of its own, which are removed even if it is killed. Asked to end, it
waits for the agent, which is asked, too.
"""


class Arrival:
    """An agent that is expected, and let in once, with its ticket."""

    def __init__(self, ticket: Ticket) -> None:
        self.ticket = ticket
        self.is_spent = False
        """Whether somebody has waited for it to its end: the next agent needs an arrival of its own."""
        self._came: asyncio.Future[StreamChannel | None] = asyncio.Future()

    async def wait(self) -> StreamChannel | None:
        """The channel to the agent once it has come; None if it will not."""
        channel = await asyncio.shield(self._came)
        self.is_spent = True
        return channel

    @property
    def is_open(self) -> bool:
        """Whether it may still come."""
        return not self._came.done()

    def take(self, channel: StreamChannel) -> None:
        """Note that it came."""
        self._came.set_result(channel)

    def end(self) -> None:
        """Note that it does not come, or is gone."""
        if self.is_open:
            self._came.set_result(None)
        elif (channel := self._came.result()) is not None:
            channel.close()


@dataclass(frozen=True)
class Place:
    """A host by its ``name``, and the command that starts its agent; or ``expect`` returns the arrival of
    its next agent, with a new ticket once the last one is spent. ``is_here``: this host, under a data
    directory of its own. ``lost_code``: with this exit code, for ANY_CODE with any but 0, the command did not
    reach the host, or has lost the agent, which may still run. ``limit_s``: within which an agent begins,
    None for ever. ``devices`` are those that it offers, whatever the run names, unless it is empty.
    """

    name: str
    argv: tuple[str, ...] = ()
    is_here: bool = False
    lost_code: int | None = None
    expect: Callable[[], Awaitable[Arrival]] | None = None
    limit_s: float | None = START_LIMIT_S
    devices: tuple[str, ...] = ()


class Placing(Protocol):
    """What ``--hosts`` names. ``notice``: what its user has to do once it is open; usually nothing."""

    notice: str

    async def open(self, home: Path, limit_s: float) -> Sequence[Place]:
        """The places of the agents of a run with this data directory, which waits no longer than ``limit_s``
        for devices. Raises TileyardError.
        """

    async def wait_further(self) -> Place | None:
        """The next place of those that come while the run goes on; None if there are no more."""

    async def close(self) -> None:
        """Give back what was taken for the agents, which have ended. Repeatable."""


@dataclass(frozen=True)
class NamedHosts:
    """Hosts that are there."""

    notice = ""
    places: tuple[Place, ...]

    async def open(self, _home: Path, _limit_s: float) -> Sequence[Place]:
        """The places, as they were named."""
        return self.places

    async def wait_further(self) -> Place | None:
        """None: one that is down has its place already."""
        return None

    async def close(self) -> None:
        """Do nothing."""

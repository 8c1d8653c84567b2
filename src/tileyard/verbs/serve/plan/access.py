"""Who gets an answer: checks each request before anything is read for it, and sends every answer with headers
that keep other sites out.
"""

import base64
import binascii
import hmac
import ipaddress
import os
import re
import socket
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tileyard.base.errors import ToolMissingError, UsageError
from tileyard.engine.hosts.meeting import Address

TOKEN: Final = "TILEYARD_SERVE_TOKEN"
"""The variable with the token of a server."""
LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
HEADERS: Mapping[str, str] = {
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; base-uri 'none'; form-action 'none'",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}
"""The headers of every answer, unless it has its own."""
_NO_FRAMES = "; frame-ancestors 'none'"
_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9._-]+))(?::\d{1,5})?")
_SOCK_DIAG, _BY_FAMILY, _REQUEST = 4, 20, 1
_ANY = 0xFFFFFFFF


@dataclass(frozen=True)
class Refusal:
    """Why a request is refused, and with which status and headers."""

    status: int
    why: str
    headers: Mapping[str, str] = field(default_factory=dict)


class Access:
    """The rules of one server: the names by which browsers may call it, and its ``token``. Without a token
    only processes of this user and root on this host get answers, as the kernel reports them.
    """

    def __init__(self, address: Address, names: Iterable[str], token: bytes) -> None:
        """Raises UsageError for what is no name, or if others could connect and there is no token."""
        if not token and not address.is_inside:
            raise UsageError(
                f"others can connect to {address}: a token is needed",
                f"give 64 hexadecimal digits with --token-file or in ${TOKEN}; without a token "
                "serve listens at 127.0.0.1, and ssh -L reaches it from elsewhere",
            )
        self._names = {_as_browsers_say(address.host), *map(_read_name, names)}
        self._takes_addresses = False
        if address.is_inside:
            self._names |= LOCAL_NAMES
        else:
            self._names.add(socket.gethostname().lower())
            self._takes_addresses = _is_wildcard(address.host)
        self._token = token.hex().encode()
        if not token:
            require_owners()

    def find_refusal(self, scope: Scope) -> Refusal | None:
        """Why a request is refused; None for one that gets an answer."""
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if not self._is_own_name(host):
            return Refusal(421, "this server is not known by that name: see serve --name")
        if not _is_from_here(headers, host):
            return Refusal(403, "another site's page asks for this")
        if self._token:
            if not hmac.compare_digest(_find_token(headers), self._token):
                ask = {"www-authenticate": 'Basic realm="tileyard"'}
                return Refusal(401, "this needs the token of the server", ask)
        elif find_owner(scope["client"], scope["server"]) not in (0, os.geteuid()):
            return Refusal(403, "these pages are for another user of this host")
        return None

    def _is_own_name(self, host: str) -> bool:
        name = _find_name(host)
        return name in self._names or (self._takes_addresses and _is_address(name))


class Guard:
    """Lets requests through to an application that are not refused, and completes the headers of answers."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def complete(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(raw=message["headers"])
                for name, text in HEADERS.items():
                    headers.setdefault(name, text)
                headers["content-security-policy"] += _NO_FRAMES
            await send(message)

        refusal = self._access.find_refusal(scope)
        if refusal is None:
            await self._app(scope, receive, complete)
            return
        body = f"{refusal.why}\n".encode()
        fixed = {"content-type": "text/plain; charset=utf-8", "content-length": str(len(body))}
        # A refused connection ends: what it may still send is not read.
        headers = {**refusal.headers, **fixed, "connection": "close"}
        raw = [(name.encode(), text.encode()) for name, text in headers.items()]
        await complete({"type": "http.response.start", "status": refusal.status, "headers": raw})
        await complete({"type": "http.response.body", "body": body})


def _find_name(host: str) -> str:
    """The name or address in a Host, without its port; empty if it is none."""
    found = _HOST.fullmatch(host)
    return _as_browsers_say(found[1] or found[2]) if found else ""


def _as_browsers_say(name: str) -> str:
    """A name in small letters, an address in its shortest form."""
    return str(ipaddress.ip_address(name)) if _is_address(name) else name.lower()


def _read_name(text: str) -> str:
    name = _find_name(text)
    if not name:
        raise UsageError(f"--name {text!r} is no name of a host")
    return name


def _is_from_here(headers: Headers, host: str) -> bool:
    """Whether no other site's page made a request: one that a browser says it did, or that has its Origin.
    A link that a person follows is no such request.
    """
    origin = headers.get("origin")
    if origin is not None and origin not in (f"http://{host}", f"https://{host}"):
        return False
    is_followed = headers.get("sec-fetch-mode") == "navigate"
    return is_followed or headers.get("sec-fetch-site", "none") in ("none", "same-origin")


def _find_token(headers: Headers) -> bytes:
    """The token of a request, the password of any user or a bearer's; empty if it has none."""
    kind, _, said = headers.get("authorization", "").partition(" ")
    if kind.lower() == "bearer":
        return said.strip().encode()
    if kind.lower() != "basic":
        return b""
    try:
        return base64.b64decode(said, validate=True).partition(b":")[2]
    except (binascii.Error, ValueError):
        return b""


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _is_wildcard(host: str) -> bool:
    return _is_address(host) and ipaddress.ip_address(host).is_unspecified


def require_owners() -> None:
    """Raise ToolMissingError where the kernel does not report whose connections are."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as client:
        client.connect(server.getsockname())
        if find_owner(client.getsockname(), client.getpeername()) is None:
            raise ToolMissingError(
                "this kernel does not report who connects, so a token is needed",
                f"give 64 hexadecimal digits with --token-file or in ${TOKEN}",
            )


def find_owner(client: tuple[str, int] | None, server: tuple[str, int | None] | None) -> int | None:
    """The user whose socket is the client's end of a connection within this host; None if that is unknown."""
    if client is None or server is None or server[1] is None:
        return None
    family = socket.AF_INET6 if ":" in client[0] else socket.AF_INET
    ends = (socket.inet_pton(family, host).ljust(16, b"\0") for host in (client[0], server[0]))
    wanted = struct.pack("=BBBBI", family, socket.IPPROTO_TCP, 0, 0, _ANY)  # in any state
    wanted += struct.pack("!HH16s16s", client[1], server[1], *ends)
    wanted += struct.pack("=III", 0, _ANY, _ANY)  # on any interface, without a cookie
    header = struct.pack("=IHHII", 16 + len(wanted), _BY_FAMILY, _REQUEST, 1, 0)
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, _SOCK_DIAG) as kernel:
            kernel.settimeout(1.0)
            kernel.send(header + wanted)
            answer = kernel.recv(1 << 16)
    except OSError:
        return None
    if len(answer) < 88 or struct.unpack_from("=H", answer, 4)[0] != _BY_FAMILY:
        return None
    return int(struct.unpack_from("=I", answer, 80)[0])

"""The connections of a server: bounded in number, in what they may send, and in the time that they take to
send a request and to read its answer.
"""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final, Literal

from starlette.types import ASGIApp
from uvicorn import Config, Server
from uvicorn.protocols.http.h11_impl import H11Protocol

MOST_CONNECTIONS: Final = 256
"""Connections at a time; for one more the oldest is ended that awaits something of its other end."""
REQUEST_BYTES: Final = 8 << 10
"""Most bytes of a request's line and headers."""
BUFFER_BYTES: Final = 64 << 10
"""Bytes of an answer that are kept for a reader, by the kernel and by this process each."""


@dataclass(frozen=True)
class Limits:
    """Seconds in which a request must have come completely, and after which something of what was written
    must have been read.
    """

    request_s: float = 10.0
    read_s: float = 30.0
    check_s: float = 1.0


LIMITS = Limits()


class Connection(H11Protocol):
    """A connection that ends when its other end is too slow."""

    since_s = 0.0
    """Since when it has been waiting for what it waits for now."""
    _waits_for: object = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as above it
        """Take the place of an older one, if there are too many."""
        super().connection_made(transport)
        own = transport.get_extra_info("socket")
        own.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES)
        transport.set_write_buffer_limits(BUFFER_BYTES)
        self.since_s = self.loop.time()
        others = [one for one in self.connections if isinstance(one, Connection)]
        if len(others) > MOST_CONNECTIONS:
            waiting = [one for one in others if one.awaits and one is not self]
            min(waiting, key=lambda one: one.since_s, default=self).transport.abort()

    @property
    def awaits(self) -> Literal["reader", "request", ""]:
        """What its other end has yet to do: read an answer, or send a request; empty while one is made."""
        if self.transport.get_write_buffer_size():
            return "reader"
        return "request" if self.cycle is None or self.cycle.response_complete else ""

    def check(self, limits: Limits) -> None:
        """End the connection if it has waited for too long."""
        now_s = self.loop.time()
        # Of each request there is another cycle, and a buffer changes as it is read.
        waits_for = self.awaits, self.cycle, self.transport.get_write_buffer_size()
        if waits_for != self._waits_for:
            self._waits_for, self.since_s = waits_for, now_s
        limit_s = {"reader": limits.read_s, "request": limits.request_s}.get(self.awaits)
        if limit_s is not None and now_s - self.since_s > limit_s:
            self.transport.abort()


class BoundedServer(Server):
    """Answers requests at a socket until it is stopped, which then ends at once."""

    def __init__(self, app: ASGIApp, limits: Limits) -> None:
        super().__init__(
            Config(
                app,
                loop="asyncio",
                http=Connection,
                ws="none",
                lifespan="off",
                log_config=None,
                log_level="critical",  # errors of the application are logged by itself
                access_log=False,
                proxy_headers=False,
                server_header=False,
                backlog=MOST_CONNECTIONS,
                timeout_graceful_shutdown=1,
                h11_max_incomplete_event_size=REQUEST_BYTES,
            )
        )
        self._limits = limits
        self.config.load()
        self.lifespan = self.config.lifespan_class(self.config)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to accept connections, and to watch them."""
        await super().startup(sockets)
        self._watching = asyncio.create_task(self._watch())

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End all connections, whatever is under way: nothing is lost by it."""
        self._watching.cancel()
        for connection in [*self.server_state.connections]:
            connection.transport.abort()
        await super().shutdown(sockets)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(self._limits.check_s)
            for connection in [*self.server_state.connections]:
                if isinstance(connection, Connection):
                    connection.check(self._limits)


@contextlib.asynccontextmanager
async def serving(app: ASGIApp, listening: socket.socket, limits: Limits) -> AsyncIterator[None]:
    """Answer requests at a listening socket within the block."""
    server = BoundedServer(app, limits)
    await server.startup([listening])
    ticking = asyncio.create_task(server.main_loop())
    try:
        yield
    finally:
        server.should_exit = True
        await ticking
        await server.shutdown([listening])

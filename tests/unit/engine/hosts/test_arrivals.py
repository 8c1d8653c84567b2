"""The end of a session with an agent that has connected to the run."""

import asyncio
import socket
import struct
from importlib.metadata import version
from pathlib import Path

import pytest

from tileyard.artifacts.objects import ObjectStore
from tileyard.engine.hosts import session as sessions
from tileyard.engine.hosts.meeting import Arrival, Place, Ticket
from tileyard.engine.hosts.messages import PROTOCOL, Answered, Greeting, OrderDone, WarmDevice
from tileyard.engine.hosts.session import HostSession, SessionLostError
from tileyard.processes.async_wire import StreamChannel
from tileyard.processes.wire import encode_frame

WAIT_S = 0.5


@pytest.mark.parametrize(
    ("is_cut", "least_s"), [(False, 0.0), (True, 2 * WAIT_S)], ids=["hung up", "connection cut"]
)
def test_an_agent_whose_connection_is_cut_may_still_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_cut: bool, least_s: float
) -> None:
    """Its cases go elsewhere once it must have heard nothing for long enough; at once if it hung up."""
    monkeypatch.setattr(sessions, "SILENCE_S", WAIT_S)
    monkeypatch.setattr(sessions, "GRACE_S", WAIT_S)
    monkeypatch.setattr(sessions, "BEAT_S", 3600.0)
    greeting = Greeting(version=version("tileyard"), protocol=PROTOCOL, boot="b")

    async def use() -> float:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            agent = socket.create_connection(listening.getsockname())
            run, _ = listening.accept()
        arrival = Arrival(Ticket.make(b""))
        arrival.take(StreamChannel(*await asyncio.open_connection(sock=run)))

        async def expect() -> Arrival:
            return arrival

        place = Place("agent-1", expect=expect)
        session = HostSession(place, ObjectStore(tmp_path / "objects"), tmp_path / "agent.log")
        agent.sendall(encode_frame(Answered(number=0, answer=greeting)))
        await session.open()
        heard_s = session._heard_s
        if is_cut:  # as by a device between both ends
            agent.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        agent.close()
        with pytest.raises(SessionLostError, match="host agent-1: its agent is gone"):
            await session.ask(WarmDevice(device="cpu:0"), OrderDone)
        took_s = asyncio.get_running_loop().time() - heard_s
        await session.close()
        return took_s

    assert asyncio.run(use()) >= least_s

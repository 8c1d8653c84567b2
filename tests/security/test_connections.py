"""Connections to a run that listens for its agents: who gets in, and what strangers can do."""

import asyncio
import contextlib
import os
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.conftest import CommandLine
from tests.doubling import write_doubling
from tests.security.conftest import User

from tileyard.base.errors import UsageError, WireError
from tileyard.base.model import Record
from tileyard.engine.hosts.listening import MOST_STRANGERS, Listener, make_certificate
from tileyard.engine.hosts.meeting import (
    MEET_BYTES,
    MEET_LIMIT_S,
    Address,
    Arrival,
    Challenge,
    Proof,
    Ticket,
    Welcome,
    join,
    read_ticket,
)
from tileyard.processes.async_wire import StreamChannel
from tileyard.processes.wire import MAX_MESSAGE_BYTES, encode_frame

HERE = Address(host="127.0.0.1")


class Said(Record):
    """What the ends of a session say to each other here."""

    text: str


@contextlib.asynccontextmanager
async def listening(
    address: Address = HERE, *, is_encrypted: bool = False, limit_s: float = MEET_LIMIT_S
) -> AsyncIterator[Listener]:
    """A run that listens, until the block ends."""
    listener = Listener(address, is_encrypted=is_encrypted, limit_s=limit_s)
    try:
        yield listener
    finally:
        await listener.close()


@contextlib.asynccontextmanager
async def standing_between(
    run: Address, seen: list[bytes], told: list[bytes]
) -> AsyncIterator[Address]:
    """Something between an agent and its run, which keeps what the first and the second say."""

    async def copy(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter, kept: list[bytes]
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 16):
                kept.append(data)
                writer.write(data)
        writer.close()

    async def stand(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reader_of_run, writer_to_run = await asyncio.open_connection(run.host, run.port)
        await asyncio.gather(copy(reader, writer_to_run, seen), copy(reader_of_run, writer, told))

    async with serving(stand) as address:
        yield address


@contextlib.asynccontextmanager
async def serving(
    answer: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[Address]:
    """A server of the test's own."""
    answering = set[asyncio.Task[None]]()

    async def answer_one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if task := asyncio.current_task():
            answering.add(task)
        with contextlib.suppress(OSError):
            await answer(reader, writer)
        writer.transport.abort()

    server = await asyncio.start_server(answer_one, HERE.host, 0, ssl=tls)
    try:
        yield Address(host=HERE.host, port=server.sockets[0].getsockname()[1])
    finally:
        server.close()
        await asyncio.gather(*answering)


async def require_session(arrival: Arrival, agent: StreamChannel) -> None:
    """Hold both ends to be the ends of one session."""
    run = await arrival.wait()
    assert run is not None
    await agent.send(Said(text="found"))
    await run.send(Said(text="go on" * MEET_BYTES))  # more than before they had met
    assert await run.receive(Said) == Said(text="found")
    assert await agent.receive(Said) == Said(text="go on" * MEET_BYTES)
    agent.close()
    assert await run.receive(Said) is None
    run.close()


async def is_hung_up(reader: asyncio.StreamReader) -> bool:
    """Whether the other end hangs up, after what it says first."""
    with contextlib.suppress(OSError):
        while await reader.read(1 << 16):
            pass
    return True


@pytest.mark.parametrize(
    "way", ["plain", "unix", pytest.param("encrypted", marks=pytest.mark.slow)]
)
def test_an_agent_gets_in_once_with_its_token(tmp_path: Path, way: str) -> None:
    """Another's token, none, and one that was used are refused in a line; a session goes on meanwhile."""
    address = Address(path=str(tmp_path / "socket")) if way == "unix" else HERE

    async def use() -> None:
        async with listening(address, is_encrypted=way == "encrypted") as listener:
            arrival = listener.expect()
            other = Ticket(token=bytes(32), fingerprint=arrival.ticket.fingerprint)
            with pytest.raises(UsageError, match="refuses this token: it is another's, or was"):
                await join(listener.address, other)
            agent = await join(listener.address, arrival.ticket)
            with pytest.raises(UsageError, match="refuses this token"):
                await join(listener.address, arrival.ticket)
            await require_session(arrival, agent)

    asyncio.run(use())
    assert not (tmp_path / "socket").exists()


def test_what_was_said_in_one_connection_is_refused_in_another() -> None:
    """An agent's proof by the run, and the run's by the agent; neither ever sends the token."""
    seen, told = list[bytes](), list[bytes]()

    async def use() -> None:
        async with (
            listening() as listener,
            standing_between(listener.address, seen, told) as between,
        ):
            arrival, later = listener.expect(), listener.expect()
            agent = await join(between, arrival.ticket)
            said = b"".join(seen)
            await require_session(arrival, agent)
            assert arrival.ticket.token not in said + b"".join(told)

            reader, writer = await asyncio.open_connection(HERE.host, listener.address.port)
            writer.write(said)
            assert await is_hung_up(reader)
            writer.close()
            assert later.is_open

        async def repeat(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"".join(told))
            await is_hung_up(reader)

        async with serving(repeat) as address:
            with pytest.raises(UsageError, match="does not know this agent's token"):
                await join(address, arrival.ticket)

    asyncio.run(use())


def test_another_certificate_ends_the_connection_before_anything_is_said() -> None:
    """One that stands between them has none that the agent takes, and none without TLS."""
    heard = list[bytes]()

    async def hear(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.read(1 << 16))

    async def use() -> None:
        own, other = make_certificate(), make_certificate()
        async with serving(hear, other[0]) as address:
            with pytest.raises(UsageError, match="shows another certificate than the run's"):
                await join(address, Ticket.make(own[1]))
        async with serving(hear) as address:
            with pytest.raises(UsageError, match="no run is met at"):
                await join(address, Ticket.make(own[1]))
        with pytest.raises(UsageError, match=r"is not used for 192\.0\.2\.1:9"):
            await join(Address(host="192.0.2.1", port=9), Ticket.make(b""))

    asyncio.run(use())
    assert not any(b"proof" in one for one in heard)


async def say_after_challenge(address: Address, say: Callable[[Challenge], bytes]) -> None:
    """Answer a run's challenge, upon which it hangs up."""
    reader, writer = await asyncio.open_connection(address.host, address.port)
    challenge = await StreamChannel(reader, writer).receive(Challenge)
    assert challenge is not None
    writer.write(say(challenge))
    said = await reader.read(1 << 16)
    writer.close()
    assert said == b""


def test_a_proof_that_was_asked_for_elsewhere_is_refused() -> None:
    """It is for another run's number: what stands between them cannot ask the agent on the run's behalf."""
    asked = list[Proof]()

    async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        channel = StreamChannel(reader, writer)
        await channel.send(Challenge(nonce=bytes(32)))
        proof = await channel.receive(Proof)
        assert proof is not None
        asked.append(proof)

    async def use() -> None:
        async with listening() as listener, serving(ask) as address:
            arrival = listener.expect()
            with pytest.raises(UsageError, match="refuses this token"):
                await join(address, arrival.ticket)
            await say_after_challenge(listener.address, lambda _: encode_frame(asked[0]))
            await require_session(arrival, await join(listener.address, arrival.ticket))

    asyncio.run(use())


def test_an_agent_that_does_not_wait_for_the_proof_of_its_run_is_refused() -> None:
    """Nothing that it sends is kept before both have recognized each other."""

    async def use() -> None:
        async with listening() as listener:
            arrival = listener.expect()

            def say(challenge: Challenge) -> bytes:
                proof = arrival.ticket.sign("agent", challenge.nonce, bytes(32))
                return encode_frame(Proof(nonce=bytes(32), proof=proof)) + b"more"

            await say_after_challenge(listener.address, say)
            assert arrival.is_open

    asyncio.run(use())


JUNK = {
    "another protocol": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "more than 4 KiB": (MEET_BYTES + 1).to_bytes(4, "little"),
    "no message": encode_frame(Said(text="?")),
}


@pytest.mark.parametrize("junk", JUNK)
def test_what_is_no_proof_is_hung_up_on_at_once(junk: str) -> None:
    """Whatever is announced, nothing of it is waited for."""

    async def use() -> None:
        async with listening() as listener, asyncio.timeout(10):
            arrival = listener.expect()
            reader, writer = await asyncio.open_connection(HERE.host, listener.address.port)
            writer.write(JUNK[junk])
            assert await is_hung_up(reader)
            writer.close()
            await require_session(arrival, await join(listener.address, arrival.ticket))

    asyncio.run(use())


def test_a_message_above_the_limit_ends_the_session_in_one_line() -> None:
    """Once it is announced, before any of it is kept."""

    async def use() -> None:
        async with listening() as listener:
            arrival = listener.expect()
            agent = await join(listener.address, arrival.ticket)
            agent._writer.write((MAX_MESSAGE_BYTES + 1).to_bytes(4, "little"))
            run = await arrival.wait()
            assert run is not None
            with pytest.raises(WireError, match=r"announced a message of 67108865 bytes, above"):
                await run.receive(Said)
            run.close()
            assert await agent.receive(Said) is None
            agent.close()

    asyncio.run(use())


@pytest.mark.parametrize("is_encrypted", [False, True])
def test_who_is_slow_is_hung_up_on(is_encrypted: bool) -> None:
    """Also in the middle of TLS's own first messages."""

    async def use() -> None:
        async with listening(is_encrypted=is_encrypted, limit_s=0.1) as listener:
            reader, writer = await asyncio.open_connection(HERE.host, listener.address.port)
            writer.write(b"\x16")
            assert await is_hung_up(reader)
            writer.close()

    asyncio.run(use())


def test_a_crowd_of_strangers_keeps_nobody_out() -> None:
    """Only so many connections wait; the oldest is ended for one more, and agents get in."""

    async def use() -> None:
        async with listening() as listener:
            arrival = listener.expect()
            crowd = [
                await asyncio.open_connection(HERE.host, listener.address.port)
                for _ in range(MOST_STRANGERS + 8)
            ]
            await require_session(arrival, await join(listener.address, arrival.ticket))
            assert len(listener._strangers) <= MOST_STRANGERS
            assert all([await is_hung_up(reader) for reader, _ in crowd[:8]])
            for _, writer in crowd:
                writer.close()

    asyncio.run(use())


@pytest.mark.parametrize("said", [Challenge(nonce=bytes(32)), Welcome(proof=bytes(32))])
def test_an_agent_trusts_nobody_who_only_answers(said: Record) -> None:
    """What does not know the token gets a proof of it, and neither the token nor a session."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(encode_frame(said))
        writer.write(encode_frame(Welcome(proof=bytes(32))))
        await is_hung_up(reader)

    async def use() -> None:
        async with serving(answer) as address:
            with pytest.raises(UsageError, match=r"no run is met|does not know"):
                await join(address, Ticket.make(b""))

    asyncio.run(use())


def test_another_user_does_not_reach_a_unix_socket(
    tmp_path: Path, users: tuple[User, User]
) -> None:
    """Its mode keeps B out; where B gets through, the kernel says who B is, before any message."""
    path = tmp_path / "socket"

    def connect() -> bytes:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(path))
            return connection.recv(1)

    tmp_path.chmod(0o755)

    async def use() -> list[str]:
        async with listening(Address(path=str(path))):
            answers = [await asyncio.to_thread(users[1].call, connect)]
            path.chmod(0o666)
            return [*answers, await asyncio.to_thread(users[1].call, connect)]

    shut, open_ = asyncio.run(use())
    assert shut.startswith("PermissionError")
    assert open_ == "b''"


def test_tokens_are_read_from_files_of_their_owner_alone(tmp_path: Path) -> None:
    """Or from the environment, where what the agent starts does not find it."""
    ticket = Ticket.make(bytes(range(32)))
    file = tmp_path / "token"
    file.write_text(f"{ticket}\n", encoding="utf-8")
    for mode in (0o644, 0o640, 0o604):
        file.chmod(mode)
        with pytest.raises(UsageError, match=f"must belong to this user.*: chmod 600 {file}"):
            read_ticket(str(file))
    file.chmod(0o600)
    assert read_ticket(str(file)) == ticket
    if os.geteuid() == 0:
        os.chown(file, 65534, -1)
        with pytest.raises(UsageError, match="must belong to this user"):
            read_ticket(str(file))
        os.chown(file, 0, -1)
    file.write_text("f" * 63, encoding="utf-8")
    with pytest.raises(UsageError) as caught:
        read_ticket(str(file))
    assert "f" * 9 not in str(caught.value)
    with pytest.raises(UsageError, match=r"cannot read .*: No such file"):
        read_ticket(str(tmp_path / "none"))
    os.environ["TILEYARD_AGENT_TOKEN"] = str(ticket)
    assert read_ticket("") == ticket
    with pytest.raises(UsageError, match="no token"):
        read_ticket("")


@pytest.mark.slow
def test_a_run_waits_for_agents_that_somebody_starts(cli: CommandLine) -> None:
    """Each has the token of a file that only its owner reads; another is one line, and disturbs none."""
    write_doubling(cli.cwd, {"a": 32, "b": 64})
    folder = cli.home / "agents"
    hosts = ("--hosts", "listen:127.0.0.1:0,2", "--queue-limit", "60s")
    with ThreadPoolExecutor() as pool:  # of one command: the copies of a process come one by one
        run = pool.submit(cli.run, "test", "double.py", *hosts)
        while len(files := sorted(folder.glob("*-[12]"))) < 2 or not files[1].stat().st_size:
            assert not run.done(), run.result()
        assert [file.stat().st_mode & 0o777 for file in files] == [0o600, 0o600]
        address = f"127.0.0.1:{files[0].name.partition('-')[0]}"
        agent = ("agent", "--connect", address, "--scratch")
        strange = cli.run(*agent, "strange", TILEYARD_AGENT_TOKEN="0" * 64)
        assert (strange.returncode, strange.stderr.count("\n")) == (2, 1), strange.stderr
        agents = [cli.start(*agent, file.name, "--token-file", str(file)) for file in files]
        done = run.result()
    for one in agents:
        one.communicate(timeout=30)
        assert one.returncode == 0
    assert done.returncode == 0, done.stderr
    assert (
        f"waiting for 2 agents: tileyard agent --connect {address} --token-file {files[0]}, "
        in done.stdout
    )
    assert "2 cases  2 slots" in done.stdout
    assert "2  passed" in done.stdout
    assert not [*folder.iterdir()]
    assert not [*cli.cwd.glob("[0-9s]*-[12]"), *cli.cwd.glob("strange")]

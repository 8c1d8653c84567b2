"""Messages over pipes: whole, in order, bounded, and with a clear end."""

import asyncio
import os
from collections.abc import Iterator

import pytest

from tileyard.base.errors import WireError
from tileyard.base.events import Note
from tileyard.base.model import Digest, Record
from tileyard.processes import wire
from tileyard.processes.async_wire import AsyncChannel
from tileyard.processes.wire import Channel, encode_frame, format_channel


class Ask(Record, tag="ask"):
    """One of two kinds of message."""

    number: int


class Blob(Record, tag="blob"):
    """The other kind."""

    content: bytes


@pytest.fixture
def ends() -> Iterator[tuple[Channel, Channel]]:
    """Two connected blocking channels."""
    a_read, b_write = os.pipe()
    b_read, a_write = os.pipe()
    with Channel(a_read, a_write) as here, Channel(b_read, b_write) as there:
        yield here, there


def test_messages_arrive_whole_and_in_order(ends: tuple[Channel, Channel]) -> None:
    """Messages of several kinds come out as they went in."""
    here, there = ends
    expected = [Ask(number=1), Blob(content=b"x" * 5000), Ask(number=2)]
    for message in expected:
        here.send(message)
    assert [there.receive(Ask | Blob) for _ in expected] == expected


def test_no_more_messages_is_none(ends: tuple[Channel, Channel]) -> None:
    """Once the other side is closed, what had arrived is received and then None."""
    here, there = ends
    here.send(Ask(number=1))
    here.close()
    expected = [Ask(number=1), None, None]
    assert [there.receive(Ask) for _ in expected] == expected


def test_a_message_cut_short_counts_as_the_end() -> None:
    """A sender that dies within a message leaves nothing that could be taken for one."""
    read_fd, write_fd = os.pipe()
    os.write(write_fd, encode_frame(Blob(content=b"x" * 100))[:-1])
    os.close(write_fd)
    with Channel(read_fd, -1) as channel:
        assert channel.receive(Blob) is None


def test_a_message_above_the_limit_is_refused_by_its_sender(
    ends: tuple[Channel, Channel], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names the kind of message, its size and the limit."""
    monkeypatch.setattr(wire, "MAX_MESSAGE_BYTES", 1000)
    with pytest.raises(WireError, match=r"a Blob message of 2\d\d\d bytes .* limit of 1000 bytes"):
        ends[0].send(Blob(content=b"x" * 2000))


def test_an_announced_size_above_the_limit_is_refused_by_its_receiver() -> None:
    """Garbage on the pipe costs no memory."""
    read_fd, write_fd = os.pipe()
    with Channel(read_fd, write_fd) as channel:
        os.write(write_fd, b"\xff\xff\xff\xff")
        with pytest.raises(WireError, match="4294967295 bytes"):
            channel.receive(Ask)


def test_a_message_of_another_kind_is_refused(ends: tuple[Channel, Channel]) -> None:
    """What was not expected is an error and not a wrong record."""
    ends[0].send(Note(text="hello"))
    with pytest.raises(WireError, match="not what was expected"):
        ends[1].receive(Ask)


def test_an_inherited_channel_is_taken_once_and_kept_from_children() -> None:
    """The variable is gone from the environment, and both ends are closed on exec."""
    read_fd, write_fd = os.pipe()
    os.set_inheritable(read_fd, True)
    os.set_inheritable(write_fd, True)
    environ = {"TILEYARD_CHANNEL": format_channel(read_fd, write_fd)}
    with Channel.inherited(environ) as channel:
        assert environ == {}
        assert not os.get_inheritable(read_fd)
        assert not os.get_inheritable(write_fd)
        channel.send(Ask(number=3))
        assert channel.receive(Ask) == Ask(number=3)


@pytest.mark.parametrize("value", ["", "3", "a,b,c", "777,778,1"])
def test_a_program_started_by_hand_says_so(value: str) -> None:
    """Without a usable channel there is one clear line."""
    with pytest.raises(WireError, match="not by hand"):
        Channel.inherited({"TILEYARD_CHANNEL": value})


# ---- asyncio --------------------------------------------------------------------------------


def connect() -> tuple[AsyncChannel, AsyncChannel]:
    """Two connected channels on the running loop."""
    a_read, b_write = os.pipe()
    b_read, a_write = os.pipe()
    return AsyncChannel(a_read, a_write), AsyncChannel(b_read, b_write)


async def settle() -> None:
    """Let everything that can go on without outside help do so."""
    for _ in range(20):
        await asyncio.sleep(0)


def test_messages_larger_than_a_pipe_pass_both_ways() -> None:
    """Sender and receiver take turns on the loop until all is through."""

    async def main() -> None:
        here, there = connect()
        expected = Blob(content=os.urandom(1 << 20))
        _, got = await asyncio.gather(here.send(expected), there.receive(Blob))
        assert got == expected
        _, back = await asyncio.gather(there.send(expected), here.receive(Blob))
        assert back == expected
        here.close()
        there.close()

    asyncio.run(main())


def test_a_sender_waits_for_a_slow_receiver() -> None:
    """No more than a pipe's content is taken off a sender's hands, and order is kept."""

    async def main() -> None:
        here, there = connect()
        expected = [Blob(content=bytes([i]) * 100_000) for i in range(3)]
        sends = [asyncio.create_task(here.send(message)) for message in expected]
        await settle()
        assert not any(task.done() for task in sends)
        assert [await there.receive(Blob) for _ in expected] == expected
        await asyncio.gather(*sends)
        here.close()
        there.close()

    asyncio.run(main())


def test_a_cancelled_receive_loses_nothing() -> None:
    """The next receive gets the message for which the cancelled one had waited."""

    async def main() -> None:
        here, there = connect()
        waiting = asyncio.create_task(there.receive(Ask))
        await settle()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await here.send(Ask(number=1))
        assert await there.receive(Ask) == Ask(number=1)
        here.close()
        there.close()

    asyncio.run(main())


def test_a_cancelled_send_does_not_garble_the_next() -> None:
    """What was half sent is completed before another message begins."""

    async def main() -> None:
        here, there = connect()
        big, small = Blob(content=b"a" * 200_000), Blob(content=b"b")
        sending = asyncio.create_task(here.send(big))
        await settle()
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        second = asyncio.create_task(here.send(small))
        assert [await there.receive(Blob), await there.receive(Blob)] == [big, small]
        await second
        here.close()
        there.close()

    asyncio.run(main())


def test_closing_wakes_those_who_wait() -> None:
    """A receiver gets None and a sender BrokenPipeError, instead of waiting for ever."""

    async def main() -> None:
        here, there = connect()
        receiving = asyncio.create_task(here.receive(Ask))
        sending = asyncio.create_task(here.send(Blob(content=b"x" * 200_000)))
        await settle()
        here.close()
        assert await receiving is None
        with pytest.raises(BrokenPipeError):
            await sending
        there.close()

    asyncio.run(main())


def test_finishing_keeps_what_had_arrived() -> None:
    """Messages sent before the other side's end are received after both ends are closed."""

    async def main() -> None:
        here, there = connect()
        expected = [Ask(number=1), Ask(number=2), None]
        await here.send(Ask(number=1))
        await here.send(Ask(number=2))
        here.close()
        there.finish()
        assert [await there.receive(Ask) for _ in expected] == expected

    asyncio.run(main())


def test_sending_to_nobody_is_an_error() -> None:
    """A closed reader is noticed by the sender."""

    async def main() -> None:
        here, there = connect()
        there.close()
        with pytest.raises(BrokenPipeError):
            await here.send(Ask(number=1))
        here.close()

    asyncio.run(main())


def test_a_starter_that_is_gone_already_is_noticed() -> None:
    """A channel inherited from a process that has died meanwhile gives what it sent, then None."""

    async def main() -> None:
        read_fd, write_fd = os.pipe()  # both kept open, as by a fork of that process
        os.write(write_fd, encode_frame(Ask(number=1)))
        stranger = os.getpid()  # in any case not this process's parent
        channel = AsyncChannel.inherited({"TILEYARD_CHANNEL": f"{read_fd},{write_fd},{stranger}"})
        expected = [Ask(number=1), None]
        assert [await channel.receive(Ask) for _ in expected] == expected
        channel.close()

    asyncio.run(main())


def test_two_receivers_are_refused() -> None:
    """A message must not go to whoever happens to be first."""

    async def main() -> None:
        here, there = connect()
        first = asyncio.create_task(here.receive(Ask))
        await settle()
        with pytest.raises(RuntimeError, match="another task"):
            await here.receive(Ask)
        await there.send(Ask(number=1))
        assert await first == Ask(number=1)
        here.close()
        there.close()

    asyncio.run(main())


def test_digest_fields_survive() -> None:
    """Named types travel as the plain values they are."""

    class Named(Record, tag="named"):
        digest: Digest

    read_fd, write_fd = os.pipe()
    expected = Named(digest=Digest("abc"))
    with Channel(read_fd, write_fd) as channel:
        channel.send(expected)
        assert channel.receive(Named) == expected


def test_a_worker_that_nobody_hears_ends_quietly(capfd: pytest.CaptureFixture[str]) -> None:
    """At its first message, whatever it would have gone on to do; other errors are its own."""
    a_read, b_write = os.pipe()
    b_read, a_write = os.pipe()
    os.close(b_read)
    reached = []
    with Channel.serving({wire.CHANNEL_VARIABLE: f"{a_read},{a_write},0"}) as channel:
        reached.append("before")
        channel.send(Ask(number=1))
        reached.append("after")
    channel.close()
    os.close(b_write)
    assert reached == ["before"]
    assert capfd.readouterr() == ("", "")

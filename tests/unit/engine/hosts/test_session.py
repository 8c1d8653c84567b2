"""Sessions with real agents: objects, refusals, other versions, and their ends."""

import asyncio
import contextlib
import os
import shlex
import socket
import stat
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

import msgspec
import psutil
import pytest

from tileyard.artifacts.objects import ObjectStore, digest_bytes
from tileyard.base.errors import HostAbsentError, ToolMissingError, UsageError
from tileyard.base.events import Event, HostJoined, HostLost, Note
from tileyard.base.model import Batch, Device, Digest
from tileyard.base.settings import Settings
from tileyard.devices.holding import join_devices
from tileyard.engine.hosts import agent as agents
from tileyard.engine.hosts import session as sessions
from tileyard.engine.hosts import slots
from tileyard.engine.hosts.building import HostBuilders
from tileyard.engine.hosts.listening import MOST_FURTHER
from tileyard.engine.hosts.meeting import (
    AGENT,
    ANY_CODE,
    ELSEWHERE,
    Address,
    NamedHosts,
    Place,
    Ticket,
    join,
)
from tileyard.engine.hosts.messages import (
    PROTOCOL,
    Answered,
    DevicesFound,
    FindDevices,
    Greeting,
    ObjectPart,
    ObjectsWanted,
    OfferObjects,
    OrderDone,
    ReleaseDevice,
    RunOnDevice,
    WarmDevice,
)
from tileyard.engine.hosts.naming import parse_hosts
from tileyard.engine.hosts.parts import PART_BYTES
from tileyard.engine.hosts.session import HostSession, SessionLostError
from tileyard.engine.hosts.slots import RemoteDevices, RemoteSlot
from tileyard.engine.provider import LeaseLostError, Slot, Waiting
from tileyard.processes.async_wire import AsyncChannel
from tileyard.processes.keeper_line import CI_RUNS, JOB, find_job
from tileyard.processes.wire import encode_frame


@contextlib.asynccontextmanager
async def opened(folder: Path, place: Place | None = None) -> AsyncIterator[HostSession]:
    """A session with an agent of this machine, of a run with its objects in ``folder``."""
    here = Place("local-1", (sys.executable, *AGENT), is_here=True)
    session = HostSession(place or here, ObjectStore(folder / "objects"), folder / "agent.log")
    await session.open()
    try:
        yield session
    finally:
        await session.close()


def test_objects_go_there_and_back_once_and_whole(tmp_path: Path) -> None:
    """In parts, verified on arrival; what is offered again is not asked for; other content is refused."""
    objects = ObjectStore(tmp_path / "objects")
    blobs = [b"", b"small", os.urandom(2 * PART_BYTES), os.urandom(2 * PART_BYTES + 1)]
    digests = [objects.put_bytes(blob) for blob in blobs]
    other = digest_bytes(b"what it should be")

    async def use() -> tuple[int, int, ObjectsWanted]:
        async with opened(tmp_path) as session:
            await session.send_objects([*digests, digests[1], Digest("")], [])
            await session.send_objects(digests, [])
            with pytest.raises(UsageError, match="arrived with other content"):
                await session.ask(ObjectPart(digest=other, data=b"?", is_last=True), OrderDone)
            for digest in digests[1:]:
                objects.path(digest).unlink()
            await session.fetch_objects([*digests, digests[1]])
            with pytest.raises(UsageError, match=f"object {other} is missing"):
                await session.fetch_objects([other])
            offer = OfferObjects(digests=(*digests, other), builds={})
            wanted = await session.ask(offer, ObjectsWanted)
            return session.sent, session.fetched, wanted

    sent, fetched, wanted = asyncio.run(use())
    assert (sent, fetched) == (len(blobs), len(blobs) - 1)
    assert [objects.get_bytes(digest) for digest in digests] == blobs
    assert wanted.digests == (other,)


def test_what_was_not_offered_is_refused_and_a_lost_agent_is_a_lost_lease(tmp_path: Path) -> None:
    """Orders that cannot be carried out are one line; once the agent is gone, so is each device."""

    async def use() -> None:
        async with opened(tmp_path) as session:
            with pytest.raises(UsageError, match="host local-1: device 'cpu:7' was not offered"):
                await session.ask(WarmDevice(device="cpu:7"), OrderDone)
            order = FindDevices(names=("cpu",), title="", queue_limit_s=1.0, plugins={})
            found = await session.ask(order, agents.DevicesFound)
            slot = RemoteSlot(None, session, found.devices[0], 100)  # type: ignore[arg-type]  # sends nothing
            assert slot.device.name == "cpu:0@local-1"
            assert (min(slot.device.cores) >= 100, slot.device.locks) == (True, ())
            assert session._process is not None
            session._process.kill()
            with pytest.raises(LeaseLostError, match="host local-1: its agent is gone"):
                await slot.acquire(0, lambda _: None)
            with pytest.raises(SessionLostError):
                await session.ask(WarmDevice(device="cpu:0"), OrderDone)
            await slot.warm()
            await slot.release()

    asyncio.run(use())


SAYS = "import sys; sys.stdout.buffer.write(bytes.fromhex(sys.argv[1])); sys.stdout.flush(); sys.stdin.read()"


@pytest.mark.parametrize(
    ("says", "complaint"),
    [
        (
            encode_frame(Answered(number=0, answer=Greeting(version="9.9", protocol=1, boot="b"))),
            r"host far has Tileyard 9.9 \(protocol 1\), and this run is of .* \(protocol 1\)",
        ),
        (b"Welcome to this host!\n" * 9, "host far: no agent began there"),
    ],
)
def test_what_is_no_agent_of_this_version_is_refused(
    tmp_path: Path, says: bytes, complaint: str
) -> None:
    """By name and version; also where a login prints a greeting of its own."""
    place = Place("far", (sys.executable, "-c", SAYS, says.hex()))

    async def use() -> None:
        async with opened(tmp_path, place):
            pass

    with pytest.raises(UsageError, match=complaint):
        asyncio.run(use())


def test_a_run_does_not_wait_for_what_still_tries_to_reach_a_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing has begun there, so it is killed at once, as ssh to a host that is down."""
    monkeypatch.setattr(sessions, "END_LIMIT_S", 3600.0)
    settings = Settings(home=tmp_path, lock_dir=tmp_path / "locks", cores=(0,))
    hosts = RemoteDevices(NamedHosts(()), settings)
    told = tmp_path / "told"
    os.mkfifo(told)
    command = ("sh", "-c", f"echo $$ > {told}; exec sleep 3600")
    hosts._absent[Place("far", command, lost_code=ANY_CODE)] = ""

    async def use() -> psutil.Process:
        async with Joins().awaited(hosts):
            return psutil.Process(int(await asyncio.to_thread(told.read_text)))

    assert not asyncio.run(asyncio.wait_for(use(), 60)).is_running()


def test_an_agent_that_hears_nothing_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its run may be stopped, or the line be cut without an end."""
    monkeypatch.setattr(agents, "SILENCE_S", 0.2)
    settings = Settings(home=tmp_path, lock_dir=tmp_path / "locks", cores=(0,))
    (heard_fd, order_fd), (answered_fd, answer_fd) = os.pipe(), os.pipe()

    async def serve() -> None:
        channel = AsyncChannel(heard_fd, answer_fd)
        await asyncio.wait_for(agents.Agent(settings, channel).serve(), 20)
        channel.close()

    asyncio.run(serve())
    os.close(order_fd)
    os.close(answered_fd)


@pytest.mark.parametrize(
    ("text", "names"),
    [("local:3", ["local-1", "local-2", "local-3"]), ("ssh:a,user@b", ["a", "user@b"])],
)
def test_hosts_have_the_names_of_their_devices(text: str, names: list[str]) -> None:
    """As ssh takes them."""
    placing = parse_hosts(text)
    assert isinstance(placing, NamedHosts)
    assert [place.name for place in placing.places] == names


def test_a_file_says_how_each_host_is_reached(tmp_path: Path) -> None:
    """With a Python, devices and variables of its own; what is wrong in it is one line."""
    file = tmp_path / "hosts.toml"
    file.write_text(
        '[[host]]\nname = "a"\n\n[[host]]\nname = "b"\nssh = "me@b.example"\npython = "/opt/my py/python"\n'
        'devices = ["cuda:0"]\nenv = { TILEYARD_HOME = "/scratch/a b" }\n'
        '[[host]]\nname = "pod"\nreach = ["kubectl", "exec", "-i", "pod", "--"]\npython = "python3"\n'
        'env = { A = "b c" }\n',
        encoding="utf-8",
    )
    placing = parse_hosts(str(file))
    assert isinstance(placing, NamedHosts)
    first, second, pod = placing.places
    ssh = ("ssh", "-T", "-o", "BatchMode=yes", "a", first.argv[-1])
    assert first == Place("a", ssh, lost_code=255)
    assert first.argv[-1] == f"{sys.executable} -P -m tileyard agent"
    assert second.argv[-2:] == (
        "me@b.example",
        "env 'TILEYARD_HOME=/scratch/a b' '/opt/my py/python' -P -m tileyard agent",
    )
    assert (second.name, second.devices) == ("b", ("cuda:0",))
    agent = ("env", "A=b c", "python3", *AGENT)
    assert pod.argv == ("kubectl", "exec", "-i", "pod", "--", *agent)  # to no shell
    assert pod.lost_code == ANY_CODE
    wrong = {
        'name = "-oProxyCommand=x"': "is no name of a host for ssh",
        'name = "a"\nhsot = 1': r"hosts\.toml:3: .*unknown key",
        'name = "a"\nenv = { "A B" = "1" }': r"hosts\.toml:3: .*is no name of a variable",
        'name = "a"\n[[host]]\nname = "a"': "names a twice",
        'name = "a"\nssh = "b"\nreach = ["env"]': r"hosts\.toml:4: .*replaces ssh",
    }
    for text, complaint in wrong.items():
        file.write_text(f"[[host]]\n{text}\n", encoding="utf-8")
        with pytest.raises(UsageError, match=complaint):
            parse_hosts(str(file))


@pytest.mark.parametrize(
    "text",
    ["", "a,b", "local:", "local:0", "local:99", "ssh:", "ray:", "ray:cpus=0", "ray:2", "slurm:2"],
)
def test_other_hosts_are_refused(text: str) -> None:
    """With the forms that there are."""
    with pytest.raises(UsageError, match="names no hosts"):
        parse_hosts(text)


def test_a_run_over_hosts_makes_a_data_directory_for_its_user_alone(tmp_path: Path) -> None:
    """Also below a folder that is open to all, and if no agent starts."""
    tmp_path.chmod(0o1777)
    settings = Settings(home=tmp_path / "home", lock_dir=tmp_path / "locks", cores=(0,))
    hosts = RemoteDevices(NamedHosts((Place("a", ("false",)),)), settings)
    with pytest.raises(UsageError, match="no agent began there"):
        asyncio.run(hosts.find((), title="", queue_limit_s=1.0))
    assert stat.S_IMODE(settings.home.stat().st_mode) == 0o700


def test_leases_on_a_host_take_the_turns_of_the_runs_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session is one of the run's host; the name that the agent's own environment gives goes first."""
    for name in (JOB, *CI_RUNS):
        monkeypatch.delenv(name, raising=False)
    settings = Settings(home=tmp_path, lock_dir=tmp_path / "locks", cores=(0,))

    def order() -> FindDevices:
        hosts = RemoteDevices(NamedHosts(()), settings)
        asyncio.run(hosts.find((), title="", queue_limit_s=1.0))
        return hosts._order

    of_session = order()
    assert of_session.job == f"{find_job({})} of {socket.gethostname()}"
    monkeypatch.setenv("GITHUB_RUN_ID", "7")
    assert order().job == "GITHUB_RUN_ID 7"
    monkeypatch.setenv(JOB, "nightly")
    named = order()
    assert named.job == "nightly"
    for before, found in (("", "nightly"), ("its own", "its own")):
        monkeypatch.setenv(JOB, before) if before else monkeypatch.delenv(JOB)
        channel = AsyncChannel(*os.pipe())
        agents.Agent(settings, channel)._offer(named)
        channel.close()
        assert find_job(os.environ) == found


class Joins:
    """What joined a run."""

    def __init__(self) -> None:
        self.slots: list[Slot] = []
        self.news = asyncio.Event()

    def join(self, slots: Sequence[Slot], grounds: Mapping[str, Sequence[Device]]) -> None:
        """As a driver's."""
        assert [slot.device for slot in slots] == [*grounds["cpu"]]
        self.slots += slots
        self.news.set()

    @contextlib.asynccontextmanager
    async def awaited(self, hosts: RemoteDevices) -> AsyncIterator[None]:
        """A run on the devices of these hosts, which others may join."""
        devices = {"cpu": [slot.device for slot in hosts.slots]}
        waiting = asyncio.create_task(hosts.await_hosts(devices, self.join))
        try:
            yield
        finally:
            waiting.cancel()
            await asyncio.wait({waiting})
            await hosts.close()


def reached(folder: Path, name: str, test: str, *more: str) -> Place:
    """A host of this machine that is down unless ``test`` holds, with a data directory of its own."""
    agent = shlex.join((sys.executable, *AGENT, *more))
    command = f"{test} && TILEYARD_HOME={folder}/{name} exec {agent}"
    return Place(name, ("sh", "-c", command), lost_code=ANY_CODE)


def test_a_host_that_was_down_joins_once_it_is_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run begins with the others, and says so in a line; what joins is prepared as they were, and one
    that is of no use is named once and left out. None at all is refused.
    """
    monkeypatch.setattr(slots, "RETRY_S", 0.1)
    settings = Settings(home=tmp_path, lock_dir=tmp_path / "locks", cores=(0,))
    up, old = tmp_path / "up", tmp_path / "old"
    greeting = encode_frame(Answered(number=0, answer=Greeting(version="9", protocol=1, boot="b")))
    other = (
        f"test ! -e {old} || exec {shlex.join((sys.executable, '-c', SAYS, greeting.hex()))}; false"
    )
    places = (
        reached(tmp_path, "here", "true"),
        reached(tmp_path, "late", f"test -e {up}"),
        Place("old", ("sh", "-c", other), lost_code=ANY_CODE),
        reached(tmp_path, "never", "false"),
    )
    hosts, joins, told = RemoteDevices(NamedHosts(places), settings), Joins(), list[Event]()
    is_refused = asyncio.Event()

    def tell(event: Event) -> None:
        told.append(event)
        if isinstance(event, Note) and "not used" in event.text:
            is_refused.set()

    hosts.emit = tell

    async def use() -> None:
        await hosts.find(("cpu",), title="", queue_limit_s=30.0)
        assert [slot.device.name for slot in hosts.slots] == ["cpu:0@here"]
        await hosts.require_pythons([sys.executable])
        asked: list[str] = []
        hosts.also_require(lambda device: asked.append(device.name))
        async with joins.awaited(hosts):
            up.touch()
            await asyncio.wait_for(joins.news.wait(), 60)
            (slot,) = joins.slots
            assert await slot.acquire(0, lambda _: None) > 0
            await slot.release()
            old.touch()
            await asyncio.wait_for(is_refused.wait(), 60)
        assert asked == ["cpu:0"]

    asyncio.run(use())
    texts = [one.text for one in told if isinstance(one, Note)]
    assert texts[:3] == [
        f"host {name}: no agent began there; the run begins without it, and uses it once it is there"
        for name in ("late", "old", "never")
    ]
    assert "host old has Tileyard 9 (protocol 1), and this run is of" in texts[3]
    assert texts[3].startswith("not used, although it has come: ")
    (joined,) = [one for one in told if isinstance(one, HostJoined)]
    assert (joined.host, [one.name for one in joined.devices]) == ("late", ["cpu:0@late"])
    assert len(told) == 5
    alone = RemoteDevices(NamedHosts(places[3:]), settings)
    with pytest.raises(UsageError, match=r"^host never: no agent began there"):
        asyncio.run(alone.find(("cpu",), title="", queue_limit_s=1.0))


def test_each_reason_why_a_host_does_not_come_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not each attempt, nor one that differs in a number from what was said before; also if the command that
    reaches the host cannot be started for a moment.
    """
    monkeypatch.setattr(slots, "RETRY_S", 0.01)
    settings = Settings(home=tmp_path, lock_dir=tmp_path / "locks", cores=(0,))
    tries = tmp_path / "tries"
    says = "case $n in 1|2) echo port $n: no route;; 3|4) echo denied;; *) echo gone;; esac"
    reach = tmp_path / "reach"
    text = f"#!/bin/sh\necho >> {tries}; n=$(wc -l < {tries}); ({says}) >&2; exit 1\n"
    hosts, told = RemoteDevices(NamedHosts(()), settings), list[str]()
    begin = "host far: no agent began there"
    place = Place("far", (str(reach),), lost_code=ANY_CODE)
    hosts._absent[place] = f"{begin}: port 0: no route"
    is_told = asyncio.Event()

    def tell(event: Event) -> None:
        assert isinstance(event, Note)
        told.append(event.text)
        if len(told) == 1:
            reach.touch(0o755)
            reach.write_text(text)
        if len(told) == 3:
            is_told.set()

    hosts.emit = tell

    async def use() -> None:
        async with Joins().awaited(hosts), asyncio.timeout(60):
            await is_told.wait()

    asyncio.run(use())
    lack = f"host far: this host cannot start {str(reach)!r}, the command that reaches it: No such file"
    assert told.pop(0).startswith(lack)
    assert told == [f"{begin}: {why}; it is tried again" for why in ("denied", "gone")]


def test_a_command_that_is_not_here_is_one_line(tmp_path: Path) -> None:
    """It is this host's lack: waiting for the other host would not help."""
    file = tmp_path / "hosts.toml"
    file.write_text('[[host]]\nname = "pod"\nreach = ["no-such-kubectl", "exec"]\n')
    settings = Settings(home=tmp_path / "home", lock_dir=tmp_path / "locks", cores=(0,))
    hosts = RemoteDevices(parse_hosts(str(file)), settings)
    complaint = (
        "host pod: this host cannot start 'no-such-kubectl', the command that reaches it: No"
    )
    with pytest.raises(ToolMissingError, match=complaint):
        asyncio.run(hosts.find((), title="", queue_limit_s=1.0))


def test_groups_of_devices_join_and_are_not_counted(tmp_path: Path) -> None:
    """Cases that hold several devices may run on a host that joins; the line about it names the devices."""
    settings = Settings(home=tmp_path, lock_dir=tmp_path / "locks", cores=(0,))
    place = reached(tmp_path, "late", "true")
    hosts, told = RemoteDevices(NamedHosts((place,)), settings), list[Event]()
    hosts.emit = told.append
    one, other = (Device(name=f"npu:{n}", kind="npu", identity="card") for n in range(2))
    (group,) = join_devices((one, other), 2)
    session = HostSession(place, ObjectStore(tmp_path / "objects"), tmp_path / "log")
    joined: list[str] = []
    hosts._join(
        session,
        HostBuilders(session, 0, ""),
        DevicesFound(devices=(one, other), joined=(group,)),
        {"command": {"npu"}},
        lambda slots, grounds: joined.extend(device.name for device in grounds["command"]),
    )
    assert joined == ["npu:0@late", "npu:1@late", "npu:0,1@late"]
    (event,) = told
    assert isinstance(event, HostJoined)
    assert [device.name for device in event.devices] == joined[:2]


def connect(folder: Path, file: Path) -> subprocess.Popen[bytes]:
    """An agent that connects to a run, as somebody would start it."""
    address = f"127.0.0.1:{file.name.partition('-')[0]}"
    words = (*AGENT, "--connect", address, "--token-file", str(file), "--scratch")
    return subprocess.Popen([sys.executable, *words, str(folder / file.name)])


def read_token(folder: Path, number: int, before: str = "") -> tuple[Path, str]:
    """The file of an agent of a run, and its token once that is another than before."""
    until_s = time.monotonic() + 100.0
    while time.monotonic() < until_s:
        for file in folder.glob(f"agents/*-{number}"):
            if (token := file.read_text()) != before:
                return file, token
        time.sleep(0.01)
    raise AssertionError(f"agent {number} gets no token")


def test_agents_that_connect_may_come_later_and_again(tmp_path: Path) -> None:
    """One more than were awaited joins; one that was lost connects again with a new token. Each token counts
    once, and there is a bounded number of them.
    """
    settings = Settings(home=tmp_path, lock_dir=tmp_path / "locks", cores=(0,))
    hosts, joins = RemoteDevices(parse_hosts("listen:127.0.0.1:0,1"), settings), Joins()
    agents: list[subprocess.Popen[bytes]] = []

    async def use() -> None:
        async with asyncio.timeout(120):
            finding = asyncio.create_task(hosts.find(("cpu",), title="", queue_limit_s=60.0))
            file, first = await asyncio.to_thread(read_token, tmp_path, 1)
            agents.append(connect(tmp_path, file))
            await finding
            async with joins.awaited(hosts):
                (slot,) = hosts.slots
                further, _ = await asyncio.to_thread(read_token, tmp_path, 2)
                agents.append(connect(tmp_path, further))
                await joins.news.wait()
                assert [one.device.name for one in joins.slots] == ["cpu:0@agent-2"]
                agents[0].kill()
                await asyncio.to_thread(read_token, tmp_path, 1, first)
                address = Address.parse(f"127.0.0.1:{file.name.partition('-')[0]}")
                with pytest.raises(UsageError, match="refuses this token: it is another's, or was"):
                    await join(address, Ticket.parse(first))
                agents.append(connect(tmp_path, file))
                assert await slot.acquire(0, lambda _: None) > 0
                await slot.release()
                assert [session.number for session in hosts._sessions] == [2, 1]
                await asyncio.to_thread(read_token, tmp_path, 1 + MOST_FURTHER)
                files = await asyncio.to_thread(lambda: [*tmp_path.glob("agents/*")])
                assert len(files) == 1 + MOST_FURTHER

    try:
        asyncio.run(use())
    finally:
        for one in agents:
            one.wait(60)
    assert [one.host for one in hosts.lost] == ["agent-1"]
    assert not [*tmp_path.glob("agents/*")]


def test_an_agent_that_was_lost_is_started_again(tmp_path: Path) -> None:
    """With the next lease, and with nothing of its earlier session: no lease, and no objects. The run is told
    of the loss, once; an agent that ends with the run is not lost.
    """
    settings = Settings(home=tmp_path, lock_dir=tmp_path / "locks", cores=(0,))
    hosts = RemoteDevices(parse_hosts("local:1"), settings)
    told: list[Event] = []
    hosts.begin(told.append)

    async def use() -> None:
        await hosts.find(("cpu",), title="", queue_limit_s=30.0)
        slot, session = hosts.slots[0], hosts._sessions[0]
        digest = ObjectStore(tmp_path / "objects").put_bytes(b"known there")
        await slot.acquire(0, lambda _: None)
        await session.send_objects([digest], [])
        assert session._process is not None
        session._process.kill()
        with pytest.raises(SessionLostError, match="host local-1: its agent is gone"):
            await session.ask(ReleaseDevice(device="cpu:0"), OrderDone)
        there = msgspec.structs.replace(slot.device, name="cpu:0")
        other = RemoteSlot(hosts, session, there, 0)
        await other.acquire(0, lambda _: None)
        assert session.number == 2
        assert isinstance(slot, RemoteSlot)
        with pytest.raises(SessionLostError, match="its agent was started again"):
            slot._require_session()
        await session.send_objects([digest], [])
        assert session.sent == 2
        assert not session._tasks[1].done()  # it gives signs of life
        await slot.recover()
        await hosts.close()
        with pytest.raises(LeaseLostError, match="the run has ended"):
            await slot.acquire(0, lambda _: None)

    asyncio.run(use())
    (lost,) = told
    assert isinstance(lost, HostLost)
    assert (lost.host, lost.why, [lost]) == ("local-1", "its agent is gone", hosts.lost)


def test_an_agent_that_is_lost_at_once_is_started_again_once(tmp_path: Path) -> None:
    """A line that is cut before the host has named its devices does not end the run; a host that is lost
    again is one line.
    """
    settings = Settings(home=tmp_path, lock_dir=tmp_path / "locks", cores=(0,))
    greeting = Greeting(version=version("tileyard"), protocol=PROTOCOL, boot="b")
    says = "import sys; sys.stdout.buffer.write(bytes.fromhex(sys.argv[1]))"
    greets = (sys.executable, "-c", says, encode_frame(Answered(number=0, answer=greeting)).hex())
    agent = f"TILEYARD_HOME={tmp_path} exec {shlex.join((sys.executable, *AGENT))}"
    begins = f"mkdir {tmp_path}/first 2>/dev/null && exec {shlex.join(greets)}; {agent}"

    async def find(*argv: str) -> RemoteDevices:
        hosts = RemoteDevices(NamedHosts((Place("far", argv),)), settings)
        try:
            await hosts.find(("cpu",), title="", queue_limit_s=30.0)
        finally:
            await hosts.close()
        return hosts

    hosts = asyncio.run(find("sh", "-c", begins))
    assert [slot.device.name for slot in hosts.slots] == ["cpu:0@far"]
    assert [one.host for one in hosts.lost] == ["far"]
    with pytest.raises(UsageError, match=r"^host far: its agent is gone"):
        asyncio.run(find(*greets))


def test_a_command_that_never_says_a_word_is_ended_soon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the run ends meanwhile; an agent that has begun gets the time to end what it runs."""
    monkeypatch.setattr(sessions, "SILENT_END_LIMIT_S", 0.1)
    monkeypatch.setattr(sessions, "END_LIMIT_S", 1000.0)
    hangs = ("sleep", "1000")

    async def use() -> None:
        for limit_s in (0.1, None):
            place = Place("far", hangs, lost_code=ANY_CODE, limit_s=limit_s)
            session = HostSession(place, ObjectStore(tmp_path / "objects"), tmp_path / "log")
            opening = asyncio.create_task(session.open())
            await asyncio.sleep(0)
            assert session._process is not None
            if limit_s is None:
                opening.cancel()
            with pytest.raises((HostAbsentError, asyncio.CancelledError)):
                await opening
            await session.close()

    asyncio.run(use())


@pytest.mark.parametrize(
    ("code", "lost_code", "least_s"), [(255, 255, 1.5), (1, ANY_CODE, 1.5), (1, 255, 0.0)]
)
def test_a_case_is_not_run_elsewhere_while_it_may_still_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, lost_code: int, least_s: float
) -> None:
    """If ssh, or a command of which that is not known, has lost its connection the agent may go on, and gets
    the time in which it ends by itself.
    """
    monkeypatch.setattr(sessions, "SILENCE_S", 1.0)
    monkeypatch.setattr(sessions, "GRACE_S", 1.0)
    monkeypatch.setattr(sessions, "SILENT_END_LIMIT_S", 0.1)
    shell = ("sh", "-c", f"{shlex.join((sys.executable, *AGENT))}; exit {code}")
    run = RunOnDevice(device="cpu:0", batch=Batch(id="b", cases=()), entries=())

    async def use() -> float:
        async with opened(tmp_path, Place("far", shell, lost_code=lost_code)) as session:
            with pytest.raises(UsageError, match="was not offered"):
                await session.ask(run, OrderDone)
            assert session._process is not None
            (agent,) = psutil.Process(session._process.pid).children()
            heard_s = session._heard_s
            agent.kill()
            with pytest.raises(SessionLostError, match="host far: its agent is gone"):
                await session.ask(WarmDevice(device="cpu:0"), OrderDone)
            return asyncio.get_running_loop().time() - heard_s

    assert asyncio.run(use()) >= least_s


def test_an_agent_that_had_nothing_to_do_is_lost_soon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that ends while it is prepared, when its host joins."""
    monkeypatch.setattr(sessions, "SILENT_END_LIMIT_S", 0.1)
    greeting = Greeting(version=version("tileyard"), protocol=PROTOCOL, boot="b")
    says = "import sys; sys.stdout.buffer.write(bytes.fromhex(sys.argv[1])); sys.exit(1)"
    greets = (sys.executable, "-c", says, encode_frame(Answered(number=0, answer=greeting)).hex())

    async def use() -> None:
        async with asyncio.timeout(sessions.SILENCE_S / 2):
            async with opened(tmp_path, Place("far", greets, lost_code=ANY_CODE)) as session:
                with pytest.raises(SessionLostError, match="host far: its agent is gone"):
                    await session.ask(WarmDevice(device="cpu:0"), OrderDone)

    asyncio.run(use())


def test_a_lease_waits_for_a_lost_host_and_a_device_without_quarantine_does_not_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others are asked meanwhile: the wait is reported. A host that stays away is a lost lease in the end."""
    monkeypatch.setattr(sessions, "RETRY_S", 0.1)
    settings = Settings(home=tmp_path, lock_dir=tmp_path / "locks", cores=(0,))
    down = tmp_path / "down"
    agent = f"TILEYARD_HOME={tmp_path}/far exec {shlex.join((sys.executable, *AGENT))}"
    place = Place("far", ("sh", "-c", f"test ! -e {down} && {agent}"))
    hosts = RemoteDevices(NamedHosts((place,)), settings)

    async def lose(session: HostSession) -> None:
        down.touch()
        assert session._process is not None
        session._process.kill()
        with pytest.raises(SessionLostError):
            await session.ask(ReleaseDevice(device="cpu:0"), OrderDone)

    async def use() -> None:
        await hosts.find(("cpu",), title="", queue_limit_s=30.0)
        slot, session = hosts.slots[0], hosts._sessions[0]
        await slot.acquire(0, lambda _: None)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(slot.recover(), 0.5)
        await lose(session)
        asyncio.get_running_loop().call_later(1.0, down.unlink)
        waits: list[Waiting] = []
        await slot.acquire(0, waits.append)
        assert (waits, session.number) == ([Waiting(holder="its host, which was lost")], 2)
        await lose(session)
        monkeypatch.setattr(sessions, "RETRY_S", 100.0)
        with pytest.raises(LeaseLostError, match="its agent is gone, and it does not come back"):
            await slot.acquire(0, lambda _: None)
        await hosts.close()

    asyncio.run(use())


def test_an_agent_that_is_to_end_before_it_begins_does_not_begin(tmp_path: Path) -> None:
    """And the folder that was made for it is removed."""
    early = tmp_path / "mktemp"
    early.write_text('#!/bin/sh\nPATH=${PATH#*:}\nkill -TERM $PPID\nexec mktemp "$@"\n')
    early.chmod(0o700)
    (tmp_path / "tmp").mkdir()
    own = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "TMPDIR": str(tmp_path / "tmp")}
    agent = ("/bin/sh", "-c", f"touch {tmp_path}/began")
    subprocess.run(["/bin/sh", "-c", ELSEWHERE, *agent], env={**os.environ, **own}, check=False)
    assert not [*(tmp_path / "tmp").iterdir()]
    assert not (tmp_path / "began").exists()

"""Devices of other hosts as slots of a run."""

import asyncio
from pathlib import Path

from tileyard.artifacts.objects import ObjectStore
from tileyard.base.errors import HomeError
from tileyard.base.events import Event, HostJoined, Note
from tileyard.base.model import Device
from tileyard.base.settings import Settings
from tileyard.devices.holding import hold_together
from tileyard.engine.hosts.building import HostBuilders
from tileyard.engine.hosts.meeting import NamedHosts, Place
from tileyard.engine.hosts.messages import DevicesFound
from tileyard.engine.hosts.session import HostSession
from tileyard.engine.hosts.slots import RemoteDevices, RemoteSlot
from tileyard.engine.lending import DeviceSite, Lending, find_parts


def test_devices_that_are_held_together_exclude_their_members_alone(tmp_path: Path) -> None:
    """Not those of the same names on another host; their locks are on that host."""
    hosts = RemoteDevices(
        NamedHosts(()), Settings(home=tmp_path, lock_dir=tmp_path / "locks", cores=(0,))
    )
    cards = [
        Device(name=f"npu:{number}", kind="npu", identity="card", locks=(f"/there/{number}",))
        for number in range(3)
    ]
    slots = [
        RemoteSlot(hosts, HostSession(Place(host, ()), ObjectStore(tmp_path), tmp_path), one, 0)
        for host in ("a", "b")
        for one in (*cards, hold_together(cards[:2]))
    ]
    devices = [slot.device for slot in slots]
    assert [one.name for one in devices if one.count == 2] == ["npu:0,1@a", "npu:0,1@b"]
    assert not any(one.locks for device in devices for one in (device, *device.members))
    lending = Lending({d.name: DeviceSite(count=d.count, parts=find_parts(d)) for d in devices})
    rivals = {d.name: [one.name for one in lending.rivals(lending[d.name])] for d in devices}
    assert rivals == {
        **{f"npu:{number}@{host}": [f"npu:0,1@{host}"] for number in (0, 1) for host in "ab"},
        **{f"npu:0,1@{host}": [f"npu:0@{host}", f"npu:1@{host}"] for host in "ab"},
        **{f"npu:2@{host}": [] for host in "ab"},
    }


class Full(NamedHosts):
    """Hosts to which no further one can be added, as a token cannot be written."""

    async def wait_further(self) -> Place | None:
        """See ``Placing``."""
        raise HomeError("cannot write to agents/1: No space left on device")


def test_a_run_goes_on_if_no_further_host_can_join(tmp_path: Path) -> None:
    """With a line that says so: it has those with which it began."""
    settings = Settings(home=tmp_path, lock_dir=tmp_path / "locks", cores=(0,))
    hosts, told = RemoteDevices(Full(()), settings), list[Event]()
    hosts.emit = told.append
    asyncio.run(hosts.await_hosts({"cpu": ()}, lambda slots, grounds: None))
    reason = "cannot write to agents/1: No space left on device"
    assert told == [Note(text=f"no further host can join: {reason}", level="warning")]


def test_devices_of_a_host_that_joins_may_be_held_together(tmp_path: Path) -> None:
    """The line on it counts each device once."""
    settings = Settings(home=tmp_path, lock_dir=tmp_path / "locks", cores=(0,))
    hosts, told = RemoteDevices(NamedHosts(()), settings), list[Event]()
    hosts.emit = told.append
    session = HostSession(Place("a"), ObjectStore(tmp_path), tmp_path / "agent.log")
    cards = tuple(
        Device(name=f"npu:{number}", kind="npu", identity="card", locks=(f"/there/{number}",))
        for number in range(2)
    )
    found = DevicesFound(devices=cards, joined=(hold_together(cards),))
    came: list[tuple[str, int]] = []
    hosts._join(
        session,
        HostBuilders(session, 0),
        found,
        {"command": {"npu"}},
        lambda _, grounds: came.extend((one.name, one.count) for one in grounds["command"]),
    )
    assert came == [("npu:0@a", 1), ("npu:1@a", 1), ("npu:0,1@a", 2)]
    (joined,) = told
    assert isinstance(joined, HostJoined)
    assert [one.name for one in joined.devices] == ["npu:0@a", "npu:1@a"]

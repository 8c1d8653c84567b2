"""Kernels built on other hosts: as here, whatever becomes of a build, and of its host."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.faults.test_build_limits import make_kernels

from tileyard.artifacts.manifest import Build, find_artifact
from tileyard.artifacts.objects import ObjectStore
from tileyard.base.errors import HostsLostError, WorkerLostError
from tileyard.base.model import BuildKey, Outcome, Side
from tileyard.base.settings import Settings
from tileyard.engine.compilers import Builder, CompilePool
from tileyard.engine.hosts.building import HostBuilders, HostedPool
from tileyard.engine.hosts.meeting import NamedHosts
from tileyard.engine.hosts.messages import DevicesFound, FindDevices, OrderDone, ReleaseDevice
from tileyard.engine.hosts.naming import parse_hosts
from tileyard.engine.hosts.session import HostSession, SessionLostError

pytestmark = pytest.mark.slow

SLOW = Builder("", "slow")
HERE, OTHER = "the CPU of this host", "another CPU"
FIRST_CORE = 1000


class Hosted:
    """A pool of one worker here and those of two agents, whose builds count as those of other hosts."""

    def __init__(self, home: Path, kinds: Sequence[str]) -> None:
        self.objects = ObjectStore(home / "objects")
        self.settings = Settings(
            home=home, lock_dir=home, cores=(0,), plugins={"slow": "slow_target:SlowTarget"}
        )
        placing = parse_hosts("local:2")
        assert isinstance(placing, NamedHosts)
        self.sessions = [
            HostSession(place, self.objects, home / f"{place.name}.log") for place in placing.places
        ]
        self.own = CompilePool(self.settings, {"": Side()}, (0,))
        self.hosts = [
            HostBuilders(session, FIRST_CORE * number, kind)
            for number, (session, kind) in enumerate(zip(self.sessions, kinds, strict=True), 1)
        ]

    async def open(self) -> HostedPool:
        """Start the agents."""
        find = FindDevices(
            names=("cpu",), title="", queue_limit_s=9.0, plugins=self.settings.plugins
        )
        for session, host in zip(self.sessions, self.hosts, strict=True):

            async def prepare(session: HostSession, host: HostBuilders = host) -> None:
                await session.ask(find, DevicesFound)
                await host.open(1, None)

            await session.open()
            await prepare(session)
            session.begin_with(prepare)
        sides = {"": Side()}
        return HostedPool(self.own, self.hosts, sides, self.objects, own_kind=HERE)

    def kill(self, number: int) -> None:
        """End the agent of a host."""
        process = self.sessions[number]._process
        assert process is not None
        process.kill()


@asynccontextmanager
async def opened(
    home: Path, kinds: Sequence[str] = (HERE, HERE)
) -> AsyncIterator[tuple[Hosted, HostedPool]]:
    """A pool that is open, with its hosts, whose CPUs are of these kinds."""
    hosted = Hosted(home, kinds)
    try:
        pool = await hosted.open()
        yield hosted, pool
    finally:
        await hosted.own.close()
        for session in hosted.sessions:
            await session.close()


@pytest.fixture(autouse=True)
def _findable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compile workers find the target."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))


async def build_in(
    pool: HostedPool | CompilePool,
    worker: int,
    *names: str,
    limit_s: float = 30.0,
    builder: Builder = SLOW,
) -> dict[str, Build]:
    """Build kernels of these names together."""
    built = pool.build((builder, worker), make_kernels(*names), [limit_s] * len(names))
    return {one.case: one async for one in built}


def sum_up(built: Mapping[str, Build]) -> dict[str, tuple[Outcome, str, str]]:
    """How builds ended."""
    return {name: (one.outcome, one.message, one.printed) for name, one in built.items()}


def test_what_hosts_build_is_as_if_built_here(tmp_path: Path) -> None:
    """At the same time, and fetched once; with the outcomes and messages of a build here; nothing of it is
    sent back.
    """

    async def use() -> None:
        async with opened(tmp_path) as (hosted, pool):
            assert pool.cores[0] >= FIRST_CORE
            assert pool.cores[-1] == 0
            assert await pool.describe(SLOW) == await hosted.own.describe(SLOW)
            assert [await pool.find_host((SLOW, one)) for one in range(3)] == [
                "local-1",
                "local-2",
                "",
            ]
            began = time.monotonic()
            both = await asyncio.gather(*(build_in(pool, one, "slow") for one in (0, 1)))
            assert time.monotonic() - began < 2.5  # each takes 1.5 s
            assert {one["slow"].outcome for one in both} == {Outcome.PASSED}
            built = await build_in(pool, 0, "a", "b")
            assert {one.outcome for one in built.values()} == {Outcome.PASSED}
            key = BuildKey(f"{1:040}")
            artifact = find_artifact(key, hosted.objects)
            assert artifact is not None
            await hosted.sessions[0].send_objects(artifact.manifest.files.values(), [key])
            assert hosted.sessions[0].sent == 0
            for names in (("hang",), ("abort",), ("memory",), ("well", "abort")):
                there = await build_in(pool, 1, *names, limit_s=1.0)
                here = await build_in(hosted.own, 0, *names, limit_s=1.0)
                assert sum_up(there) == sum_up(here)

    asyncio.run(use())


@pytest.mark.parametrize("kind", [HERE, OTHER])
def test_what_a_lost_host_was_to_build_is_built_elsewhere(tmp_path: Path, kind: str) -> None:
    """At once, by a worker of this host or of another one, and also what comes later."""

    async def use() -> None:
        async with opened(tmp_path, (kind, kind)) as (hosted, pool):
            await build_in(pool, 0, "first")
            building = asyncio.create_task(build_in(pool, 0, "slow", "b"))
            await asyncio.sleep(0.5)
            hosted.kill(0)
            assert {one.outcome for one in (await building).values()} == {Outcome.PASSED}
            assert (await build_in(pool, 0, "c"))["c"].outcome is Outcome.PASSED
            hosted.kill(1)
            if kind == HERE:
                assert (await build_in(pool, 1, "d"))["d"].outcome is Outcome.PASSED
                return
            with pytest.raises(WorkerLostError, match="no host is left that builds for slow"):
                await build_in(pool, 1, "d")
            assert not hosted.own._workers

    asyncio.run(use())


def test_a_host_that_comes_back_builds_again_once_it_is_prepared(tmp_path: Path) -> None:
    """What it is to build meanwhile is built elsewhere."""

    async def use() -> None:
        async with opened(tmp_path) as (hosted, pool):
            session = hosted.sessions[0]
            hosted.kill(0)
            with pytest.raises(SessionLostError):
                await session.ask(ReleaseDevice(device="cpu:0"), OrderDone)
            reviving = asyncio.create_task(session.revive())
            number = 0
            while not reviving.done():
                number += 1
                (built,) = (await build_in(pool, 0, f"during {number}")).values()
                assert built.outcome is Outcome.PASSED
            await reviving
            assert (session.number, session.fetched) == (2, 0)
            after = await build_in(pool, 0, "after", "more")
            assert {one.outcome for one in after.values()} == {Outcome.PASSED}
            host = await pool.find_host((SLOW, 0))
            assert host == "local-1"

    asyncio.run(use())


def test_a_host_whose_tools_differ_builds_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it would build has other keys; this host builds in its place."""

    async def use() -> None:
        monkeypatch.setenv("SLOW_TOOLS", "older")
        async with opened(tmp_path) as (hosted, pool):
            monkeypatch.delenv("SLOW_TOOLS")
            assert (await build_in(pool, 0, "a"))["a"].outcome is Outcome.PASSED
            assert hosted.sessions[0].fetched == 0
            assert await pool.find_host((SLOW, 0)) == ""

    asyncio.run(use())


def test_each_kind_of_cpu_is_built_for_on_its_hosts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By whichever worker it is asked for, and by no other kind if all its hosts are lost."""
    monkeypatch.setenv("SLOW_TOOLS", "of another CPU")

    async def use() -> None:
        async with opened(tmp_path, (OTHER, HERE)) as (hosted, pool):
            monkeypatch.delenv("SLOW_TOOLS")
            here, other = (SLOW._replace(kind=kind) for kind in (HERE, OTHER))
            there = await pool.describe(other)
            assert there != await pool.describe(here) == await hosted.own.describe(SLOW)
            hosts = [await pool.find_host((other, number)) for number in range(3)]
            assert hosts == ["local-1"] * 3
            both = await asyncio.gather(
                build_in(pool, 2, "a", builder=other), build_in(pool, 1, "b", builder=other)
            )
            assert {one.outcome for built in both for one in built.values()} == {Outcome.PASSED}
            artifact = find_artifact(BuildKey(f"{0:040}"), hosted.objects)
            assert artifact is not None
            assert artifact.manifest.fingerprint == there.fingerprint
            hosted.kill(0)
            with pytest.raises(HostsLostError, match="no host is left that builds for slow"):
                await build_in(pool, 0, "c", builder=other)
            assert await pool.describe(other) == there
            assert (await build_in(pool, 0, "d", builder=here))["d"].outcome is Outcome.PASSED

    asyncio.run(use())

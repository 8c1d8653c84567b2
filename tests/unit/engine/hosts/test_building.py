"""The pool of a run's own workers and those of its hosts, without any process."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import pytest
from tests.faults.test_build_limits import make_kernels

from tileyard.artifacts.manifest import Build
from tileyard.artifacts.objects import ObjectStore
from tileyard.base.model import Outcome, Side
from tileyard.base.settings import Settings
from tileyard.engine.compilers import Builder, CompilePool
from tileyard.engine.hosts.building import HostBuilders, HostedPool
from tileyard.engine.hosts.meeting import Place
from tileyard.engine.hosts.messages import BuildThere
from tileyard.engine.hosts.session import HostSession
from tileyard.workers.protocol import BuildKernel, TargetInfo

CPU = Builder("", "cpu")
OWN_CORE, FIRST_CORE, SECOND_CORE = 0, 1000, 2000


class Host:
    """The one worker of a host that may be lost."""

    def __init__(self, name: str, core: int, began: list[str], kind: str = "own") -> None:
        self.kind = kind
        self.name, self.cores, self.first_core = name, (core,), core
        self.is_lost = False
        self.described = 0
        self._began = began

    async def describe(self, _side: Side, _target: str) -> TargetInfo | None:
        """As all others."""
        if self.is_lost:
            return None
        self.described += 1
        return TargetInfo(fingerprint="f", needs_tir=False)

    async def build(self, order: BuildThere, _objects: ObjectStore) -> AsyncIterator[Build]:
        """Build at once."""
        self._began.append(self.name)
        for kernel in order.kernels:
            yield Build(outcome=Outcome.PASSED, case=kernel.case)


class Own(Host):
    """The worker of the run's host."""

    async def begin(self, _builder: object) -> None:
        """Nothing has to be started."""

    async def close(self) -> None:
        """Nothing was started."""

    async def describe(self, _builder: object) -> TargetInfo:  # type: ignore[override]
        """As all others."""
        return TargetInfo(fingerprint="f", needs_tir=False)

    async def build(
        self, _worker: object, kernels: object, *_: object, **__: object
    ) -> AsyncIterator[Build]:  # type: ignore[override]
        """Build at once."""
        self._began.append(self.name)
        for kernel in cast(list[BuildKernel], kernels):
            yield Build(outcome=Outcome.PASSED, case=kernel.case)


@pytest.mark.parametrize("is_foreign", [False, True], ids=["taken over here", "by another host"])
def test_a_build_stands_in_where_no_device_is_timing(tmp_path: Path, *, is_foreign: bool) -> None:
    """It waits for the end of what is timed on the core that it gets."""
    began: list[str] = []
    kind = "other" if is_foreign else "own"
    hosts = [Host("a", FIRST_CORE, began, kind), Host("b", SECOND_CORE, began, kind)]
    pool = HostedPool(
        cast(CompilePool, Own("own", OWN_CORE, began)),
        cast(list[HostBuilders], hosts),
        {"": Side()},
        ObjectStore(tmp_path),
        own_kind="own",
    )

    async def build(worker: int) -> None:
        builds = pool.build((CPU, worker), make_kernels("k"), [9.0])
        began.extend([built.case async for built in builds])

    async def use() -> None:
        async with pool.used.using([FIRST_CORE, SECOND_CORE, OWN_CORE]):
            await build(0)  # at its own place, where the state has no device timing
            assert began == ["a", "k"]
            hosts[0].is_lost = True
            taking_over = asyncio.ensure_future(build(0))
            for _ in range(20):
                await asyncio.sleep(0)
            assert began == ["a", "k"]
        await taking_over
        assert began[2:] == ["b" if is_foreign else "own", "k"]

    asyncio.run(use())


@pytest.mark.parametrize("core", [OWN_CORE, FIRST_CORE], ids=["here", "elsewhere"])
def test_hosts_start_their_workers_when_the_run_begins(tmp_path: Path, core: int) -> None:
    """All of them, once."""
    own = Own("own", OWN_CORE, [])
    hosts = [Host("a", core, []), Host("b", SECOND_CORE, [])]
    pool = HostedPool(
        cast(CompilePool, own),
        cast(list[HostBuilders], hosts),
        {"": Side()},
        ObjectStore(tmp_path),
        own_kind="own",
    )

    async def use() -> None:
        await pool.begin(CPU)
        await asyncio.gather(*(pool.describe(CPU) for _ in range(2)))
        await pool.close()

    asyncio.run(use())
    assert [host.described for host in hosts] == [1, 1]


@pytest.mark.parametrize("core", [OWN_CORE, FIRST_CORE], ids=["here", "elsewhere"])
def test_workers_beside_an_agent_on_this_host_import_no_compiler(tmp_path: Path, core: int) -> None:
    """They are spare: the agent builds on their cores."""
    settings = Settings(home=tmp_path, lock_dir=tmp_path / "locks", cores=(OWN_CORE,))
    own, sides = CompilePool(settings, {"": Side()}, settings.cores), {"": Side()}
    hosts = cast(list[HostBuilders], [Host("a", core, []), Host("b", SECOND_CORE, [])])
    HostedPool(own, hosts, sides, ObjectStore(tmp_path), own_kind="own")
    assert own._describe_target(CPU).warms_up == (core != OWN_CORE)


class Idle:
    """Workers of the run's host."""

    cores = (0, 1)


def host(folder: Path, name: str, first_core: int, *cores: int) -> HostBuilders:
    """The workers of a host, which is not started."""
    session = HostSession(Place(name), ObjectStore(folder), folder / "log")
    made = HostBuilders(session, first_core)
    made.cores = tuple(first_core + core for core in cores)
    return made


@pytest.mark.parametrize(
    ("first", "joined", "cores"),
    [
        (100, 200, (102, 0, 1, 202, 203)),  # elsewhere
        (100, 0, (102, 0, 1)),  # on cores that build already
        (0, 0, (2, 2, 3)),  # beside another agent on this host
    ],
)
def test_workers_of_a_host_that_joins_come_last(
    tmp_path: Path, first: int, joined: int, cores: tuple[int, ...]
) -> None:
    """So that the others keep their numbers; none of them shares a core with an own one."""
    own = cast(CompilePool, Idle())
    objects = ObjectStore(tmp_path)
    pool = HostedPool(own, [host(tmp_path, "a", first, 2)], {"": Side()}, objects, own_kind="own")
    before = pool.cores
    late = host(tmp_path, "late", joined, 2, 3)
    pool.add(late)
    assert pool.cores == cores
    assert pool.cores[: len(before)] == before
    places = [next(iter(pool._list_places(CPU, number))) for number in range(len(cores))]
    added = [(late, 0), (late, 1)]
    assert places[len(before) :] == added[: len(cores) - len(before)]
    assert all(place in pool._free for place in places)

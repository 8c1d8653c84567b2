"""The compile workers of a run and of its hosts as one pool: any free one builds the next kernels."""

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence

from tileyard.artifacts.manifest import Build, Manifest, publish
from tileyard.artifacts.objects import ObjectStore
from tileyard.base.decoding import decode_json
from tileyard.base.errors import DamagedError, HostsLostError, UsageError, WorkerLostError
from tileyard.base.model import Outcome, Side
from tileyard.engine.compilers import Builder, CompilePool, TellBuilt, depends_on_cpu, ignore
from tileyard.engine.hosts.messages import (
    BuildersOffered,
    BuildThere,
    DescribeBuilder,
    KernelBuilt,
    OfferBuilders,
    OrderDone,
)
from tileyard.engine.hosts.session import HostSession, SessionLostError
from tileyard.targets.registry import COMMAND
from tileyard.workers.protocol import BuildKernel, TargetInfo


class UsedCores:
    """The cores, in the run's numbers, on which a device is timing or a build stands in for one of a lost
    host. The engine's state plans with each worker's own place, and does not know of the latter.
    """

    def __init__(self) -> None:
        self._locks: defaultdict[int, asyncio.Lock] = defaultdict(asyncio.Lock)

    @contextlib.asynccontextmanager
    async def using(self, cores: Iterable[int]) -> AsyncIterator[None]:
        """A block that begins once no other one uses any of these cores."""
        async with contextlib.AsyncExitStack() as stack:
            for core in sorted({*cores}):
                await stack.enter_async_context(self._locks[core])
            yield


class HostBuilders:
    """The compile workers of one host. ``first_core`` is added to the numbers of its cores, which then
    differ from those of other hosts; it is 0 for an agent on the run's own host. ``kind`` is that of its CPU,
    empty if it offers none.
    """

    def __init__(self, session: HostSession, first_core: int, kind: str = "") -> None:
        self.kind = kind
        self.cores: tuple[int, ...] = ()
        self.first_core = first_core
        self.name = session.name
        self._session = session
        self._infos: dict[Builder, TargetInfo | None] = {}
        self._of_session = 0
        self._describing = asyncio.Lock()

    async def open(self, workers: int | None, group_size: int | None) -> None:
        """Have the host say which of its cores build. Raises as ``HostSession.follow``."""
        order = OfferBuilders(workers=workers, group_size=group_size)
        offered = await self._session.ask(order, BuildersOffered)
        self.cores = tuple(core + self.first_core for core in offered.cores)

    async def describe(self, side: Side, target: str) -> TargetInfo | None:
        """What the target says of itself there; None if it cannot be used, or the host is lost. Programs, and
        what a Python of its own builds, are built by the run.
        """
        builder = Builder(side.name, target)
        if target == COMMAND or side.python:
            return None
        async with self._describing:
            if self._of_session != self._session.number:
                self._of_session = self._session.number
                self._infos.clear()
            if builder not in self._infos:
                order = DescribeBuilder(side=side, target=target)
                try:
                    self._infos[builder] = await self._session.ask(order, TargetInfo)
                except UsageError:
                    self._infos[builder] = None
                except SessionLostError:
                    return None
            return self._infos[builder]

    async def build(self, order: BuildThere, objects: ObjectStore) -> AsyncIterator[Build]:
        """Have the host build, and fetch what it has built. Raises SessionLostError, UsageError if the host
        cannot build, DamagedError, and HomeError.
        """
        keys = {kernel.case: kernel.build for kernel in order.kernels}
        async with contextlib.aclosing(self._session.follow(order)) as answers:
            async for answer in answers:
                match answer:
                    case KernelBuilt(build=build, manifest=data):
                        if build.outcome is Outcome.PASSED:
                            manifest = decode_json(data, Manifest)
                            if manifest.build != keys.get(build.case):
                                raise DamagedError(f"{build.case} was built under another key")
                            await self._session.fetch_objects([*manifest.files.values()])
                            publish(manifest, objects)
                            self._session.note_built(manifest.build)
                        yield build
                    case OrderDone():
                        return
                    case _:
                        raise AssertionError(f"a build was answered with {answer}")


class HostedPool:
    """A run's ``own`` pool together with the workers of other hosts. Own ones build, too, unless an agent
    has their cores; they take over what a lost host was to build. Programs, and sides with a Python of
    their own, are built here. What depends on the kind of CPU is built by hosts of that kind alone;
    ``own_kind`` is this host's. ``used``: what takes over waits for the cores on which devices are timing.
    """

    def __init__(
        self,
        own: CompilePool,
        hosts: Sequence[HostBuilders],
        sides: Mapping[str, Side],
        objects: ObjectStore,
        *,
        own_kind: str,
    ) -> None:
        self.used = UsedCores()
        self._own = own
        self._sides = sides
        self._objects = objects
        self._own_kind = own_kind
        kinds = {host.kind for host in hosts} - {""}
        self._usual_kind = kinds.pop() if len(kinds) == 1 else own_kind
        self._infos: dict[Builder, TargetInfo] = {}
        self._begun: dict[Builder, list[asyncio.Task[TargetInfo | None]]] = {}
        self._are_own_used = False
        self._hosts: list[HostBuilders] = []
        self._places: list[tuple[HostBuilders | None, int]] = []
        self.cores: tuple[int, ...] = ()
        here = [(None, number) for number in range(len(own.cores))]
        self._free: dict[tuple[HostBuilders | None, int], asyncio.Lock] = {
            place: asyncio.Lock() for place in here
        }
        for host in hosts:
            self.add(host)
        self._are_own_used = all(host.first_core for host in hosts)
        own.is_spare = not self._are_own_used
        if self._are_own_used:
            self._places += here
            self.cores += tuple(own.cores)

    def add(self, host: HostBuilders) -> None:
        """Build with the workers of a further host, too, unless they have cores of own ones."""
        self._hosts.append(host)
        if self._are_own_used and not host.first_core:
            return
        places = [(host, number) for number in range(len(host.cores))]
        self._places += places
        self.cores += host.cores
        self._free |= {place: asyncio.Lock() for place in places}

    async def begin(self, builder: Builder) -> None:
        """See ``CompilePool``."""
        self._begin_on_hosts(builder)
        await self._own.begin(builder)

    async def describe(self, builder: Builder) -> TargetInfo:
        """See ``CompilePool``. What another kind of CPU says first is kept: keys depend on it."""
        kind = self._find_kind(builder)
        self._begin_on_hosts(builder)
        if kind in ("", self._own_kind):
            return await self._own.describe(builder._replace(kind=""))
        if builder not in self._infos:
            for host in (one for one in self._hosts if one.kind == kind):
                if info := await host.describe(self._sides[builder.side], builder.target):
                    return self._infos.setdefault(builder, info)
            raise WorkerLostError(f"no host is there that builds for {builder.target} on {kind}")
        return self._infos[builder]

    def _begin_on_hosts(self, builder: Builder) -> None:
        """Have each host that will build start a worker now, while the author starts."""
        kind = self._find_kind(builder)
        if builder not in self._begun:
            self._begun[builder] = [
                asyncio.create_task(host.describe(self._sides[builder.side], builder.target))
                for host in self._hosts
                if kind in ("", self._kind_of(host))
            ]

    async def find_host(self, worker: tuple[Builder, int]) -> str:
        """The host on which a worker builds unless it is lost, empty for this one."""
        for host, _ in self._list_places(*worker):
            if await self._fits(host, worker[0]):
                return "" if host is None else host.name
        return ""

    async def build(
        self,
        worker: tuple[Builder, int],
        kernels: Sequence[BuildKernel],
        limits_s: Sequence[float],
        *,
        tell: TellBuilt = ignore,
        anew: bool = False,
    ) -> AsyncIterator[Build]:
        """See ``CompilePool``. What a host does not answer is built elsewhere. Raises HostsLostError if a run
        has several kinds of CPU, and none of one is left.
        """
        builder, number = worker
        left = {k.case: (k, limit_s) for k, limit_s in zip(kernels, limits_s, strict=True)}
        for host, place in self._list_places(builder, number):
            if not left or not await self._fits(host, builder):
                continue
            cores = self._own.cores if host is None else host.cores
            wanted, limits = zip(*left.values(), strict=True)
            stands_in_on = () if (host, place) == self._places[number] else (cores[place],)
            async with self._free[host, place], self.used.using(stands_in_on):
                if host is None:
                    own = builder._replace(kind=""), place
                    builds = self._own.build(own, wanted, limits, tell=tell, anew=anew)
                else:
                    order = BuildThere(
                        side=builder.side,
                        target=builder.target,
                        worker=place,
                        kernels=wanted,
                        limits_s=limits,
                        anew=anew,
                    )
                    builds = host.build(order, self._objects)
                async for built in _until_lost(builds):
                    if left.pop(built.case, None) is not None:
                        yield built
        if left:
            lost = HostsLostError if builder.kind else WorkerLostError
            on_kind = f" on {builder.kind}" if builder.kind else ""
            raise lost(f"no host is left that builds for {builder.target}{on_kind}")

    async def close(self) -> None:
        """End the workers of this host; those of others end with their sessions."""
        begun = [task for tasks in self._begun.values() for task in tasks]
        for task in begun:
            task.cancel()
        await asyncio.gather(*begun, return_exceptions=True)
        await self._own.close()

    def _list_places(
        self, builder: Builder, number: int
    ) -> Iterator[tuple[HostBuilders | None, int]]:
        """Where a worker's kernels may be built: its own place if that is of their kind of CPU, else one that
        is free; then those that stand in for a lost host.
        """
        place, kind = self._places[number], self._find_kind(builder)
        able = [one for one in self._places if kind in ("", self._kind_of(one[0]))]
        if place in able:
            yield place
        if kind not in ("", self._own_kind) or place not in able:
            others = (one for one in able if one != place)
            yield from sorted(others, key=lambda one: self._free[one].locked())
        if kind in ("", self._own_kind) and place[0] is not None:
            own, core = self._own.cores, self.cores[number]
            yield None, own.index(core) if core in own else number % len(own)

    async def _fits(self, host: HostBuilders | None, builder: Builder) -> bool:
        """Whether what is built there is what would be built elsewhere."""
        if host is None:
            return True
        info = await host.describe(self._sides[builder.side], builder.target)
        return info is not None and info == await self.describe(builder)

    def _find_kind(self, builder: Builder) -> str:
        """The kind of CPU for which something is built; empty if that does not matter."""
        return (builder.kind or self._usual_kind) if depends_on_cpu(builder.target) else ""

    def _kind_of(self, host: HostBuilders | None) -> str:
        return self._own_kind if host is None else host.kind or self._own_kind


async def _until_lost(builds: AsyncIterator[Build]) -> AsyncIterator[Build]:
    """Builds of a host until it is lost, or cannot build: the rest is built elsewhere."""
    with contextlib.suppress(SessionLostError, UsageError, DamagedError):
        async for built in builds:
            yield built

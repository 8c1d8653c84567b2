"""The devices of other hosts, as slots of a run. What they lease, run and judge is as on this host."""

import asyncio
import contextlib
import itertools
import os
import re
import socket
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf
from pathlib import Path

import msgspec

from tileyard.artifacts.folders import digest_file
from tileyard.artifacts.manifest import TREE_FILE, find_artifact
from tileyard.artifacts.objects import ObjectStore
from tileyard.base.clock import Clock
from tileyard.base.errors import (
    DamagedError,
    HostAbsentError,
    TileyardError,
    ToolMissingError,
    UsageError,
)
from tileyard.base.events import Event, HostJoined, HostLost, Note
from tileyard.base.model import Batch, Device, Digest, Outcome, Side
from tileyard.base.settings import Settings
from tileyard.devices.base import read_boot_id
from tileyard.devices.classes import find_cpu_kinds
from tileyard.devices.cpu import MAX_CORES, identify_model
from tileyard.engine.compilers import CompilePool
from tileyard.engine.hosts.building import HostBuilders, HostedPool, UsedCores
from tileyard.engine.hosts.meeting import Place, Placing
from tileyard.engine.hosts.messages import (
    AcquireDevice,
    AwaitRecovery,
    BatchEnded,
    CaseEnded,
    DeviceHeld,
    DeviceLost,
    DevicesFound,
    DeviceWaits,
    FindDevices,
    IdentifyPython,
    OpenToolchain,
    OrderDone,
    PythonIdentified,
    ReleaseDevice,
    RunOnDevice,
    WarmDevice,
    WithdrawBatches,
)
from tileyard.engine.hosts.programs import FarPrograms
from tileyard.engine.hosts.session import (
    MOST_RETRY_S,
    RETRY_S,
    HostSession,
    SentTree,
    SessionLostError,
)
from tileyard.engine.hosts.works import identify_python
from tileyard.engine.provider import Join, LeaseLostError, Slot, Waiting, Watch, infra_error
from tileyard.processes.keeper_line import name_job
from tileyard.targets.command.given import StepSite
from tileyard.workers.handing_over import ROOM_BYTES, count_output_bytes
from tileyard.workers.protocol import CaseBegan, CaseRan, RunEntry

AppendLog = Callable[[str, str], None]


class RemoteDevices:
    """The devices that agents at some places offer: a provider. ``append_log`` takes what cases printed,
    and ``emit`` that a host is ``lost``, or has joined: the former once the run has begun.
    """

    def __init__(self, placing: Placing, settings: Settings) -> None:
        self.append_log: AppendLog = lambda log, text: None
        self.emit: Callable[[Event], None] = lambda event: None
        self.lost: list[HostLost] = []
        self._has_begun = False
        self._settings = settings
        self._objects = ObjectStore(settings.home / "objects")
        self._placing = placing
        self._sessions: list[HostSession] = []
        self._hosts: list[HostBuilders] = []
        self._absent: dict[Place, str] = {}
        self._tried: set[HostSession] = set()
        """Sessions with hosts that have not joined, until they are closed."""
        self._first_cores = {read_boot_id(): 0}
        self._checks: list[Callable[[Device], None]] = []
        self._pool: HostedPool | None = None
        self._order = FindDevices(names=(), title="", queue_limit_s=0.0, plugins={})
        self._open: tuple[int | None, int | None] | None = None
        self.slots: Sequence[Slot] = ()
        self.programs = FarPrograms(settings.home)
        self.withdrawn = 0
        self._pythons: dict[str, str] = {}
        self._toolchains: dict[str, tuple[Path, OpenToolchain]] = {}
        self._withdrawing: set[asyncio.Task[None]] = set()
        self.used = UsedCores()

    async def find(
        self,
        names: Sequence[str],
        *,
        title: str,
        queue_limit_s: float,
        slots: int = 0,
        counts: Sequence[int] = (),
    ) -> tuple[Device, ...]:
        """Start the agents; the devices of these names on their hosts, each as ``DEVICE@HOST``, and anonymous
        ``slots`` of each host, -1 for one per core. Groups of devices of one host, of these ``counts``, are
        ``joined``. Raises TileyardError, and leaves nothing behind.
        """
        self._order = FindDevices(
            names=tuple(names),
            slots=slots,
            title=title,
            queue_limit_s=queue_limit_s,
            plugins=self._settings.plugins,
            job=name_job(os.environ, socket.gethostname()),
            counts=tuple(counts),
        )
        home = self._settings.make_home()
        try:
            places = await self._placing.open(home, queue_limit_s)
            if self._placing.notice:
                self.emit(Note(text=self._placing.notice))
            await self._open_all(places)
            found = [await self._find_first(session) for session in self._sessions]
            self._hosts = [
                self._make_builders(session, one)
                for session, one in zip(self._sessions, found, strict=True)
            ]
            self.slots = tuple(
                slot
                for session, builders, one in zip(self._sessions, self._hosts, found, strict=True)
                for slot in self._prepare(session, builders, one)
            )
        except SessionLostError as error:
            await self.close()
            raise UsageError(str(error)) from error
        except BaseException:
            await self.close()
            raise
        return tuple(slot.device for slot in self.slots if slot.device.count == 1)

    @property
    def joined(self) -> tuple[Device, ...]:
        """The groups of devices that can be held at once, each of one host."""
        return tuple(slot.device for slot in self.slots if slot.device.count > 1)

    async def _open_all(self, places: Sequence[Place]) -> None:
        """Sessions with the hosts that are reached; the others may join later. Raises TileyardError if
        there are none, or if what is reached is of no use.
        """
        self._sessions = [self._make_session(place) for place in places]
        opening = (session.open() for session in self._sessions)
        failures = await asyncio.gather(*opening, return_exceptions=True)
        away = [error for error in failures if isinstance(error, HostAbsentError)]
        for failure in failures:
            is_refused = not isinstance(failure, HostAbsentError) or len(away) == len(failures)
            if failure is not None and is_refused:
                raise failure
        found = list(zip(self._sessions, failures, strict=True))
        self._sessions = [session for session, failure in found if failure is None]
        for session, error in found:
            if isinstance(error, HostAbsentError):
                self._absent[session.place] = error.message
                text = f"{error.message}; the run begins without it, and uses it once it is there"
                self.emit(Note(text=text, level="warning"))

    def _make_session(self, place: Place) -> HostSession:
        log = self._settings.home / "logs" / f"agent-{place.name}.log"
        session = HostSession(place, self._objects, log)
        session.tell_lost = partial(self._note_lost, session.name)
        return session

    def _make_builders(self, session: HostSession, found: DevicesFound) -> HostBuilders:
        first_core = len(self._first_cores) * MAX_CORES
        first_core = self._first_cores.setdefault(session.boot, first_core)
        return HostBuilders(session, first_core, next(iter(find_cpu_kinds(found.devices)), ""))

    def _prepare(
        self, session: HostSession, builders: HostBuilders, found: DevicesFound
    ) -> "list[RemoteSlot]":
        """The slots of a host, which is as it is now in each later session."""
        session.begin_with(partial(self._begin_again, builders, found))
        devices = (*found.devices, *found.joined)
        return [RemoteSlot(self, session, one, builders.first_core) for one in devices]

    def also_require(self, check: Callable[[Device], None]) -> None:
        """Use the devices of a host that joins only if this raises no UsageError."""
        self._checks.append(check)

    async def await_hosts(self, grounds: Mapping[str, Sequence[Device]], join: Join) -> None:
        """Have hosts join a run on these devices: those that were down when it began, and those that come
        to its cluster.
        """
        kinds = {target: {device.kind for device in devices} for target, devices in grounds.items()}
        async with asyncio.TaskGroup() as group:
            for place, why in self._absent.items():
                group.create_task(self._await_host(place, why, kinds, join))
            while (further := await self._find_further()) is not None:
                group.create_task(self._await_host(further, "", kinds, join))

    async def _find_further(self) -> Place | None:
        """The next place of those that come; none, and a line, if there can be no more."""
        try:
            return await self._placing.wait_further()
        except TileyardError as error:
            text = f"no further host can join: {error}"
            self.emit(Note(text=text, level="warning"))
            return None

    async def _await_host(
        self, place: Place, why: str, kinds: Mapping[str, set[str]], join: Join
    ) -> None:
        """Try a host again until it has joined, or turns out to be of no use. Each reason why it has not come
        is one line; ``why`` was said already.
        """
        said, delay_s = {_without_numbers(why)}, RETRY_S
        while True:
            session = self._make_session(place)
            session.tell_lost = lambda _: None  # it was of no use yet
            self._tried.add(session)
            try:
                await session.open()
                self._join(*await self._inspect(session), kinds, join)
            except (HostAbsentError, SessionLostError, ToolMissingError) as error:
                # The command could be started when the run began: a lack of it passes.
                await session.close()
                why = error.message if isinstance(error, TileyardError) else str(error)
                if _without_numbers(why) not in said:
                    said.add(_without_numbers(why))
                    self.emit(Note(text=f"{why}; it is tried again", level="warning"))
            except (TileyardError, OSError) as error:
                text = f"not used, although it has come: {error}"
                self.emit(Note(text=text, level="warning"))
                await session.close()
                self._tried.discard(session)
                return
            else:
                return
            self._tried.discard(session)
            await asyncio.sleep(delay_s)
            delay_s = min(2 * delay_s, MOST_RETRY_S)

    async def _inspect(
        self, session: HostSession
    ) -> tuple[HostSession, HostBuilders, DevicesFound]:
        """What a host that has come offers, once it is prepared as those that were there from the start.
        Raises TileyardError if it is not used, and SessionLostError.
        """
        found = await self._find_on(session)
        builders = self._make_builders(session, found)
        kinds = {host.kind for host in self._hosts} - {""} or {identify_model()}
        if builders.kind and builders.kind not in kinds:
            known = " and ".join(sorted(kinds))
            raise UsageError(f"host {session.name} has {builders.kind}, and the run {known}")
        for device in found.devices:
            for check in self._checks:
                check(device)
        await self._equip(session, builders)
        if session.is_lost:
            raise SessionLostError(f"host {session.name} was lost while it was prepared")
        return session, builders, found

    def _join(
        self,
        session: HostSession,
        builders: HostBuilders,
        found: DevicesFound,
        kinds: Mapping[str, set[str]],
        join: Join,
    ) -> None:
        session.tell_lost = partial(self._note_lost, session.name)
        slots = [
            slot
            for slot in self._prepare(session, builders, found)
            if any(slot.device.kind in each for each in kinds.values())
        ]
        self._tried.discard(session)
        self._sessions.append(session)
        self._hosts.append(builders)
        if self._pool is not None:
            self._pool.add(builders)
        devices = tuple(slot.device for slot in slots)
        singles = tuple(device for device in devices if device.count == 1)
        self.emit(HostJoined(host=session.name, at=Clock().wall_s(), devices=singles))
        serving = {
            target: tuple(device for device in devices if device.kind in each)
            for target, each in kinds.items()
        }
        join(slots, serving)

    async def _find_first(self, session: HostSession) -> DevicesFound:
        """As ``_find_on``; an agent that is lost meanwhile is started again, once."""
        try:
            return await self._find_on(session)
        except SessionLostError:
            await session.revive(0.0)
            return await self._find_on(session)

    async def _ask_all(self, ask: Callable[[HostSession], Awaitable[None]]) -> None:
        """Order of every host what ``_begin_again`` orders, too: one that is lost meanwhile begins again,
        once. Raises TileyardError.
        """

        async def ask_one(session: HostSession) -> None:
            try:
                await ask(session)
            except SessionLostError:
                await session.revive(0.0)

        try:
            await asyncio.gather(*map(ask_one, self._sessions))
        except SessionLostError as error:
            raise UsageError(str(error)) from error

    async def _find_on(self, session: HostSession) -> DevicesFound:
        """The devices of a host that the run asks for, or those that its place names instead."""
        names = self._order.names and (session.place.devices or self._order.names)
        return await session.ask(msgspec.structs.replace(self._order, names=names), DevicesFound)

    async def _begin_again(
        self, builders: HostBuilders, before: DevicesFound, session: HostSession
    ) -> None:
        """Prepare the host of a lost session once more. Raises TileyardError if it is not what it was."""
        found = await self._find_on(session)
        now, then = ({one.name: one.identity for one in each.devices} for each in (found, before))
        if now != then:
            raise UsageError(f"host {session.name} has other devices than before")
        await self._equip(session, builders)

    async def _equip(self, session: HostSession, builders: HostBuilders) -> None:
        """Order of a host what the run has ordered of all. Raises TileyardError."""
        for path, identity in self._pythons.items():
            await _require_python(session, path, identity)
        if self._open is not None:
            await builders.open(*self._open)
        for bundle, order in self._toolchains.values():
            await session.open_toolchain(bundle, order)

    async def open_toolchain(self, bundle: Path, commit: str, site: StepSite | None = None) -> None:
        """Have every host unpack a toolchain for its steps, or only for those that have it here as their
        ``site``. Raises TileyardError.
        """
        digest = await asyncio.to_thread(lambda: digest_file(bundle.resolve()))
        tree = "" if site is None else self.programs.note_toolchain(site)
        order = OpenToolchain(bundle=digest, name=bundle.name, commit=commit, tree=tree)
        self._toolchains[tree] = bundle, order
        await self._ask_all(lambda session: session.open_toolchain(bundle, order))

    def _note_lost(self, host: str, why: str) -> None:
        self.lost.append(HostLost(host=host, at=Clock().wall_s(), why=why))
        if self._has_begun:
            self.emit(self.lost[-1])

    def begin(self, emit: Callable[[Event], None]) -> None:
        """Emit into a run that has begun: also the hosts that were lost before."""
        self.emit, self._has_begun = emit, True
        for lost in self.lost:
            emit(lost)

    async def open_builders(
        self,
        own: CompilePool,
        sides: Mapping[str, Side],
        workers: int | None = None,
        group_size: int | None = None,
    ) -> HostedPool:
        """This host's compile workers and the other hosts', as one pool. Raises TileyardError."""
        self._open = asked = workers, group_size
        builders = dict(zip(self._sessions, self._hosts, strict=True))
        await self._ask_all(lambda session: builders[session].open(*asked))
        has_cpus = any(host.kind for host in self._hosts)
        own_kind = identify_model() if has_cpus else ""
        self._pool = HostedPool(own, self._hosts, sides, self._objects, own_kind=own_kind)
        self.used = self._pool.used
        return self._pool

    async def require_pythons(self, paths: Iterable[str]) -> None:
        """Raise UsageError if a host has another Python at one of these paths. Raises TileyardError."""
        for path in paths:
            own = self._pythons[path] = await asyncio.to_thread(identify_python, path)
            await self._ask_all(partial(_require_python, path=path, own=own))

    async def open(self) -> None:
        """Do nothing: the agents run since the devices were named."""

    def withdraw(self) -> None:
        """Begin no further case on any host."""
        self.withdrawn += 1
        task = asyncio.create_task(self._withdraw())
        self._withdrawing.add(task)
        task.add_done_callback(self._withdrawing.discard)

    async def _withdraw(self) -> None:
        asked = (session.ask(WithdrawBatches(), OrderDone) for session in self._sessions)
        await asyncio.gather(*asked, return_exceptions=True)  # a lost one begins nothing

    async def close(self) -> None:
        """End every agent, with what it runs. Repeatable."""
        for task in tuple(self._withdrawing):
            task.cancel()
        await asyncio.gather(*(session.close() for session in (*self._sessions, *self._tried)))
        await self._placing.close()

    def list_needed(self, entry: RunEntry) -> tuple[Digest, ...]:
        """The objects that a runner needs for a case, verified. Raises DamagedError if one is not here."""
        artifact = find_artifact(entry.build, self._objects)
        if artifact is None:
            raise DamagedError(f"artifact {entry.build} is not in {self._objects.root}")
        files = [file for name, file in artifact.manifest.files.items() if name != TREE_FILE]
        needed = tuple(filter(None, (*files, *entry.golden.inputs, *entry.golden.outputs)))
        for digest in needed:
            self._objects.path(digest)
        return needed


class RemoteSlot:
    """A device of another host, whose locks are that host's."""

    appetite = 0

    def __init__(
        self, hosts: RemoteDevices, session: HostSession, device: Device, first_core: int
    ) -> None:
        self.device = msgspec.structs.replace(
            device,
            name=f"{device.name}@{session.name}",
            cores=tuple(core + first_core for core in device.cores),
            locks=(),
            env={},
            probe=(),
            members=tuple(
                msgspec.structs.replace(one, name=f"{one.name}@{session.name}", locks=())
                for one in device.members
            ),
        )
        self._name = device.name
        self._hosts = hosts
        self._session = session
        self._lease = 0
        self._of_session = 0

    async def recover(self) -> None:
        """Return once the device can be asked for again: its agent is back, and it is not in quarantine."""
        while True:
            with contextlib.suppress(SessionLostError, TileyardError):
                await self._session.revive(inf)
                if self._session.number == self._of_session:
                    await self._session.ask(AwaitRecovery(device=self._name), OrderDone)
                return
            await asyncio.sleep(RETRY_S)  # its session does not begin again, or was lost once more

    async def warm(self) -> None:
        """Start the runner there. ``acquire`` reports failures."""
        with contextlib.suppress(SessionLostError, TileyardError):
            await self._session.ask(WarmDevice(device=self._name), OrderDone)

    async def acquire(self, memory_bytes: int, waiting: Callable[[Waiting], None]) -> int:
        """Have the agent lease the device. See ``Slot``."""
        order = AcquireDevice(device=self._name, memory_bytes=memory_bytes)
        if self._session.is_lost:
            waiting(Waiting(holder="its host, which was lost"))  # others are asked meanwhile
        with self._losing():
            await self._session.revive()
            self._of_session = self._session.number
            async with contextlib.aclosing(self._session.follow(order)) as answers:
                async for answer in answers:
                    match answer:
                        case DeviceWaits(place=place, holder=holder):
                            waiting(Waiting(place=place, holder=holder))
                        case DeviceHeld(lease=lease):
                            self._lease = lease
                            return lease
                        case DeviceLost(message=message, outcome=outcome):
                            raise LeaseLostError(f"host {self._session.name}: {message}", outcome)
                        case _:
                            raise AssertionError(f"a lease was answered with {answer}")
        raise AssertionError("an order ended without an answer")

    async def run(self, batch: Batch, entries: Sequence[RunEntry], watch: Watch) -> bool:
        """Send what the host lacks, and run. See ``Slot``. If the host is lost, its case is to blame; a case
        of which something is missing here is answered, and not sent.
        """
        withdrawn = self._hosts.withdrawn
        needed: dict[str, _Needed] = {}
        for entry in _choose(batch, entries):
            try:
                needed[entry.case] = await self._prepare(entry)
            except (TileyardError, OSError) as error:
                watch.ran(infra_error(entry.case, str(error)), self.device.name, self._lease)
        if not needed:
            return True
        with self._losing():
            self._require_session()
            for tree in (tree for one in needed.values() for tree in one.trees):
                await self._session.send_tree(tree)
            digests = (digest for one in needed.values() for digest in one.objects)
            builds = {one.entry.build for one in needed.values()}
            await self._session.send_objects(digests, builds)
            if self._hosts.withdrawn != withdrawn:
                return True
            self._require_session()
            order = RunOnDevice(
                device=self._name,
                batch=msgspec.structs.replace(
                    batch, cases=tuple(case for case in batch.cases if case.key in needed)
                ),
                entries=tuple(one.far for one in needed.values()),
            )
            is_timed = any(case.timing is not None for case in order.batch.cases)
            async with self._hosts.used.using(self.device.cores if is_timed else ()):
                return await self._follow(order, needed, watch)

    async def _follow(
        self, order: RunOnDevice, needed: Mapping[str, "_Needed"], watch: Watch
    ) -> bool:
        """Report what becomes of a batch. Raises SessionLostError if no case was running."""
        current = ""
        try:
            async with contextlib.aclosing(self._session.follow(order)) as answers:
                async for answer in answers:
                    match answer:
                        case CaseBegan(case=current):
                            watch.began(current)
                        case CaseEnded(ran=ran, lease=lease):
                            ran = await self._end(answer, needed[ran.case])
                            current = "" if current == ran.case else current
                            watch.ran(ran, self.device.name, lease)
                        case BatchEnded(held=held):
                            return held
                        case DeviceLost(message=message, outcome=outcome):
                            raise LeaseLostError(f"host {self._session.name}: {message}", outcome)
                        case _:
                            raise AssertionError(f"a batch was answered with {answer}")
        except SessionLostError as error:
            if not current:
                raise
            watch.ran(infra_error(current, str(error)), self.device.name, self._lease)
            return False
        raise AssertionError("an order ended without an answer")

    async def _prepare(self, entry: RunEntry) -> "_Needed":
        """What a case needs there. Raises TileyardError and OSError."""
        objects = self._list_needed(entry)
        if entry.command is None:
            return _Needed(entry, entry, objects, ())
        far, trees = await asyncio.to_thread(self._hosts.programs.prepare, entry)
        return _Needed(entry, far, objects, trees)

    def _list_needed(self, entry: RunEntry) -> tuple[Digest, ...]:
        """The objects that a case needs, verified unless all are there already. Raises DamagedError."""
        golden = (*entry.golden.inputs, *entry.golden.outputs)
        if self._session.knows(golden, entry.build):
            return golden
        return self._hosts.list_needed(entry)

    def _require_session(self) -> None:
        """Raise SessionLostError if the lease was of an earlier session."""
        if self._of_session != self._session.number:
            raise SessionLostError(f"host {self._session.name}: its agent was started again")

    async def _end(self, ended: CaseEnded, needed: "_Needed") -> CaseRan:
        """How a case ended, once this run has what it left."""
        entry, ran = needed.entry, ended.ran
        self._hosts.append_log(entry.log, ended.log)
        if ended.work:
            try:
                fetching = self._hosts.programs.fetch_work
                await fetching(self._session, self._name, entry, ended)
            except (SessionLostError, TileyardError, OSError) as error:
                ran = infra_error(ran.case, str(error))
        if ran.outcome is Outcome.RUNTIME_ERROR:
            with contextlib.suppress(TileyardError, OSError):
                reason = await asyncio.to_thread(self._hosts.programs.explain, entry, ended.log)
                ran = msgspec.structs.replace(ran, message=ran.message + reason)
        if ran.outcome is Outcome.INFRA_ERROR:
            self._session.forget()  # something may be gone there, or damaged
        return ran

    async def release(self) -> None:
        """End the runner there. Harmless if nothing is held."""
        with contextlib.suppress(SessionLostError, UsageError):
            await self._session.ask(ReleaseDevice(device=self._name), OrderDone)

    @contextlib.contextmanager
    def _losing(self) -> Iterator[None]:
        try:
            yield
        except (SessionLostError, TileyardError, OSError) as error:
            raise LeaseLostError(str(error)) from error


def _without_numbers(text: str) -> str:
    """Reasons that differ in a number, such as a time or a port, are the same."""
    return re.sub(r"\d+", "", text)


async def _require_python(session: HostSession, path: str, own: str) -> None:
    order = IdentifyPython(python="" if path == sys.executable else path)
    found = (await session.ask(order, PythonIdentified)).identity
    if found != own:
        raise UsageError(f"host {session.name} has {found} in place of {path}, which is {own}")


@dataclass(frozen=True)
class _Needed:
    entry: RunEntry
    far: RunEntry
    objects: tuple[Digest, ...]
    trees: tuple[SentTree, ...]


def _choose(batch: Batch, entries: Sequence[RunEntry]) -> Sequence[RunEntry]:
    """The first entries for whose outputs there is room until they are judged; all if timed in turn."""
    if batch.order == "interleaved":
        return entries
    sizes = itertools.accumulate(count_output_bytes(entry.specs) for entry in entries)
    return entries[: max(1, sum(size <= ROOM_BYTES for size in sizes))]

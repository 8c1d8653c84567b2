"""The far side of a run over several hosts: leases this host's devices, runs batches on them, judges
what they give, and keeps everything that it starts under keepers. It ends with its session.
"""

import asyncio
import contextlib
import logging
import os
import secrets
import signal
import stat
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from pkgutil import resolve_name
from typing import Final, assert_never

import msgspec

from tileyard.artifacts.copying import remove_folder
from tileyard.artifacts.objects import ObjectStore
from tileyard.artifacts.pins import hold
from tileyard.base.clock import Clock
from tileyard.base.errors import DamagedError, HomeError, TileyardError, UsageError, WireError
from tileyard.base.model import Device, Digest, Outcome, Side
from tileyard.base.modes import make_folder
from tileyard.base.settings import Settings
from tileyard.devices.base import read_boot_id
from tileyard.devices.cpu import identify_model
from tileyard.devices.holding import join_devices
from tileyard.devices.locks import prepare_locks
from tileyard.devices.occupancy import is_wanted
from tileyard.devices.registry import require_apart, resolve_devices
from tileyard.devices.reprobing import INTERVAL_S
from tileyard.devices.survey import survey_devices
from tileyard.engine.borrowing import LINGER_S, TURN_S
from tileyard.engine.compilers import Builder, CompilePool, choose_cores
from tileyard.engine.far_devices import FarDevice, read_end
from tileyard.engine.hosting import AnonymousSlots, StepHost, make_slots
from tileyard.engine.hosts.meeting import Address, Ticket, join
from tileyard.engine.hosts.messages import (
    PROTOCOL,
    SILENCE_S,
    AcquireDevice,
    Answer,
    Answered,
    AwaitRecovery,
    BatchEnded,
    Beat,
    BuildersOffered,
    BuildThere,
    CancelOrder,
    CaseEnded,
    DescribeBuilder,
    DeviceHeld,
    DeviceLost,
    DevicesFound,
    DeviceWaits,
    DiagnoseHost,
    FindDevices,
    Greeting,
    HostDiagnosed,
    HostSurveyed,
    HostTime,
    IdentifyPython,
    KernelBuilt,
    ObjectPart,
    ObjectsWanted,
    OfferBuilders,
    OfferObjects,
    OfferTree,
    OpenToolchain,
    Order,
    OrderDone,
    Ordered,
    OrderRefused,
    PythonIdentified,
    ReleaseDevice,
    RunOnDevice,
    SendObjects,
    SurveyHost,
    TellTime,
    WarmDevice,
    WithdrawBatches,
)
from tileyard.engine.hosts.parts import Arrivals, read_parts
from tileyard.engine.hosts.works import ArrivedTrees, CaseFolders, identify_python
from tileyard.engine.programs import WORK, place_toolchain
from tileyard.engine.provider import LeaseLostError, LeaseProvider, Slot, Waiting, infra_error
from tileyard.engine.readmission import Readmission
from tileyard.engine.runners import LocalDevices, RunnerSite
from tileyard.processes.async_wire import AsyncChannel, HostChannel
from tileyard.processes.keeper.quarantine import find_quarantine
from tileyard.processes.keeper.tree import go_on_with_parent_gone
from tileyard.processes.keeper_line import JOB
from tileyard.processes.supervise import time_limit
from tileyard.processes.wire import READ_BYTES
from tileyard.targets.command.given import StepSite, tell_site
from tileyard.workers.protocol import CaseBegan, CaseRan, RunEntry

MOST_PRINTED = 1 << 20
"""Bytes of the end of what a program printed that the run gets."""
TellAnswer = Callable[[Answer], None]
log = logging.getLogger(__name__)
DOCTOR: Final = "tileyard.verbs.doctor.plan.hosts:report_here"
"""The function of the settings and the order that makes the report for HostDiagnosed."""


class Offered(FarDevice[Slot]):
    """A device, or an anonymous slot, that this host offers, with ``folders`` for cases of programs."""

    def __init__(
        self, site: RunnerSite, slot: Slot, judging_cores: tuple[int, ...], folders: CaseFolders
    ) -> None:
        super().__init__(site, slot, judging_cores)
        self.folders = folders
        self.withdrawn = 0
        self._lease = 0
        self._turn_over_s = 0.0
        self._resting: asyncio.Task[None] | None = None
        self._is_passed_on = False

    async def acquire(self, memory_bytes: int, waiting: Callable[[Waiting], None]) -> int:
        """Lease the device, for a turn at least. See ``Slot``."""
        await self._end_rest()
        self._is_passed_on = False
        self._lease = await self.slot.acquire(memory_bytes, waiting)
        self._begin_turn()
        self._begin_rest()
        return self._lease

    def _begin_turn(self) -> None:
        self._turn_over_s = self._site.clock.monotonic_s() + TURN_S

    async def rest(self) -> bool:
        """Give the device up if its turn is over and others of this host wait, now or before the next batch:
        while this one is judged, and while the run has none. See ``FarDevice``.
        """
        if self._left_s < 0:
            self._begin_turn()
            if self._is_wanted:
                await self._pass_on()
                return False
        self._begin_rest()
        return True

    @property
    def _left_s(self) -> float:
        return self._turn_over_s - self._site.clock.monotonic_s()

    @property
    def _is_wanted(self) -> bool:
        return is_wanted(self.slot.device, self._site.settings.lock_dir)

    async def _pass_on(self) -> None:
        self._is_passed_on = True
        await self.slot.release()

    def _begin_rest(self) -> None:
        if self.slot.device.locks:
            self._resting = asyncio.create_task(self._rest())

    async def _rest(self) -> None:
        """Look at intervals whether others wait once the turn is over."""
        while True:
            await asyncio.sleep(max(LINGER_S, self._left_s))
            if self._is_wanted:
                await self._pass_on()
                return

    async def _end_rest(self) -> None:
        """Keep the device from now on, unless it is being passed on: then return once it is."""
        if self._resting is not None:
            if not self._is_passed_on:
                self._resting.cancel()
            await asyncio.wait({self._resting})
            self._resting = None

    async def carry_out(self, order: RunOnDevice, tell: TellAnswer) -> None:
        """Run a batch; return once all that ran is judged, or kept for the run, and told. Nothing runs on a
        device that was passed on meanwhile.
        """
        withdrawn = self.withdrawn
        entries = await self._settle(order.entries, tell)
        is_to_run = entries and self.withdrawn == withdrawn
        if is_to_run:
            await self._end_rest()
        if not is_to_run or self._is_passed_on:
            tell(BatchEnded(held=not self._is_passed_on))
            return
        telling = _Telling(self.folders, entries, tell)
        cases = tuple(case for case in order.batch.cases if case.key in entries)
        batch = msgspec.structs.replace(order.batch, cases=cases)
        ended: Answer
        try:
            held = await self.run(batch, tuple(entries.values()), telling)
            ended = BatchEnded(held=held and not self._is_passed_on)
        except LeaseLostError as error:
            ended = DeviceLost(message=error.message, outcome=error.outcome)
        finally:
            await telling.finish()
        tell(ended)

    async def _settle(self, entries: Sequence[RunEntry], tell: TellAnswer) -> dict[str, RunEntry]:
        """The entries with places of this host; one for which there is no room has ended."""
        await self._clear()
        settled = {
            entry.case: self.folders.settle_log(entry) for entry in entries if entry.command is None
        }
        for entry in (entry for entry in entries if entry.command is not None):
            try:
                settled[entry.case] = await asyncio.to_thread(self.folders.settle, entry)
            except (TileyardError, OSError) as error:
                ran = infra_error(entry.case, str(error))
                tell(CaseEnded(ran=ran, lease=self._lease))
        return settled

    async def release(self) -> None:
        """Give the device up, and remove what programs have left: the run has it."""
        await self._end_rest()
        await self.slot.release()
        await self._clear()

    async def close(self) -> None:
        """See ``FarDevice``."""
        await self._end_rest()
        await super().close()

    async def _clear(self) -> None:
        if self.folders.are_there:
            with contextlib.suppress(OSError):
                await asyncio.to_thread(self.folders.clear)


class _Telling:
    """Tells the run what becomes of a batch; what a program left is kept first, until the next batch."""

    def __init__(
        self, folders: CaseFolders, entries: Mapping[str, RunEntry], tell: TellAnswer
    ) -> None:
        self._folders = folders
        self._entries = entries
        self._tell = tell
        self._keeping: list[asyncio.Task[None]] = []

    def began(self, case: str) -> None:
        self._tell(CaseBegan(case=case))

    def ended(self, ran: CaseRan, lease: int) -> None:
        entry = self._entries[ran.case]
        if entry.command is not None:
            self._keeping.append(asyncio.create_task(self._keep(ran, entry, lease)))
            return
        path = Path(entry.log)
        self._tell(CaseEnded(ran=ran, lease=lease, log=read_end(path)))
        path.unlink(missing_ok=True)  # what is left to read is the run's now

    async def finish(self) -> None:
        """Return once nothing is kept any more."""
        await asyncio.gather(*self._keeping)

    async def _keep(self, ran: CaseRan, entry: RunEntry, lease: int) -> None:
        work, refused, left = Digest(""), tuple[str, ...](), tuple[bytes, ...]()
        if ran.outcome is not Outcome.INFRA_ERROR:
            try:
                work, refused = await asyncio.to_thread(self._folders.keep, entry)
                left = await asyncio.to_thread(self._folders.read_small, work)
            except (TileyardError, OSError) as error:
                message = f"what it left cannot be kept: {error}"
                ran = msgspec.structs.replace(ran, outcome=Outcome.INFRA_ERROR, message=message)
        log = read_end(Path(entry.log), MOST_PRINTED)
        log += "".join(f"==== not sent back: {line}\n" for line in refused)
        self._tell(CaseEnded(ran=ran, lease=lease, log=log, work=work, left=left))


class Agent:
    """One session with a run, over ``channel``. ``settings`` are this host's."""

    def __init__(self, settings: Settings, channel: HostChannel) -> None:
        self.is_closing = False
        self._settings = settings
        self._channel = channel
        self._objects = ObjectStore(settings.home / "objects")
        self._arrivals = Arrivals(self._objects)
        self._folder = settings.home / WORK / f"agent-{secrets.token_hex(4)}"
        self._trees = ArrivedTrees(self._folder, self._objects)
        self._files = Arrivals(self._trees.files)
        self._steps = StepHost(settings.home, settings.cores)
        self._lenders: tuple[LeaseProvider, ...] = ()
        self._site: RunnerSite | None = None
        self._offered: dict[str, Offered] = {}
        self._sides: dict[str, Side] = {}
        self._pool: CompilePool | None = None
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._unsent: asyncio.Queue[Answered] = asyncio.Queue()

    async def serve(self) -> None:
        """Carry out orders until the run hangs up, or is not heard for SILENCE_S."""
        writing = asyncio.create_task(self._write())
        greeting = Greeting(version=version("tileyard"), protocol=PROTOCOL, boot=read_boot_id())
        self._answer(0, greeting)
        try:
            async with time_limit(SILENCE_S) as limit:
                while (ordered := await self._channel.receive(Ordered)) is not None:
                    if writing.done():
                        return
                    limit.reset(SILENCE_S)
                    self._take(ordered.number, ordered.order)
        except TimeoutError:
            log.warning("nothing was heard of the run for %g s", SILENCE_S)
        except WireError as error:
            log.warning("the session cannot go on: %s", error)
        finally:
            await self._close()
            writing.cancel()
            await asyncio.wait({writing})

    def _answer(self, number: int, answer: Answer) -> None:
        self._unsent.put_nowait(Answered(number=number, answer=answer))

    async def _write(self) -> None:
        with contextlib.suppress(BrokenPipeError):
            while True:
                await self._channel.send(await self._unsent.get())

    def _take(self, number: int, order: Order) -> None:
        match order:
            case Beat():
                self._answer(0, order)
            case CancelOrder(number=other):
                if other in self._tasks:
                    self._tasks[other].cancel()
            case TellTime():
                self._answer(number, HostTime(at=Clock().wall_s()))
            case ObjectPart():
                try:
                    arrivals = self._files if order.is_of_tree else self._arrivals
                    if arrivals.take(order):
                        self._answer(number, OrderDone())
                except (DamagedError, HomeError, OSError) as error:
                    self._answer(number, OrderRefused(message=f"cannot store objects: {error}"))
            case _:
                task = self._tasks[number] = asyncio.create_task(self._carry_out(number, order))
                task.add_done_callback(lambda _: self._tasks.pop(number))

    async def _carry_out(self, number: int, order: Order) -> None:
        tell = partial(self._answer, number)
        try:
            await self._follow(number, order, tell)
        except TileyardError as error:
            tell(OrderRefused(message=error.message, hint=error.hint))
        except Exception as error:
            log.exception("an order failed")
            tell(OrderRefused(message=f"the agent failed: {error!r}"))

    async def _follow(self, number: int, order: Order, tell: TellAnswer) -> None:
        match order:
            case FindDevices():
                tell(self._offer(order))
            case WarmDevice(device=name):
                await self._find(name).slot.warm()
                tell(OrderDone())
            case AcquireDevice(device=name, memory_bytes=memory_bytes):
                await self._acquire(self._find(name), memory_bytes, tell)
            case RunOnDevice(device=name):
                await self._find(name).carry_out(order, tell)
            case ReleaseDevice(device=name):
                await self._find(name).release()
                tell(OrderDone())
            case AwaitRecovery(device=name):
                await self._wait_until_well(self._find(name).slot.device)
                tell(OrderDone())
            case WithdrawBatches():
                self._withdraw()
                tell(OrderDone())
            case OfferObjects() | OfferTree() | OpenToolchain():
                tell(ObjectsWanted(digests=await asyncio.to_thread(self._take_in, order)))
            case IdentifyPython(python=path):
                tell(PythonIdentified(identity=await asyncio.to_thread(identify_python, path)))
            case SendObjects():
                await self._send_objects(number, order)
                tell(OrderDone())
            case OfferBuilders():
                tell(BuildersOffered(cores=self._offer_builders(order).cores))
            case DescribeBuilder(side=side, target=target):
                self._sides[side.name] = side
                tell(await self._builders.describe(Builder(side.name, target)))
            case BuildThere():
                await self._build(order, tell)
                tell(OrderDone())
            case SurveyHost() | DiagnoseHost():
                tell(await asyncio.to_thread(_look_at_host, self._settings, order))
            case Beat() | CancelOrder() | ObjectPart() | TellTime():
                raise AssertionError(f"{type(order).__name__} is no order that takes time")
            case _:
                assert_never(order)

    def _offer(self, order: FindDevices) -> DevicesFound:
        if self._site is not None:
            raise UsageError("devices are asked for once")
        self._settings = settings = msgspec.structs.replace(self._settings, plugins=order.plugins)
        if order.job:
            os.environ.setdefault(JOB, order.job)
        found = {d.name: d for name in order.names for d in resolve_devices(name, settings)}
        devices = tuple(found.values())
        require_apart(devices)
        for device in devices:
            prepare_locks(device)
        self._site = RunnerSite(
            settings=settings,
            grounds={},
            queue_limit_s=order.queue_limit_s,
            title=order.title,
        )
        timed = {core for device in devices for core in device.cores}
        free = tuple(core for core in settings.cores if core not in timed)
        count = len(settings.cores) if order.slots < 0 else order.slots
        slots = make_slots(count, identify_model())
        places = asyncio.Semaphore(max(1, len(slots)))
        anonymous = AnonymousSlots(self._steps, slots, places)
        joined = tuple(one for count in order.counts for one in join_devices(devices, count))
        self._lenders = LocalDevices(self._site, (*devices, *joined)), anonymous
        for slot in (slot for lender in self._lenders for slot in lender.slots):
            folders = CaseFolders(self._folder / str(len(self._offered)), self._trees)
            judging = free or slot.device.cores or settings.cores  # not on another's cores
            self._offered[slot.device.name] = Offered(self._site, slot, judging, folders)
        return DevicesFound(devices=(*devices, *slots), joined=joined)

    def _withdraw(self) -> None:
        for offered in self._offered.values():
            offered.withdrawn += 1
        for lender in self._lenders:
            lender.withdraw()

    async def _wait_until_well(self, device: Device) -> None:
        """Have a device probed until it is in quarantine no more; for ever if it is in none."""
        well = asyncio.Event()
        slots = [offered.slot for offered in self._offered.values()]
        probing = Readmission(slots, INTERVAL_S, lambda _: well.set())
        try:
            if find_quarantine(device.locks):
                probing.look_after([device.name])
            await well.wait()
        finally:
            await probing.close()

    async def _send_objects(self, number: int, order: SendObjects) -> None:
        device = order.device
        objects = self._find(device).folders.kept if device else self._objects
        for digest in order.digests:
            for part in read_parts(objects.path(digest), digest):
                # Past the queue: no more of an object is read than can be sent.
                await self._channel.send(Answered(number=number, answer=part))

    def _take_in(self, order: OfferObjects | OfferTree | OpenToolchain) -> tuple[Digest, ...]:
        """Use what is offered; or the objects that are needed for that and are not here."""
        match order:
            case OfferObjects(digests=digests, builds=builds):
                for key, manifest in builds.items():
                    self._objects.put_record("build", key, manifest)
                return tuple(one for one in digests if not self._objects.has(one))
            case OfferTree(listing=listing):
                return self._trees.assemble(listing)
            case OpenToolchain():
                return self._open_toolchain(order)
            case _:
                assert_never(order)

    def _open_toolchain(self, order: OpenToolchain) -> tuple[Digest, ...]:
        """Tell the processes that run steps, which start later, where the toolchain is, or note it for those
        that name its tree.
        """
        if not self._objects.has(order.bundle):
            return (order.bundle,)
        make_folder(self._folder)
        named = self._folder / Path(order.name).name  # errors have its name
        named.unlink(missing_ok=True)
        named.symlink_to(self._objects.path(order.bundle).absolute())
        site = place_toolchain(named, order.commit, self._settings.home)
        if order.tree:
            self._trees.toolchains[order.tree] = site
        else:
            tell_site(site)
        return ()

    def _offer_builders(self, order: OfferBuilders) -> CompilePool:
        if self._pool is not None:
            raise UsageError("builders are asked for once")
        devices = [offered.slot.device for offered in self._offered.values()]
        cores = choose_cores(self._settings, devices, order.workers)
        self._pool = CompilePool(self._settings, self._sides, cores, order.group_size)
        return self._pool

    @property
    def _builders(self) -> CompilePool:
        if self._pool is None:
            raise UsageError("builders were not offered")
        return self._pool

    async def _build(self, order: BuildThere, tell: TellAnswer) -> None:
        """Build, and tell each kernel's verdict with the record of its artifact."""
        if order.side not in self._sides or not 0 <= order.worker < len(self._builders.cores):
            raise UsageError(f"builder {order.target!r} was not described")
        worker = Builder(order.side, order.target), order.worker
        builds = self._builders.build(
            worker,
            order.kernels,
            order.limits_s,
            anew=order.anew,
        )
        async for build in builds:
            data = self._objects.get_record("build", build.build) if build.build else None
            is_built = build.outcome is Outcome.PASSED
            tell(KernelBuilt(build=build, manifest=(is_built and data) or b""))

    def _find(self, name: str) -> Offered:
        if name not in self._offered:
            raise UsageError(f"device {name!r} was not offered")
        return self._offered[name]

    async def _acquire(self, offered: Offered, memory_bytes: int, tell: TellAnswer) -> None:
        def wait(waiting: Waiting) -> None:
            tell(DeviceWaits(place=waiting.place, holder=waiting.holder))

        try:
            tell(DeviceHeld(lease=await offered.acquire(memory_bytes, wait)))
        except LeaseLostError as error:
            tell(DeviceLost(message=error.message, outcome=error.outcome))

    async def _close(self) -> None:
        """End everything that this session started, before it ends itself."""
        self.is_closing = True
        tasks = tuple(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*(offered.close() for offered in self._offered.values()))
        if self._pool is not None:
            await self._pool.close()
        await asyncio.gather(*(lender.close() for lender in self._lenders))
        await self._steps.aclose()
        if self._site is not None:
            self._site.handed_over.close()
        self._arrivals.close()
        self._files.close()
        with contextlib.suppress(OSError):
            remove_folder(self._folder)
            self._folder.parent.rmdir()


def _look_at_host(
    settings: Settings, order: SurveyHost | DiagnoseHost
) -> HostSurveyed | HostDiagnosed:
    if isinstance(order, SurveyHost):
        return HostSurveyed(survey=survey_devices(settings, order.window_s))
    report = resolve_name(DOCTOR)(settings, order)
    return HostDiagnosed(report=msgspec.json.encode(report))


def serve_stdio(settings: Settings, scratch: Path | None = None) -> None:
    """Serve the run at the other end of the standard input and output; with a ``scratch`` folder instead of
    the data directory, which is removed at the end. What else is printed goes to the standard error.
    """
    write_fd = os.dup(1)
    os.dup2(2, 1)

    async def connect() -> HostChannel:
        return AsyncChannel(os.dup(0), write_fd)

    _serve(settings, scratch, connect)


def serve_run(settings: Settings, address: Address, ticket: Ticket, scratch: Path | None) -> None:
    """Connect to the run at an address and serve it, as above, until the end of the standard input if that
    is a pipe: of the process that holds it. Raises UsageError if they do not recognize each other.
    """
    _serve(settings, scratch, partial(join, address, ticket), until_stdin_ends=_is_pipe(0))


def _is_pipe(fd: int) -> bool:
    try:
        return stat.S_ISFIFO(os.fstat(fd).st_mode)
    except OSError:
        return False


def _serve(
    settings: Settings,
    scratch: Path | None,
    connect: Callable[[], Awaitable[HostChannel]],
    *,
    until_stdin_ends: bool = False,
) -> None:
    go_on_with_parent_gone()
    tell_site(StepSite())  # that of the run is another host's
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # a terminal's is for the run, which says what follows
    if scratch is None:
        settings.make_home()
    else:
        settings = msgspec.structs.replace(settings, home=scratch)
    objects = settings.home / "objects"
    make_folder(objects)
    try:
        with hold(objects):
            asyncio.run(_serve_until_told(settings, connect, until_stdin_ends=until_stdin_ends))
    finally:
        if scratch is not None:
            remove_folder(scratch)


async def _serve_until_told(
    settings: Settings, connect: Callable[[], Awaitable[HostChannel]], *, until_stdin_ends: bool
) -> None:
    """Serve; on TERM end the runners and leave nothing behind."""
    agent = Agent(settings, await connect())
    serving = asyncio.ensure_future(agent.serve())
    loop = asyncio.get_running_loop()

    def end() -> None:
        if not (agent.is_closing or serving.cancelling()):  # which a second one would cut short
            serving.cancel()

    for number in (signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, end)

    def read() -> None:
        if not os.read(0, READ_BYTES):
            loop.remove_reader(0)
            end()

    if until_stdin_ends:
        loop.add_reader(0, read)
    with contextlib.suppress(asyncio.CancelledError):
        await serving

"""A device that an agent offers: passed on while the run does not use it, and nothing of its cases stays."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tileyard.artifacts.objects import ObjectStore
from tileyard.base.model import Batch, BuildKey, Case, Device, GoldenKey, KernelWork, Outcome
from tileyard.base.settings import Settings
from tileyard.devices.locks import prepare_locks
from tileyard.devices.occupancy import parts_of
from tileyard.engine.hosts import agent as agents
from tileyard.engine.hosts.agent import Offered
from tileyard.engine.hosts.messages import Answer, BatchEnded, CaseEnded, RunOnDevice
from tileyard.engine.hosts.works import ArrivedTrees, CaseFolders
from tileyard.engine.provider import UnrecoveredSlot, Waiting, Watch
from tileyard.engine.runners import RunnerSite
from tileyard.processes.keeper.deciding import Choice, Wish
from tileyard.processes.keeper.holding import LeaseFacts
from tileyard.processes.keeper.ticket import Ticket
from tileyard.workers.protocol import CaseRan, Golden, HandedOutput, Judged, RunEntry

DEADLINE_S = 20.0
LEASE = 7


def print_to(log: Path) -> None:
    """Write as a runner does."""
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text("printed")


class HeldSlot(UnrecoveredSlot):
    """A slot that prints, and leaves an output of each case if it ``hands_over``."""

    appetite = 0

    def __init__(self, device: Device, home: Path, *, hands_over: bool) -> None:
        self.device, self.home = device, home
        self.ran: list[str] = []
        self.began = asyncio.Event()
        self.released = asyncio.Event()
        self._hands_over = hands_over

    async def warm(self) -> None:
        """Do nothing."""

    async def acquire(self, memory_bytes: int, waiting: Callable[[Waiting], None]) -> int:
        """Always."""
        return LEASE

    async def run(self, batch: Batch, entries: Sequence[RunEntry], watch: Watch) -> bool:
        """All cases pass."""
        outputs = (HandedOutput(name="B", dtype="float32", shape=(1,), data=b"1234"),)
        for entry in entries:
            print_to(self.home / entry.log)
            self.ran.append(entry.case)
            self.began.set()
            given = outputs if self._hands_over else ()
            ran = CaseRan(case=entry.case, outcome=Outcome.PASSED, seconds=0.0, outputs=given)
            watch.ran(ran, self.device.name, LEASE)
        return True

    async def release(self) -> None:
        """Note it."""
        self.released.set()


class SlowJudge:
    """A judge whose verdict comes when it ``may`` say it."""

    cores: tuple[int, ...] = ()

    def __init__(self) -> None:
        self.may = asyncio.Event()

    async def ask(self, _questions: object, _limit_s: float) -> tuple[Judged, ...]:
        """All is well."""
        await self.may.wait()
        return (Judged(outcome=Outcome.PASSED),)

    async def close(self) -> None:
        """Do nothing."""


def an_order() -> RunOnDevice:
    """A batch of one kernel."""
    case = Case(id="t/a", work=KernelWork(file="k.py", kernel="k"))
    golden = Golden(key=GoldenKey("c" * 40), inputs=(), outputs=())
    entry = RunEntry(
        case=case.key,
        build=BuildKey("b" * 40),
        golden=golden,
        specs=(),
        scalars=(),
        log="logs/run/t/a.log",
    )
    return RunOnDevice(device="npu:0", batch=Batch(id="b", cases=(case,)), entries=(entry,))


@contextmanager
def another_waits(device: Device, locks: Path) -> Iterator[None]:
    """Another process has a request for the device in the lock directory."""
    with ExitStack() as stack:
        wish = Wish((Choice(device.name, parts_of(device)),), 1)
        for user in ("holder", "waiting"):
            ticket = Ticket(str(locks), wish, LeaseFacts(user, user), 0)
            stack.callback(ticket.close)
            ticket.try_take()
        yield


def use(
    folder: Path,
    steps: Callable[[Offered, HeldSlot, SlowJudge], Awaitable[None]],
    *,
    hands_over: bool = False,
) -> Device:
    """Carry the steps out on a device that is offered."""
    settings = Settings(home=folder / "home", lock_dir=folder / "locks", cores=(0,))
    lock = str(settings.lock_dir / "device-npu-0.lock")
    device = Device(name="npu:0", kind="npu", identity="x", locks=(lock,))
    prepare_locks(device)

    async def run() -> None:
        site = RunnerSite(settings=settings, grounds={})
        site.handed_over.open(device.name)
        slot, judge = HeldSlot(device, settings.home, hands_over=hands_over), SlowJudge()
        trees = ArrivedTrees(settings.home / "work" / "agent", ObjectStore(folder / "objects"))
        folders = CaseFolders(settings.home / "work" / "agent" / "0", trees)
        offered = Offered(site, slot, (), folders)
        offered._judge = judge  # type: ignore[assignment]  # no process
        try:
            async with asyncio.timeout(DEADLINE_S):
                await steps(offered, slot, judge)
        finally:
            await offered.close()
            site.handed_over.close()

    asyncio.run(run())
    return device


@pytest.fixture(autouse=True)
def short_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """A turn is over at once, and who waits is seen soon."""
    monkeypatch.setattr(agents, "TURN_S", -1.0)
    monkeypatch.setattr(agents, "LINGER_S", 0.01)


def test_an_idle_device_is_passed_on_to_who_waits_at_its_host(tmp_path: Path) -> None:
    """Before any batch, and between batches; the next one is not run, and the run asks for a lease again."""

    async def steps(offered: Offered, slot: HeldSlot, _: SlowJudge) -> None:
        for is_between in (False, True):
            slot.released.clear()
            told: list[Answer] = []
            await offered.acquire(0, lambda _: None)
            if is_between:
                await offered.carry_out(an_order(), told.append)
                assert told[-1] == BatchEnded(held=True)
            assert not slot.released.is_set()
            with another_waits(slot.device, tmp_path / "locks"):
                await slot.released.wait()
            before = slot.ran.copy()
            await offered.carry_out(an_order(), told.append)
            assert (told[-1], slot.ran) == (BatchEnded(held=False), before)
        await offered.acquire(0, lambda _: None)
        await offered.carry_out(an_order(), told.append)
        assert told[-1] == BatchEnded(held=True)

    use(tmp_path, steps)


def test_who_waits_does_not_wait_for_verdicts(tmp_path: Path) -> None:
    """The device is passed on while outputs are judged; they count under the lease under which they came."""

    async def steps(offered: Offered, slot: HeldSlot, judge: SlowJudge) -> None:
        told: list[Answer] = []
        await offered.acquire(0, lambda _: None)
        running = asyncio.ensure_future(offered.carry_out(an_order(), told.append))
        await slot.began.wait()
        with another_waits(slot.device, tmp_path / "locks"):
            await slot.released.wait()
        assert told == []
        judge.may.set()
        await running
        (ended, over) = told
        assert isinstance(ended, CaseEnded)
        assert (ended.ran.outcome, ended.lease) == (Outcome.PASSED, LEASE)
        assert over == BatchEnded(held=False)

    use(tmp_path, steps, hands_over=True)


def test_nothing_of_a_log_stays_at_its_host(tmp_path: Path) -> None:
    """No folder of a run's logs either: what was printed is the run's."""

    async def steps(offered: Offered, slot: HeldSlot, _: SlowJudge) -> None:
        told: list[Answer] = []
        await offered.acquire(0, lambda _: None)
        await offered.carry_out(an_order(), told.append)
        (ended, _over) = told
        assert isinstance(ended, CaseEnded)
        assert ended.log == "printed"

    use(tmp_path, steps)
    home = tmp_path / "home"
    assert [str(one.relative_to(home)) for one in home.rglob("*")] == ["work", "work/agent"]


def test_a_batch_that_is_withdrawn_while_it_is_prepared_is_not_run(tmp_path: Path) -> None:
    """The device is still held for what comes next."""

    async def steps(offered: Offered, slot: HeldSlot, _: SlowJudge) -> None:
        told: list[Answer] = []
        await offered.acquire(0, lambda _: None)
        clear = offered._clear

        async def withdraw() -> None:
            offered.withdrawn += 1
            await clear()

        offered._clear = withdraw  # type: ignore[method-assign]
        await offered.carry_out(an_order(), told.append)
        assert (told, slot.ran) == ([BatchEnded(held=True)], [])

    use(tmp_path, steps)

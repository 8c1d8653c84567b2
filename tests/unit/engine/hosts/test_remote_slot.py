"""What a run orders of a device of another host, and when."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import cast

from tileyard.base.model import Batch, BuildKey, Case, Device, GoldenKey, KernelWork
from tileyard.base.settings import Settings
from tileyard.engine.hosts.meeting import NamedHosts
from tileyard.engine.hosts.messages import Answer, BatchEnded, Order
from tileyard.engine.hosts.session import HostSession
from tileyard.engine.hosts.slots import RemoteDevices, RemoteSlot
from tileyard.workers.protocol import CaseRan, Golden, RunEntry

CORE = 1000


class Session:
    """A session with an agent that answers at once."""

    number, name, is_lost = 0, "a", False

    def __init__(self) -> None:
        self.ordered: list[Order] = []
        self.while_sending: Callable[[], None] = lambda: None

    def knows(self, _digests: object, _build: object) -> bool:
        """Nothing is looked for here."""
        return True

    async def send_objects(self, _digests: object, _builds: object) -> None:
        """Do what happens meanwhile."""
        self.while_sending()

    async def follow(self, order: Order) -> AsyncIterator[Answer]:
        """The batch is over at once."""
        self.ordered.append(order)
        yield BatchEnded(held=True)


class Unheard:
    """Receives nothing."""

    def began(self, case: str) -> None:
        """See ``Watch``."""

    def ran(self, reply: CaseRan, device: str, lease: int) -> None:
        """See ``Watch``."""


def use(
    folder: Path, steps: Callable[[RemoteDevices, RemoteSlot, Session], Awaitable[None]]
) -> None:
    """Carry the steps out on a device of a host."""
    settings = Settings(home=folder, lock_dir=folder / "locks", cores=(0,))

    async def run() -> None:
        hosts, session = RemoteDevices(NamedHosts(()), settings), Session()
        device = Device(name="cpu:0", kind="cpu", identity="x", cores=(0,))
        await steps(hosts, RemoteSlot(hosts, cast(HostSession, session), device, CORE), session)
        await hosts.close()

    asyncio.run(run())


async def run_one(slot: RemoteSlot) -> bool:
    """Run a batch of one timed kernel."""
    case = Case(id="t/a", work=KernelWork(file="k.py", kernel="k"))
    golden = Golden(key=GoldenKey("c" * 40), inputs=(), outputs=())
    entry = RunEntry(
        case=case.key, build=BuildKey("b" * 40), golden=golden, specs=(), scalars=(), log="x"
    )
    return await slot.run(Batch(id="b", cases=(case,)), [entry], Unheard())


def test_a_batch_that_is_withdrawn_while_its_objects_are_copied_is_not_run(tmp_path: Path) -> None:
    """Copies may take minutes; the device is still held."""

    async def steps(hosts: RemoteDevices, slot: RemoteSlot, session: Session) -> None:
        assert await run_one(slot)
        assert len(session.ordered) == 1
        session.while_sending = hosts.withdraw
        assert await run_one(slot)
        assert len(session.ordered) == 1

    use(tmp_path, steps)


def test_times_wait_for_a_build_that_stands_in_on_their_core(tmp_path: Path) -> None:
    """The engine's state does not know of it."""

    async def steps(hosts: RemoteDevices, slot: RemoteSlot, session: Session) -> None:
        async with hosts.used.using([CORE]):
            running = asyncio.ensure_future(run_one(slot))
            for _ in range(20):
                await asyncio.sleep(0)
            assert not session.ordered
        assert await running
        assert len(session.ordered) == 1

    use(tmp_path, steps)

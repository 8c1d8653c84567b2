"""Carries out the driver's orders: acquires the lease of a slot, runs cases on it, releases it."""

import asyncio
from collections.abc import Callable, Sequence

import msgspec

from tileyard.base.events import (
    CaseLeft,
    CaseStarted,
    DeviceAsked,
    DeviceAwaited,
    DeviceLeased,
    DeviceReleased,
)
from tileyard.base.model import Batch, Case, Outcome
from tileyard.devices.occupancy import is_wanted
from tileyard.engine.commands import (
    CaseFinished,
    CaseLost,
    CaseRanWell,
    Fact,
    LeaseAwaited,
    Leased,
    LeaseFailed,
    LingerOver,
    Released,
    RunOver,
)
from tileyard.engine.judging import is_judged
from tileyard.engine.ledger import Ledger, Progress, RanOn
from tileyard.engine.preparation import run_entry
from tileyard.engine.provider import LeaseLostError, Slot, Waiting, infra_error
from tileyard.engine.yard import Yard
from tileyard.workers.protocol import CaseRan

LINGER_S = 1.0
"""Most seconds for which an idle device is held, and no longer than its runner's start."""

TURN_S = 3.0
"""Seconds for which a device is kept although others wait for it; a runner starts in a tenth of that."""

Keep = Callable[[RanOn], int]
"""Receives how a case ran whose outputs are to be judged; returns the bytes of memory that they take."""
Tell = Callable[[Fact], None]


class Borrower:
    """The slots of a run, by device name. ``tell`` receives the facts that follow."""

    def __init__(
        self, yard: Yard, slots: Sequence[Slot], ledger: Ledger, tell: Tell, keep: Keep
    ) -> None:
        self._keep = keep
        self._yard = yard
        self._ledger = ledger
        self._tell = tell
        self._held = {slot.device.name: _Held(slot) for slot in slots}

    def add(self, slots: Sequence[Slot]) -> None:
        """Borrow further devices."""
        self._held |= {slot.device.name: _Held(slot) for slot in slots}

    async def warm(self, count: int) -> None:
        """Have ``count`` slots prepare what they can before devices are asked for, while cases build."""
        cold = [held for held in self._held.values() if held.is_cold][:count]
        await asyncio.gather(*(self._warm(held) for held in cold))

    async def _warm(self, held: "_Held") -> None:
        held.is_cold = False
        began_s = self._yard.clock.monotonic_s()
        await held.slot.warm()
        held.warming_s = self._yard.clock.monotonic_s() - began_s

    async def acquire(self, device: str, memory_bytes: int) -> None:
        """Ask for a device; tell whether it came."""
        held = self._held[device]
        held.is_cold = False
        held.asked_s = self._yard.clock.monotonic_s()

        def waiting(state: Waiting) -> None:
            held.asked_s = self._yard.clock.monotonic_s()
            self._yard.emit(
                DeviceAwaited(device=device, at=self._now(), place=state.place, holder=state.holder)
            )
            self._tell(LeaseAwaited(device=device))

        self._yard.emit(DeviceAsked(device=device, at=self._now()))
        held.asking = asyncio.current_task()
        try:
            held.lease = await held.slot.acquire(memory_bytes, waiting)
        except LeaseLostError as error:
            self._lose(held, error)
            return
        finally:
            held.asking = None
        # From the last report that somebody else has it: the time after it was the runner's start.
        held.startup_s = max(held.warming_s, self._yard.clock.monotonic_s() - held.asked_s)
        held.warming_s = 0.0
        held.is_leased = True
        self._begin_turn(held)
        self._yard.emit(DeviceLeased(device=device, at=self._now(), lease=held.lease))
        self._tell(Leased(device=device))

    async def run(self, device: str, members: Sequence[Progress]) -> None:
        """Run cases on a device that is held, and tell how each one ended."""
        held = self._held[device]
        held.stop_lingering()
        batch, entries = self._join(members, device), [run_entry(member) for member in members]
        try:
            still_held = await held.slot.run(batch, entries, _Watch(self, held))
        except LeaseLostError as error:
            self._lose(held, error)
            return
        if still_held and self._yard.clock.monotonic_s() > held.turn_over_s:
            self._begin_turn(held)  # or go on as before, if nobody waits
            if held.lease and self._is_wanted(held):
                await held.slot.release()
                still_held = False
        if not still_held:
            self._end_lease(held)
        self._tell(RunOver(device=device, held=still_held))

    def linger(self, device: str) -> None:
        """Tell when an idle device has been held for long enough."""
        held = self._held[device]
        held.stop_lingering()
        delay_s = min(LINGER_S, held.startup_s) if held.lease else 0.0
        held.timer = asyncio.get_running_loop().call_later(delay_s, self._end_linger, held)

    def _begin_turn(self, held: "_Held") -> None:
        held.turn_over_s = self._yard.clock.monotonic_s() + TURN_S

    def _is_wanted(self, held: "_Held") -> bool:
        """Whether somebody waits for a device; False as long as that cannot be read."""
        return not held.lease or is_wanted(held.slot.device, self._yard.settings.lock_dir)

    def _end_linger(self, held: "_Held") -> None:
        is_wanted = self._is_wanted(held)
        self._tell(LingerOver(device=held.slot.device.name, is_wanted=is_wanted))

    async def release(self, device: str) -> None:
        """Give a device up, or stop asking for it; tell when that is done."""
        held = self._held[device]
        held.stop_lingering()
        if held.asking is not None:
            held.asking.cancel()
            await asyncio.wait({held.asking})
        await held.slot.release()
        self._end_lease(held)
        self._tell(Released(device=device))

    def refusal(self, device: str) -> LeaseLostError:
        """Why a device did not come when it was last asked for."""
        return self._held[device].refusal

    def give_up(self, progress: Progress) -> None:
        """End a case that was lost too often, with its last outcome and a message about all attempts."""
        *before, last = progress.attempts
        progress.attempts = tuple(before)
        held = self._held[progress.lost_on]
        is_insisting = len(set(progress.insists)) == 1
        outcome = progress.insists[0] if is_insisting else Outcome.INFRA_ERROR
        reply = CaseRan(case=progress.case.key, outcome=outcome, seconds=0.0, message=last.message)
        slot = held.slot.device
        ran = RanOn(
            slot=slot.name,
            device=last.device,
            identity=slot.identity,
            lease=last.lease,
            reply=reply,
        )
        self._ledger.finish(progress, reply.outcome, reply.message, ran)
        self._tell(CaseFinished(case=progress.case.key))

    async def close(self) -> None:
        """Stop every timer, and give back what is still held. The provider ends what still runs."""
        for held in self._held.values():
            held.stop_lingering()
        await asyncio.gather(*(self.release(n) for n, held in self._held.items() if held.is_leased))

    def began(self, held: "_Held", case: str) -> None:
        """A runner turned to a case."""
        device = held.slot.device.name
        self._yard.emit(CaseStarted(case=case, device=device, at=self._now()))

    def ran(self, held: "_Held", reply: CaseRan, device: str, lease: int) -> None:
        """A case ended on a device; results under a lease that is over do not count."""
        slot = held.slot.device
        if held.lease and lease != held.lease:
            message = (
                f"its result came under lease {lease} of {slot.name}, which is over: "
                f"the device is held under lease {held.lease}"
            )
            reply = infra_error(reply.case, message)
        self._yard.emit(CaseLeft(case=reply.case, device=slot.name, at=self._now()))
        progress = self._ledger.progress(reply.case)
        where = RanOn(
            slot=slot.name, device=device, identity=slot.identity, lease=lease, reply=reply
        )
        if reply.outcome is Outcome.INFRA_ERROR:
            progress.lost_on = slot.name
            self._ledger.note_attempt(progress, where)
            self._tell(CaseLost(case=reply.case, device=slot.name))
            return
        if is_judged(progress, where):
            self._tell(
                CaseRanWell(
                    case=reply.case,
                    device=slot.name,
                    seconds=reply.seconds,
                    is_kernel=progress.command is None,
                    is_rival=reply.measurement is not None
                    and progress.batch.order != "interleaved",
                    unjudged_bytes=self._keep(where),
                )
            )
            return
        self._ledger.finish(progress, reply.outcome, reply.message, where)
        self._tell(CaseFinished(case=reply.case, device=slot.name, seconds=reply.seconds))

    def _join(self, members: Sequence[Progress], slot: str) -> Batch:
        """Cases of several batches have no order, and are abandoned above the best time certain now."""
        cases = tuple(self._bound(member.case, slot) for member in members)
        return msgspec.structs.replace(members[0].batch, cases=cases)

    def _bound(self, case: Case, slot: str) -> Case:
        bound_ns = self._ledger.bound_ns(case, slot)
        if bound_ns == case.abandon_above_ns:
            return case
        return msgspec.structs.replace(case, abandon_above_ns=bound_ns)

    def _lose(self, held: "_Held", error: LeaseLostError) -> None:
        held.refusal = error
        self._end_lease(held)
        self._tell(LeaseFailed(device=held.slot.device.name, outcome=error.outcome))

    def _end_lease(self, held: "_Held") -> None:
        held.is_cold, held.is_leased = True, False
        self._yard.emit(DeviceReleased(device=held.slot.device.name, at=self._now()))

    def _now(self) -> float:
        return self._yard.clock.wall_s()


class _Held:
    def __init__(self, slot: Slot) -> None:
        self.slot = slot
        self.lease = 0
        self.asked_s = 0.0
        self.warming_s = 0.0
        self.startup_s = 0.0
        self.turn_over_s = 0.0
        self.is_cold = True
        self.is_leased = False
        self.asking: asyncio.Task[object] | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.refusal = LeaseLostError("the device was never asked for")

    def stop_lingering(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


class _Watch:
    def __init__(self, borrower: Borrower, held: _Held) -> None:
        self._borrower = borrower
        self._held = held

    def began(self, case: str) -> None:
        self._borrower.began(self._held, case)

    def ran(self, reply: CaseRan, device: str, lease: int) -> None:
        self._borrower.ran(self._held, reply, device, lease)

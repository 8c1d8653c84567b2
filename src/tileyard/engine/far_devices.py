"""Devices of the far side of a run, behind a queue or on another host: each with a judge of its own there."""

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from tileyard.base.model import Batch, Case, Device, Digest
from tileyard.engine.judge import HandedOver, JudgeProcess, conclude
from tileyard.engine.provider import Slot
from tileyard.engine.runners import RunnerSite
from tileyard.workers.protocol import CaseRan, CaseToJudge, RunEntry
from tileyard.workers.task_lines import MAX_LOG_CHARS

SlotT = TypeVar("SlotT", bound=Slot)


class FarJudging:
    """Cases that ran and are not reported. ``bound_ns``: the lowest bound of a well-judged time, or 0."""

    def __init__(self, judge: JudgeProcess, handed_over: HandedOver, device: Device) -> None:
        self.bound_ns = 0.0
        self._judge = judge
        self._handed_over = handed_over
        self._device = device
        self._waiting: dict[str, tuple[CaseRan, CaseToJudge, Case]] = {}
        self._may_judge = True
        self._is_finished = False
        self._changed = asyncio.Event()

    def add(self, ran: CaseRan, golden: tuple[Digest, ...], case: Case) -> None:
        """Have the outputs of a case judged, if it left any."""
        self._handed_over.take(self._device.name, ran)
        question = CaseToJudge(outputs=ran.outputs, golden=golden, check=case.check)
        self._waiting[ran.case] = (ran, question, case)
        self._changed.set()

    def finish(self) -> None:
        """No more cases will be added."""
        self._is_finished = True
        self._changed.set()

    @contextlib.contextmanager
    def beside(self, *, is_timed: bool) -> Iterator[None]:
        """A block in which the device runs; the judge waits for its end if it would disturb the run."""
        is_apart = set(self._device.cores).isdisjoint(self._judge.cores)
        self._may_judge = is_apart or not is_timed
        try:
            yield
        finally:
            self._may_judge = True
            self._changed.set()

    async def judge_all(self, end: Callable[[CaseRan], None]) -> None:
        """Call ``end`` with each case's result, until all cases added before ``finish`` are judged."""
        while self._waiting or not self._is_finished:
            if self._waiting and (self._may_judge or not self._next.outputs):
                end(await self._judge_next())
            else:
                self._changed.clear()
                await self._changed.wait()

    @property
    def _next(self) -> CaseRan:
        return next(iter(self._waiting.values()))[0]

    async def _judge_next(self) -> CaseRan:
        key, (ran, question, case) = next(iter(self._waiting.items()))
        if not ran.outputs:
            return self._waiting.pop(key)[0]
        (verdict,) = await self._judge.ask((question,), case.limits.golden_s)
        del self._waiting[key]
        self._handed_over.free(key)
        ended = conclude(ran, verdict)
        if ended.measurement is not None:
            high_ns = ended.measurement.high_ns
            self.bound_ns = min(self.bound_ns or high_ns, high_ns)
        return ended


class FarWatch(Protocol):
    """Receives what becomes of a batch on the far side."""

    def began(self, case: str) -> None:
        """The runner turned to this case."""

    def ended(self, ran: CaseRan, lease: int) -> None:
        """A case ended under this lease, and its outputs are judged."""


class FarDevice(Generic[SlotT]):
    """A slot with a judge, which starts when it is needed. ``bound_ns``: the lowest bound of a well-judged
    time, or 0.
    """

    def __init__(self, site: RunnerSite, slot: SlotT, judging_cores: tuple[int, ...]) -> None:
        self.slot = slot
        self.bound_ns = 0.0
        self._site = site
        self._judge = JudgeProcess(site.home, judging_cores, site.handed_over)

    async def run(self, batch: Batch, entries: Sequence[RunEntry], watch: FarWatch) -> bool:
        """Run entries of a batch; return whether the lease is still held, once all that ran is judged. Raises
        LeaseLostError, also after that.
        """
        judging = FarJudging(self._judge, self._site.handed_over, self.slot.device)
        ran = _Ran(entries, batch, judging, watch)
        is_timed = any(case.timing is not None for case in batch.cases)
        verdicts = asyncio.create_task(judging.judge_all(ran.end))
        try:
            with judging.beside(is_timed=is_timed):
                return await self.slot.run(batch, entries, ran) and await self.rest()
        except asyncio.CancelledError:
            verdicts.cancel()
            raise
        finally:
            judging.finish()
            await asyncio.wait({verdicts})
            if not verdicts.cancelled():
                verdicts.result()
            bounds_ns = (bound for bound in (self.bound_ns, judging.bound_ns) if bound)
            self.bound_ns = min(bounds_ns, default=0.0)

    async def rest(self) -> bool:
        """Called when the runner has ended a batch, which may still be judged; whether the lease is held."""
        return True

    async def close(self) -> None:
        """End the runner and then the judge."""
        await self.slot.release()
        await self._judge.close()


class _Ran:
    """Passes on what a slot reports of a batch: to the judge, and from there to ``watch``."""

    def __init__(
        self, entries: Sequence[RunEntry], batch: Batch, judging: FarJudging, watch: FarWatch
    ) -> None:
        self._golden = {entry.case: entry.golden.outputs for entry in entries}
        self._cases = {case.key: case for case in batch.cases}
        self._judging = judging
        self._watch = watch
        self._leases: dict[str, int] = {}

    def began(self, case: str) -> None:
        self._watch.began(case)

    def ran(self, reply: CaseRan, device: str, lease: int) -> None:
        self._leases[reply.case] = lease
        self._judging.add(reply, self._golden[reply.case], self._cases[reply.case])

    def end(self, ran: CaseRan) -> None:
        self._watch.ended(ran, self._leases[ran.case])


def read_end(path: Path, most: int = MAX_LOG_CHARS) -> str:
    """The last ``most`` bytes of a case's log, empty if it has none."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - most))
            return file.read().decode(errors="replace")
    except OSError:
        return ""

"""Judges the outputs that a task's runner hands over: beside it, or between its runs if they share cores."""

import asyncio
import contextlib
from collections.abc import Callable, Iterator

from tileyard.base.model import Case, Device, Digest
from tileyard.engine.handed_over import HandedOver
from tileyard.engine.judge import JudgeProcess, conclude
from tileyard.workers.protocol import CaseRan, CaseToJudge


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
        self._is_over = False
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
        try:
            while self._waiting or not self._is_finished:
                if self._waiting and (self._may_judge or not self._next.outputs):
                    end(await self._judge_next())
                    self._changed.set()
                else:
                    await self._wait()
        finally:
            self._is_over = True
            self._changed.set()

    async def wait_for_verdicts(self) -> None:
        """Wait until every case is judged."""
        while self._waiting and not self._is_over:
            await self._wait()

    async def close(self) -> None:
        """End the judge, and free the memory. The runner must be gone."""
        await self._judge.close()
        self._handed_over.close()

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

    async def _wait(self) -> None:
        self._changed.clear()
        await self._changed.wait()

"""Runs a batch of built artifacts on one device, on the far side of a task, and prints the results.
It needs only the object store. A case that crashes or hangs ends its own runner alone.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec

from tileyard.artifacts.objects import ObjectStore
from tileyard.base.decoding import decode_json
from tileyard.base.errors import DamagedError, UsageError
from tileyard.base.model import Batch, Case, Device, Digest, Outcome
from tileyard.devices.foreign import digest_environment
from tileyard.engine.judge import HandedOver, JudgeProcess, conclude
from tileyard.engine.provider import LeaseLostError
from tileyard.engine.runners import RunnerSlot
from tileyard.workers.handing_over import ROOM_BYTES, count_output_bytes
from tileyard.workers.protocol import CaseRan, CaseToJudge, RunEntry
from tileyard.workers.task_lines import (
    INFRASTRUCTURE_CODE,
    MAX_LOG_CHARS,
    CaseResult,
    CaseTurnedTo,
    Line,
    Task,
    TaskEnded,
    TaskStarted,
    exit_code,
    place_of,
)

TIMED_AT_ONCE: Final = 1
"""Timed cases that the runner gets at once: few, so the next know judged times, and a kill loses little."""
ATTEMPTS: Final = 2
"""Number of start failures of a runner in a row after which the rest of a batch is given up."""
Tell = Callable[[Line], None]


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


class TaskRun:
    """One batch on one device. ``home`` is where the cases' logs are written during the run."""

    def __init__(
        self, task: Task, started: TaskStarted, home: Path, tell: Tell, judging: FarJudging
    ) -> None:
        self._task = task
        self._started = started
        self._home = home
        self._tell = tell
        self._judging = judging
        self._entries = {entry.case: entry for entry in task.entries}
        self._left = dict(self._entries)
        self._cases = {case.key: case for case in task.batch.cases}
        self._outcomes: set[Outcome] = set()
        self._fault = ""

    async def run(self, slot: RunnerSlot) -> int:
        """Run every case, print each result as it arrives, and return the exit code. The rest is
        left to another task if the device fails its probe after a crash or hang.
        """
        self._tell(self._started)
        judging = asyncio.create_task(self._judging.judge_all(self._end))
        try:
            await self._run_all(slot)
            self._judging.finish()
            await judging
        finally:
            judging.cancel()
            await asyncio.wait({judging})
            await slot.release()
            await self._judging.close()
        code = exit_code(self._outcomes)
        count = len(self._task.entries)
        code = code or (INFRASTRUCTURE_CODE if self._fault else 0)
        ended = TaskEnded(token=self._task.token, code=code, cases=count, message=self._fault)
        self._tell(ended)
        return code

    async def _run_all(self, slot: RunnerSlot) -> None:
        held = False
        failures = 0
        is_doubted = place_of(self._started) in self._task.doubted
        while self._left:
            if is_doubted or slot.is_suspect:
                self._fault = await _find_fault(slot.device)
            if self._fault:
                return
            is_doubted = False
            await self._judging.wait_for_verdicts()
            entries = self._next_entries()
            memory_bytes = self._cases[entries[0].case].runner_bytes
            try:
                if not held:
                    # Nobody reads in a task's output who else waits for the device.
                    await slot.acquire(memory_bytes, lambda _: None)
                with self._judging.beside(is_timed=self._is_timed):
                    held = await slot.run(self._bounded_batch(), entries, self)
                failures = 0
            except LeaseLostError as error:
                held = False
                failures += 1
                if failures >= ATTEMPTS or error.outcome is Outcome.QUEUE_TIMEOUT:
                    self._give_up(error)
        # The device must not be held while verdicts are awaited.
        await slot.release()

    def began(self, case: str) -> None:
        """Print which case is being run."""
        self._tell(CaseTurnedTo(token=self._task.token, case=case))

    def ran(self, reply: CaseRan, device: str, lease: int) -> None:
        """Print the result of a case, after its outputs, if any, are judged."""
        entry = self._left.pop(reply.case)
        self._judging.add(reply, entry.golden.outputs, self._cases[reply.case])

    def _end(self, reply: CaseRan) -> None:
        """Print a result line, with the end of the case's log."""
        self._outcomes.add(reply.outcome)
        self._tell(
            CaseResult(
                token=self._task.token,
                case=reply.case,
                outcome=reply.outcome,
                seconds=reply.seconds,
                device=self._started.device,
                message=reply.message,
                measurement=reply.measurement,
                mismatch=reply.mismatch,
                log=read_end(self._home / self._entries[reply.case].log),
            )
        )

    @property
    def _is_timed(self) -> bool:
        return any(case.timing is not None for case in self._cases.values())

    def _bounded_batch(self) -> Batch:
        """The batch; its cases are abandoned above the best time that is certain by now."""
        bound_ns = self._judging.bound_ns
        if not bound_ns:
            return self._task.batch
        cases = tuple(
            msgspec.structs.replace(
                case, abandon_above_ns=min(bound_ns, case.abandon_above_ns or bound_ns)
            )
            for case in self._task.batch.cases
        )
        return msgspec.structs.replace(self._task.batch, cases=cases)

    def _next_entries(self) -> tuple[RunEntry, ...]:
        """The remaining cases of one memory limit that have room and know each other's times."""
        left = tuple(self._left.values())
        if self._task.batch.order == "interleaved":
            return left
        first = self._cases[left[0].case].runner_bytes
        chosen: list[RunEntry] = []
        size = 0
        for entry in left:
            size += count_output_bytes(entry.specs)
            is_over = len(chosen) >= TIMED_AT_ONCE if self._is_timed else False
            is_other = self._cases[entry.case].runner_bytes != first
            if chosen and (is_over or is_other or size > ROOM_BYTES):
                break
            chosen.append(entry)
        return tuple(chosen)

    def _give_up(self, error: LeaseLostError) -> None:
        for case in tuple(self._left):
            reply = CaseRan(case=case, outcome=error.outcome, seconds=0.0, message=error.message)
            self.ran(reply, self._started.device, 0)


async def _find_fault(device: Device) -> str:
    """Why the device is sick, empty if it is not known to be."""
    from tileyard.devices.health import (
        find_fault,  # needed by few tasks, and they all hold a device
    )

    return await find_fault(device)


def read_task(named: str, objects: ObjectStore) -> Task:
    """The task in a file, or in the object with this digest. Raises UsageError and DamagedError."""
    path = Path(named)
    try:
        data = path.read_bytes() if path.is_file() else objects.get_bytes(Digest(named))
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    try:
        return decode_json(data, Task)
    except msgspec.DecodeError as error:
        raise UsageError(f"{named} is not a batch for run-artifact: {error}") from error


def check_environment(task: Task, digest: str, environ: Mapping[str, str]) -> None:
    """Raise DamagedError unless every variable arrived unchanged; values are not shown."""
    arrived = {name: environ[name] for name in task.variables if name in environ}
    missing = [name for name in task.variables if name not in environ]
    if missing:
        raise DamagedError(f"the environment did not arrive whole: {', '.join(missing)} is missing")
    if digest_environment(arrived) != digest:
        raise DamagedError(
            f"the environment did not arrive as it was sent: one of {', '.join(task.variables)} "
            "has another value"
        )


def read_end(path: Path, most: int = MAX_LOG_CHARS) -> str:
    """The last ``most`` bytes of a case's log, empty if it has none."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - most))
            return file.read().decode(errors="replace")
    except OSError:
        return ""

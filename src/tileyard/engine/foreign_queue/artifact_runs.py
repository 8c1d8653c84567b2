"""Runs a batch of built artifacts on one device, on the far side of a task, and prints the results.
It needs only the object store. A case that crashes or hangs ends its own runner alone.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from tileyard.artifacts.objects import ObjectStore
from tileyard.base.decoding import decode_json
from tileyard.base.errors import DamagedError, UsageError
from tileyard.base.model import Batch, Device, Digest, Outcome
from tileyard.devices.foreign import digest_environment
from tileyard.engine.far_devices import FarDevice, read_end
from tileyard.engine.provider import LeaseLostError
from tileyard.engine.runners import RunnerSlot
from tileyard.workers.handing_over import ROOM_BYTES, count_output_bytes
from tileyard.workers.protocol import CaseRan, RunEntry
from tileyard.workers.task_lines import (
    INFRASTRUCTURE_CODE,
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


class TaskRun:
    """One batch on one device. ``home`` is where the cases' logs are written during the run."""

    def __init__(
        self,
        task: Task,
        started: TaskStarted,
        home: Path,
        tell: Tell,
        device: FarDevice[RunnerSlot],
    ) -> None:
        self._task = task
        self._started = started
        self._home = home
        self._tell = tell
        self._device = device
        self._left = {entry.case: entry for entry in task.entries}
        self._cases = {case.key: case for case in task.batch.cases}
        self._outcomes: set[Outcome] = set()
        self._fault = ""

    async def run(self) -> int:
        """Run every case, print each result as it arrives, and return the exit code. The rest is
        left to another task if the device fails its probe after a crash or hang.
        """
        self._tell(self._started)
        try:
            await self._run_all()
        finally:
            await self._device.close()
        code = exit_code(self._outcomes)
        count = len(self._task.entries)
        code = code or (INFRASTRUCTURE_CODE if self._fault else 0)
        ended = TaskEnded(token=self._task.token, code=code, cases=count, message=self._fault)
        self._tell(ended)
        return code

    async def _run_all(self) -> None:
        held = False
        failures = 0
        is_doubted = place_of(self._started) in self._task.doubted
        while self._left:
            if is_doubted or self._device.slot.is_suspect:
                self._fault = await _find_fault(self._device.slot.device)
            if self._fault:
                return
            is_doubted = False
            entries = self._next_entries()
            memory_bytes = self._cases[entries[0].case].runner_bytes
            try:
                if not held:
                    # Nobody reads in a task's output who else waits for the device.
                    await self._device.slot.acquire(memory_bytes, lambda _: None)
                held = await self._device.run(self._bounded_batch(), entries, self)
                failures = 0
            except LeaseLostError as error:
                held = False
                failures += 1
                if failures >= ATTEMPTS or error.outcome is Outcome.QUEUE_TIMEOUT:
                    self._give_up(error)

    def began(self, case: str) -> None:
        """Print which case is being run."""
        self._tell(CaseTurnedTo(token=self._task.token, case=case))

    def ended(self, ran: CaseRan, lease: int) -> None:
        """Print the result of a case, with the end of its log."""
        entry = self._left.pop(ran.case)
        self._outcomes.add(ran.outcome)
        self._tell(
            CaseResult(
                token=self._task.token,
                case=ran.case,
                outcome=ran.outcome,
                seconds=ran.seconds,
                device=self._started.device,
                message=ran.message,
                measurement=ran.measurement,
                mismatch=ran.mismatch,
                log=read_end(self._home / entry.log),
            )
        )

    @property
    def _is_timed(self) -> bool:
        return any(case.timing is not None for case in self._cases.values())

    def _bounded_batch(self) -> Batch:
        """The batch; its cases are abandoned above the best time that is certain by now."""
        bound_ns = self._device.bound_ns
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
            self.ended(reply, 0)


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

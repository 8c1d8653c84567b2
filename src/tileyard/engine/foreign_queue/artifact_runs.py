"""The far side of a task: runs a batch of built artifacts on one device and prints what comes of it.

It builds nothing, and needs the object store alone: no kernel source, no kernel language, no
database. A case that crashes or hangs ends its own runner; the rest goes on in a fresh one.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from tileyard.artifacts.objects import ObjectStore
from tileyard.clock import Clock, SystemClock
from tileyard.decoding import decode_json
from tileyard.devices.foreign import digest_environment, name_device
from tileyard.engine.foreign_queue.submission import exit_code
from tileyard.engine.provider import LeaseLostError, Slot, Waiting
from tileyard.engine.runners import RunnerSlot
from tileyard.errors import DamagedError, UsageError
from tileyard.model import Device, Digest, Outcome
from tileyard.settings import Settings
from tileyard.workers.protocol import CaseRan, RunEntry
from tileyard.workers.task_lines import (
    MAX_LOG_CHARS,
    CaseResult,
    CaseTurnedTo,
    Line,
    Task,
    TaskEnded,
    TaskStarted,
)

ATTEMPTS: Final = 2
"""How often in a row a runner may fail to start before the rest of a batch is given up."""

Tell = Callable[[Line], None]


class TaskRun:
    """One batch on one device. ``home`` is where the cases' logs are written meanwhile."""

    def __init__(self, task: Task, started: TaskStarted, home: Path, tell: Tell) -> None:
        self._task = task
        self._started = started
        self._home = home
        self._tell = tell
        self._left = {entry.case: entry for entry in task.entries}
        self._limits = {case.id: case.limits for case in task.batch.cases}
        self._outcomes: set[Outcome] = set()

    async def run(self, slot: Slot) -> int:
        """Run every case, print each result as it comes, and return the exit code."""
        self._tell(self._started)
        held = False
        failures = 0
        try:
            while self._left:
                entries = self._next_entries()
                memory_bytes = self._limits[entries[0].case].memory_bytes
                try:
                    if not held:
                        await slot.acquire(memory_bytes, _wait_silently)
                    held = await slot.run(self._task.batch, entries, self)
                    failures = 0
                except LeaseLostError as error:
                    held = False
                    failures += 1
                    if failures >= ATTEMPTS or error.outcome is Outcome.QUEUE_TIMEOUT:
                        self._give_up(error)
        finally:
            await slot.release()
        code = exit_code(self._outcomes)
        count = len(self._task.entries)
        self._tell(TaskEnded(token=self._task.token, code=code, cases=count))
        return code

    def began(self, case: str) -> None:
        """Say which case is being run."""
        self._tell(CaseTurnedTo(token=self._task.token, case=case))

    def ran(self, reply: CaseRan, device: str, lease: int) -> None:
        """Print a result line, with the end of the case's log."""
        entry = self._left.pop(reply.case)
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
                log=_read_end(self._home / entry.log),
            )
        )

    def _next_entries(self) -> tuple[RunEntry, ...]:
        """What is left, up to the first case that needs another memory limit."""
        left = tuple(self._left.values())
        if self._task.batch.order == "interleaved":
            return left
        first = self._limits[left[0].case].memory_bytes
        same = [self._limits[entry.case].memory_bytes == first for entry in left]
        return left[: same.index(False)] if False in same else left

    def _give_up(self, error: LeaseLostError) -> None:
        for case in tuple(self._left):
            reply = CaseRan(case=case, outcome=error.outcome, seconds=0.0, message=error.message)
            self.ran(reply, self._started.device, 0)


def read_task(named: str, objects: ObjectStore) -> Task:
    """The task in a file, or in the object of this digest. Raises UsageError and DamagedError."""
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
    """Raise DamagedError unless every variable arrived as it was sent; values are not shown."""
    arrived = {name: environ[name] for name in task.variables if name in environ}
    missing = [name for name in task.variables if name not in environ]
    if missing:
        raise DamagedError(f"the environment did not arrive whole: {', '.join(missing)} is missing")
    if digest_environment(arrived) != digest:
        raise DamagedError(
            f"the environment did not arrive as it was sent: one of {', '.join(task.variables)} "
            "has another value"
        )


def find_device_name(task: Task, given: str, environ: Mapping[str, str]) -> str:
    """What the device is called here. Raises DamagedError where the queue did not give one."""
    value = given or environ.get(task.device_variable, "")
    if "{device}" in task.device and not value:
        raise DamagedError(
            f"the queue gave no device: {task.device_variable} is not set on this side"
        )
    return name_device(task.device, value)


def _wait_silently(_: Waiting) -> None:
    """Nobody reads a task's output for who else waits."""


def _read_end(path: Path) -> str:
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - MAX_LOG_CHARS))
            return file.read().decode(errors="replace")
    except OSError:
        return ""


@dataclass(frozen=True, kw_only=True)
class RunnerSite:
    """What a runner's slot needs to know of its surroundings."""

    settings: Settings
    target: str
    queue_limit_s: float = 1800.0
    clock: Clock = field(default_factory=SystemClock)

    @property
    def home(self) -> Path:
        """The directory with objects and logs."""
        return self.settings.home


def local_slot(site: RunnerSite, device: Device) -> Slot:
    """A slot of this host's own."""
    return RunnerSlot(site, device)

"""Carries out ``tileyard run-artifact`` after its options are read: opens the device, runs a batch of built
artifacts and prints the results. It needs only the object store. A case that crashes or hangs ends its own
runner alone.
"""

import asyncio
import os
import re
import signal
import socket
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from tileyard.artifacts.objects import ObjectStore
from tileyard.base.decoding import decode_json
from tileyard.base.errors import DamagedError, TileyardError, UsageError
from tileyard.base.model import Batch, Device, Digest, Outcome
from tileyard.base.settings import read_settings
from tileyard.devices.base import NAME, class_of, index_of
from tileyard.devices.declared import Declaration, is_declarable, make_device
from tileyard.devices.foreign import SUBMISSION_VARIABLE, digest_environment, name_device
from tileyard.devices.holding import hold_together
from tileyard.devices.locks import prepare_locks
from tileyard.devices.registry import parse_device
from tileyard.engine.far_devices import FarDevice, read_end
from tileyard.engine.provider import LeaseLostError
from tileyard.engine.runners import RunnerSite, RunnerSlot
from tileyard.processes.answers import find_set
from tileyard.targets.command.given import OF_QUEUE
from tileyard.workers.handing_over import ROOM_BYTES, count_output_bytes
from tileyard.workers.protocol import CaseRan, RunEntry
from tileyard.workers.task_lines import (
    INFRASTRUCTURE_CODE,
    CaseResult,
    CaseTurnedTo,
    Line,
    Submitted,
    Task,
    TaskEnded,
    TaskStarted,
    TokenRead,
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


RANGE = re.compile(r"\d+-\d+")
"""An entry of a mask with several devices."""
UNSAID: Final = Submitted(token="", device="")
INTERRUPTED_CODE = 128 + signal.SIGTERM
TOKENS = "tokens"
"""The folder of the object store in which ``doctor`` leaves the files that the far side must read."""


def find_device_name(task: Submitted, given: str, environ: Mapping[str, str]) -> str:
    """The local name of the device. Raises DamagedError if the queue did not give one."""
    value = given or environ.get(task.device_variable, "")
    if "{device}" in task.device and not value:
        raise DamagedError(
            f"the queue gave no device: {task.device_variable} is not set on this side"
        )
    return name_device(task.device, value)


def accept_device(name: str, task: Submitted = UNSAID) -> Device:
    """Accept a device that a queue gave, without a lock. Raises UsageError. One of a class that is
    unknown here is accepted as the queue names it, with the class's mask if the ``task`` says so;
    the queue's mask of just what was given stays.
    """
    if "," not in name:
        return _accept(name, 0, 1, task)
    kind, ones = class_of(name), index_of(name).split(",")
    return hold_together(
        [_accept(f"{kind}:{one}", place, len(ones), task) for place, one in enumerate(ones)]
    )


def _accept(name: str, place: int, count: int, task: Submitted) -> Device:
    """The device at a ``place`` among those given, which may all be listed by one variable."""
    settings = read_settings(os.environ, Path.cwd())
    try:
        device = parse_device(name, settings)
    except UsageError:
        if not is_declarable(name) or NAME.fullmatch(name) is None:
            raise
        stated = Declaration(name=name, id=index_of(name))
        device = make_device(stated, f"device {name!r}", settings, has_mask=task.has_mask)
        own = {key: os.environ.get(key, "").split(",") for key in device.env}
        env = {
            key: listed[place]
            for key, listed in own.items()
            if len(listed) == count and listed[place] and not RANGE.fullmatch(listed[place])
        }
        device = msgspec.structs.replace(device, env={**device.env, **env})
    probe = tuple(name_device(word, index_of(name)) for word in task.probe)
    return msgspec.structs.replace(device, locks=(), probe=probe or device.probe)


def run_submitted(named: str, objects: Path, device: str, environment: str, tell: Tell) -> int:
    """Run the batch in a file, or in the object of this digest, on a device that a queue gave.
    ``device`` is the queue's name for it, empty to read it from the environment; ``environment``
    the digest of the passed variables. The task's prologue is read first. Raises UsageError and
    DamagedError if there is no batch; what else stops the whole is the last line of the output.
    """
    task = read_task(named, ObjectStore(objects))
    try:
        if environment:
            check_environment(task, environment, os.environ)
        given = find_set(task.prologue, os.environ, Path.cwd(), "prologue") if task.prologue else {}
        os.environ.update(given)
        chosen = accept_device(find_device_name(task, device, os.environ), task)
    except TileyardError as error:
        tell(TaskEnded(token=task.token, code=INFRASTRUCTURE_CODE, cases=0, message=error.message))
        return INFRASTRUCTURE_CODE
    os.environ[SUBMISSION_VARIABLE] = task.token
    os.environ[OF_QUEUE] = ",".join((*task.variables, task.device_variable, *given))
    return run_task(task, objects, chosen, tell)


def run_task(task: Task, objects: Path, device: Device, tell: Tell) -> int:
    """Run a batch on a device and return the exit code."""
    started = TaskStarted(
        token=task.token,
        host=socket.gethostname(),
        device=device.name,
        identity=device.identity,
    )
    with tempfile.TemporaryDirectory(prefix="tileyard-task-") as folder:
        home = Path(folder)
        # Logs are separate from the objects, which may be on a file system that is not ours.
        (home / "objects").symlink_to(objects.absolute(), target_is_directory=True)
        settings = msgspec.structs.replace(
            read_settings(os.environ, Path.cwd()), home=home, plugins=task.plugins
        )
        site = RunnerSite(settings=settings, grounds={}, title="tileyard, a task of a queue")
        free = tuple(core for core in settings.cores if core not in device.cores)
        far = FarDevice(site, RunnerSlot(site, device), free or settings.cores)
        try:
            return asyncio.run(_run_until_told(TaskRun(task, started, home, tell, far)))
        finally:
            site.handed_over.close()


async def _run_until_told(run: TaskRun) -> int:
    """Run; on TERM, by which queues end a task, end the runner and leave nothing behind."""
    running = asyncio.ensure_future(run.run())
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, running.cancel)
    try:
        return await running
    except asyncio.CancelledError:
        return INTERRUPTED_CODE


def find_device(name: str) -> Device:
    """The device of this host with this name, ready to be leased. Raises UsageError."""
    device = parse_device(name, read_settings(os.environ, Path.cwd()))
    prepare_locks(device)
    return device


def read_token(token: str, objects: Path) -> TokenRead:
    """What this side sees of a file that the other side left in the object store."""
    path = objects / TOKENS / token
    problem, found = "", ""
    try:
        found = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        problem = str(getattr(error, "strerror", None) or error)
    if not problem and found != token:
        problem = f"it holds {found[:80]!r}"
    return TokenRead(
        token=token, host=socket.gethostname(), folder=str(objects.absolute()), problem=problem
    )

"""Carries out ``tileyard run-artifact`` after its options are read: opens the device and runs a task."""

import asyncio
import os
import re
import signal
import socket
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from tileyard.artifacts.objects import ObjectStore
from tileyard.base.errors import DamagedError, TileyardError, UsageError
from tileyard.base.model import Device
from tileyard.base.settings import read_settings
from tileyard.devices.base import NAME, class_of, index_of
from tileyard.devices.declared import Declaration, is_declarable, make_device
from tileyard.devices.foreign import SUBMISSION_VARIABLE, name_device
from tileyard.devices.holding import hold_together
from tileyard.devices.locks import prepare_locks
from tileyard.devices.registry import parse_device
from tileyard.engine.far_devices import FarDevice
from tileyard.engine.foreign_queue.artifact_runs import (
    TaskRun,
    Tell,
    check_environment,
    read_task,
)
from tileyard.engine.runners import RunnerSite, RunnerSlot
from tileyard.processes.answers import find_set
from tileyard.targets.command.given import OF_QUEUE
from tileyard.workers.task_lines import (
    INFRASTRUCTURE_CODE,
    Submitted,
    Task,
    TaskEnded,
    TaskStarted,
    TokenRead,
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

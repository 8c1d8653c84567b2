"""The health of devices, and how one leaves quarantine: after three good probes, or by a person.
A probe, as the question which GPUs there are, runs in a process that can be killed. Users of the directory
only add: a statement puts a device into quarantine, a lift names statements, a good probe those that it saw.
"""

import asyncio
import contextlib
import enum
import os
import shutil
import tempfile
import time
from collections.abc import Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from tileyard.base.decoding import decode_json
from tileyard.base.errors import WorkerLostError
from tileyard.base.model import Device, Record
from tileyard.devices.base import name_user
from tileyard.devices.gpus import GpuList, nvml_command
from tileyard.devices.locks import explaining, prepare_locks
from tileyard.devices.occupancy import try_hold
from tileyard.processes.keeper import quarantine
from tileyard.processes.keeper.quarantine import PROBES, Quarantine, Quarantines, name_part
from tileyard.processes.keeper.watching import CANNOT_TELL
from tileyard.processes.records import describe_signal
from tileyard.processes.supervise import Ended, Worker, WorkerCommand

LIST_LIMIT_S = 30.0
MESSAGE_LENGTH = 300
GOOD_PROBES_NEEDED = 3

T = TypeVar("T")


class Verdict(enum.StrEnum):
    """The result of a probe. ``busy``: somebody holds the device; ``unknown``: the probe could not decide."""

    GOOD = "good"
    FAILED = "failed"
    BUSY = "busy"
    UNKNOWN = "unknown"


class Probe(Record):
    """One completed probe; ``at`` is when it began, in seconds since the epoch."""

    device: str
    verdict: Verdict
    message: str
    at: float
    seconds: float = 0.0


async def probe_device(device: Device, *, rest_s: float = 0.0) -> Probe:
    """Run the device's probe while nobody else has it, and leave nothing running. One in use, or in
    quarantine and held within ``rest_s``, is reported as busy instead.
    """
    at, since = time.time(), time.monotonic()
    with try_hold(device, rest_s=rest_s) as is_held:
        if is_held:
            verdict, message = await _run_probe(device)
        else:
            verdict, message = Verdict.BUSY, "somebody holds it"
    return Probe(
        device=device.name,
        verdict=verdict,
        message=message[:MESSAGE_LENGTH],
        at=at,
        seconds=time.monotonic() - since,
    )


async def find_fault(device: Device) -> str:
    """Why a device that nobody else can have, or one held with it, is sick; empty if no probe fails."""
    for one in device.members or (device,):
        verdict, message = await _run_probe(one)
        if verdict is Verdict.FAILED:
            return f"{one.name} is sick: {message[:MESSAGE_LENGTH]}"
    return ""


async def probe_devices(devices: Sequence[Device]) -> tuple[Probe, ...]:
    """Probe several devices at the same time; those that share a lock take turns."""
    turns = {lock: asyncio.Lock() for device in devices for lock in device.locks}

    async def probe(device: Device) -> Probe:
        async with contextlib.AsyncExitStack() as stack:
            for lock in device.locks:
                await stack.enter_async_context(turns[lock])
            return await probe_device(device)

    return tuple(await asyncio.gather(*map(probe, devices)))


async def list_gpus(limit_s: float = LIST_LIMIT_S) -> GpuList:
    """The GPUs that NVML lists, or why they are not known."""
    with tempfile.TemporaryDirectory(prefix="tileyard-nvml-") as folder:
        command = WorkerCommand(
            argv=nvml_command("list"),
            env=dict(os.environ),
            cwd=folder,
            log=str(Path(folder) / "log"),
        )
        try:
            async with await Worker.start(command) as worker, asyncio.timeout(limit_s):
                return await worker.receive(GpuList)
        except TimeoutError:
            return GpuList(failure=f"NVML did not answer within {limit_s:g} s")
        except WorkerLostError as error:
            return GpuList(failure=error.message)


def run_apart(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end for a synchronous caller, on a loop of its own."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(main)
    with ThreadPoolExecutor(max_workers=1) as pool:
        return pool.submit(asyncio.run, main).result()


async def _run_probe(device: Device) -> tuple[Verdict, str]:
    if not device.probe:
        return Verdict.UNKNOWN, "no probe is known for it"
    if problem := find_probe_problem(device):
        return Verdict.UNKNOWN, problem
    environment = {**os.environ, **device.env}
    with tempfile.TemporaryDirectory(prefix="tileyard-probe-") as folder:
        command = WorkerCommand(
            argv=device.probe, env=environment, cwd=folder, log=str(Path(folder) / "log")
        )
        try:
            async with await Worker.start(command) as worker:
                try:
                    async with asyncio.timeout(device.probe_limit_s):
                        ended = await worker.ended()
                except TimeoutError:
                    ended = await worker.kill(f"limit of {device.probe_limit_s:g} s")
        except WorkerLostError as error:
            return Verdict.UNKNOWN, error.message
    return _judge(ended)


def find_probe_problem(device: Device) -> str:
    """Why the device's probe cannot be started, empty if it can or there is none."""
    path = {**os.environ, **device.env}.get("PATH")
    if not device.probe or shutil.which(device.probe[0], path=path) is not None:
        return ""
    return f"its probe {device.probe[0]} is not a program that can be run"


def _judge(ended: Ended) -> tuple[Verdict, str]:
    lines = [line.strip() for line in ended.log_tail.splitlines() if line.strip()]
    said = lines[-1] if lines else ""
    if not ended.confirmed:
        pids = ", ".join(map(str, ended.survivors)) or "none that are visible"
        return Verdict.FAILED, f"its probe left processes that do not end: {pids}"
    if ended.reason:
        return Verdict.FAILED, f"its probe ran past its {ended.reason} and was killed"
    if ended.signal is not None:
        return Verdict.FAILED, f"its probe died of {describe_signal(ended.signal)}"
    if ended.code == CANNOT_TELL:
        return Verdict.UNKNOWN, said or "its probe could not tell"
    if ended.code != 0:
        return Verdict.FAILED, said or f"its probe ended with exit code {ended.code}"
    return Verdict.GOOD, said


class GoodProbe(Record):
    """A good probe of a device in quarantine, ``at`` seconds since the epoch, made by ``user``."""

    at: float
    seconds: float
    user: str = ""


class Health(Record):
    """Whether a device may be leased (``reason`` is empty), else why, by whom, since when in
    seconds since the epoch, and good probes so far. A person's reason comes first. ``device`` is
    what was stated to be sick: it may be another one with a shared part.
    """

    reason: str = ""
    device: str = ""
    user: str = ""
    since: float = 0.0
    probes: tuple[GoodProbe, ...] = ()

    @property
    def is_well(self) -> bool:
        """Whether the device may be leased."""
        return not self.reason


class ProbeReport(Record):
    """A probe, and the device's health after it. ``readmitted`` is set if this probe ended its quarantine."""

    probe: Probe
    health: Health
    readmitted: bool = False


class _Seen(Record):
    """A file of good probes: the statements that existed when they were made."""

    statements: tuple[str, ...]
    probes: tuple[GoodProbe, ...]


def read_health(device: Device) -> Health:
    """The health of a device, from the statements of all users of the host."""
    statements = _statements_on(device)
    if not statements:
        return Health()
    first, *others = sorted(statements, key=lambda one: (not one.by_hand, one.since))
    found = [one.reason for one in others if first.by_hand and not one.by_hand][:1]
    return Health(
        reason="; ".join([first.reason or "no reason was given", *found]),
        device=first.device,
        user=name_user(first.uid),
        since=first.since,
        probes=tuple(_good_probes(device, _tokens_of(statements))),
    )


def is_kept_away(device: Device) -> bool:
    """Whether a person put it into quarantine: then it is probed only on request."""
    return any(statement.by_hand for statement in _statements_on(device))


def quarantine_device(device: Device, reason: str) -> None:
    """Keep everyone from leasing a device, by a person's order. Raises UsageError if that is not recorded."""
    prepare_locks(device)
    if not is_kept_away(device):
        with _explaining(device):
            quarantine.state_again(device.locks, device.name, reason, by_hand=True)


def readmit_device(device: Device) -> bool:
    """End a device's quarantine; False if it was not in one. Raises UsageError if that cannot be recorded."""
    statements = _statements_on(device)
    with _explaining(device):
        quarantine.lift_quarantine(device.locks)  # tidies up even if there is nothing to lift
    _remove_own_probes(device)
    return bool(statements)


async def probe_now(device: Device, *, rest_s: float = 0.0) -> ProbeReport:
    """Probe a device not held within ``rest_s``. A failure quarantines it, or restarts the count
    there; the third good probe in a row brings it back; an undecided one changes nothing. Raises
    UsageError if that cannot be recorded.
    """
    seen = _tokens_of(_statements_on(device))
    probe = await probe_device(device, rest_s=rest_s)
    readmitted = False
    if probe.verdict is Verdict.FAILED:
        prepare_locks(device)
        _state_failure(device, probe)
    elif probe.verdict is Verdict.GOOD and seen:
        readmitted = _count_good(device, probe, seen)
    return ProbeReport(probe=probe, health=read_health(device), readmitted=readmitted)


def _statements_on(device: Device) -> list[Quarantine]:
    with _opened(device) as quarantines:
        return [one for lock in device.locks for one in quarantines.find(name_part(lock))]


def _tokens_of(statements: Iterable[Quarantine]) -> tuple[str, ...]:
    return tuple(sorted(one.token for one in statements))


def _state_failure(device: Device, probe: Probe) -> None:
    """State the failure, or renew this user's statement: either way, earlier probes no longer count."""
    own = [one for one in _statements_on(device) if one.uid == os.geteuid()]
    with _opened(device) as quarantines:
        for statement in own:
            quarantines.renew(statement)
    if not own:
        with _explaining(device):
            reason = f"its probe failed: {probe.message}"
            quarantine.state_again(device.locks, device.name, reason)
    _remove_own_probes(device)


def _count_good(device: Device, probe: Probe, seen: tuple[str, ...]) -> bool:
    """Keep the probe; returns whether it was the last one needed."""
    mine = GoodProbe(at=probe.at, seconds=probe.seconds)
    before = [one for _, uid, one in _files_of(device) if uid == os.geteuid()]
    own = tuple(one for file in before if file.statements == seen for one in file.probes)
    if _tokens_of(_statements_on(device)) != seen:
        return False  # somebody found it sick meanwhile
    others = list(_good_probes(device, seen, without=os.geteuid()))
    if len(own) + len(others) + 1 >= GOOD_PROBES_NEEDED:
        return readmit_device(device)
    _remove_own_probes(device)
    facts = msgspec.to_builtins(_Seen(statements=seen, probes=(*own, mine)))
    with _opened(device) as quarantines:
        quarantines.write(f"{_first_part(device)}@{PROBES}{os.urandom(6).hex()}", facts)
    return False


def _good_probes(
    device: Device, seen: tuple[str, ...], without: int | None = None
) -> Iterator[GoodProbe]:
    """The good probes of all users, or of all but one, that were made after these statements."""
    for _, uid, file in _files_of(device):
        if file.statements == seen and uid != without:
            for probe in file.probes:
                yield msgspec.structs.replace(probe, user=name_user(uid))


def _files_of(device: Device) -> Iterator[tuple[str, int, _Seen]]:
    """Name, owner and content of each file of good probes; unreadable ones are skipped."""
    if not device.locks:
        return
    with _opened(device) as quarantines:
        for name, rest in quarantines.list_files(_first_part(device)):
            status, data = quarantines.read(name) if rest.startswith(PROBES) else (None, b"")
            if status is None:
                continue
            try:
                yield name, status.st_uid, decode_json(data, _Seen)
            except msgspec.DecodeError:
                continue


def _remove_own_probes(device: Device) -> None:
    found = list(_files_of(device))
    with _opened(device) as quarantines:
        for name, uid, _ in found:
            quarantines.remove_own(name, uid)


def _first_part(device: Device) -> str:
    """The first of the device's parts; good probes are kept beside the statements about it."""
    return name_part(device.locks[0])


@contextlib.contextmanager
def _opened(device: Device) -> Iterator[Quarantines]:
    """The statements of this host. Raises UsageError if they cannot be read or written."""
    with _explaining(device), quarantine.open_quarantines(device.locks) as quarantines:
        yield quarantines


def _explaining(device: Device) -> contextlib.AbstractContextManager[None]:
    if not device.locks:
        return contextlib.nullcontext()
    return explaining(Path(device.locks[0]).parent)

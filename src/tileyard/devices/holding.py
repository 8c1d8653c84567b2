"""A lease held by this very process: a keeper holds it until it is returned or this process ends. The keeper
keeps a shell that waits for a word; without it, it dies of a signal and the devices are probed.
"""

import os
import secrets
import select
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from types import MappingProxyType
from typing import Final

import msgspec

from tileyard.base.clock import Countdown
from tileyard.base.errors import WorkerStartError
from tileyard.base.model import Device
from tileyard.devices.base import index_of
from tileyard.devices.foreign import QUEUE_KIND
from tileyard.devices.occupancy import parts_of
from tileyard.processes.keeper.worker import variables_of
from tileyard.processes.keeper_line import PYTHON, Report, explain_refusal, keeper_argv
from tileyard.processes.records import LeaseRequest

HOLDER: Final = (
    "/bin/sh",
    "-c",
    'trap "" TERM; read word && [ "$word" = done ] || kill -KILL $$',
)
GRACE_S: Final = 0.2
CONFIRM_S: Final = 5.0
_decoder = msgspec.json.Decoder(Report)


class QueueTimeoutError(TimeoutError):
    """No device was returned in time."""


class HeldLease:
    """A lease of all devices or none, until ``release`` or the end of this process. ``at`` is when
    it began, ``waited_s`` the wait, on the monotonic clock.
    """

    def __init__(
        self,
        choices: tuple[Device, ...],
        queue_limit_s: float,
        count: int = 1,
        keeper_env: Mapping[str, str] = MappingProxyType({}),
        title: str = "",
    ) -> None:
        """Wait for ``count`` of ``choices``. Raises QueueTimeoutError, WorkerStartError. ``keeper_env`` adds
        to its variables; ``title`` is for those who wait, by default this command line.
        """
        self._title = title
        self._keeper_env = keeper_env
        self._request = LeaseRequest(choices=choices, count=count)
        self._holder = ""
        self._unread = b""
        self._replaced: dict[str, str | None] = {}
        self.at = 0.0
        asked = time.monotonic()
        self._tree = secrets.token_hex(8)
        self._keeper, self._control, self._reports, self._word = self._spawn()
        try:
            granted = self._wait(queue_limit_s)
        except BaseException:
            self._end(b"kill 0\n")
            raise
        self.waited_s = self.at - asked
        self.devices = tuple(choices[number] for number in granted.choices)
        self.numbers = tuple(granted.leases)
        self._mark()

    def release(self) -> float:
        """Return it; the result is the time at which that was confirmed."""
        self._unmark()
        with suppress(BrokenPipeError):  # then the keeper has ended, and the lease with it
            os.write(self._word, b"done\n")
        return self._end(b"")

    def _spawn(self) -> tuple[int, int, int, int]:
        """A keeper, and our ends of the pipes to it and to the process that it keeps."""
        control_out, control = os.pipe()
        reports, reports_in = os.pipe()
        word_out, word = os.pipe()
        for fd in (control_out, reports_in):
            os.set_inheritable(fd, True)
        test = os.environ.get("PYTEST_CURRENT_TEST", "")
        options = [
            "cwd=/",
            f"command={self._title or ' '.join(filter(None, [*sys.orig_argv, test]))}",
            f"grace={GRACE_S:f}",
            f"confirm={CONFIRM_S:f}",
            f"control={control_out}",
            f"reports={reports_in}",
            "plain=1",
            "starters=1",
        ]
        outputs = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
        try:
            os.fstat(2)  # for the line that says why root's limit ends this process
        except OSError:
            outputs.append((os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0))
        try:
            keeper = os.posix_spawn(
                PYTHON[0],
                keeper_argv(self._tree, options, self._request, HOLDER),
                {**os.environ, **self._keeper_env},
                file_actions=[(os.POSIX_SPAWN_DUP2, word_out, 0), *outputs],
                setsid=True,
                setsigmask=(),
            )
        finally:
            for fd in (control_out, reports_in, word_out):
                os.close(fd)
        return keeper, control, reports, word

    def _wait(self, limit_s: float) -> Report:
        """The granted lease, once the keeper reports that its holder runs."""
        countdown = Countdown(limit_s)
        granted: Report | None = None
        while True:
            report = self._next_report(countdown)
            if report is None:
                raise WorkerStartError("the keeper of a lease was killed")
            match report.event:
                case "waiting":
                    self._holder = report.holder
                case "locked":
                    granted, self.at = report, time.monotonic()
                case "started":
                    if granted is None:
                        raise AssertionError("a keeper started its worker without a lease")
                    return granted
                case "timeout":
                    names = " or ".join(device.name for device in self._request.choices[:4])
                    held = f", held by {self._holder}" if self._holder else ""
                    wanted = self._request.count
                    shown = f"no {names}" if wanted == 1 else f"no {wanted} of {names}"
                    raise QueueTimeoutError(f"{shown} within {limit_s:g} s{held}")
                case _:
                    if report.refused_step:
                        raise explain_refusal(report, "the lease", self._request, {})

    def _next_report(self, countdown: Countdown) -> Report | None:
        """The next report, ``timeout`` if there is none in time, None if none will come."""
        while b"\n" not in self._unread:
            if not select.select([self._reports], [], [], countdown.wait_s())[0]:
                os.kill(self._keeper, signal.SIGCONT)  # in case somebody has stopped it
                if countdown.left_s():
                    continue
                return Report(event="timeout")
            data = os.read(self._reports, 1 << 16)
            if not data:
                return None
            self._unread += data
        line, _, self._unread = self._unread.partition(b"\n")
        return _decoder.decode(line)

    def _end(self, order: bytes) -> float:
        """Have the keeper give up its lease; returns when that was confirmed; it may probe after that."""
        if order:
            with suppress(BrokenPipeError):
                os.write(self._control, order)
        os.close(self._word)
        countdown = Countdown(GRACE_S + 2 * CONFIRM_S)
        report = self._next_report(countdown)
        while report is not None and report.event != "ended" and not report.refused_step:
            if report.event == "timeout":
                os.kill(self._keeper, signal.SIGKILL)
                break
            report = self._next_report(countdown)
        at = time.monotonic()
        os.close(self._control)
        os.close(self._reports)
        if report is None or not report.lingers:
            os.waitpid(self._keeper, 0)
        return at

    # ---- how the processes that a test starts find the device -----------------------------------------

    def _mark(self) -> None:
        """Put the marks of the lease into this process's environment, for its child processes."""
        parts = [part for device in self.devices for part in parts_of(device)]
        lists = {"TILEYARD_TREE": [self._tree], "TILEYARD_PARTS": parts}
        marks = {
            name: ":".join([*filter(None, [os.environ.get(name, "")]), *items])
            for name, items in lists.items()
        }
        marks["TILEYARD_LEASE"] = ",".join(map(str, self.numbers))
        marks |= variables_of((device.name, device.env, device.mask) for device in self.devices)
        for name, text in marks.items():
            self._replaced[name] = os.environ.get(name)
            os.environ[name] = text

    def _unmark(self) -> None:
        for name, text in self._replaced.items():
            if text is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = text


def join_devices(devices: Sequence[Device], count: int) -> tuple[Device, ...]:
    """Groups of ``count`` neighbours of one kind and identity; of a queue, slots that ask for that number."""
    found: list[Device] = []
    for (kind, _), group in groupby(sorted(devices, key=_kind_of), _kind_of):
        alike = list(group)
        if kind == QUEUE_KIND:
            found += [_ask_for(device, count) for device in alike]
        else:
            starts = range(len(alike) - count + 1)
            found += [hold_together(alike[start : start + count]) for start in starts]
    return tuple(found)


def hold_together(members: Sequence[Device]) -> Device:
    """Devices of one kind as one; programs find them by variables that list all of them."""
    first = members[0]
    return Device(
        name=f"{first.kind}:{','.join(index_of(one.name) for one in members)}",
        kind=first.kind,
        identity=f"{len(members)} x {first.identity}",
        cores=tuple(core for one in members for core in one.cores),
        locks=tuple(lock for one in members for lock in one.locks),
        env=variables_of((one.name, one.env, one.mask) for one in members),
        mask=first.mask,
        arch=first.arch,
        driver_api=first.driver_api,
        count=len(members),
        members=tuple(members),
    )


def _ask_for(slot: Device, count: int) -> Device:
    identity = f"{count} x {slot.identity}"
    return msgspec.structs.replace(
        slot, name=f"{slot.name}*{count}", identity=identity, count=count
    )


def _kind_of(device: Device) -> tuple[str, str]:
    return device.kind, device.identity

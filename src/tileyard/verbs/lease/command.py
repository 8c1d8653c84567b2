"""``tileyard lease``: runs any command while holding devices. Its arguments are parsed by hand: what follows
``--`` is the user's, and it must not cost much more than ``flock``.
"""

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from tileyard.base.decoding import draft_of
from tileyard.base.errors import TileyardError, UsageError
from tileyard.base.model import Device
from tileyard.base.settings import Settings, read_settings
from tileyard.base.wording import find_similar
from tileyard.devices.base import class_of
from tileyard.devices.classes import find_class
from tileyard.devices.declared import read_devices
from tileyard.devices.locks import prepare_directory
from tileyard.devices.registry import resolve_devices
from tileyard.devices.reprobing import Reprobing
from tileyard.devices.wrapping import WrappedCommand
from tileyard.processes.records import LeaseRequest, LeaseStatus, Limits, State
from tileyard.show.defaults import Setting, read_defaults
from tileyard.show.guarding import explain, say
from tileyard.show.values import refuse_dash
from tileyard.show.words import parse_duration_s
from tileyard.verbs.lease.help import OPTIONS, describe

NO_DEVICE, QUEUE_TIMEOUT, MAX_TIME, CANNOT_RUN = 69, 75, 124, 127
STATUSES = {State.QUEUE_TIMEOUT: QUEUE_TIMEOUT, State.MAX_TIME: MAX_TIME}
MAX_COUNT, MAX_PRIORITY = 4096, 1000


class Wanted:
    """The parsed command line, with the defaults of omitted options. Raises UsageError if it is invalid."""

    def __init__(
        self, arguments: list[str], find_defaults: Callable[[], Mapping[str, Setting]] = dict
    ) -> None:
        self.options: dict[str, list[str]] = {}
        self.argv: list[str] = []
        self.is_help = False
        self._take(arguments)
        for name, setting in {} if self.is_help else find_defaults().items():
            value = setting.value if isinstance(setting.value, list) else [setting.value]
            self.options.setdefault(name, [str(one) for one in value])
        self.devices = self.options.get("devices", ["auto"])
        self.count = self._number("count", 1, 1, MAX_COUNT)
        self.priority = self._number("priority", 0, -MAX_PRIORITY, MAX_PRIORITY)
        self.limits = Limits(queue_s=self._time("queue-limit"), run_s=self._time("run-limit"))
        if self.limits.run_s == 0:
            raise UsageError("--run-limit leaves no time at all")
        self.status_file = self._one("status-file")
        refuse_dash(self.status_file, "--status-file")

    def _take(self, arguments: list[str]) -> None:
        rest = iter(arguments)
        for argument in rest:
            if argument == "--":
                self.argv = list(rest)
                break
            if argument in ("--help", "-h"):
                self.is_help = True
                return
            name, equals, value = argument.removeprefix("--").partition("=")
            if not argument.startswith("--") or name not in OPTIONS:
                near = find_similar(name, OPTIONS)
                hint = f"there is --{near}; " if near else ""
                raise UsageError(
                    f"{argument!r} is not an option of tileyard lease",
                    f"{hint}the command goes after --",
                )
            if not equals:
                value = next(rest, "--")
                if value == "--":
                    raise UsageError(f"--{name} needs a value")
            self.options.setdefault(name, []).append(value)
        if not any(self.argv[:1]):
            raise UsageError("there is no command to run", "write it after --")

    def _one(self, name: str) -> str:
        values = self.options.get(name, [])
        if len(values) > 1:
            raise UsageError(f"--{name} is given twice")
        return values[0] if values else ""

    def _number(self, name: str, default: int, low: int, high: int) -> int:
        text = self._one(name)
        try:
            number = int(text) if text else default
        except ValueError:
            raise UsageError(f"--{name} {text!r} is not a number") from None
        if not low <= number <= high:
            raise UsageError(f"--{name} {number} is not between {low} and {high}")
        return number

    def _time(self, name: str) -> float | None:
        text = self._one(name)
        try:
            return parse_duration_s(text) if text else None
        except UsageError as error:
            raise UsageError(f"--{name}: {error.message}") from error


class Teller:
    """Updates the status file; says on stderr what is waited for: once, on a terminal each change."""

    def __init__(self, path: str, *, is_waiting_told: bool) -> None:
        self._path = Path(path) if path else None
        self._is_waiting_told = is_waiting_told
        self._told = ""

    def write(self, status: LeaseStatus) -> None:
        """Replace the whole file, so that readers never see half of it. Raises UsageError."""
        if self._path is None:
            return
        try:
            with draft_of(self._path) as file:
                file.write(msgspec.json.format(msgspec.json.encode(status)) + b"\n")
        except OSError as error:
            raise UsageError(f"cannot write {self._path}: {error.strerror}") from error

    def tell(self, status: LeaseStatus) -> None:
        """Record a change; a status file that went away does not end the command."""
        try:
            self.write(status)
        except UsageError as error:
            say(str(error), 0)
        if status.state is State.WAITING and status.place:
            held = f", held by {status.holder}" if status.holder else ""
            if self._is_waiting_told:
                say(f"waiting, number {status.place} in the queue{held}", 0)
                self._is_waiting_told = sys.stderr.isatty()
        elif status.state in (State.WAITING, State.RUNNING) and status.message not in (
            "",
            self._told,
        ):
            self._told = status.message
            say(f"put in quarantine: {status.message}", 0)


def run_lease(arguments: list[str]) -> int:
    """Carry out the command line and return the exit status."""
    try:
        return _lease(arguments)
    except TileyardError as error:
        return say(str(error), error.exit_status)
    except Exception as error:  # noqa: BLE001 - or the status would be one that the command may have
        return explain(error)


def _lease(arguments: list[str]) -> int:
    wanted = Wanted(arguments, find_defaults)
    if wanted.is_help:
        describe()
        return 0
    settings = read_settings(os.environ, Path.cwd())
    if not all(find_class(class_of(name)).is_cores for name in wanted.devices):
        read_devices(settings)  # a file that is wrong is no missing device
    teller = Teller(wanted.status_file, is_waiting_told=wanted.limits.queue_s != 0)
    teller.write(LeaseStatus(state=State.WAITING))
    try:
        request = LeaseRequest(
            choices=find_choices(wanted, settings), count=wanted.count, priority=wanted.priority
        )
    except UsageError as error:
        teller.write(LeaseStatus(state=State.NO_DEVICE, message=str(error)))
        return say(str(error), NO_DEVICE)
    status = WrappedCommand(
        wanted.argv, request, wanted.limits, teller.tell, reprobing=Reprobing(request.choices)
    ).run()
    code = exit_status(status)
    return say(status.message, code) if status.message else code


def find_defaults() -> Mapping[str, Setting]:
    """The project's settings for this command. Raises UsageError."""
    return read_defaults(os.environ, Path.cwd(), {("lease",): OPTIONS}).of.get(("lease",), {})


def find_choices(wanted: Wanted, settings: Settings) -> tuple[Device, ...]:
    """The devices that would do. Raises UsageError if there are not enough, or no place for locks."""
    devices = (one for name in wanted.devices for one in resolve_devices(name, settings))
    found = {device.name: device for device in devices}
    if len(found) < wanted.count:
        names = ", ".join(found)
        raise UsageError(
            f"{wanted.count} devices are requested, and only {len(found)} match: {names}"
        )
    for directory in {Path(lock).parent for device in found.values() for lock in device.locks}:
        prepare_directory(directory)
    return tuple(found.values())


def exit_status(status: LeaseStatus) -> int:
    """The command's own code if it has one."""
    if status.state in STATUSES:
        return STATUSES[status.state]
    if status.state is State.NOT_RUN:
        return status.code or CANNOT_RUN
    if status.state in (State.ENDED, State.INTERRUPTED):
        return 128 + status.signal if status.signal is not None else status.code or 0
    return NO_DEVICE

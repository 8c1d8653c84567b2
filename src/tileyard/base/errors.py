"""Failures that a user can act on. Any other exception is a bug of ours."""

import errno
import os
from dataclasses import dataclass, fields
from pathlib import Path
from typing import ClassVar


@dataclass(eq=False)
class TileyardError(Exception):
    """A failure with a stable code, an exit status, a one-line message, and a hint. ``message`` says what
    happened and to what (file, line, key, value, limit); ``hint`` says what to do, or is empty.
    """

    message: str
    hint: str = ""

    code: ClassVar[str] = "error"
    exit_status: ClassVar[int] = 2
    by_code: ClassVar[dict[str, type["TileyardError"]]] = {}

    def __init_subclass__(cls, *, code: str, exit_status: int | None = None) -> None:
        """A class has its base's exit status unless it sets another one."""
        super().__init_subclass__()
        cls.code = code
        cls.by_code[code] = cls
        if exit_status is not None:
            cls.exit_status = exit_status

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message

    def __reduce__(self) -> tuple[type["TileyardError"], tuple[object, ...]]:
        return type(self), tuple(getattr(self, field.name) for field in fields(self))


@dataclass(eq=False)
class UsageError(TileyardError, code="usage"):
    """The command, the arguments or the configuration request something that does not exist."""


@dataclass(eq=False)
class NoEffectError(UsageError, code="no_effect"):
    """An option has no effect together with others; ``option`` is its flag on the command line."""

    option: str = ""


@dataclass(eq=False)
class HostAbsentError(UsageError, code="host_absent"):
    """No agent began on another host, which is not reached: it may come later."""


@dataclass(eq=False)
class KernelFileError(TileyardError, code="kernel_file"):
    """The user's file cannot be imported, or lacks the kernel; ``trace`` has the user's frames, if any."""

    trace: str = ""


@dataclass(eq=False)
class UserCodeError(TileyardError, code="user_code", exit_status=1):
    """The user's code raised an exception. ``message`` is ``file:line: summary`` of the user's
    innermost frame (empty and 0 without one); ``trace`` is cut to the user's frames.
    """

    summary: str = ""
    file: str = ""
    line: int = 0
    trace: str = ""


@dataclass(eq=False)
class RejectedError(UserCodeError, code="rejected", exit_status=2):
    """A kernel's ``where``, at ``file`` and ``line``, rejects a config for its arguments."""


@dataclass(eq=False)
class UnsupportedError(TileyardError, code="unsupported"):
    """A kernel uses an ``operation`` that is not covered, at ``file`` and ``line`` of the user's
    statement (0: unknown), with ``buffer`` to find the line later.
    """

    operation: str = ""
    file: str = ""
    line: int = 0
    buffer: str = ""


@dataclass(eq=False)
class InvalidProgramError(TileyardError, code="invalid_program"):
    """A Program breaks a rule of the tile IR; ``statement`` is the pre-order number of the one at fault."""

    statement: int = -1


@dataclass(eq=False)
class OutsideTileError(InvalidProgramError, code="outside_tile"):
    """A Program has a region that is outside of its tile."""


@dataclass(eq=False)
class ToolMissingError(TileyardError, code="tool_missing"):
    """A tool that is needed, such as a C compiler, is not on this machine."""


@dataclass(eq=False)
class HomeError(TileyardError, code="home"):
    """``$TILEYARD_HOME`` cannot be used: not writable, on a network file system, or too new."""


@dataclass(eq=False)
class DamagedError(TileyardError, code="damaged", exit_status=3):
    """A stored object does not have the content that its name promises."""


@dataclass(eq=False)
class BundleError(TileyardError, code="bundle"):
    """A file is a damaged, truncated or too demanding bundle, or not a bundle. Nothing of it was kept."""


@dataclass(eq=False)
class IncompatibleError(TileyardError, code="incompatible"):
    """A bundle does not fit this host or the request; ``refusals`` has one line per reason."""

    refusals: tuple[str, ...] = ()


@dataclass(eq=False)
class NoWinnerError(TileyardError, code="no_winner", exit_status=1):
    """A study ended without a config that passed."""


@dataclass(eq=False)
class BindError(TileyardError, code="bind"):
    """Arrays given to a kernel do not fit its parameters."""


@dataclass(eq=False)
class OutputFileError(TileyardError, code="output_file", exit_status=1):
    """A file to compare is missing, or does not have the size of its shape."""


@dataclass(eq=False)
class KernelFault(TileyardError, code="kernel_fault", exit_status=1):
    """A kernel reported its own failure while it ran, such as an index out of range."""


@dataclass(eq=False)
class OutOfBoundsFault(KernelFault, code="out_of_bounds"):
    """An access outside a tile or a row of barriers."""


@dataclass(eq=False)
class ContextLostError(KernelFault, code="context_lost"):
    """A kernel failed so that its process can no longer use the device; a new process can."""


@dataclass(eq=False)
class WorkerLostError(TileyardError, code="worker_lost", exit_status=3):
    """A worker ended before it answered; its end decides the outcome."""


@dataclass(eq=False)
class HostsLostError(WorkerLostError, code="hosts_lost"):
    """Of several kinds of CPU in a run, one has no host left that builds for it."""


@dataclass(eq=False)
class WorkerStartError(WorkerLostError, code="worker_start"):
    """A worker could not be started at all: its program, folder, cores or locks are missing."""


@dataclass(eq=False)
class KeeperLostError(WorkerStartError, code="keeper_lost"):
    """The process that was to start a worker ended before it reported anything: it was killed."""


@dataclass(eq=False)
class SickDeviceError(WorkerStartError, code="sick_device"):
    """No requested device is available, because too many are in quarantine."""


@dataclass(eq=False)
class NestedLeaseError(WorkerStartError, code="nested_lease"):
    """A process that holds a device requested it again, and would have waited for itself."""


@dataclass(eq=False)
class WireError(TileyardError, code="wire", exit_status=3):
    """A message between processes is too large, or is not what its receiver expects."""


HOST_FAULTS = (HomeError, DamagedError, ToolMissingError, WorkerLostError, OSError)
"""Faults of the host's disks and processes: a case in progress ends as ``infra_error``."""
_HOST = frozenset({
    errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EMFILE, errno.ENFILE
})  # fmt: skip
_OF_PATHS = frozenset({
    errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ELOOP, errno.ENAMETOOLONG
})  # fmt: skip
"""What is wrong with a path; a file that is missing is not among it: that would be a bug of ours."""


def is_of_host(error: OSError) -> bool:
    """Whether a disk or limit of the host is at fault, and not the file that was used."""
    return error.errno in _HOST


def blame_host(error: OSError, home: Path) -> HomeError | None:
    """The HomeError to report if the host or the data directory ``home`` is at fault, else None."""
    names = [
        os.fsdecode(name)
        for name in (error.filename, error.filename2)
        if isinstance(name, (str, bytes))
    ]
    where = "".join(f": {name}" for name in names[:1])
    if is_of_host(error):
        return HomeError(f"{error.strerror}{where}")
    if error.errno in _OF_PATHS and any(Path(name).is_relative_to(home) for name in names):
        return HomeError(f"cannot use {names[0]}: {error.strerror}", "set TILEYARD_HOME elsewhere")
    return None


@dataclass(eq=False)
class InterruptedRunError(TileyardError, code="interrupted", exit_status=130):
    """A run was ended at once, as requested."""


@dataclass(eq=False)
class EngineLostError(TileyardError, code="engine_lost", exit_status=3):
    """The engine process ended before the run was complete; recorded trials are kept."""

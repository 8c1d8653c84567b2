"""Failures that a user can act on. Anything else that is raised is a bug of ours."""

from dataclasses import dataclass, fields
from typing import ClassVar


@dataclass(eq=False)
class TileyardError(Exception):
    """A failure with a stable code, an exit status, one line that says what happened, and a hint.

    ``message`` says what happened and to what (file, line, key, value, limit); ``hint`` says what
    to do about it, or is empty.
    """

    message: str
    hint: str = ""

    code: ClassVar[str] = "error"
    exit_status: ClassVar[int] = 2

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message

    def __reduce__(self) -> tuple[type["TileyardError"], tuple[object, ...]]:
        return type(self), tuple(getattr(self, field.name) for field in fields(self))


@dataclass(eq=False)
class UsageError(TileyardError):
    """The command, the arguments or the configuration asked for something that does not exist."""

    code: ClassVar[str] = "usage"


@dataclass(eq=False)
class KernelFileError(TileyardError):
    """The user's file could not be imported, or holds no kernel that the request names.

    ``trace`` is the traceback of what it raised, cut to the user's frames, or empty.
    """

    trace: str = ""

    code: ClassVar[str] = "kernel_file"


@dataclass(eq=False)
class UserCodeError(TileyardError):
    """Code of the user's raised something. ``message`` is ``file:line: summary``.

    ``file`` and ``line`` are those of the user's innermost frame, empty and 0 where there is none;
    ``trace`` is the traceback, cut to the user's frames.
    """

    summary: str = ""
    file: str = ""
    line: int = 0
    trace: str = ""

    code: ClassVar[str] = "user_code"
    exit_status: ClassVar[int] = 1


@dataclass(eq=False)
class UnsupportedError(TileyardError):
    """A kernel uses an operation that is not covered; ``operation`` and the source line say which.

    ``file`` and ``line`` are those of the user's statement; ``line`` is 0 where it is not known.
    ``buffer`` is what the statement acts on, for those who find it by that.
    """

    operation: str = ""
    file: str = ""
    line: int = 0
    buffer: str = ""

    code: ClassVar[str] = "unsupported"


@dataclass(eq=False)
class InvalidProgramError(TileyardError):
    """A Program breaks a rule of the tile IR; ``statement`` is the pre-order number of the culprit."""

    statement: int = -1

    code: ClassVar[str] = "invalid_program"


@dataclass(eq=False)
class ToolMissingError(TileyardError):
    """A tool that is needed, such as a C compiler, is not on this machine."""

    code: ClassVar[str] = "tool_missing"


@dataclass(eq=False)
class HomeError(TileyardError):
    """``$TILEYARD_HOME`` cannot be used: not writable, on a network file system, or too new."""

    code: ClassVar[str] = "home"


@dataclass(eq=False)
class DamagedError(TileyardError):
    """A stored object does not have the content its name promises."""

    code: ClassVar[str] = "damaged"
    exit_status: ClassVar[int] = 3


@dataclass(eq=False)
class BundleError(TileyardError):
    """A bundle is damaged, cut off, asks for too much, or was never one. Nothing of it was kept."""

    code: ClassVar[str] = "bundle"


@dataclass(eq=False)
class IncompatibleError(TileyardError):
    """A bundle does not fit this host or what was asked for; ``refusals`` has one line for each."""

    refusals: tuple[str, ...] = ()

    code: ClassVar[str] = "incompatible"


@dataclass(eq=False)
class NoWinnerError(TileyardError):
    """A study ended without a config that passed."""

    code: ClassVar[str] = "no_winner"
    exit_status: ClassVar[int] = 1


@dataclass(eq=False)
class BindError(TileyardError):
    """Arrays given to a kernel do not fit its parameters."""

    code: ClassVar[str] = "bind"


@dataclass(eq=False)
class OutputFileError(TileyardError):
    """A file that is to be compared is not there, or has not the size that its shape asks for."""

    code: ClassVar[str] = "output_file"
    exit_status: ClassVar[int] = 1


@dataclass(eq=False)
class KernelFault(TileyardError):
    """A kernel reported a failure of its own while it ran, such as an index out of range."""

    code: ClassVar[str] = "kernel_fault"
    exit_status: ClassVar[int] = 1


@dataclass(eq=False)
class ContextLostError(KernelFault):
    """A kernel failed so that its process can use the device no more; a fresh one can."""

    code: ClassVar[str] = "context_lost"


@dataclass(eq=False)
class WorkerLostError(TileyardError):
    """A worker ended before it answered; the outcome of what it did is told by how it ended."""

    code: ClassVar[str] = "worker_lost"
    exit_status: ClassVar[int] = 3


@dataclass(eq=False)
class WorkerStartError(WorkerLostError):
    """A worker could not be started at all: its program, folder, cores or locks are not there."""

    code: ClassVar[str] = "worker_start"


@dataclass(eq=False)
class SickDeviceError(WorkerStartError):
    """No device that was asked for can be had, because too many are in quarantine."""

    code: ClassVar[str] = "sick_device"


@dataclass(eq=False)
class NestedLeaseError(WorkerStartError):
    """A process that holds a device asked for it once more, and would have waited for itself."""

    code: ClassVar[str] = "nested_lease"


@dataclass(eq=False)
class WireError(TileyardError):
    """A message between processes is too large, or is not what its receiver expects."""

    code: ClassVar[str] = "wire"
    exit_status: ClassVar[int] = 3


@dataclass(eq=False)
class InterruptedRunError(TileyardError):
    """A run was ended at once, as it was asked to."""

    code: ClassVar[str] = "interrupted"
    exit_status: ClassVar[int] = 130


@dataclass(eq=False)
class EngineLostError(TileyardError):
    """The engine process ended before the run was complete; what was recorded is kept."""

    code: ClassVar[str] = "engine_lost"
    exit_status: ClassVar[int] = 3

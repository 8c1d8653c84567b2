"""What becomes of a leased command, as ``--status-file`` tells it, and how long each step may take."""

import enum

from tileyard.model import Record


class State(enum.StrEnum):
    """How far a leased command has come, or why it came no further."""

    WAITING = "waiting"
    RUNNING = "running"
    ENDED = "ended"
    QUEUE_TIMEOUT = "queue_timeout"
    MAX_TIME = "max_time"
    DEVICE_SICK = "device_sick"
    NO_DEVICE = "no_device"
    NESTED = "nested"
    NOT_RUN = "not_run"
    INTERRUPTED = "interrupted"
    KEEPER_LOST = "keeper_lost"


class LeaseStatus(Record):
    """What became of a leased command.

    ``code`` and ``signal`` are how it ended by itself, None where it did not. ``leases`` gives the
    number of the lease of each device. ``message`` says in one line why it did not simply end.
    """

    state: State
    code: int | None = None
    signal: int | None = None
    leases: dict[str, int] = {}
    waited_s: float = 0.0
    held_s: float = 0.0
    place: int = 0
    holder: str = ""
    message: str = ""


class Limits(Record):
    """How long a command may wait for its devices, and how long it may run; None for ever."""

    queue_s: float | None = None
    run_s: float | None = None

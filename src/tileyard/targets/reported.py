"""What artifacts may say of the resources that they take: the part of a target's details that is shown.

A target that knows it has these fields in its own details, beside whatever else it keeps there.
"""

import msgspec

from tileyard.decoding import decode_json
from tileyard.model import Record

LOG_FILE = "compiler.log"
"""What the compiler said of a binary, where a target keeps it."""
PADDING = "padding"
"""The kind of instructions that fill space, and are not shown."""


def first_error(log: str) -> str:
    """The line of a compiler's log that says why it failed."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    return next((line for line in lines if "error" in line), lines[0] if lines else "no message")


class Resources(Record):
    """What one device function takes, read from its cubin. Bytes are of one block or one thread.

    ``spilled_bytes`` is what the compiler put from registers into memory, a thread's. ``threads``,
    ``dynamic_shared_bytes`` and ``occupancy`` (active warps over what a multiprocessor holds) are
    None where they depend on the call. ``mix`` counts instructions by kind, the largest first.
    """

    symbol: str
    registers: int
    spilled_bytes: int
    stack_bytes: int
    shared_bytes: int
    code_bytes: int
    parameter_bytes: int
    threads: int | None = None
    dynamic_shared_bytes: int | None = None
    occupancy: float | None = None
    mix: dict[str, int] = {}


class Reported(Record):
    """The part of an artifact's details that is compared and shown; of other targets it is empty."""

    resources: tuple[Resources, ...] = ()
    compiler: str = ""
    flags: tuple[str, ...] = ()


def read_reported(details: str) -> Reported:
    """What an artifact says of its resources: nothing where ``details`` are another target's, or empty."""
    try:
        return decode_json(details, Reported) if details else Reported()
    except msgspec.DecodeError:
        return Reported()

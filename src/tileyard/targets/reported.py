"""The resources that artifacts report: the part of a target's details that is shown. A target that
knows them has these fields in its own details, beside any others.
"""

import msgspec

from tileyard.base.decoding import decode_json
from tileyard.base.model import Record

LOG_FILE = "compiler.log"
"""The file with the compiler's output for a binary, if a target keeps it."""
PADDING = "padding"
"""The kind of the instructions that only fill space; it is not shown."""


def first_error(log: str) -> str:
    """The line of a compiler's log with the reason for its failure."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    return next((line for line in lines if "error" in line), lines[0] if lines else "no message")


class Resources(Record):
    """One device function's resources, read from its cubin; bytes are per block or per thread.
    ``spilled_bytes`` went from registers to memory, per thread. ``threads``,
    ``dynamic_shared_bytes`` and ``occupancy`` (active warps over a multiprocessor's most) are None
    if the call decides. ``mix`` counts instructions by kind, the largest first.
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
    """The part of an artifact's details that is compared and shown; empty for other targets."""

    resources: tuple[Resources, ...] = ()
    compiler: str = ""
    flags: tuple[str, ...] = ()


def read_reported(details: str) -> Reported:
    """The resources in an artifact's ``details``; empty if these are another target's, or empty."""
    try:
        return decode_json(details, Reported) if details else Reported()
    except msgspec.DecodeError:
        return Reported()

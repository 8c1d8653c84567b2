"""Sets of CPU cores: how they are written, and the locks that stand for them."""

from collections.abc import Callable, Iterable
from pathlib import Path

from tileyard.devices.cpu import physical_core
from tileyard.errors import UsageError

SYNTAX = "write cores as 0-1,3"
MAX_CORES = 8192  # as many as Linux can be built for


def parse_cores(text: str, subject: str) -> tuple[int, ...]:
    """``0-1,3`` as ascending numbers; ``subject`` is what an error is about."""
    cores: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.partition("-")
        last = last if dash else first
        if not (first.isdecimal() and last.isdecimal()) or int(first) > int(last):
            raise UsageError(f"{subject} has no valid set of cores: {part!r}", SYNTAX)
        if int(last) >= MAX_CORES:
            raise UsageError(f"{subject} names a core above {MAX_CORES - 1}: {part!r}", SYNTAX)
        cores.update(range(int(first), int(last) + 1))
    return tuple(sorted(cores))


def require_cores(cores: Iterable[int], available: Iterable[int], subject: str) -> None:
    """Raise UsageError where a core is not among those that may be used."""
    missing = sorted(set(cores) - set(available))
    if missing:
        raise UsageError(
            f"{subject} names cores {format_cores(missing)}, which are not available",
            f"available are {format_cores(available)}",
        )


def format_cores(cores: Iterable[int]) -> str:
    """Ascending numbers as ``0-1,3``."""
    spans: list[list[int]] = []
    for core in sorted(cores):
        if spans and spans[-1][1] == core - 1:
            spans[-1][1] = core
        else:
            spans.append([core, core])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in spans)


def core_locks(
    cores: Iterable[int], lock_dir: Path, physical: Callable[[int], int] = physical_core
) -> tuple[str, ...]:
    """One lock file for each physical core, ascending.

    Sets that overlap, or that share a core through hardware threads, exclude each other; and since
    everyone takes them in this order, nobody waits in a circle.
    """
    return tuple(
        str(lock_dir / f"cpu-{core}.lock") for core in sorted({physical(core) for core in cores})
    )

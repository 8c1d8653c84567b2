"""What compilers that run within this process write to its standard streams."""

import contextlib
import fcntl
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

HEARD_BYTES = 1 << 20
"""How much is kept of what was said in one block."""

_STREAMS = (1, 2)


@contextlib.contextmanager
def overhear() -> Iterator[list[str]]:
    """Within, what this process writes to its standard streams, C++ included, is kept as one text.

    The text is in the list when the block is left; at most HEARD_BYTES of it. Where both streams
    are appended to one file, as in a worker, it stays there, too: of a process that dies within the
    block these are the last words. Elsewhere nobody else gets it.
    """
    said: list[str] = []
    if _is_logged():
        start = os.fstat(2).st_size
        try:
            yield said
        finally:
            with Path("/proc/self/fd/2").open("rb") as log:
                log.seek(start)
                said.append(log.read(HEARD_BYTES).decode(errors="replace"))
        return
    kept = [os.dup(number) for number in _STREAMS]
    with tempfile.TemporaryFile() as file:
        for number in _STREAMS:
            os.dup2(file.fileno(), number)
        try:
            yield said
        finally:
            for number, original in zip(_STREAMS, kept, strict=True):
                os.dup2(original, number)
                os.close(original)
            file.seek(0)
            said.append(file.read(HEARD_BYTES).decode(errors="replace"))


def _is_logged() -> bool:
    """Whether both streams are appended to the same file."""
    out, err = map(os.fstat, _STREAMS)
    appends = all(fcntl.fcntl(number, fcntl.F_GETFL) & os.O_APPEND for number in _STREAMS)
    return stat.S_ISREG(err.st_mode) and os.path.samestat(out, err) and appends

"""Captures what compilers that run within this process write to its standard streams."""

import contextlib
import fcntl
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

HEARD_BYTES = 1 << 20
"""Most bytes that are kept per block."""

_STREAMS = (1, 2)


@contextlib.contextmanager
def overhear() -> Iterator[list[str]]:
    """Inside the block, capture what this process, C++ included, writes to its standard streams, as one
    text: the list's, after the block, at most HEARD_BYTES. If both streams are appended to one file, as in a
    worker, it also stays there for when the process dies within; else it goes nowhere.
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
    out, err = map(os.fstat, _STREAMS)
    appends = all(fcntl.fcntl(number, fcntl.F_GETFL) & os.O_APPEND for number in _STREAMS)
    return stat.S_ISREG(err.st_mode) and os.path.samestat(out, err) and appends

"""What happens in a copy of this process from its first moment to its last."""

import asyncio
import ctypes
import faulthandler
import os
import pickle
import signal
import struct
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import Final, NoReturn

from tileyard.model import Record

FATAL: Final = (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL)
PR_SET_PDEATHSIG: Final = 1
FAILED: Final = 70
"""The exit code of a copy whose work raised."""
HEADER: Final = struct.Struct("<I")
"""The size of a message, which goes before it."""
_libc = ctypes.CDLL(None, use_errno=True)
_own_trees: list[str] = []


class Teller:
    """The copy's end of the pipe; usable from any thread."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._lock = threading.Lock()

    def tell(self, message: Record) -> None:
        """Send one message, waiting for room."""
        data = pickle.dumps(message)
        data = HEADER.pack(len(data)) + data
        with self._lock:
            while data:
                data = data[os.write(self.fd, data) :]


def keeper_environment() -> dict[str, str]:
    """The environment without the mark of this copy: whoever ends all that it started spares a keeper."""
    marks = [mark for mark in os.environ.get("TILEYARD_TREE", "").split(":") if mark]
    left = ":".join(mark for mark in marks if mark not in _own_trees)
    return {**os.environ, "TILEYARD_TREE": left}


def be_copy(
    work: Callable[[Teller], None], teller: Teller, logs: tuple[int, int], parent: int, tree: str
) -> NoReturn:
    """In the copy: do the work and end, without anything that the original would do at its end."""
    log_fd, stack_fd = logs
    code = FAILED
    try:
        os.setsid()
        _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(FAILED)
        above = os.environ.get("TILEYARD_TREE", "")
        _own_trees[:] = [tree]
        os.environ["TILEYARD_TREE"] = f"{above}:{tree}" if above else tree
        signal.set_wakeup_fd(-1)
        faulthandler.disable()
        for number in FATAL:  # TVM's own handler spends a second on C frames, device in hand
            signal.signal(number, signal.SIG_DFL)
        faulthandler.enable(file=stack_fd)
        asyncio.set_event_loop(None)
        work(teller)
        code = 0
    except BaseException:  # noqa: BLE001 - a worker's entry
        os.write(log_fd, traceback.format_exc().encode())
    finally:
        for stream in (sys.stdout, sys.stderr):
            with suppress(ValueError, OSError):
                stream.flush()
        os._exit(code)

"""Moves the output of a runner's process into the logs of its cases, which exist only where needed."""

import contextlib
import os
import sys
from pathlib import Path

from tileyard.base.modes import make_folder, open_file

OUTPUT = 1
"""Standard output and standard error are the same file, with which this process was started."""
CHUNK = 1 << 20


class Printed:
    """Moves a case's output from the process's own to its log; the engine moves a dead process's."""

    def __init__(self, home: Path, output: int = OUTPUT) -> None:
        self._home = home
        self._output = output
        self._log = ""
        self._start = 0

    def turn_to(self, log: str) -> None:
        """From now on all output belongs to this log, a path below the home directory."""
        self.settle()
        self._log = log
        self._start = os.fstat(self._output).st_size

    def settle(self) -> None:
        """Move the output so far into its log; what does not fit on a full disk is lost."""
        with contextlib.suppress(OSError):  # a full disk concerns the log, not the case
            sys.stdout.flush()
        if not self._log or os.fstat(self._output).st_size <= self._start:
            return
        with contextlib.suppress(OSError):  # the same
            self._move(self._home / self._log)
        os.ftruncate(self._output, self._start)

    def _move(self, path: Path) -> None:
        make_folder(path.parent)
        with (
            Path(f"/proc/self/fd/{self._output}").open("rb") as output,
            open(path, "ab", opener=open_file) as log,
        ):
            output.seek(self._start)
            while data := output.read(CHUNK):
                log.write(data)

"""What a runner's process prints, case by case: most print nothing, and then there is no file for it.

A file for each case costs more than running a short one: a file system that has lately removed many
files looks for a free one for a millisecond.
"""

import contextlib
import os
import sys
from pathlib import Path

from tileyard.modes import make_folder, open_file

OUTPUT = 1
"""Standard output, and standard error too, are the one file that this process was started with."""
CHUNK = 1 << 20


class Printed:
    """Moves what a case has printed from the process's own output to the log of that case.

    What is still there when the process dies is for the engine to put where it belongs.
    """

    def __init__(self, home: Path, output: int = OUTPUT) -> None:
        self._home = home
        self._output = output
        self._log = ""
        self._start = 0

    def turn_to(self, log: str) -> None:
        """From now on everything is printed for this log, a path below the home directory."""
        self.settle()
        self._log = log
        self._start = os.fstat(self._output).st_size

    def settle(self) -> None:
        """Put what was printed so far into its log; what a full disk does not take is lost."""
        with contextlib.suppress(OSError):  # a full disk decides about the log, not about the case
            sys.stdout.flush()
        if not self._log or os.fstat(self._output).st_size <= self._start:
            return
        with contextlib.suppress(OSError):  # likewise
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

"""Runs this Python with the arguments, and is the parent of whatever its descendants leave behind.

``python tools/reaping.py -m pytest ...``. What is orphaned below it is still counted by ``tests/costs.py``:
it becomes a child of this process, whose number is in the variable ``TILEYARD_TEST_ROOT``.
"""

import ctypes
import os
import signal
import subprocess
import sys

PR_SET_CHILD_SUBREAPER = 36


def main() -> int:
    """The exit status of the program, once it has ended."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # tests/conftest.py undoes it for the program
    # BLAS of small matrices by several threads is no faster, and they wait for each other in a loop.
    environment = {
        **os.environ,
        "OPENBLAS_NUM_THREADS": "1",
        "TILEYARD_TEST_ROOT": str(os.getpid()),
    }
    command = [sys.executable, *sys.argv[1:]]
    with subprocess.Popen(command, env=environment) as program:
        while True:
            pid, status = os.wait()
            if pid == program.pid:
                program.returncode = os.waitstatus_to_exitcode(status)
                return program.returncode if program.returncode >= 0 else 128 - program.returncode


if __name__ == "__main__":
    sys.exit(main())

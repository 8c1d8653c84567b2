"""Runs a program to its end, within a limit that the caller's caller sets."""

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path

programs_limit_s: ContextVar[float | None] = ContextVar("programs_limit_s", default=None)
"""Seconds for a program of ``run_program``; None where somebody else limits this process and all below."""


def run_program(
    argv: Sequence[str], cwd: Path, env: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end. Past the limit its process group is ended, and TimeoutError raised."""
    limit_s = programs_limit_s.get()
    with subprocess.Popen(
        argv,
        cwd=cwd,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        process_group=None if limit_s is None else 0,
    ) as process:
        try:
            out, err = process.communicate(timeout=limit_s)
        except BaseException as error:
            if limit_s is not None:
                os.killpg(process.pid, signal.SIGKILL)
            if isinstance(error, subprocess.TimeoutExpired):
                raise TimeoutError(f"took longer than {limit_s:g} s, and was ended") from None
            process.kill()
            raise
    return subprocess.CompletedProcess(argv, process.returncode, out, err)

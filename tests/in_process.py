"""Commands in the test's own process, each as if it were the first."""

import contextlib
import io
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

import pytest

from tileyard.cli.main import main
from tileyard.service import client
from tileyard.verbs.lease.command import run_lease


def run_here(
    arguments: Sequence[str], folder: Path, environment: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end in this process, with this environment and no other variable."""
    printed = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patched, forgetting(folder):
        for name in os.environ.keys() - environment.keys():
            patched.delenv(name)
        for name, text in environment.items():
            patched.setenv(name, text)
        patched.chdir(folder)
        with contextlib.redirect_stdout(printed[0]), contextlib.redirect_stderr(printed[1]):
            is_lease = arguments[:1] == ("lease",)
            code = run_lease([*arguments[1:]]) if is_lease else main([*arguments])
    stdout, stderr = (stream.getvalue() for stream in printed)
    return subprocess.CompletedProcess(["tileyard", *arguments], code, stdout, stderr)


@contextlib.contextmanager
def no_engine() -> Iterator[None]:
    """Fail where an engine would be started."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(client, "start_engine_process", refuse_engine)
        yield


def refuse_engine(*_: object) -> NoReturn:
    """Fail the test."""
    pytest.fail("this command starts an engine: run it in a process of its own (CommandLine.run)")


@contextlib.contextmanager
def forgetting(folder: Path) -> Iterator[None]:
    """Let no module of a folder stay imported, nor found."""
    path = list(sys.path)
    try:
        yield
    finally:
        sys.path[:] = path
        for name, module in sys.modules.copy().items():  # at once: threads may still import
            if str(getattr(module, "__file__", "")).startswith(f"{folder}/"):
                del sys.modules[name]

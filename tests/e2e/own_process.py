"""Commands in the test's own process that start no engine, and what an engine refuses when it opens a run."""

import asyncio
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import pytest
from tests.conftest import CommandLine
from tests.in_process import run_here

from tileyard.events import Event
from tileyard.service.bench import Bench
from tileyard.service.client import RunClient
from tileyard.settings import read_settings
from tileyard.workers.protocol import AuthorReply, AuthorRequest


@dataclass
class OwnProcess(CommandLine):
    """Runs commands that need no engine, each as if it were the first; a test fails where one would start."""

    def run(self, *arguments: str, **extra: str) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        return self.refuse(*arguments, **extra)


def refuse_run(cli: CommandLine, *arguments: str, **extra: str) -> subprocess.CompletedProcess[str]:
    """Run a command whose run an engine refuses to open; the test fails if the run would begin."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(RunClient, "run", open_here)
        return run_here(arguments, cli.cwd, cli.environment(extra))


def open_here(client: RunClient[Any], _listen: object) -> NoReturn:
    """Do in this process what an engine does first, which raises what is wrong with a run."""
    asyncio.run(open_verb(client))
    pytest.fail("this run is not refused: run it in processes of its own (CommandLine.run)")


async def open_verb(client: RunClient[Any]) -> None:
    """Open a verb, and close what was opened for it."""
    environment = {**os.environ, **client._settings.environment()}
    bench = Bench(read_settings(environment, Path.cwd()), SilentClient())
    try:
        await client._verb.settle(bench.settings).open(bench)
    finally:
        await bench.close()


class SilentClient:
    """A client that has no kernels, and hears of nothing."""

    def tell_event(self, event: Event) -> None:
        """Nothing may happen."""
        raise AssertionError(f"a run that was not open yet reported {event}")

    async def ask(self, request: AuthorRequest) -> AuthorReply:
        """Nothing may be asked."""
        raise AssertionError(f"a client without kernels was asked {request}")

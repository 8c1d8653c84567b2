"""Commands in the test's own process: those without an engine, and what an engine refuses of any run."""

import asyncio
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import pytest
from tests.conftest import CommandLine
from tests.in_process import run_here
from tests.own_authors import OwnAuthor

from tileyard.base.events import Event
from tileyard.base.model import Side
from tileyard.base.settings import read_settings
from tileyard.engine.compilers import CompilePool
from tileyard.service import bench
from tileyard.service.client import RunClient
from tileyard.workers.protocol import AuthorReply, AuthorRequest


@dataclass
class OwnProcess(CommandLine):
    """Runs commands that need no engine, each as if it were the first; a test fails where one would start."""

    def run(self, *arguments: str, **extra: str) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        return self.run_here(*arguments, **extra)


def in_a_process(cli: CommandLine) -> CommandLine:
    """The same home and folder, with a process for each command."""
    return CommandLine(cli.cwd, cli.env)


def refuse_run(cli: CommandLine, *arguments: str, **extra: str) -> subprocess.CompletedProcess[str]:
    """Run a command whose run an engine refuses to open; the test fails if the run would begin."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(RunClient, "run", open_here)
        return run_here(arguments, cli.cwd, cli.environment(extra))


def refuse_kernels(
    cli: CommandLine, *arguments: str, **extra: str
) -> subprocess.CompletedProcess[str]:
    """Run a command whose kernels an engine refuses; the test fails if the run would begin."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(bench, "WorkerAuthor", FileAuthor)
        patched.setattr(CompilePool, "begin", start_no_worker)
        return refuse_run(cli, *arguments, **extra)


class FileAuthor(OwnAuthor):
    """The author of a file in this process, where an engine starts one."""

    spent = None

    def __init__(self, file: Path, home: Path, cores: tuple[int, ...], side: Side) -> None:
        assert side == bench.HERE
        super().__init__(file, home, cores, {})


async def start_no_worker(_pool: CompilePool, _builder: tuple[str, str]) -> None:
    """Do nothing: the compile worker that an engine starts ahead has no part in a refusal."""


def open_here(client: RunClient[Any], _listen: object) -> NoReturn:
    """Do in this process what an engine does first, which raises what is wrong with a run."""
    asyncio.run(open_verb(client))
    pytest.fail("this run is not refused: run it in processes of its own (CommandLine.run)")


async def open_verb(client: RunClient[Any]) -> None:
    """Open a verb, and close what was opened for it."""
    environment = {**os.environ, **client._settings.environment()}
    opened = bench.Bench(read_settings(environment, Path.cwd()), SilentClient())
    try:
        await client._verb.settle(opened.settings).open(opened)
    finally:
        await opened.close()


class SilentClient:
    """A client that has no kernels, and hears of nothing."""

    def tell_event(self, event: Event) -> None:
        """Nothing may happen."""
        raise AssertionError(f"a run that was not open yet reported {event}")

    async def ask(self, request: AuthorRequest) -> AuthorReply:
        """Nothing may be asked."""
        raise AssertionError(f"a client without kernels was asked {request}")

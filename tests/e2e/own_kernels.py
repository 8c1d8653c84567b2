"""What an engine refuses of a request for kernels when it opens a run, with the author of a file in the test's own process."""

import subprocess
from pathlib import Path

import pytest
from tests.conftest import CommandLine
from tests.e2e.own_process import refuse_run
from tests.own_authors import OwnAuthor

from tileyard.engine.compilers import CompilePool
from tileyard.model import Side
from tileyard.service import bench


class FileAuthor(OwnAuthor):
    """The author of a file in this process, where an engine starts one."""

    spent = None

    def __init__(self, file: Path, home: Path, cores: tuple[int, ...], side: Side) -> None:
        assert side == bench.HERE
        super().__init__(file, home, cores, {})


async def start_no_worker(_pool: CompilePool, _builder: tuple[str, str]) -> None:
    """Do nothing: the compile worker that an engine starts ahead has no part in a refusal."""


def refuse_kernels(
    cli: CommandLine, *arguments: str, **extra: str
) -> subprocess.CompletedProcess[str]:
    """Run a command whose run an engine refuses because of its kernels; the test fails if the run would begin."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(bench, "WorkerAuthor", FileAuthor)
        patched.setattr(CompilePool, "begin", start_no_worker)
        return refuse_run(cli, *arguments, **extra)

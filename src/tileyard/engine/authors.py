"""The engine's side of the author: the process in which the user's code lives."""

import asyncio
import sys
import tempfile
from pathlib import Path
from typing import Protocol

from tileyard.errors import WorkerLostError
from tileyard.frontend.footprint import Footprint
from tileyard.processes.outcomes import judge_end
from tileyard.processes.supervise import Worker, WorkerCommand
from tileyard.workers.environment import worker_environment
from tileyard.workers.protocol import Answered, AuthorReply, AuthorRequest, Failed

START_LIMIT_S = 120.0


class Author(Protocol):
    """Answers questions about the user's kernels, ``lanes`` at the same time.

    ``cores`` are those it may run on.
    """

    cores: tuple[int, ...]
    lanes: int

    async def begin(self) -> None:
        """Start whatever has to be started, without waiting for what it imports."""
        ...

    async def ask(self, request: AuthorRequest, limit_s: float) -> AuthorReply:
        """Ask one question; a crash, a hang or an exception of the user's code is a Failed."""
        ...

    async def close(self) -> None:
        """End whatever process was started for it."""
        ...


class TracedAuthor(Author, Protocol):
    """An author that can tell what its answers so far depend on; None where it cannot."""

    footprint: Footprint | None


class WorkerAuthor:
    """An author in a process of its own that imports one file; replaced after an abnormal end.

    ``footprint`` is what the answers of the present process depend on, None before the first.
    """

    lanes = 1

    def __init__(self, file: Path, home: Path, cores: tuple[int, ...]) -> None:
        """``home`` has the object store; nothing is written there until inputs are made."""
        self.cores = cores
        # Not below the home: a request that is refused leaves no trace.
        self._scratch = tempfile.TemporaryDirectory(prefix="tileyard-author-")
        self._file = file
        self._home = home
        self._worker: Worker | None = None
        self._is_fresh = True
        self.footprint: Footprint | None = None

    async def begin(self) -> None:
        """Start the process, which imports the file while the caller does something else."""
        if self._worker is None:
            self._worker = await Worker.start(self._command())
            self._is_fresh = True
            self.footprint = None

    async def ask(self, request: AuthorRequest, limit_s: float) -> AuthorReply:
        """Ask one question; the first one also waits for the user's imports."""
        await self.begin()
        worker = self._worker
        if worker is None:
            raise AssertionError("the author's process did not start")
        limit = limit_s + (START_LIMIT_S if self._is_fresh else 0.0)
        self._is_fresh = False
        try:
            async with asyncio.timeout(limit):
                await worker.send(request)
                answered = await worker.receive(Answered)
        except TimeoutError:
            self._worker = None
            ended = await worker.kill("time limit")
            end = judge_end(ended, limit=f"limit of {limit:g} s")
        except WorkerLostError:
            self._worker = None
            ended = await worker.ended()
            end = judge_end(ended)
        else:
            if answered.footprint is not None:
                self.footprint = answered.footprint
            return answered.reply
        message = f"the kernel file's process {end.message}"
        return Failed(message=message, outcome=end.outcome, log=ended.log_tail)

    async def close(self) -> None:
        """End the process."""
        if self._worker is not None:
            await self._worker.kill("run ended")
            self._worker = None
        self._scratch.cleanup()

    def _command(self) -> WorkerCommand:
        program = (sys.executable, "-P", "-m", "tileyard.workers.author")
        return WorkerCommand(
            argv=(*program, str(self._home), str(self._file)),
            env=worker_environment(threads=len(self.cores)),
            cwd=str(Path.cwd()),
            log=str(Path(self._scratch.name) / "author.log"),
            cores=self.cores,
        )

"""The engine's side of the author: the process in which the user's code lives."""

import asyncio
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tileyard.errors import WorkerLostError
from tileyard.frontend.footprint import Footprint
from tileyard.model import Side
from tileyard.processes.outcomes import judge_end
from tileyard.processes.supervise import Worker, WorkerCommand
from tileyard.workers.environment import worker_environment
from tileyard.workers.protocol import Answered, AnswerT, Failed, Question

START_LIMIT_S = 120.0


class Author(Protocol):
    """Answers questions about the user's kernels, one at a time. ``cores`` are those it may run on."""

    cores: tuple[int, ...]

    async def begin(self) -> None:
        """Start whatever has to be started, without waiting for what it imports."""

    async def ask(self, request: Question[AnswerT], limit_s: float) -> AnswerT | Failed:
        """Ask one question; a crash, a hang or an exception of the user's code is a Failed."""

    async def close(self) -> None:
        """End whatever process was started for it."""


class TracedAuthor(Author, Protocol):
    """An author that can tell what its answers so far depend on; None where it cannot."""

    footprint: Footprint | None


class WorkerAuthor:
    """An author in a process of its own that imports one file; replaced after an abnormal end.

    ``footprint`` is what the answers of the present process depend on, None before the first.
    """

    def __init__(self, file: Path, home: Path, cores: tuple[int, ...], side: Side) -> None:
        """``home`` has the object store; nothing is written there until inputs are made."""
        self.cores = cores
        self._side = side
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

    async def ask(self, request: Question[AnswerT], limit_s: float) -> AnswerT | Failed:
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
            reply = answered.reply
            return reply if isinstance(reply, Failed) else request.check(reply)
        message = f"the kernel file's process {end.message}"
        return Failed(message=message, outcome=end.outcome, log=ended.log_tail)

    async def close(self) -> None:
        """End the process."""
        if self._worker is not None:
            await self._worker.kill("run ended")
            self._worker = None
        self._scratch.cleanup()

    def _command(self) -> WorkerCommand:
        program = (self._side.python or sys.executable, "-P", "-m", "tileyard.workers.author")
        return WorkerCommand(
            argv=(*program, str(self._home), str(self._file)),
            env={**worker_environment(threads=len(self.cores)), **self._side.variables},
            cwd=str(Path.cwd()),
            log=str(Path(self._scratch.name) / "author.log"),
            cores=self.cores,
        )


@dataclass(frozen=True, kw_only=True)
class OneAuthor:
    """The author of one file of a run."""

    authors: "Authors"
    side: str
    file: str

    async def ask(self, request: Question[AnswerT], limit_s: float) -> AnswerT | Failed:
        """Ask one question."""
        return await self.authors.ask(self.side, self.file, request, limit_s)


MakeAuthor = Callable[[Side, str], Author]


class Authors:
    """Who answers for the kernels of a run: one author for each side and file, started when it is first asked.

    ``make`` is given the side and the file's path, which is empty for kernels that the client itself holds.
    """

    def __init__(self, sides: Iterable[Side], cores: tuple[int, ...], make: MakeAuthor) -> None:
        self.cores = cores
        self.sides = {side.name: side for side in sides}
        self._make = make
        self._authors: dict[tuple[str, str], Author] = {}
        self._asking: dict[tuple[str, str], asyncio.Lock] = {}

    async def begin(self, side: str, file: str) -> None:
        """Start the author of a file ahead of the first question, if that pays."""
        await self._find(side, file).begin()

    async def ask(
        self, side: str, file: str, request: Question[AnswerT], limit_s: float
    ) -> AnswerT | Failed:
        """Ask the author of a file; it answers one question after the other."""
        author = self._find(side, file)
        async with self._asking[side, file]:
            return await author.ask(request, limit_s)

    def of(self, side: str, file: str) -> "OneAuthor":
        """The author of a file, to be asked without naming it."""
        return OneAuthor(authors=self, side=side, file=file)

    async def close(self) -> None:
        """End them all."""
        for author in self._authors.values():
            await author.close()

    def _find(self, side: str, file: str) -> Author:
        if (side, file) not in self._authors:
            self._authors[side, file] = self._make(self.sides[side], file)
            self._asking[side, file] = asyncio.Lock()
        return self._authors[side, file]

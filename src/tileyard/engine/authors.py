"""The engine's side of the author, the process in which the user's code lives."""

import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol

import msgspec

from tileyard.artifacts.footprint import Footprint
from tileyard.base.errors import WorkerLostError
from tileyard.base.model import Outcome, Side
from tileyard.base.wording import shorten_path
from tileyard.engine.author_lanes import Lanes
from tileyard.processes.limits import time_limit
from tileyard.processes.supervise import Worker, WorkerCommand
from tileyard.workers.environment import worker_environment
from tileyard.workers.protocol import (
    Answered,
    CheckConfigs,
    DescribeKernels,
    ElaborateConfig,
    ElaboratedConfig,
    ExpandSpace,
    Failed,
    MakeGolden,
)
from tileyard.workers.question import AnswerT, FileImported, Question, Spent

START_LIMIT_S = 120.0
IMPORT = "importing it"
WORK: dict[type, str] = {
    DescribeKernels: "listing its kernels and their spaces",
    ExpandSpace: "expanding the space of {kernel}",
    CheckConfigs: "evaluating where of {kernel}",
    ElaborateConfig: "elaborating {kernel}",
    MakeGolden: "making the inputs and the reference of {kernel}",
}
"""What the user's Python does for questions; the others run our own code, within limits of their verbs."""
PYTHON_LIMIT = "--python-limit"
"""The option that limits the time of a file's own Python."""
ATTEMPTS = 3
"""Number of times a question is asked if the process is killed or stopped from outside."""
MOST_KEPT = 500
"""Most elaborated configs that are kept: with TVM's JSON that of a matrix product takes 44 KB."""


class Author(Protocol):
    """Answers questions about the user's kernels. ``cores`` are the cores it may run on."""

    cores: tuple[int, ...]

    async def begin(self) -> None:
        """Start every process that is needed, without waiting for its imports."""

    async def ask(self, request: Question[AnswerT], limit_s: float) -> AnswerT | Failed:
        """Ask one question; a crash, a hang or an exception of the user's code is a Failed."""

    async def close(self) -> None:
        """End every process that was started for it."""


class TracedAuthor(Author, Protocol):
    """An author that can report what its last answer depends on; ``footprint`` is None if it cannot."""

    footprint: Footprint | None


class WorkerAuthor:
    """An author in a process that imports one file; replaced after an abnormal end. ``footprint``
    is what its answers depend on, ``spent`` the cost of the last one; None before the first.
    """

    def __init__(self, file: Path, home: Path, cores: tuple[int, ...], side: Side) -> None:
        """``home`` contains the object store; nothing is written there until inputs are made."""
        self.cores = cores
        self._side = side
        # Without a name, and not below the home: nothing of it remains, even if the engine is killed.
        self._log = tempfile.TemporaryFile(prefix="tileyard-author-")  # noqa: SIM115 - see close
        self._file = file
        self._home = home
        self._worker: Worker | None = None
        self._is_fresh = True
        self.footprint: Footprint | None = None
        self.spent: Spent | None = None

    async def begin(self) -> None:
        """Start the process, which imports the file while the caller continues."""
        if self._worker is None:
            self._worker = await Worker.start(self._command())
            self._is_fresh = True
            self.footprint = None

    async def ask(self, request: Question[AnswerT], limit_s: float) -> AnswerT | Failed:
        """Ask one question; repeat it at most twice if the process was killed or stopped from outside."""
        for _ in range(ATTEMPTS - 1):
            reply = await self._ask(request, limit_s)
            if not (isinstance(reply, Failed) and reply.outcome is Outcome.INFRA_ERROR):
                return reply
        reply = await self._ask(request, limit_s)
        return msgspec.structs.replace(reply, is_final=True) if isinstance(reply, Failed) else reply

    async def _ask(self, request: Question[AnswerT], limit_s: float) -> AnswerT | Failed:
        """The first question also waits for the user's imports."""
        try:
            await self.begin()
        except WorkerLostError as error:
            return Failed(message=str(error), outcome=Outcome.INFRA_ERROR)
        worker = self._worker
        if worker is None:
            raise AssertionError("the author's process did not start")
        work, limit = IMPORT, self._side.python_limit_s or START_LIMIT_S
        try:
            if self._is_fresh:
                async with time_limit(limit):
                    await worker.receive(FileImported)
                self._is_fresh = False
            work = WORK.get(type(request), "")
            limit = (self._side.python_limit_s if work else 0.0) or limit_s
            async with time_limit(limit):
                await worker.send(request)
                answered = await worker.receive(Answered)
        except (TimeoutError, WorkerLostError) as error:
            self._worker = None
            end, ended = await worker.judge_silence(error, f"limit of {limit:g} s")
        else:
            if answered.footprint is not None:
                self.footprint = answered.footprint
            self.spent = answered.spent
            reply = answered.reply
            return reply if isinstance(reply, Failed) else request.check(reply)
        message = f"the kernel file's process {end.message}"
        if end.outcome is Outcome.TIMEOUT and work:
            what = work.format(kernel=getattr(request, "kernel", ""))
            message = (
                f"{shorten_path(str(self._file))}: {what} takes longer than {limit:g} s"
                f" ({PYTHON_LIMIT} sets another limit)"
            )
        return Failed(message=message, outcome=end.outcome, log=ended.log_tail)

    async def close(self) -> None:
        """End the process."""
        if self._worker is not None:
            await self._worker.kill("run ended")
            self._worker = None
        self._log.close()

    def _command(self) -> WorkerCommand:
        program = (self._side.python or sys.executable, "-P", "-m", "tileyard.workers.author")
        return WorkerCommand(
            argv=(*program, str(self._home), str(self._file)),
            env={**worker_environment(threads=len(self.cores)), **self._side.variables},
            cwd=str(Path.cwd()),
            log=f"/proc/self/fd/{self._log.fileno()}",
            cores=self.cores,
        )


MakeAuthor = Callable[[Side, str], Author]


class Authors:
    """The authors of a run, one for each side and file (empty: the client's own kernels)."""

    def __init__(
        self,
        sides: Iterable[Side],
        cores: tuple[int, ...],
        make: MakeAuthor,
        lanes: Lanes | None = None,
    ) -> None:
        self.cores = cores
        self.lanes = lanes or Lanes()
        self.sides = {side.name: side for side in sides}
        self._make = make
        self._authors: dict[tuple[str, str], Author] = {}
        self._elaborated: dict[bytes, ElaboratedConfig] = {}

    async def begin(self, side: str, file: str) -> None:
        """Start the author of a file ahead of the first question, if that pays."""
        await self.of(side, file).begin()

    def of(self, side: str, file: str) -> Author:
        """The author of a file; its questions need not name the file."""
        if (side, file) not in self._authors:
            self._authors[side, file] = self._make(self.sides[side], file)
        return self._authors[side, file]

    async def elaborate(
        self, side: str, file: str, request: ElaborateConfig, limit_s: float
    ) -> ElaboratedConfig | Failed:
        """Ask the author of a file, once per config: the finals need the same configs again."""
        key = msgspec.msgpack.encode((side, file, request), order="sorted")
        if key in self._elaborated:
            return self._elaborated[key]
        reply = await self.of(side, file).ask(request, limit_s)
        if not isinstance(reply, Failed):
            self._elaborated[key] = reply
            if len(self._elaborated) > MOST_KEPT:
                del self._elaborated[next(iter(self._elaborated))]
        return reply

    async def close(self) -> None:
        """End all authors."""
        for author in self._authors.values():
            await author.close()

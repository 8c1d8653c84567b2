"""The engine's side of the author, the process in which the user's code lives."""

import asyncio
import contextlib
import sys
import tempfile
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import msgspec

from tileyard.artifacts.footprint import Footprint
from tileyard.base.errors import HOST_FAULTS, WorkerLostError
from tileyard.base.model import Outcome, Side
from tileyard.base.wording import shorten_path
from tileyard.engine.commands import AuthorAwaited, AuthorStarted, Fact
from tileyard.processes.supervise import Worker, WorkerCommand, time_limit
from tileyard.workers.command_runs import host_memory_bytes, worker_environment
from tileyard.workers.protocol import (
    Answered,
    AnswerT,
    CheckConfigs,
    CountWork,
    DescribeKernels,
    ElaborateConfig,
    ElaboratedConfig,
    ExpandSpace,
    Failed,
    FileImported,
    Golden,
    MakeGolden,
    Question,
    Spent,
)

ASK_LIMIT_S = 60.0
QUICK_S = 0.1
"""Seconds below which one process makes all golden results: the rest of a case takes as long."""
MEMORY_SHARE = 0.5
"""Share of the host's memory that all processes of a file may need together."""
START_LIMIT_S = 120.0
IMPORT = "importing it"
WORK: dict[type, str] = {
    DescribeKernels: "listing its kernels and their spaces",
    ExpandSpace: "expanding the space of {kernel}",
    CheckConfigs: "evaluating where of {kernel}",
    CountWork: "elaborating {kernel}",
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


class Process(Protocol):
    """One process of an author; ``footprint``: what its answers depend on, ``spent``: the last one's cost."""

    cores: tuple[int, ...]
    footprint: Footprint | None
    spent: Spent | None

    async def begin(self) -> None:
        """Start the process, without waiting for its imports."""

    async def ask(self, request: Question[AnswerT], limit_s: float) -> AnswerT | Failed:
        """Ask one question. Ask the next one only after this one is answered."""

    async def close(self) -> None:
        """End the process."""


@dataclass
class Pace:
    """The total cost of ``made`` golden results of a file, and memory and start of one of its processes."""

    made: int = 0
    seconds: float = 0.0
    cpu_s: float = 0.0
    start_s: float = 0.0
    peak_bytes: int = 0

    def add(self, spent: Spent) -> None:
        """Add the cost of one golden result."""
        self.made += 1
        self.seconds += spent.seconds
        self.cpu_s += spent.cpu_s
        self.start_s = spent.start_s
        self.peak_bytes = max(self.peak_bytes, spent.peak_bytes)

    def is_worth_another(self, processes: int, left: int, cores: int, memory_bytes: int) -> bool:
        """Whether waiting for ``left`` results takes longer than a further process, for which there is
        room.
        """
        if not self.made or (each_s := self.seconds / self.made) < QUICK_S:
            return False
        spared_s = left * each_s / (processes * (processes + 1))
        used_cores = self.cpu_s / self.seconds
        return (
            spared_s > self.start_s
            and (processes + 0.5) * used_cores <= cores
            and (processes + 1) * self.peak_bytes <= MEMORY_SHARE * memory_bytes
        )


def _count_none(_side: str, _file: str) -> int:
    return 0


def _tell_nobody(_fact: Fact) -> None:
    """Do nothing: nobody plans with these facts."""


@dataclass
class Lanes:
    """Limits how many questions about kernels are answered at once: by ``most`` processes of a file, of
    which those beyond each file's first are fewer than ``most`` in all. ``count_left`` returns the golden
    results that a side and file still need; ``tell`` gets facts on started processes.
    """

    most: int = 1
    memory_bytes: int = field(default_factory=host_memory_bytes)
    count_left: Callable[[str, str], int] = _count_none
    tell: Callable[[Fact], None] = _tell_nobody
    further: int = 0
    files: list["AuthorLanes"] = field(default_factory=list)

    def try_take(self, file: "AuthorLanes") -> bool:
        """Whether a file may have a further process now."""
        if self.further + 1 < self.most:
            self.further += 1
            return True
        others = (other for other in self.files if other is not file)
        return self.most > 1 and any(other.give_up_idle() for other in others)


class AuthorLanes:
    """The author of one file: each question goes to the first idle process. ``footprint`` is what
    the last answer depends on: read it before awaiting. Golden results without a key may depend on
    what the process did before: the first process alone makes them, and answers all from then on.
    """

    def __init__(self, make: Callable[[], Process], asked: tuple[str, str], lanes: Lanes) -> None:
        """``asked`` is the side and the file."""
        self._make = make
        self._asked = asked
        self._lanes = lanes
        self._processes = [make()]
        self.cores = self._processes[0].cores
        self.footprint: Footprint | None = None
        self._idle: asyncio.PriorityQueue[int] = asyncio.PriorityQueue()
        self._idle.put_nowait(0)
        self._ended: set[int] = set()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._pace = Pace()
        self._is_single = False
        lanes.files.append(self)

    async def begin(self) -> None:
        """Start the first process."""
        await self._processes[0].begin()

    async def ask(self, request: Question[AnswerT], limit_s: float) -> AnswerT | Failed:
        """Ask one question, once a process is idle. It is idle again once the answer has come, even if nobody
        waits for that any more.
        """
        while True:
            number = await self._idle.get()
            asking: asyncio.Task[Any] = asyncio.create_task(
                self._ask_idle(number, request, limit_s)
            )
            self._keep(asking)
            reply: AnswerT | Failed | None = await asyncio.shield(asking)
            if reply is not None:
                self.footprint = self._processes[number].footprint
                return reply

    async def close(self) -> None:
        """End all processes."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(process.close() for process in self._processes))

    def give_up_idle(self) -> bool:
        """End a further process that is idle; return whether there was one."""
        idle = sorted(self._idle.get_nowait() for _ in range(self._idle.qsize()))
        given_up = idle.pop() if idle and idle[-1] else 0
        for number in idle:
            self._idle.put_nowait(number)
        if given_up:
            self._end(given_up)
        return bool(given_up)

    # ---- inside -----------------------------------------------------------------------------

    async def _ask_idle(
        self, number: int, request: Question[AnswerT], limit_s: float
    ) -> AnswerT | Failed | None:
        try:
            return await self._ask(number, request, limit_s)
        finally:
            self._put_back(number)

    async def _ask(
        self, number: int, request: Question[AnswerT], limit_s: float
    ) -> AnswerT | Failed | None:
        """None if the first process must be asked instead."""
        process, is_golden = self._processes[number], isinstance(request, MakeGolden)
        if is_golden:
            self._consider()
        reply = await process.ask(_identified(request) if number else request, limit_s)
        if isinstance(reply, Golden) and not reply.is_identified:
            self._is_single = True
            return None if number else reply
        if is_golden and process.spent is not None and not isinstance(reply, Failed):
            self._pace.add(process.spent)
        return reply

    def _consider(self) -> None:
        if self._is_single or self._lanes.most == 1:
            return
        left, processes = self._lanes.count_left(*self._asked), self._count()
        memory_bytes = self._lanes.memory_bytes
        if not self._pace.is_worth_another(processes, left, len(self.cores), memory_bytes):
            return
        if not self._lanes.try_take(self):
            return
        try:
            self._processes.append(self._make())
        except HOST_FAULTS:  # the run continues without it
            self._lanes.further -= 1
            self._is_single = True
            return
        self._lanes.tell(AuthorAwaited())
        self._start(self._begin(len(self._processes) - 1))

    async def _begin(self, number: int) -> None:
        """Have a further process import the file, and let it answer; if it cannot, no other is tried."""
        can_answer = False
        with contextlib.suppress(*HOST_FAULTS):
            reply = await self._processes[number].ask(DescribeKernels(), ASK_LIMIT_S)
            can_answer = not isinstance(reply, Failed)
        self._is_single = self._is_single or not can_answer
        self._put_back(number)
        self._lanes.tell(AuthorStarted(lanes=1 + self._lanes.further))

    def _put_back(self, number: int) -> None:
        if number and self._is_single:
            self._lanes.further -= 1
            self._end(number)
        else:
            self._idle.put_nowait(number)

    def _end(self, number: int) -> None:
        self._ended.add(number)
        self._start(self._processes[number].close())

    def _count(self) -> int:
        return len(self._processes) - len(self._ended)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        self._keep(asyncio.create_task(work))

    def _keep(self, task: asyncio.Task[Any]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _identified(request: Question[AnswerT]) -> Question[AnswerT]:
    """The same question, without an answer that only the first process may make."""
    if not isinstance(request, MakeGolden):
        return request
    return msgspec.structs.replace(request, only_identified=True)  # type: ignore[arg-type]  # of this type


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
        self.spare = asyncio.Lock()
        """Taken for questions for whose answers nothing waits: one at a time."""
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

"""Answers questions about one file of kernels with one process, or more if its golden results take long."""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from tileyard.artifacts.footprint import Footprint
from tileyard.base.errors import HOST_FAULTS
from tileyard.engine.commands import AuthorAwaited, AuthorStarted, Fact
from tileyard.workers.environment import host_memory_bytes
from tileyard.workers.protocol import DescribeKernels, Failed, Golden, MakeGolden
from tileyard.workers.question import AnswerT, Question, Spent

ASK_LIMIT_S = 60.0
QUICK_S = 0.1
"""Seconds below which one process makes all golden results: the rest of a case takes as long."""
MEMORY_SHARE = 0.5
"""Share of the host's memory that all processes of a file may need together."""


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
        self._tasks: set[asyncio.Task[None]] = set()
        self._pace = Pace()
        self._is_single = False
        lanes.files.append(self)

    async def begin(self) -> None:
        """Start the first process."""
        await self._processes[0].begin()

    async def ask(self, request: Question[AnswerT], limit_s: float) -> AnswerT | Failed:
        """Ask one question, once a process is idle."""
        while True:
            number = await self._idle.get()
            try:
                reply = await self._ask(number, request, limit_s)
            finally:
                self._put_back(number)
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

    def _start(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _identified(request: Question[AnswerT]) -> Question[AnswerT]:
    """The same question, without an answer that only the first process may make."""
    if not isinstance(request, MakeGolden):
        return request
    return msgspec.structs.replace(request, only_identified=True)  # type: ignore[arg-type]  # of this type

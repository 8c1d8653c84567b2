"""An author in its own process ends a file's Python that takes too long, and names its limit's option."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tileyard.artifacts.footprint import Footprint
from tileyard.base.errors import HomeError
from tileyard.base.model import GoldenKey, Outcome, Side
from tileyard.engine.authors import AuthorLanes, Lanes, Pace, WorkerAuthor
from tileyard.engine.commands import AuthorAwaited, AuthorStarted, Fact
from tileyard.workers.protocol import (
    AnswerT,
    DescribeKernels,
    Failed,
    Golden,
    Kernels,
    MakeGolden,
    Question,
    Spent,
)

FILE = """
import threading
import tileyard

wait = threading.Event().wait
{waits}

def no_space():
    wait()

@tileyard.kernel(space=no_space)
def endless(M=8):
    pass
"""
GIB = 1 << 30
SLOW = Spent(seconds=1.0, cpu_s=1.0, start_s=2.0, peak_bytes=GIB)
QUICK = Spent(seconds=0.005, cpu_s=0.005, start_s=2.0, peak_bytes=GIB)


def ask(
    file: Path, request: Question[object], limit_s: float, python_limit_s: float = 0.0
) -> object:
    """The answer of a new author of the file."""

    async def ask_once() -> object:
        side = Side(name="", python_limit_s=python_limit_s)
        author = WorkerAuthor(file, file.parent, (0,), side)
        try:
            return await author.ask(request, limit_s)
        finally:
            await author.close()

    return asyncio.run(ask_once())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("waits", "limits", "what"),
    [
        ("wait()", (60.0, 0.01), "importing it"),
        ("", (0.01, 0.0), "listing its kernels and their spaces"),
    ],
)
def test_a_file_that_takes_too_long_is_ended_with_the_option_that_limits_it(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    waits: str,
    limits: tuple[float, float],
    what: str,
) -> None:
    """Its import and the answers of its code have limits of their own; an option sets both."""
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "endless.py"
    file.write_text(FILE.format(waits=waits))
    reply = ask(file, DescribeKernels(), *limits)
    assert isinstance(reply, Failed)
    assert reply.outcome is Outcome.TIMEOUT
    expected = f"endless.py: {what} takes longer than 0.01 s (--python-limit sets another limit)"
    assert reply.message == expected


def pace_of(spent: Spent, made: int = 1) -> Pace:
    """What so many golden results took."""
    pace = Pace()
    for _ in range(made):
        pace.add(spent)
    return pace


@pytest.mark.parametrize(
    ("left", "processes", "is_worth"),
    [(7, 1, True), (4, 1, False), (0, 1, False), (100, 4, True), (7, 4, False)],
)
def test_a_further_process_is_worth_it_where_waiting_costs_more(
    left: int, processes: int, is_worth: bool
) -> None:
    """Results of a second each are waited for longer than two seconds of imports only if many are left."""
    pace = pace_of(SLOW)
    assert pace.is_worth_another(processes, left, cores=64, memory_bytes=64 * GIB) == is_worth


def test_quick_references_are_worth_no_further_process() -> None:
    """Hundreds of results that take milliseconds are made by one process."""
    assert not pace_of(QUICK, 3).is_worth_another(1, 500, cores=64, memory_bytes=64 * GIB)


def test_before_the_first_result_nothing_is_started() -> None:
    """Nobody knows yet what a result takes."""
    assert not Pace().is_worth_another(1, 1000, cores=64, memory_bytes=64 * GIB)


@pytest.mark.parametrize(
    ("cpu_s", "cores", "is_worth"), [(4, 4, False), (4, 6, True), (0, 1, True)]
)
def test_references_that_use_all_cores_are_made_one_after_another(
    cpu_s: float, cores: int, is_worth: bool
) -> None:
    """A further process needs at least half of its cores free; one whose references wait needs none."""
    pace = pace_of(Spent(seconds=1.0, cpu_s=cpu_s, start_s=1.0, peak_bytes=GIB))
    assert pace.is_worth_another(1, 50, cores, memory_bytes=64 * GIB) == is_worth


def test_processes_take_at_most_half_of_the_memory() -> None:
    """The most memory that a process has had is counted for each of them."""
    pace = pace_of(SLOW)
    assert pace.is_worth_another(3, 500, cores=64, memory_bytes=8 * GIB)
    assert not pace.is_worth_another(4, 500, cores=64, memory_bytes=8 * GIB)


@dataclass
class Scripted:
    """A process whose golden results take what is scripted; ``gate`` lets it answer."""

    number: int
    spent: Spent | None = None
    is_identified: bool = True
    is_broken: bool = False
    cores: tuple[int, ...] = (0, 1, 2, 3)
    footprint: Footprint | None = None
    gate: asyncio.Event | None = None
    asked: list[Any] = field(default_factory=list)
    is_asked: bool = False
    is_closed: bool = False

    async def begin(self) -> None:
        """Start."""

    async def ask(self, request: Question[AnswerT], limit_s: float) -> AnswerT | Failed:
        """Answer once the gate is open."""
        assert not self.is_asked
        assert not self.is_closed
        self.is_asked = True
        self.asked.append(request)
        if self.gate is not None and isinstance(request, MakeGolden):
            await self.gate.wait()
        await asyncio.sleep(0)
        self.is_asked = False
        self.footprint = Footprint(parts={str(self.number): ""})
        if isinstance(request, DescribeKernels):
            if self.is_broken:
                return Failed(message="it cannot start", outcome=Outcome.INFRA_ERROR)
            return request.check(Kernels(kernels=()))
        key = GoldenKey(f"of {self.number}")
        self.spent = SLOW
        golden = Golden(key=key, inputs=(), outputs=(), is_identified=self.is_identified)
        return request.check(golden)

    async def close(self) -> None:
        """End."""
        self.is_closed = True


@dataclass
class File:
    """A file of kernels whose processes are scripted, and what the engine was told of them."""

    lanes: Lanes
    change: Callable[[Scripted], None] = lambda process: None
    processes: list[Scripted] = field(default_factory=list)
    told: list[Fact] = field(default_factory=list)

    def open(self) -> AuthorLanes:
        """Its author."""
        self.lanes.tell = self.told.append
        return AuthorLanes(self.make, ("", "kernels.py"), self.lanes)

    def make(self) -> Scripted:
        """A process."""
        self.processes.append(process := Scripted(len(self.processes)))
        self.change(process)
        return process


def make_lanes(most: int, left: int = 100) -> Lanes:
    """Lanes of a host with memory, where so many golden results are still to be made."""
    return Lanes(most=most, memory_bytes=64 * GIB, count_left=lambda side, file: left)


def golden(n: int) -> MakeGolden:
    """A question for a golden result."""
    return MakeGolden(kernel="k", arguments={"N": n}, specs=())


async def make_some(author: AuthorLanes, count: int) -> None:
    """Have golden results made one after another, with time for processes to start in between."""
    for n in range(count):
        await author.ask(golden(n), 1.0)
        for _ in range(5):
            await asyncio.sleep(0)


def run(work: Coroutine[Any, Any, None]) -> None:
    """Run a test's own coroutine."""
    asyncio.run(work)


def test_an_answer_that_nobody_waits_for_is_not_that_of_the_next_question() -> None:
    """The process answers one question at a time, and the first answer is taken in all the same."""
    gate = asyncio.Event()
    file = File(make_lanes(1), lambda process: setattr(process, "gate", gate))

    async def work() -> None:
        author = file.open()
        first = asyncio.create_task(author.ask(golden(1), 1.0))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        first.cancel()
        second = asyncio.create_task(author.ask(golden(2), 1.0))
        await asyncio.wait({first})
        assert first.cancelled()
        assert file.processes[0].asked == [golden(1)]
        gate.set()
        assert isinstance(await second, Golden)
        await author.close()

    run(work())


def test_one_lane_is_one_process() -> None:
    """With one lane nothing further is started, however much is left."""
    file = File(make_lanes(1))

    async def work() -> None:
        author = file.open()
        await make_some(author, 8)
        await author.close()

    run(work())
    assert len(file.processes) == 1
    assert file.told == []


def test_slow_results_are_made_side_by_side() -> None:
    """From the second result on a further process is started, and two questions are answered at once."""
    file = File(make_lanes(2))

    async def work() -> None:
        author = file.open()
        await make_some(author, 2)
        gate = asyncio.Event()
        for process in file.processes:
            process.gate = gate
        asked = [asyncio.create_task(author.ask(golden(n), 1.0)) for n in range(2, 5)]
        for _ in range(5):
            await asyncio.sleep(0)
        assert [process.is_asked for process in file.processes] == [True, True]
        gate.set()
        await asyncio.gather(*asked)
        await author.close()

    run(work())
    assert file.told == [AuthorAwaited(), AuthorStarted(lanes=2)]
    assert all(process.is_closed for process in file.processes)


def test_an_answer_has_the_footprint_of_its_process() -> None:
    """Whoever reads the footprint after an answer reads that of the process that gave it."""
    file = File(make_lanes(2))

    async def work() -> None:
        author = file.open()
        await make_some(author, 2)

        async def ask(n: int) -> None:
            reply = await author.ask(golden(n), 1.0)
            assert isinstance(reply, Golden)
            assert author.footprint is not None
            assert [f"of {number}" for number in author.footprint.parts] == [reply.key]

        await asyncio.gather(*map(ask, range(2, 12)))
        await author.close()

    run(work())
    assert len({len(process.asked) > 1 for process in file.processes}) == 1


def test_what_cannot_be_identified_is_made_by_the_first_process() -> None:
    """A further process refuses it, is ended, and no other one is started."""

    def forget(process: Scripted) -> None:
        process.is_identified = process.number == 0

    file = File(make_lanes(3), forget)

    async def work() -> None:
        author = file.open()
        await make_some(author, 2)
        file.processes[0].is_identified = False
        gate = file.processes[0].gate = asyncio.Event()
        replies = [asyncio.create_task(author.ask(golden(n), 1.0)) for n in range(2, 5)]
        for _ in range(5):
            await asyncio.sleep(0)
        gate.set()
        assert {
            reply.key for reply in await asyncio.gather(*replies) if isinstance(reply, Golden)
        } == {"of 0"}
        await make_some(author, 3)
        assert [process.is_closed for process in file.processes][1:] == [True] * (
            len(file.processes) - 1
        )
        await author.close()

    run(work())
    refused = [request for process in file.processes[1:] for request in process.asked[1:]]
    assert refused
    assert all(request.only_identified for request in refused)
    assert not any(request.only_identified for request in file.processes[0].asked)


@pytest.mark.parametrize("fault", ["it cannot start", "there is no disk for its log"])
def test_a_further_process_that_does_not_start_is_done_without(fault: str) -> None:
    """The first one makes all results, and no other start is tried."""

    def harm(process: Scripted) -> None:
        if process.number and fault != "it cannot start":
            raise HomeError(fault)
        process.is_broken = process.number > 0

    file = File(make_lanes(4), harm)

    async def work() -> None:
        author = file.open()
        await make_some(author, 8)
        await author.close()

    run(work())
    assert len(file.processes) == 2
    assert len(file.processes[0].asked) == 8


def test_a_file_without_use_for_a_process_leaves_it_to_another() -> None:
    """With two lanes there is one further process, which an idle file gives up."""
    lanes = make_lanes(2)
    one, other = File(lanes), File(lanes)

    async def work() -> None:
        first, second = one.open(), other.open()
        await make_some(first, 3)
        await make_some(second, 3)
        assert [process.is_closed for process in one.processes] == [False, True]
        assert [process.is_closed for process in other.processes] == [False, False]
        await first.close()
        await second.close()

    run(work())
    assert lanes.further == 1


def test_who_no_longer_waits_costs_no_process() -> None:
    """A question that is given up while it waits, or while it is asked, leaves its process to the next."""
    file = File(make_lanes(1))

    async def work() -> None:
        author = file.open()
        gate = file.processes[0].gate = asyncio.Event()
        asked = [asyncio.create_task(author.ask(golden(n), 1.0)) for n in range(3)]
        await asyncio.sleep(0)
        asked[1].cancel()
        gate.set()
        await asyncio.gather(*asked, return_exceptions=True)
        assert isinstance(await author.ask(golden(3), 1.0), Golden)
        await author.close()

    run(work())

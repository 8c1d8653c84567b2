"""Reduces a failing kernel for the command line: the search runs here, kernels run in other processes."""

import asyncio
import os
import shlex
import signal
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, get_args

import msgspec

from tileyard.base.clock import Clock
from tileyard.base.errors import UsageError
from tileyard.base.model import Record, Side
from tileyard.base.wording import count_of
from tileyard.engine.authors import WorkerAuthor
from tileyard.frontend.found import TILELANGS
from tileyard.ir.nodes import Program
from tileyard.ir.printer import print_program
from tileyard.ir.reader import read_program
from tileyard.processes.supervise import time_limit
from tileyard.reduce.search import count_statements, search
from tileyard.show.console import outliving_readers
from tileyard.show.guarding import INTERRUPTED
from tileyard.show.opening import load_settings
from tileyard.show.words import make_visible
from tileyard.verbs.check.command.checking import FIRST_GUESS
from tileyard.verbs.tune.options import TuneRequest
from tileyard.verbs.tune.plan.space import ASK_LIMIT_S, OpenSpace, open_space
from tileyard.workers.protocol import CheckSync, Failed, FailureFound, FailureWay, FindFailure

CANDIDATE_LIMIT_S = 60.0
"""Seconds for one candidate: one that takes longer does not fail in the same way."""
ELSEWHERE: FailureWay = "elsewhere"
WAYS = {way: way for way in get_args(FailureWay) if way != ELSEWHERE}
"""Failures that are found here; any other text is a command that finds one."""
_WELL: dict[FailureWay, str] = {
    "check": "its check finds no mistake",
    "mismatch": "its results are what it means",
    "compile_error": "the target builds it",
    "elsewhere": "the command ends with another status than 0",
}


class Wanted(Record):
    """The failure to keep, where it comes from, and the time for the search."""

    failure: str
    pipeline: str
    target: str
    limit_s: float
    python_limit_s: float


class Finder(Protocol):
    """Finds the failures of a candidate."""

    async def find(self, program: Program, limit_s: float) -> FailureFound:
        """The signs of the failures, and the source of the kernel that fails."""
        ...


@dataclass(frozen=True, kw_only=True)
class AuthorFinder:
    """Asks the author for the failure in question; if it ``is_written`` only what TileLang accepts fails."""

    author: WorkerAuthor
    question: FindFailure
    is_written: bool

    async def find(self, program: Program, limit_s: float) -> FailureFound:
        """The author's findings; empty if its process ends because of it, or takes too long."""
        text = print_program(program)
        asked = msgspec.structs.replace(self.question, program=text)
        reply = await self.author.ask(asked, limit_s)
        if isinstance(reply, Failed) or (self.is_written and not reply.source):
            return FailureFound(program=text, signs={})
        return reply


@dataclass(frozen=True, kw_only=True)
class CommandFinder:
    """Runs a command on the file of each kernel, which ``author`` writes: exit code 0 means that it fails."""

    author: AuthorFinder
    command: str
    folder: Path

    async def find(self, program: Program, limit_s: float) -> FailureFound:
        """The command is the sign, and nothing else is known."""
        found = await self.author.find(program, limit_s)
        if not found.source:
            return found
        file = self.folder / f"{program.name}.py"
        file.write_text(found.source, encoding="utf-8")
        place = shlex.quote(str(file))
        line = self.command
        line = line.replace("{}", place) if "{}" in line else f"{line} {place}"
        signs = {self.command: f"`{self.command}` ends with 0"} if await _run(line, limit_s) else {}
        return msgspec.structs.replace(found, signs=signs)


async def _run(line: str, limit_s: float) -> bool:
    """Whether a command exits with 0 in time; everything that it has started is ended with it."""
    nothing = asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_shell(
        line, stdin=nothing, stdout=nothing, stderr=nothing, start_new_session=True
    )
    try:
        async with time_limit(limit_s):
            return await process.wait() == 0
    except TimeoutError:
        return False
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


@dataclass(kw_only=True)
class Reduction:
    """A search in progress. ``smallest`` is the smallest Program so far that fails by ``sign`` and in no way
    that is not ``known``; ``found`` is how, and ``is_run`` whether candidates are run.
    """

    finder: Finder
    smallest: Program
    found: FailureFound
    sign: str
    known: frozenset[str]
    is_run: bool = True
    clock: Clock = field(default_factory=Clock)
    candidates: int = 0
    is_over: bool = False

    async def run(self, limit_s: float) -> None:
        """Search until nothing smaller fails, or the time is over."""
        end_s = self.clock.monotonic_s() + limit_s
        candidates = search(self.smallest, is_run=self.is_run)
        try:
            candidate = next(candidates)
            while (left_s := end_s - self.clock.monotonic_s()) > 0:
                self.candidates += 1
                found = await self.finder.find(candidate, min(left_s, CANDIDATE_LIMIT_S))
                fails = self.sign in found.signs and self.known.issuperset(found.signs)
                if fails:
                    self.smallest, self.found = candidate, found
                candidate = candidates.send(fails)
        except StopIteration:
            self.is_over = True


async def run_reduction(reduction: Reduction, limit_s: float) -> str:
    """Search, and return what ended it."""
    try:
        await reduction.run(limit_s)
    except asyncio.CancelledError:  # Ctrl-C: what was found by then is the result
        task = asyncio.current_task()
        if task is not None:
            task.uncancel()
        return "interrupted"
    return "nothing smaller fails" if reduction.is_over else "the time is over"


@dataclass(frozen=True, kw_only=True)
class Reduced:
    """A kernel, how it fails, the reduced kernel, and why the search ended."""

    kernel: str
    message: str
    before: int
    reduction: Reduction
    end: str


def reduce_kernel(file: Path, request: TuneRequest, wanted: Wanted) -> int:
    """Reduce the first config of a kernel and print the result; 130 after Ctrl-C. Raises UsageError."""
    reduced = asyncio.run(_reduce(file, request, wanted))
    with outliving_readers():
        for line in _describe(str(file), reduced):
            print(make_visible(line))
    return INTERRUPTED if reduced.end == "interrupted" else 0


async def _reduce(file: Path, request: TuneRequest, wanted: Wanted) -> Reduced:
    settings = load_settings()
    way = WAYS.get(wanted.failure, ELSEWHERE)
    side = Side(name="", python_limit_s=wanted.python_limit_s)
    author = WorkerAuthor(file, settings.home, settings.cores, side)
    try:
        with tempfile.TemporaryDirectory(prefix="tileyard-reduce-") as folder:
            guess = FIRST_GUESS if way == "check" else None
            space = await open_space(author, request, guess)
            question = FindFailure(
                kernel=space.kernel,
                arguments=space.arguments,
                config=space.configs[0],
                way=way,
                pipeline=wanted.pipeline,
                target=wanted.target,
                plugins=settings.plugins,
            )
            message, reduction = await _begin(author, space, question, wanted, Path(folder))
            before = count_statements(reduction.smallest)
            end = await run_reduction(reduction, wanted.limit_s)
    finally:
        await author.close()
    return Reduced(
        kernel=space.kernel, message=message, before=before, end=end, reduction=reduction
    )


async def _begin(
    author: WorkerAuthor, space: OpenSpace, question: FindFailure, wanted: Wanted, folder: Path
) -> tuple[str, Reduction]:
    """The failure of the kernel itself, and the search from it. Raises UsageError if it does not fail."""
    limit_s, message = max(wanted.limit_s, ASK_LIMIT_S), ""
    if question.way == "check" and (
        not question.pipeline or question.pipeline.startswith(TILELANGS)
    ):
        message, question = await _at_failing_sizes(author, question, space.guessed, limit_s)
    first = await _ask(author, question, limit_s)
    question = msgspec.structs.replace(question, program=first.program)
    plain = msgspec.structs.replace(question, has_own_inputs=False)
    second = await _ask(author, plain, limit_s)
    question = plain if second.signs.keys() == first.signs.keys() else question
    program, is_command = read_program(first.program), question.way == ELSEWHERE
    if is_command and first.refusal:
        raise UsageError(f"{space.kernel} has no source of its own: {first.refusal}")
    asks = AuthorFinder(author=author, question=question, is_written=bool(first.source))
    finder: Finder = asks
    if is_command:
        finder = CommandFinder(author=asks, command=wanted.failure, folder=folder)
        first = await finder.find(program, limit_s)
    if not first.signs:
        raise UsageError(f"{space.kernel} does not fail: {_WELL[question.way]}")
    sign = next(iter(first.signs))
    if not is_command:
        question = msgspec.structs.replace(question, sign=sign)
        finder = AuthorFinder(author=author, question=question, is_written=bool(first.source))
    return message or first.signs[sign], Reduction(
        finder=finder,
        smallest=program,
        found=first,
        sign=sign,
        known=frozenset(first.signs),
        is_run=question.way in ("check", "mismatch"),
    )


async def _at_failing_sizes(
    author: WorkerAuthor, question: FindFailure, guessed: tuple[str, ...], limit_s: float
) -> tuple[str, FindFailure]:
    """The first mistake that the check finds, and the question for its sizes."""
    asked = CheckSync(
        kernel=question.kernel,
        arguments=question.arguments,
        config=question.config,
        architecture=question.pipeline.removeprefix(TILELANGS),
        guessed=guessed,
        until_first=True,
    )
    reply = await author.ask(asked, limit_s)
    if isinstance(reply, Failed):
        raise UsageError(f"{question.kernel} cannot be checked: {reply.message}")
    if not reply.findings:
        raise UsageError(f"{question.kernel} does not fail: {_WELL['check']}")
    finding = reply.findings[0]
    line = "" if finding.access is None else f"line {finding.access.line}: "
    for sizes in reply.instances:
        if ", ".join(f"{name}={value}" for name, value in sizes.items()) == finding.instance:
            arguments = {**question.arguments, **sizes}
            question = msgspec.structs.replace(question, arguments=arguments)
    return f"{line}{finding.message} [{finding.kind}]", question


async def _ask(author: WorkerAuthor, question: FindFailure, limit_s: float) -> FailureFound:
    reply = await author.ask(question, limit_s)
    if isinstance(reply, Failed):
        raise UsageError(f"{question.kernel} cannot be reduced: {reply.message}")
    return reply


def _describe(file: str, reduced: Reduced) -> Iterator[str]:
    reduction = reduced.reduction
    left = count_of(count_statements(reduction.smallest), "statement")
    yield f"# {reduced.kernel} of {file}: {reduced.message}"
    candidates = count_of(reduction.candidates, "candidate")
    yield f"# {left} of {reduced.before}, after {candidates}: {reduced.end}"
    if reduction.found.refusal:
        yield f"# as a Program, because TileLang does not take it: {reduction.found.refusal}"
    source = reduction.found.source or reduction.found.program
    yield from source.splitlines()

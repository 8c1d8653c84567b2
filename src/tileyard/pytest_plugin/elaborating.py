"""Elaborates kernels of this process in copies of it, so that none can hang or end the run."""

import contextlib
import functools
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from tileyard.artifacts.objects import ObjectStore
from tileyard.errors import InvalidProgramError, TileyardError, UnsupportedError
from tileyard.frontend.blame import blame_user
from tileyard.frontend.no_device import assume_target
from tileyard.ir.text import print_program
from tileyard.model import BuildKey, Elaborated, Kernel, Outcome
from tileyard.pytest_plugin.bodies import FoundTileLang, find_compiles
from tileyard.pytest_plugin.copied import Teller
from tileyard.pytest_plugin.forked import Forked, follow
from tileyard.pytest_plugin.reading import Reading
from tileyard.pytest_plugin.records import Answered, StepResult
from tileyard.pytest_plugin.steps import BodyStep, KernelStep
from tileyard.pytest_plugin.tilelang_jit import keep_factories
from tileyard.workers.author import Author
from tileyard.workers.protocol import (
    AuthorReply,
    AuthorRequest,
    ElaborateConfig,
    ElaboratedConfig,
    Failed,
)

S = TypeVar("S")
Ready = tuple[StepResult, Elaborated | None]
"""What a test compiles in its body: what is known of it so far, and what is left to build of it."""


class CopyAuthor:
    """The author that the engine's rooms know, for kernels of this process: asked in copies of it."""

    def __init__(self, cores: tuple[int, ...], objects: ObjectStore, folder: Path) -> None:
        self.cores = cores
        self.lanes = len(cores)
        self._objects = objects
        self._folder = folder
        self._number = 0

    async def begin(self) -> None:
        """Nothing has to be started."""

    async def ask(self, request: AuthorRequest, limit_s: float) -> AuthorReply:
        """Nobody but ``elaborate`` has questions to it: a step's kernel has no name of its own."""
        raise AssertionError(f"a test run asked for {request}")

    async def close(self) -> None:
        """Nothing was started."""

    async def elaborate(
        self, steps: Sequence[KernelStep], limit_s: float, *, with_tir: bool
    ) -> AsyncGenerator[tuple[StepResult, AuthorReply], None]:
        """Elaborate kernels one after another; whatever goes wrong with one is its Failed alone.

        With each answer comes a result that says when it was begun and how long it took.
        """

        def answer(step: KernelStep) -> AuthorReply:
            return self._elaborate(step, with_tir=with_tir)

        async for step, at, reply in self._ask_all(steps, answer, limit_s):
            result = StepResult(
                step=step.id, target=step.target, at=at, seconds=time.monotonic() - at
            )
            yield result, reply

    async def read_bodies(
        self, steps: Sequence[BodyStep], limit_s: float
    ) -> AsyncGenerator[Ready, None]:
        """Elaborate what tests compile in their bodies, as far as that is found.

        What TileLang compiles itself it has compiled, into its own cache: nothing is left to build.
        """
        make_reading = functools.cache(Reading)

        def answer(step: BodyStep) -> list[Ready]:
            return _read_body(step, make_reading())  # in a copy, where the first step makes it

        async for _, _, reply in self._ask_all(steps, answer, limit_s):
            if not isinstance(reply, Failed):  # else the test itself will tell
                for ready in reply:
                    yield ready

    async def _ask_all(
        self, steps: Sequence[S], answer: Callable[[S], object], limit_s: float
    ) -> AsyncGenerator[tuple[S, float, Any], None]:
        """The answers for all steps, made in copies; each with when it was begun."""
        left = list(steps)
        while left:
            at = time.monotonic()
            todo = tuple(left)

            def work(teller: Teller, todo: tuple[S, ...] = todo) -> None:
                for step in todo:
                    teller.tell(Answered(reply=answer(step)))

            self._number += 1
            copy = Forked(work, limit_s, self._folder / f"elaborate-{self._number}.log")
            async with contextlib.aclosing(follow(copy)) as messages:
                async for message in messages:
                    if isinstance(message, Answered):
                        copy.begin_anew()
                        yield left.pop(0), at, message.reply
                        at = time.monotonic()
            if left:
                failed = describe_death(copy, "elaborating it", Outcome.COMPILE_ERROR)
                yield left.pop(0), at, failed

    def _elaborate(self, step: KernelStep, *, with_tir: bool) -> AuthorReply:
        if type(step.source).__name__ != "PrimFunc":
            found = step.source
            author = Author({found.name: found}, self._objects)
            return author.answer(
                ElaborateConfig(
                    kernel=found.name, arguments=step.arguments, config={}, with_tir=with_tir
                )
            )
        try:
            elaborated = _lower(step.source, step.out_idx)
        except (UnsupportedError, InvalidProgramError) as error:
            return Failed(message=str(error), outcome=Outcome.COMPILE_ERROR)
        return ElaboratedConfig(elaborated=elaborated)


def _lower(prim_func: Any, out_idx: Sequence[int] | None) -> Elaborated:  # noqa: ANN401 - TVM's
    """What ``tileyard.compile`` builds of a PrimFunc, so that it finds it built."""
    # TVM, which whoever made a PrimFunc has paid for already.
    from tileyard.frontend.tilelang import lower_prim_func

    lowered = lower_prim_func(prim_func, out_idx)
    name, program = lowered.program.name, print_program(lowered.program)
    return Elaborated(kernel=Kernel(name=name, program=program), lines=lowered.lines)


def _read_body(step: BodyStep, reading: Reading) -> list[Ready]:
    at = time.monotonic()
    made: list[Ready] = []
    own: list[FoundTileLang] = []
    with assume_target():
        for call in find_compiles(step.function, step.values):
            if isinstance(call, FoundTileLang):
                own.append(call)
                continue
            with contextlib.suppress(TileyardError):  # the test itself will tell, or expects it
                elaborated = _lower(call.prim_func, call.out_idx)
                seconds = time.monotonic() - at
                name = f"{step.id}:{len(made)}"
                made.append(
                    (StepResult(step=name, target=call.target, at=at, seconds=seconds), elaborated)
                )
    # For the target that the test will have, not for one that is assumed.
    with keep_factories(call.factory for call in own):
        for number, call in enumerate(own):
            name = f"{step.id}:tilelang:{number}"
            made.append((_compile_by_tilelang(call, name, reading), None))
    return made


def _compile_by_tilelang(call: FoundTileLang, name: str, reading: Reading) -> StepResult:
    """Have TileLang compile a kernel. The key of one that it cannot is kept: the test will tell why."""
    at = time.monotonic()
    before = len(reading.compiled)
    message = ""
    try:
        with blame_user(), reading.allow_compiling():
            call.compile()
    except TileyardError as error:
        message = str(error)
    keys = reading.compiled[before:]
    return StepResult(
        step=name,
        outcome=Outcome.COMPILE_ERROR if message else Outcome.PASSED,
        message=message,
        at=at,
        seconds=time.monotonic() - at,
        reused=not keys and not message,
        build=BuildKey(keys[-1] if keys else ""),
        target="tilelang",
    )


def describe_death(copy: Forked, what: str, crashed: Outcome) -> Failed:
    """What a copy that gave no answer means."""
    end = copy.end
    if end is None:
        raise AssertionError("a copy has no end")
    tail = "".join(f"\n{text}" for text in (end.stack, end.tail) if text)
    outcome = Outcome.TIMEOUT if end.timed_out else crashed
    return Failed(message=f"the process {what} {end.describe(copy.limit_s)}{tail}", outcome=outcome)

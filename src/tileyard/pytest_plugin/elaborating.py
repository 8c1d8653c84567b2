"""Elaborates kernels of this process in copies of it, so that none can hang or end the run."""

import contextlib
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from tileyard.artifacts.objects import ObjectStore
from tileyard.errors import InvalidProgramError, TileyardError, UnsupportedError
from tileyard.frontend.no_device import assume_target
from tileyard.ir.text import print_program
from tileyard.model import Elaborated, Kernel, Outcome
from tileyard.pytest_plugin.bodies import find_compiles, forbid_compiling
from tileyard.pytest_plugin.copied import Teller
from tileyard.pytest_plugin.forked import Forked, follow
from tileyard.pytest_plugin.records import Answered, StepResult
from tileyard.pytest_plugin.steps import BodyStep, KernelStep
from tileyard.workers.author import Author
from tileyard.workers.protocol import (
    AuthorReply,
    AuthorRequest,
    ElaborateConfig,
    ElaboratedConfig,
    Failed,
)

S = TypeVar("S")


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
    ) -> AsyncGenerator[tuple[StepResult, Elaborated], None]:
        """Elaborate what tests compile in their bodies, as far as that is found."""
        async for step, at, reply in self._ask_all(steps, _read_body, limit_s):
            if isinstance(reply, Failed):  # the test itself will tell
                continue
            for number, (target, elaborated) in enumerate(reply):
                seconds = time.monotonic() - at
                name = f"{step.id}:{number}"
                yield StepResult(step=name, target=target, at=at, seconds=seconds), elaborated

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


def _read_body(step: BodyStep) -> list[tuple[str, Elaborated]]:
    forbid_compiling()
    found: list[tuple[str, Elaborated]] = []
    with assume_target():
        for call in find_compiles(step.function, step.values):
            with contextlib.suppress(TileyardError):  # the test itself will tell, or expects it
                found.append((call.target, _lower(call.prim_func, call.out_idx)))
    return found


def describe_death(copy: Forked, what: str, crashed: Outcome) -> Failed:
    """What a copy that gave no answer means."""
    end = copy.end
    if end is None:
        raise AssertionError("a copy has no end")
    tail = "".join(f"\n{text}" for text in (end.stack, end.tail) if text)
    outcome = Outcome.TIMEOUT if end.timed_out else crashed
    return Failed(message=f"the process {what} {end.describe(copy.limit_s)}{tail}", outcome=outcome)

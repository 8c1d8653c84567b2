"""Elaborates kernels of this process in copies of it, so that none can hang or end the run."""

import contextlib
import time
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path

from tileyard.artifacts.objects import ObjectStore
from tileyard.errors import InvalidProgramError, UnsupportedError
from tileyard.ir.text import print_program
from tileyard.model import Elaborated, Kernel, Outcome
from tileyard.pytest_plugin.copied import Teller
from tileyard.pytest_plugin.declared import KernelStep
from tileyard.pytest_plugin.forked import Forked, follow
from tileyard.pytest_plugin.records import Answered, StepResult
from tileyard.workers.author import Author
from tileyard.workers.protocol import (
    AuthorReply,
    AuthorRequest,
    ElaborateConfig,
    ElaboratedConfig,
    Failed,
)


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
        left = list(steps)
        while left:
            at = time.monotonic()
            todo = tuple(left)

            def work(teller: Teller, todo: tuple[KernelStep, ...] = todo) -> None:
                for step in todo:
                    teller.tell(Answered(reply=self._elaborate(step, with_tir=with_tir)))

            self._number += 1
            copy = Forked(work, limit_s, self._folder / f"elaborate-{self._number}.log")
            async with contextlib.aclosing(follow(copy)) as messages:
                async for message in messages:
                    if isinstance(message, Answered):
                        copy.begin_anew()
                        yield _timed(left.pop(0), at), message.reply
                        at = time.monotonic()
            if left:
                failed = describe_death(copy, "elaborating it", Outcome.COMPILE_ERROR)
                yield _timed(left.pop(0), at), failed

    def _elaborate(self, step: KernelStep, *, with_tir: bool) -> AuthorReply:
        if type(step.source).__name__ != "PrimFunc":
            found = step.source
            author = Author({found.name: found}, self._objects)
            return author.answer(
                ElaborateConfig(
                    kernel=found.name, arguments=step.arguments, config={}, with_tir=with_tir
                )
            )
        # TVM, which whoever made a PrimFunc has paid for already.
        from tilelang import tvm

        from tileyard.frontend.tilelang import lower_prim_func

        try:
            lowered = lower_prim_func(step.source, step.out_idx)
        except (UnsupportedError, InvalidProgramError) as error:
            return Failed(message=str(error), outcome=Outcome.COMPILE_ERROR)
        kernel = Kernel(
            name=lowered.program.name,
            program=print_program(lowered.program),
            tir=str(tvm.ir.save_json(step.source)) if with_tir else "",
        )
        return ElaboratedConfig(elaborated=Elaborated(kernel=kernel, lines=lowered.lines))


def _timed(step: KernelStep, at: float) -> StepResult:
    return StepResult(step=step.id, target=step.target, at=at, seconds=time.monotonic() - at)


def describe_death(copy: Forked, what: str, crashed: Outcome) -> Failed:
    """What a copy that gave no answer means."""
    end = copy.end
    if end is None:
        raise AssertionError("a copy has no end")
    tail = "".join(f"\n{text}" for text in (end.stack, end.tail) if text)
    outcome = Outcome.TIMEOUT if end.timed_out else crashed
    return Failed(message=f"the process {what} {end.describe(copy.limit_s)}{tail}", outcome=outcome)

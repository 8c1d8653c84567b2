"""Copies of this process that answer questions of compile steps, several each, and may die of one."""

import contextlib
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from tileyard.base.model import Outcome
from tileyard.pytest_plugin.far_records import Answered
from tileyard.pytest_plugin.forked import Forked, Teller, follow, make_lane, print_to
from tileyard.workers.protocol import Failed

S = TypeVar("S")


class Copies:
    """Makes such copies, with logs in ``folder``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._count = 0

    async def ask_all(
        self, steps: Sequence[S], answer: Callable[[S], object], limit_s: float
    ) -> AsyncGenerator[tuple[S, float, Any], None]:
        """The answers for all steps, with the time each began; ``Failed`` if a copy died of it."""
        left = list(steps)
        while left:
            todo = tuple(left)

            self._count += 1
            log = self._folder / f"elaborate-{self._count}.log"

            def work(_: int, teller: Teller, todo: tuple[S, ...] = todo, log: Path = log) -> None:
                print_to(log)
                for step in todo:
                    teller.tell(Answered(reply=answer(step)))

            at = time.monotonic()
            copy = Forked(make_lane(work), 0, limit_s, log, goes_on=True)
            async with contextlib.aclosing(follow(copy)) as messages:
                async for message in messages:
                    if isinstance(message, Answered):
                        copy.begin_anew()
                        yield left.pop(0), at, message.reply
                        at = time.monotonic()
            if left:
                yield left.pop(0), at, describe_death(copy, "elaborating it")


def describe_death(copy: Forked, what: str) -> Failed:
    """The failure of a compile step whose copy died without an answer."""
    end = copy.end
    if end is None:
        raise AssertionError("a copy has no end")
    tail = "".join(f"\n{text}" for text in (end.stack, quote_output(copy)) if text)
    outcome = Outcome.TIMEOUT if end.timed_out else Outcome.COMPILE_ERROR
    hint = " (--tileyard-build-limit sets another limit)" if end.timed_out else ""
    message = f"the process {what} {end.describe(copy.limit_s)}{hint}{tail}"
    return Failed(message=message, outcome=outcome)


def quote_output(copy: Forked) -> str:
    """The end of what a copy that has ended printed, with a title; empty if it printed nothing."""
    if copy.end is None or not copy.end.tail:
        return ""
    return f"{' Captured output of the compile step ':-^80}\n{copy.end.tail}"

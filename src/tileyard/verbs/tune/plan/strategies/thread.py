"""Has a strategy compute in a thread: the engine goes on meanwhile, so no device waits for it."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

AnswerT = TypeVar("AnswerT")
Call = Callable[[], object]


class StrategyThread:
    """Calls a strategy in a thread, in the order in which it was told and asked.

    News wait for the next question, so what ends during a computation is known to the next one,
    and equal calls give equal answers, however long they take.
    """

    def __init__(self, *, in_loop: bool = False) -> None:
        """``in_loop``: without a thread, where nothing else goes on, or answers cost nothing."""
        self._in_loop = in_loop
        self._news: list[Call] = []
        # One of its own: the end of a loop waits for the threads that all share.
        self._thread = ThreadPoolExecutor(1, "strategy")

    def tell(self, news: Call) -> None:
        """Make this call before the next question is answered."""
        self._news.append(news)

    async def ask(self, question: Callable[[], AnswerT]) -> AnswerT:
        """The answer of a strategy, or its exception. If the caller is cancelled, nobody waits for the
        computation.
        """
        news, self._news = self._news, []
        if self._in_loop:
            await asyncio.sleep(0)  # here Ctrl-C is noticed
            return _answer(news, question)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, _answer, news, question)


def _answer(news: Sequence[Call], question: Callable[[], AnswerT]) -> AnswerT:
    for call in news:
        call()
    return question()

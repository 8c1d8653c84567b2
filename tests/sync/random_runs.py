"""Runs of Programs in which everything happens at a random moment: an oracle for what the checker says."""

import random
from collections.abc import Generator, Sequence

from tileyard.base.model import Value
from tileyard.ir.asynchronous import AsynchronousRun
from tileyard.ir.interpret import Blocked
from tileyard.ir.nodes import Program, Stmt
from tileyard.ir.tiles import Array


class RandomRun(AsynchronousRun):
    """A run in which roles take turns, and operations end, at random: one of the results that a GPU may give.
    Some runs are hasty, in others most operations end only when they have to. In some, one role runs far
    ahead of the others.
    """

    def __init__(
        self,
        program: Program,
        arrays: Sequence[Array],
        scalars: Sequence[Value] = (),
        *,
        seed: int,
    ) -> None:
        self._random = random.Random(seed)
        self._haste = self._random.choice((0.5, 0.1, 0.01, 0.001))
        self._fairness = self._random.choice((1.0, 0.2, 0.02))
        self._favourites: list[int] = []
        super().__init__(program, arrays, scalars)

    _has_priorities = True

    def _order(self, roles: list[int]) -> list[int]:
        if not set(roles) <= set(self._favourites):
            self._favourites = self._random.sample(roles, len(roles))
        if self._random.random() < self._fairness:
            return self._random.sample(roles, len(roles))
        return [role for role in self._favourites if role in roles]

    def _body(self, body: tuple[Stmt, ...]) -> Generator[Blocked, None, bool]:
        for stmt in body:
            while self._issuing is None and self._random.random() < self._haste:
                if self._in_turns() and self._random.random() < 0.5:
                    yield Blocked(stmt=stmt, where="", is_over=lambda: True)
                elif not self._end_one():
                    break
            if (yield from super()._body((stmt,))):
                return True
        return False

    def _end_one(self) -> bool:
        """Let an operation take effect, or something end that ends by itself."""
        if self._pending and self._random.random() < 0.5:
            self._end(self._pending.pop(self._random.randrange(len(self._pending))))
            return True
        under_way = [one for one in self._operations if not one.is_done]
        if not under_way:
            return False
        chosen = self._random.choice(under_way)
        if chosen.unit == "wgmma":  # products of a role are done in order
            chosen = next(o for o in under_way if o.unit == "wgmma" and o.actor == chosen.actor)
        self._do(chosen)
        return True

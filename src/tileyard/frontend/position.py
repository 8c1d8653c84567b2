"""Which thread is being lowered, where threads are lowered one by one."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tileyard.ir.nodes import Const, Expr


class Position:
    """One thread of a block, or all of them together.

    ``own`` are the buffers of which each thread has one: they have the threads' dimensions before
    their own. ``extents`` are those dimensions. ``indices`` say which thread it is in them, None
    for all together; ``values`` are the variables that differ between threads, by their identity.
    ``is_spread`` says that they share out a parallel loop.
    """

    def __init__(self) -> None:
        self.own: set[str] = set()
        self.extents: tuple[Const, ...] = ()
        self.indices: tuple[Expr, ...] | None = None
        self.values: dict[object, Expr] = {}
        self.is_spread = False

    @property
    def is_single(self) -> bool:
        """Whether it is one thread."""
        return self.indices is not None

    @contextmanager
    def at(self, indices: Sequence[Expr], values: dict[object, Expr]) -> Iterator[None]:
        """Around what is lowered for one thread."""
        before = self.indices, self.values
        self.indices, self.values = tuple(indices), values
        yield
        self.indices, self.values = before

"""Which threads of a block a branch is for: conditions on the thread's index, decided thread by thread."""

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from tilelang import tvm

from tileyard.frontend.scope import Scope, key_of
from tileyard.frontend.tir_queries import (
    TILE_OPS,
    call_name,
    calls_of,
    free_vars,
    is_load,
    nodes_of,
)

ThreadSet = frozenset[int]

_WAITS = frozenset({"tl.mbarrier_wait_parity"})
_ARRIVES = frozenset({"tirx.ptx_arrive_barrier", "tl.ptx_cp_async_barrier_noinc"})
_BY_ONE = frozenset({"tl.tileop.tma_copy"})
"""Tile operations that a single thread may start."""


class Threads:
    """The threads of a block by number, the first dimension the fastest, and what depends on a number.

    ``extents`` are how many a block has in each dimension, ``dimensions`` those in which variables are a
    thread's index, by the variable's identity. ``everyone`` are all threads, ``running`` those that run what is
    being lowered, ``asked`` those that its conditions let through: fewer run where roles are lowered one by one.
    """

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self.extents: tuple[int, ...] = ()
        self.dimensions: dict[object, int] = {}
        self._values: dict[object, Any] = {}
        self._vars: dict[object, Any] = {}
        self._known: dict[object, ThreadSet] = {}
        self._analyzer = tvm.arith.Analyzer()
        self.everyone: ThreadSet = frozenset()
        self.running: ThreadSet = frozenset()
        self.asked: ThreadSet = frozenset()

    def launch(self, extents: Sequence[int]) -> None:
        """Note how many threads a block has in each dimension."""
        self.extents = tuple(extents)
        self.everyone = frozenset(range(math.prod(extents)))
        self.running = self.asked = self.everyone

    def bind(self, var: Any, dimension: int) -> None:  # noqa: ANN401 (TVM's nodes are untyped)
        """Note that ``var`` is a thread's index in a dimension."""
        self.dimensions[key_of(var)] = dimension
        self._vars[key_of(var)] = var

    def bind_value(self, var: Any, value: Any) -> None:  # noqa: ANN401
        """Note that ``var`` is ``value``, in which nothing else occurs than threads' indices."""
        self._values[key_of(var)] = self._resolved(value)

    @property
    def wide(self) -> list[int]:
        """The dimensions with more than one thread, or the first one; the last of them first."""
        found = [i for i, extent in enumerate(self.extents) if extent > 1]
        return found[::-1] or [0]

    def decides(self, expr: Any) -> bool:  # noqa: ANN401
        """Whether ``expr`` depends on the thread's index, and on nothing else."""
        if _is_election(expr):
            return True
        if any(map(is_load, nodes_of(expr))):
            return False
        used = [key_of(var) for var in free_vars(expr)]
        return bool(used) and all(key in self.dimensions or key in self._values for key in used)

    def where(self, condition: Any) -> ThreadSet:  # noqa: ANN401
        """The threads of the block for which ``condition``, which they decide, holds."""
        if _is_election(condition):
            every = int(condition.args[0].value) or max(len(self.everyone), 1)
            return frozenset(thread for thread in self.everyone if thread % every == 0)
        key = key_of(condition)
        if key not in self._known:
            resolved = self._resolved(condition)
            self._known[key] = frozenset(
                number for number, place in enumerate(self._all()) if self._holds(resolved, place)
            )
        return self._known[key]

    def _all(self) -> Iterator[tuple[int, ...]]:
        ranges = [range(extent) for extent in reversed(self.extents)]
        return (tuple(reversed(place)) for place in itertools.product(*ranges))

    def _resolved(self, expr: Any) -> Any:  # noqa: ANN401
        known = {
            var: self._values[key_of(var)] for var in free_vars(expr) if key_of(var) in self._values
        }
        return tvm.tirx.stmt_functor.substitute(expr, known) if known else expr

    def _holds(self, condition: Any, place: tuple[int, ...]) -> bool:  # noqa: ANN401
        numbers = {
            self._vars[key]: tvm.tirx.const(place[dimension], self._vars[key].dtype)
            for key, dimension in self.dimensions.items()
        }
        value = self._analyzer.simplify(tvm.tirx.stmt_functor.substitute(condition, numbers))
        if type(value).__name__ != "IntImm":
            self._scope.refuse(f"condition {condition} on threads")
        return bool(int(value.value))


def _is_election(condition: Any) -> bool:  # noqa: ANN401
    """Whether one thread of so many is chosen."""
    return call_name(condition) == "tl.tl_shuffle_elect"


def split(conditions: Iterable[ThreadSet], everyone: ThreadSet) -> list[ThreadSet]:
    """The classes of threads that no condition tells apart, by their first thread."""
    classes: dict[tuple[bool, ...], set[int]] = {}
    listed = list(conditions)
    for thread in sorted(everyone):
        mark = tuple(thread in condition for condition in listed)
        classes.setdefault(mark, set()).add(thread)
    return [frozenset(found) for found in classes.values()]


def waits(stmt: Any) -> bool:  # noqa: ANN401
    """Whether something below ``stmt`` waits for other threads."""
    return not _WAITS.isdisjoint(calls_of(stmt))


def parts_ways(branch: Any) -> bool:  # noqa: ANN401
    """Whether a branch on the thread is for a role, and not for one thread that does something for all."""
    calls = calls_of(branch)
    together = {name for name in calls if name.startswith(TILE_OPS)} - _BY_ONE
    return bool(together) or not _WAITS.isdisjoint(calls)


def touches_barriers(stmt: Any) -> bool:  # noqa: ANN401
    """Whether something below ``stmt`` arrives at a barrier, or waits at one."""
    return not (_WAITS | _ARRIVES).isdisjoint(calls_of(stmt))


def branches(stmt: Any) -> list[Any]:  # noqa: ANN401
    """All branches below ``stmt``, and ``stmt`` itself if it is one."""
    return [node for node in nodes_of(stmt) if type(node).__name__ == "IfThenElse"]

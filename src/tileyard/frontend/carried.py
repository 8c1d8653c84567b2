"""Finds variables that a parallel loop carries from one iteration to another: on a GPU each thread has its own."""

from collections.abc import Iterable

from tileyard.ir.nodes import Const, For, If, Stmt
from tileyard.ir.walk import bodies, buffer_effects, own_effects

CARRIED = "is handed from one iteration of a parallel loop to another, and each thread has its own"


def find_carried(loop: For, variables: Iterable[str]) -> list[str]:
    """The ``variables`` that iterations of a parallel nest write, and read before they have written them themselves."""
    if _is_single(loop):
        return []
    early, _ = _read_early(loop.body, frozenset())
    written = buffer_effects(loop.body).written
    return [name for name in variables if name in early & written]


def _read_early(
    body: tuple[Stmt, ...], known: frozenset[str]
) -> tuple[frozenset[str], frozenset[str]]:
    """What ``body`` reads before it is written, and what is written after it in any case; ``known`` is written before."""
    early: frozenset[str] = frozenset()
    for stmt in body:
        own = own_effects(stmt)
        early |= own.read - known
        known |= own.written
        inside = [_read_early(part, known) for part in bodies(stmt)]
        early = early.union(*(part for part, _ in inside))
        if isinstance(stmt, If) or (isinstance(stmt, For) and _runs(stmt)):
            known = frozenset.intersection(*(part for _, part in inside))
    return early, known


def _is_single(loop: For) -> bool:
    """Whether a nest has one iteration."""
    is_one = isinstance(loop.extent, Const) and loop.extent.value == 1
    match loop.body:
        case (For(kind="parallel") as inner,) if is_one:
            return _is_single(inner)
        case _:
            return is_one


def _runs(loop: For) -> bool:
    return isinstance(loop.extent, Const) and loop.extent.value > 0

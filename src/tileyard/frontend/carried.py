"""Finds registers through which iterations of a nest depend on each other; a GPU's threads have their own."""

from collections.abc import Iterable, Iterator, Mapping

from tileyard.ir.nodes import Buffer, Const, For, If, Load, Stmt, Store
from tileyard.ir.specs import variables_in
from tileyard.ir.walk import bodies, buffer_effects, own_effects, walk, walk_expr

CARRIED = "is handed from one iteration of a parallel loop to another, and each thread has its own"


def find_carried(nest: For, variables: Iterable[str]) -> list[str]:
    """The ``variables`` that iterations write, and read before they have written them themselves."""
    if not _loops_of(nest):
        return []
    early, _ = _read_early(nest.body, frozenset())
    written = buffer_effects(nest.body).written
    return [name for name in variables if name in early & written]


def find_summed(nest: For, fragments: Mapping[str, Buffer]) -> Iterator[tuple[str, str]]:
    """The fragments whose elements several iterations update from another fragment, and that one:
    its layout decides which threads do so. Every thread knows the only element of a fragment.
    """
    loops = _loops_of(nest)
    for stmt in walk((nest,)):
        if not isinstance(stmt, Store) or stmt.buffer not in fragments:
            continue
        loads = [part for part in walk_expr(stmt.value) if isinstance(part, Load)]
        is_update = any((one.buffer, one.indices) == (stmt.buffer, stmt.indices) for one in loads)
        if not is_update or all(
            extent == Const(1, "int32") for extent in fragments[stmt.buffer].shape
        ):
            continue
        shared = loops.difference(*map(variables_in, stmt.indices))
        for one in loads:
            if one.buffer in fragments and any(shared & variables_in(at) for at in one.indices):
                yield stmt.buffer, one.buffer


def _loops_of(nest: For) -> set[str]:
    """The variables of its parallel loops, without those of one iteration."""
    loops = (one for one in walk((nest,)) if isinstance(one, For) and one.kind == "parallel")
    return {one.var.name for one in loops if one.extent != Const(1, one.extent.dtype)}


def _read_early(
    body: tuple[Stmt, ...], known: frozenset[str]
) -> tuple[frozenset[str], frozenset[str]]:
    """What ``body`` reads before it is written, and what it certainly writes, given what is ``known``."""
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


def _runs(loop: For) -> bool:
    return isinstance(loop.extent, Const) and loop.extent.value > 0

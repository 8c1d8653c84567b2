"""Finds mistakes with registers, of which each thread has its own: variables that are read before they are
written, and values that iterations of a parallel nest hand on to each other.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal

from tileyard.frontend.scope import key_of
from tileyard.frontend.tir_queries import bodies_of, heads_of, is_load, nodes_of
from tileyard.ir.nodes import Buffer, Const, For, If, Load, Stmt, Store
from tileyard.ir.specs import variables_in
from tileyard.ir.walk import bodies, buffer_effects, own_effects, walk, walk_expr

_Begin = Literal["written", "maybe", "read"]
"""The first use of a variable: it is written; it may be written, and is not read before; it may be read."""
_Begins = dict[object, _Begin]
"""For each variable that a part of a kernel uses, by the identity of its memory."""


def unset_variables(body: Any) -> set[object]:  # noqa: ANN401 (TVM's nodes are untyped)
    """The variables that ``body`` may read before it writes them, by the identity of their memory.

    TileLang declares those of ``T.alloc_var`` with the value 0.
    """
    return {data for data, begin in _begins(body).items() if begin == "read"}


def _begins(stmt: Any) -> _Begins:  # noqa: ANN401
    inner = bodies_of(stmt)
    match type(stmt).__name__:
        case "BufferStore":
            reads = _reads(stmt.value, *stmt.indices)
            is_variable = str(stmt.buffer.scope()) == "local.var"
            return _in_order((reads, {key_of(stmt.buffer.data): "written"} if is_variable else {}))
        case "SeqStmt" | "SBlockRealize" | "AttrStmt":
            return _in_order(map(_begins, inner))
        case "IfThenElse":
            sides = [*map(_begins, inner), {}][:2]
            return _in_order((_reads(*heads_of(stmt)), _either(*sides)))
        case "For" | "While":  # perhaps without iterations
            return _in_order((_reads(*heads_of(stmt)), _either(_begins(stmt.body), {})))
        case _:
            return _reads(stmt)


def _reads(*parts: Any) -> _Begins:  # noqa: ANN401
    loads = (node.buffer for part in parts for node in nodes_of(part) if is_load(node))
    return {key_of(one.data): "read" for one in loads if str(one.scope()) == "local.var"}


def _in_order(parts: Iterable[_Begins]) -> _Begins:
    found: _Begins = {}
    for part in parts:
        found |= {
            data: begin for data, begin in part.items() if found.get(data, "maybe") == "maybe"
        }
    return found


def _either(one: _Begins, other: _Begins) -> _Begins:
    found: _Begins = {}
    for data in {**one, **other}:
        both = one.get(data, "maybe"), other.get(data, "maybe")
        found[data] = (
            "read" if "read" in both else "written" if set(both) == {"written"} else "maybe"
        )
    return found


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

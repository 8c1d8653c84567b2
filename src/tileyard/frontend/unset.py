"""Finds variables (``T.alloc_var``) that may be read before written: TileLang gives them the value 0."""

from collections.abc import Iterable
from typing import Any, Literal

from tileyard.frontend.scope import key_of
from tileyard.frontend.tir_queries import bodies_of, heads_of, is_load, nodes_of

_Begin = Literal["written", "maybe", "read"]
"""A variable is written first; or it may be written, and is not read before; or may be read before."""
_Begins = dict[object, _Begin]
"""For each variable that a part of a kernel uses, by the identity of its memory."""


def unset_variables(body: Any) -> set[object]:  # noqa: ANN401 (TVM's nodes are untyped)
    """The variables that ``body`` may read before it writes them, by the identity of their memory."""
    return {data for data, begin in _begins(body).items() if begin == "read"}


def _begins(stmt: Any) -> _Begins:  # noqa: ANN401
    bodies = bodies_of(stmt)
    match type(stmt).__name__:
        case "BufferStore":
            reads = _reads(stmt.value, *stmt.indices)
            is_variable = str(stmt.buffer.scope()) == "local.var"
            return _in_order((reads, {key_of(stmt.buffer.data): "written"} if is_variable else {}))
        case "SeqStmt" | "SBlockRealize" | "AttrStmt":
            return _in_order(map(_begins, bodies))
        case "IfThenElse":
            sides = [*map(_begins, bodies), {}][:2]
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

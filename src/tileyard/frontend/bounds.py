"""Refuses accesses that are certainly outside a tile, and notes indices that TileLang counts from the end.
The rest is left to the run. Accesses outside a global array are no mistake: TileLang guards them.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilelang import tvm

from tileyard.base.model import Diagnostic, Value
from tileyard.frontend.rewrites import without_negative_indices
from tileyard.frontend.scope import Scope, key_of
from tileyard.frontend.tir_queries import (
    WRITES,
    bodies_of,
    call_name,
    calls_of,
    free_vars,
    heads_of,
    is_bound_to_threads,
    is_one,
    is_var,
    leaves_loop,
    nodes_of,
)
from tileyard.ir.syntax import describe_outside

MOST_POINTS = 64
"""Most combinations of first and last iterations at which an access is looked at."""

Point = dict[object, tuple[Any, int]]
"""An iteration that runs: its variables with their values, by the variables' identity."""


@dataclass(frozen=True, kw_only=True)
class _Runs:
    """Iterations in which a statement certainly runs; if they ``are_all``, it runs in no other."""

    points: list[Point]
    are_all: bool

    def copied(self) -> "_Runs":
        return _Runs(points=[dict(at) for at in self.points], are_all=self.are_all)


def require_inside(
    func: Any,  # noqa: ANN401 (TVM's nodes are untyped)
    known: Mapping[str, Value],
    *,
    is_unguarded: bool = False,
) -> None:
    """Raise UserCodeError for the first access that is certainly outside its tile: at a constant place, or,
    for regions, in the first or last iterations of loops whose conditions all hold. Elements there count,
    too, for a target ``is_unguarded`` whose code does not check them. ``known`` has dimensions and scalars.
    """
    scope = Scope()
    scope.start(func)
    shapes = (buffer.shape for buffer in dict(func.buffer_map.items()).values())
    given = [*func.params, *(node for shape in shapes for one in shape for node in nodes_of(one))]
    start: Point = {}
    for node in given:
        value = known.get(str(getattr(node, "name", "")))
        if type(value) is int:
            start[key_of(node)] = (node, value)
    ends_early = "tirx.thread_return" in calls_of(func.body)
    runs = _Runs(points=[] if ends_early else [start], are_all=not ends_early)
    _Search(scope, is_unguarded).visit(func.body, without_negative_indices(func).body, runs)


def find_wrapped(func: Any) -> tuple[Diagnostic, ...]:  # noqa: ANN401
    """A note for each line with an index that is certainly negative, so TileLang counts it from the end."""
    meant = without_negative_indices(func)
    if meant is func:
        return ()
    notes: dict[Diagnostic, None] = {}
    scope = Scope()
    scope.start(func)

    def visit(stmt: Any, counted: Any) -> None:  # noqa: ANN401
        before = scope.enter(stmt)
        inner = tuple(zip(bodies_of(stmt), bodies_of(counted), strict=True))
        for pair in inner:
            visit(*pair)
        parts = (heads_of(stmt), heads_of(counted)) if inner else ((stmt,), (counted,))
        for said in _wrapped(*parts):
            notes[Diagnostic(message=said, operation="index", where=scope.where)] = None
        scope.where = before

    visit(func.body, meant.body)
    return tuple(notes)


def _wrapped(parts: Sequence[Any], counted: Sequence[Any]) -> Iterator[str]:
    """The notes for the expressions or the statement ``parts``, of which TileLang makes ``counted``."""
    accesses, theirs = (
        [
            node
            for part in side
            for node in nodes_of(part)
            if type(node).__name__ in ("BufferLoad", "BufferStore")
        ]
        for side in (parts, counted)
    )
    regions = {
        key_of(node.args[0]): int(node.args[1].value)
        for part in parts
        for node in nodes_of(part)
        if call_name(node) == "tl.region"
    }
    for own, other in zip(accesses, theirs, strict=False):
        is_written = type(own).__name__ == "BufferStore" or bool(
            regions.get(key_of(own), 0) & WRITES
        )
        for index, end in zip(own.indices, other.indices, strict=True):
            is_plain = type(index).__name__ == "IntImm"
            if tvm.ir.structural_equal(index, end) or (is_plain and key_of(own) not in regions):
                continue
            name = str(own.buffer.name)
            instead = f"for zeros there, use T.if_then_else({index} >= 0, {name}[...], 0) for each element; "
            if is_written:
                instead = f"to write nothing there, put it under `if {index} >= 0`; "
            yield (
                f"{name} is accessed at {index}, which is certainly negative here: "
                f"TileLang counts it from the end, as {end}; "
                f"{'' if is_plain else instead}if that is meant, write {end}"
            )


class _Search:
    def __init__(self, scope: Scope, is_unguarded: bool) -> None:
        self._scope = scope
        self._is_unguarded = is_unguarded

    def visit(self, stmt: Any, meant: Any, runs: _Runs) -> None:  # noqa: ANN401
        if runs.are_all and not runs.points:
            return
        before = self._scope.enter(stmt)
        inner = tuple(zip(bodies_of(stmt), bodies_of(meant), strict=True))
        match type(meant).__name__:
            case "For":
                self.visit(*inner[0], _iterate(meant, runs))
            case "IfThenElse":
                self._check(nodes_of(meant.condition), runs.points)
                for pair, wanted in zip(inner, (True, False), strict=False):
                    self.visit(*pair, _choose(meant.condition, wanted, runs))
            case "While":
                self.visit(*inner[0], _Runs(points=[], are_all=False))
            case _ if inner:
                for pair in inner:
                    self.visit(*pair, runs)
            case kind:
                self._check(nodes_of(meant), runs.points)
                for at in runs.points if kind == "Bind" else ():
                    value = _value(meant.value, at)
                    if value is not None:
                        at[key_of(meant.var)] = (meant.var, value)
        self._scope.where = before

    def _check(self, nodes: Sequence[Any], points: Sequence[Point]) -> None:
        """Check the accesses of one statement; elements that it accesses only sometimes are left out."""
        regions = [list(node.args) for node in nodes if call_name(node) == "tl.region"]
        for place, _, *extents in regions:
            self._require(place, extents, points)
        elements = [n for n in nodes if type(n).__name__ in ("BufferLoad", "BufferStore")]
        left_out = _list_chosen(nodes) if elements else set()
        left_out.update(key_of(place) for place, *_ in regions)
        for node in elements:
            if key_of(node) not in left_out:
                ones = [tvm.tirx.IntImm("int32", 1)] * len(node.indices)
                self._require(node, ones, points if self._is_unguarded else ())

    def _require(self, place: Any, extents: Sequence[Any], points: Sequence[Point]) -> None:  # noqa: ANN401
        """Raise UserCodeError if a box that begins at ``place`` is outside its tile at one of the points."""
        sizes = list(place.buffer.shape)
        is_tile = str(place.buffer.scope()) != "global"
        if not is_tile or not len(extents) == len(place.indices) == len(sizes):
            return
        used = {key_of(var) for one in (*place.indices, *extents) for var in free_vars(one)}
        varied = [{key: at[key] for key in used if key in at} for at in points if used]
        seen: set[tuple[int, ...]] = set()
        for at in ({}, *varied):
            values = tuple(value for _, value in at.values())
            if values not in seen:
                seen.add(values)
                self._require_at(place, extents, at)

    def _require_at(self, place: Any, extents: Sequence[Any], at: Point) -> None:  # noqa: ANN401
        starts, counts, shape = (
            [_value(one, at) for one in part]
            for part in (place.indices, extents, place.buffer.shape)
        )
        for start, count, size in zip(starts, counts, shape, strict=True):
            if start is None or count is None or size is None or not count:
                continue
            if not 0 <= start <= size - count:
                said = describe_outside(str(place.buffer.name), starts, counts, shape)
                where = ", ".join(f"{var.name} = {value}" for var, value in at.values())
                self._scope.blame(f"{said}, where {where}" if where else said)


def _iterate(loop: Any, runs: _Runs) -> _Runs:  # noqa: ANN401
    """The first and the last iteration of a loop in each run; none if it may be left early."""
    if loop.thread_binding is not None and is_bound_to_threads(loop):
        return runs.copied()
    if leaves_loop(loop.body):
        return _Runs(points=[], are_all=False)
    found: list[Point] = []
    has_step = loop.step is not None and not is_one(loop.step)
    are_all = runs.are_all and not has_step
    for at in runs.points:
        first, count = _value(loop.min, at), _value(loop.extent, at)
        if first is None or count is None or count > 2:
            are_all = False
        if first is not None and count is not None and count > 0:
            ends = dict.fromkeys((first, first if has_step else first + count - 1))
            found += [{**at, key_of(loop.loop_var): (loop.loop_var, end)} for end in ends]
    return _Runs(points=found[:MOST_POINTS], are_all=are_all and len(found) <= MOST_POINTS)


def _choose(condition: Any, wanted: bool, runs: _Runs) -> _Runs:  # noqa: ANN401
    values = [_value(condition, at) for at in runs.points]
    held = [dict(at) for at, value in zip(runs.points, values, strict=True) if value == wanted]
    return _Runs(points=held, are_all=runs.are_all and None not in values)


def _value(expr: Any, at: Point) -> int | None:  # noqa: ANN401
    """The value of an integer or a condition at a point; None if unknown."""
    if is_var(expr):
        return at[key_of(expr)][1] if key_of(expr) in at else None
    if at and type(expr).__name__ != "IntImm":
        used = [at[key_of(var)] for var in free_vars(expr) if key_of(var) in at]
        values = {var: tvm.tirx.const(value, var.dtype) for var, value in used}
        expr = tvm.arith.Analyzer().simplify(tvm.tirx.stmt_functor.substitute(expr, values))
    return int(expr.value) if type(expr).__name__ == "IntImm" else None


def _list_chosen(nodes: Sequence[Any]) -> set[object]:
    choices = (choice for node in nodes for choice in _choices(node))
    return {key_of(part) for choice in choices for part in nodes_of(choice)}


def _choices(node: Any) -> Iterator[Any]:  # noqa: ANN401
    match type(node).__name__:
        case "Select":
            yield from (node.true_value, node.false_value)
        case "And" | "Or":
            yield node.b
        case "Call" if call_name(node) == "tirx.if_then_else":
            yield from list(node.args)[1:]

"""Prepares Programs for code generation: separates several grids, and gives views memory of their
own. GPU kernels reuse tiles' memory. Tiles of narrow floats are stored as floats here and cannot be
read as bytes, which is not needed if every element is read as the type that it was written as.
"""

from collections import defaultdict
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import TypeGuard

import msgspec

from tileyard.ir.nodes import (
    Atomic,
    Axis,
    Buffer,
    Const,
    Copy,
    Expr,
    Fill,
    For,
    If,
    Let,
    Load,
    Op,
    Program,
    Reduce,
    Roles,
    Stmt,
    Store,
    Var,
    While,
)
from tileyard.ir.specs import scalar_params
from tileyard.ir.walk import bodies, buffer_effects, own_effects, walk_expr
from tileyard.targets.cpu.emit.scalars import SCALARS
from tileyard.targets.cpu.emit.tiles import covers, is_zero, numbered, reads, touched

# ---- grids ----------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class Grid:
    """One grid: ``program`` has its axes, body and tiles. ``parts`` are the body's statements with
    the pre-order number that each part's first has in the whole Program.
    """

    program: Program
    parts: tuple[tuple[tuple[Stmt, ...], int], ...]


_Part = tuple[tuple[Stmt, ...], int]


def split_grids(program: Program) -> tuple[Grid, ...]:
    """The grids of ``program`` in order; statements between them are a grid of one block. It is not
    split if grids share tiles, or need values computed from arrays before them.
    """
    whole = (Grid(program=program, parts=((program.body, 0),)),)
    if program.grid or not any(_is_grid(stmt) for stmt in program.body):
        return whole
    grids = tuple(_make_grid(program, axes, tuple(parts)) for axes, parts in _collect(program))
    used = [_used_tiles(program, grid.program.body) for grid in grids]
    has_own_tiles = sum(map(len, used)) == len(set().union(*used))
    return grids if grids and has_own_tiles else whole


def _is_grid(stmt: Stmt) -> TypeGuard[For]:
    return isinstance(stmt, For) and stmt.kind == "blocks"


def _collect(program: Program) -> list[tuple[tuple[Axis, ...], list[_Part]]]:
    """The axes and parts of all grids, with bindings equal in all blocks; empty if they need
    others' values.
    """
    known = {*program.dims, *scalar_params(program)}
    bound: list[_Part] = []
    found: list[tuple[tuple[Axis, ...], list[_Part]]] = []
    is_open = False
    for number, stmt in numbered(program.body, 0):
        if isinstance(stmt, Atomic) and stmt.var is not None:
            return []
        if isinstance(stmt, Let):
            if any(reads(stmt.value)):
                return []
            bound.append(((stmt,), number))
            is_open = False
            continue
        axes, body = _split_axes(stmt, known)
        if axes or not is_open:
            found.append((axes, list(bound)))
        found[-1][1].append((body, number + len(axes)))
        is_open = not axes
    return found


def _split_axes(stmt: Stmt, known: set[Var]) -> tuple[tuple[Axis, ...], tuple[Stmt, ...]]:
    """The axes of a grid whose size is known before it runs, and the body of its blocks."""
    axes: list[Axis] = []
    body: tuple[Stmt, ...] = (stmt,)
    while len(body) == 1 and _is_grid(loop := body[0]):
        if not is_zero(loop.start) or not _is_known(loop.extent, known):
            return (), (stmt,)
        axes.append(Axis(loop.var, loop.extent))
        body = loop.body
    return tuple(axes), body


def _is_known(extent: Expr, known: set[Var]) -> bool:
    return all(
        part in known if isinstance(part, Var) else not isinstance(part, Load)
        for part in walk_expr(extent)
    )


def _make_grid(program: Program, axes: tuple[Axis, ...], parts: tuple[_Part, ...]) -> Grid:
    body = tuple(stmt for part, _ in parts for stmt in part)
    used = _used_tiles(program, body)
    buffers = tuple(
        buffer
        for buffer in program.buffers
        if buffer.scope == "global" or (buffer.view_of or buffer.name) in used
    )
    own = msgspec.structs.replace(program, grid=axes, body=body, buffers=buffers)
    return Grid(program=own, parts=parts)


def _used_tiles(program: Program, body: tuple[Stmt, ...]) -> set[str]:
    owners = {b.name: b.view_of or b.name for b in program.buffers if b.scope != "global"}
    return {owners[name] for name in touched(*body) if name in owners}


# ---- views ----------------------------------------------------------------------------------------


class _Mixed(Exception):
    """An element may be read as another type than it was written as."""


def separate_views(program: Program) -> Program:
    """``program``, with separate memory for tiles of narrow floats and other types where possible."""
    groups: dict[str, list[Buffer]] = defaultdict(list)
    for buffer in program.buffers:
        if buffer.scope != "global":
            groups[buffer.view_of or buffer.name].append(buffer)
    changed: dict[str, Buffer] = {}
    for group in groups.values():
        kinds = {buffer.dtype for buffer in group}
        if len(kinds) < 2 or not any(SCALARS[kind].narrow for kind in kinds):
            continue
        try:
            _Flow(group).body(program.body, "")
        except _Mixed:
            continue
        owners: dict[str, str] = {}
        for buffer in group:
            owner = owners.setdefault(buffer.dtype, buffer.name)
            view_of = "" if owner == buffer.name else owner
            changed[buffer.name] = msgspec.structs.replace(buffer, view_of=view_of)
    if not changed:
        return program
    buffers = tuple(changed.get(buffer.name, buffer) for buffer in program.buffers)
    return msgspec.structs.replace(program, buffers=buffers)


class _Flow:
    """Follows a body and tracks the type as which all memory of ``group`` was written, empty if unknown."""

    def __init__(self, group: list[Buffer]) -> None:
        self._buffers = {buffer.name: buffer for buffer in group}

    def body(self, body: tuple[Stmt, ...], known: str) -> str:
        """The state after ``body``, given the state ``known`` before it. Raises _Mixed."""
        for stmt in body:
            if self._buffers.keys() & touched(stmt):
                known = self._stmt(stmt, known)
        return known

    def _stmt(self, stmt: Stmt, known: str) -> str:
        whole = self._written_whole(stmt)
        if whole is not None:
            read = self._buffers.keys() & buffer_effects((stmt,)).read
            if read and known != whole.dtype:
                raise _Mixed
            self._require(read, whole.dtype)
            return whole.dtype
        if isinstance(stmt, Roles):
            raise _Mixed
        own = own_effects(stmt)
        self._require(own.read | own.written, known)
        match stmt:
            case For() | While():
                if self.body(stmt.body, known) == known:
                    return known
                # The next iteration begins with the state that this one leaves.
                self.body(stmt.body, "")
                return ""
            case If():
                sides = {self.body(side, known) for side in bodies(stmt)}
                return sides.pop() if len(sides) == 1 else ""
            case _:
                return known

    def _require(self, names: AbstractSet[str], known: str) -> None:
        if any(self._buffers[name].dtype != known for name in self._buffers.keys() & names):
            raise _Mixed

    def _written_whole(self, stmt: Stmt) -> Buffer | None:
        """The buffer of the group of which ``stmt`` certainly writes every element, and no other buffer."""
        written = self._buffers.keys() & buffer_effects((stmt,)).written
        if len(written) != 1:
            return None
        buffer = self._buffers[written.pop()]
        if isinstance(stmt, Copy | Fill | Reduce):
            return buffer if covers(stmt.dst, buffer.shape) else None
        return buffer if _fills(stmt, buffer, {}) else None


def _fills(stmt: Stmt, buffer: Buffer, loops: dict[Var, int]) -> bool:
    """Whether a nest of loops stores every element, each at the indices of the loops' variables.
    ``loops`` are those around it, with the extent that each certainly covers.
    """
    match stmt:
        case For(body=(inner,), extent=Const(value=extent)) if is_zero(stmt.start):
            return _fills(inner, buffer, {**loops, stmt.var: int(extent)})
        case If(orelse=(), then=(inner,)):
            bounds = _bounds(stmt.cond)
            if bounds is None or any(var not in loops for var in bounds):
                return False
            nearer = {var: min(end, bounds.get(var, end)) for var, end in loops.items()}
            return _fills(inner, buffer, nearer)
        case Store(indices=indices) if stmt.buffer == buffer.name:
            own = [index for index in indices if isinstance(index, Var)]
            return len(indices) == len(own) == len(set(own)) and all(
                isinstance(extent, Const) and loops.get(var, 0) >= int(extent.value)
                for var, extent in zip(own, buffer.shape, strict=True)
            )
        case _:
            return False


def _bounds(cond: Expr) -> dict[Var, int] | None:
    """The upper bounds that a condition puts on variables; None if it requires anything else."""
    match cond:
        case Op(name="lt", args=(Var() as var, Const(value=end))):
            return {var: int(end)}
        case Op(name="and", args=(left, right)):
            a, b = _bounds(left), _bounds(right)
            return None if a is None or b is None else {**a, **b}
        case _:
            return None

"""Gives views memory of their own where nothing that is written as one type is read as another.

Kernels for GPUs use the memory of a tile again for something else, because they have little of it. Tiles
of narrow floats are kept as floats here, so their memory cannot be read as bytes; but it need not be
where every element is written as what it is read as.
"""

from collections import defaultdict

import msgspec

from tileyard.ir.effects import expressions, read_regions, written_region
from tileyard.ir.nodes import (
    Atomic,
    Buffer,
    Const,
    Copy,
    Expr,
    Fill,
    For,
    If,
    Load,
    Op,
    Program,
    Reduce,
    Region,
    Roles,
    Stmt,
    Store,
    Var,
    While,
)
from tileyard.ir.walk import bodies, walk, walk_expr
from tileyard.targets.cpu.emit.scalars import SCALARS


class _Mixed(Exception):
    """Something may be read that was written as another type."""


def separate_views(program: Program) -> Program:
    """``program``, in which tiles of narrow floats share no memory with other types if they need not."""
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
    """Goes through a body and knows as which type the whole memory of ``group`` has been written.

    What is known is that type, or nothing (an empty name).
    """

    def __init__(self, group: list[Buffer]) -> None:
        self._buffers = {buffer.name: buffer for buffer in group}

    def body(self, body: tuple[Stmt, ...], known: str) -> str:
        """What is known after ``body`` if ``known`` is before it. Raises _Mixed."""
        for stmt in body:
            known = self._stmt(stmt, known)
        return known

    def _stmt(self, stmt: Stmt, known: str) -> str:
        if not self._is_touched(stmt):
            return known
        whole = self._written_whole(stmt)
        if whole is not None:
            kind = self._buffers[whole].dtype
            names = [name for inner in walk((stmt,)) for name in _read_names(inner)]
            if any(name in self._buffers for name in names) and known != kind:
                raise _Mixed
            self._require(names, kind)
            return kind
        if isinstance(stmt, Roles):
            raise _Mixed
        if isinstance(stmt, For | While):
            self._heads(stmt, known)
            if self.body(stmt.body, known) == known:
                return known
            # The next iteration begins with what this one left.
            self.body(stmt.body, "")
            return ""
        if isinstance(stmt, If):
            self._heads(stmt, known)
            sides = {self.body(side, known) for side in bodies(stmt)}
            return sides.pop() if len(sides) == 1 else ""
        names = [name for name in (*_read_names(stmt), *_written(stmt)) if name in self._buffers]
        self._require(names, known)
        return known

    def _is_touched(self, stmt: Stmt) -> bool:
        for inner in walk((stmt,)):
            if any(name in self._buffers for name in (*_read_names(inner), *_written(inner))):
                return True
        return False

    def _heads(self, stmt: Stmt, known: str) -> None:
        names = [
            part.buffer
            for e in expressions(stmt)
            for part in walk_expr(e)
            if isinstance(part, Load)
        ]
        self._require(names, known)

    def _require(self, names: list[str], known: str) -> None:
        if any(name in self._buffers and self._buffers[name].dtype != known for name in names):
            raise _Mixed

    def _written_whole(self, stmt: Stmt) -> str | None:
        """The buffer of the group of which ``stmt`` certainly writes every element, and no other one."""
        touched = {
            name for inner in walk((stmt,)) for name in _written(inner) if name in self._buffers
        }
        if len(touched) != 1:
            return None
        (name,) = touched
        shape = self._buffers[name].shape
        if isinstance(stmt, Copy | Fill | Reduce):
            return name if _covers(stmt.dst, shape) else None
        return name if _fills(stmt, name, shape, {}) else None


def _covers(region: Region, shape: tuple[Expr, ...]) -> bool:
    is_start = all(isinstance(start, Const) and start.value == 0 for start in region.starts)
    return is_start and region.extents == shape


def _fills(stmt: Stmt, name: str, shape: tuple[Expr, ...], loops: dict[Var, int]) -> bool:
    """Whether a nest of loops stores every element, each at the place that its loops' variables say.

    ``loops`` are those around it, with how far they certainly go.
    """
    match stmt:
        case For(body=(inner,)) if isinstance(stmt.extent, Const) and _is_zero(stmt.start):
            return _fills(inner, name, shape, {**loops, stmt.var: int(stmt.extent.value)})
        case If(orelse=(), then=(inner,)):
            bounds = _bounds(stmt.cond)
            if bounds is None or any(var not in loops for var in bounds):
                return False
            nearer = {var: min(end, bounds.get(var, end)) for var, end in loops.items()}
            return _fills(inner, name, shape, nearer)
        case Store(buffer=buffer, indices=indices) if buffer == name:
            own = [index for index in indices if isinstance(index, Var)]
            if len(own) != len(indices) or len(set(own)) != len(own):
                return False
            return all(
                isinstance(extent, Const) and loops.get(var, 0) >= int(extent.value)
                for var, extent in zip(own, shape, strict=True)
            )
        case _:
            return False


def _is_zero(expr: Expr) -> bool:
    return isinstance(expr, Const) and expr.value == 0


def _bounds(cond: Expr) -> dict[Var, int] | None:
    """What a condition asks of variables, each to be less than a number; None where it asks anything else."""
    match cond:
        case Op(name="lt", args=(Var() as var, Const(value=end))):
            return {var: int(end)}
        case Op(name="and", args=(left, right)):
            a, b = _bounds(left), _bounds(right)
            return None if a is None or b is None else {**a, **b}
        case _:
            return None


def _written(stmt: Stmt) -> list[str]:
    region = written_region(stmt)
    names = [] if region is None else [region.buffer]
    return [*names, stmt.buffer] if isinstance(stmt, Store | Atomic) else names


def _read_names(stmt: Stmt) -> list[str]:
    names = [region.buffer for region in read_regions(stmt)]
    names += [stmt.buffer] if isinstance(stmt, Atomic) else []
    loads = (part for expr in expressions(stmt) for part in walk_expr(expr))
    return names + [part.buffer for part in loads if isinstance(part, Load)]

"""A Program's declarations: its buffers, their storage's owners, and its variables' values."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import msgspec

from tileyard.ir.nodes import (
    Atomic,
    Buffer,
    Const,
    Expr,
    For,
    Let,
    Load,
    Program,
    Region,
    Stmt,
    Store,
    Tensor,
    TileOperation,
)
from tileyard.ir.rewrite import with_expressions
from tileyard.ir.syntax import ONE
from tileyard.ir.walk import number_statements, replace_parts, walk, written_region

Indices = tuple[Expr, ...]
Change = Callable[[str, Indices], Indices]
"""Maps a buffer's name and indices to its new indices, which may begin with new dimensions of one element."""


@dataclass(frozen=True)
class Storage:
    """The declarations of ``program``, by name."""

    program: Program

    @cached_property
    def buffers(self) -> dict[str, Buffer]:
        """Arrays and all other buffers."""
        arrays = (param.buffer for param in self.program.params if isinstance(param, Tensor))
        return {buffer.name: buffer for buffer in (*arrays, *self.program.buffers)}

    @cached_property
    def owners(self) -> dict[str, str]:
        """The owner of each buffer's storage."""
        return {b.name: b.view_of or b.name for b in self.buffers.values()}

    @cached_property
    def viewed(self) -> frozenset[str]:
        """Buffers that share their storage with another one."""
        views = (buffer for buffer in self.program.buffers if buffer.view_of)
        return frozenset(name for view in views for name in (view.name, view.view_of))

    @cached_property
    def lets(self) -> dict[str, Expr]:
        """The values of variables."""
        lets = (stmt for stmt in walk(self.program.body) if isinstance(stmt, Let))
        return {let.var.name: let.value for let in lets}

    @cached_property
    def numbers(self) -> dict[int, int]:
        """The pre-order numbers of statements by identity; each statement must be a separate object."""
        return {id(stmt): number for number, stmt in number_statements(self.program)}

    def filled_by(self, stmt: Stmt) -> str:
        """The buffer that a tile operation or a parallel loop over elements overwrites whole; else empty."""
        region = written_region(stmt)
        if region is not None:
            return region.buffer if self.is_whole(region) else ""
        extents: dict[Expr, Expr] = {}
        while isinstance(stmt, For) and stmt.kind == "parallel" and len(stmt.body) == 1:
            extents |= {stmt.var: stmt.extent} if stmt.start == Const(0, stmt.var.dtype) else {}
            stmt = stmt.body[0]
        if not isinstance(stmt, Store) or len(set(stmt.indices)) < len(stmt.indices):
            return ""
        shape = tuple(extents.get(index) for index in stmt.indices)
        return stmt.buffer if shape == self.buffers[stmt.buffer].shape else ""

    def is_whole(self, region: Region) -> bool:
        """Whether a region is all of its buffer."""
        zeros = all(start == Const(0, start.dtype) for start in region.starts)
        return zeros and region.extents == self.buffers[region.buffer].shape


def with_indices(stmt: Stmt, change: Change) -> Stmt:
    """``stmt`` with ``change`` applied to the indices of each of its own accesses; nested bodies stay."""

    def region(old: Region) -> Region:
        starts = change(old.buffer, old.starts)
        added = (ONE,) * (len(starts) - len(old.starts))
        return Region(old.buffer, starts, (*added, *old.extents))

    def expr(old: Expr) -> Expr:
        def known(part: Expr) -> Expr | None:
            if not isinstance(part, Load):
                return None
            indices = tuple(map(expr, part.indices))
            return Load(part.buffer, change(part.buffer, indices), part.dtype)

        return replace_parts(old, known)

    new = with_expressions(stmt, expr, region)
    match new:
        case Store() | Atomic():
            return msgspec.structs.replace(new, indices=change(new.buffer, new.indices))
        case TileOperation():
            moved = {}
            for axis, of in new.axes.items():
                added = len(getattr(new, of).starts) - len(getattr(stmt, of).starts)
                moved[axis] = getattr(new, axis) + added
            return msgspec.structs.replace(new, **moved)
        case _:
            return new


def with_buffers(stmt: Stmt, names: Mapping[str, str]) -> Stmt:
    """``stmt`` with buffers in its own fields replaced by others of the same kind, by name; bodies stay."""

    def known(part: Expr) -> Expr | None:
        if not isinstance(part, Load) or part.buffer not in names:
            return None
        return Load(names[part.buffer], tuple(map(expr, part.indices)), part.dtype)

    def expr(old: Expr) -> Expr:
        return replace_parts(old, known)

    def region(old: Region) -> Region:
        return Region(names.get(old.buffer, old.buffer), old.starts, old.extents)

    new = with_expressions(stmt, expr, region)
    if isinstance(new, Store | Atomic):
        return msgspec.structs.replace(new, buffer=names.get(new.buffer, new.buffer))
    return new

"""A Program's declarations: its buffers, their storage's owners, and its variables' values."""

from dataclasses import dataclass
from functools import cached_property

from tileyard.ir.nodes import (
    Buffer,
    Const,
    Expr,
    For,
    Let,
    Program,
    Region,
    Stmt,
    Store,
    Tensor,
)
from tileyard.ir.walk import number_statements, walk, written_region


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

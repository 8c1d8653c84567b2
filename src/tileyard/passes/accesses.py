"""Changes the indices and the buffers of a statement's accesses."""

from collections.abc import Callable, Mapping

import msgspec

from tileyard.ir.nodes import Atomic, Expr, Load, Region, Stmt, Store, TileOperation
from tileyard.ir.rewrite import with_expressions
from tileyard.ir.syntax import ONE
from tileyard.ir.walk import replace_parts

Indices = tuple[Expr, ...]
Change = Callable[[str, Indices], Indices]
"""Maps a buffer's name and indices to its new indices, which may begin with new dimensions of one element."""


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

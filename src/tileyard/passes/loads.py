"""Determines which copies of a loop can run ahead of its other statements, and why others cannot."""

from collections.abc import Iterable
from dataclasses import dataclass

from tileyard.ir.nodes import Atomic, Copy, Expr, If, Let, Load, Stmt, Var
from tileyard.ir.walk import expressions, walk, walk_expr
from tileyard.passes.instructions import Architecture, choose_load, is_load
from tileyard.passes.schedules import buffers_in, needed_lets, variables_in
from tileyard.passes.storage import Storage


@dataclass(frozen=True, kw_only=True)
class Loads:
    """The loads of a loop that writes these buffers, on an architecture."""

    storage: Storage
    arch: Architecture
    written: frozenset[str]

    def why_late(
        self, before: tuple[Stmt, ...], stmt: Stmt, after: tuple[Stmt, ...]
    ) -> list[tuple[Copy, str]]:
        """A statement's loads, with why each can't run ahead of ``before`` and earlier iterations, if so."""
        loads = [s for s in walk((stmt,)) if isinstance(s, Copy) and is_load(s, self.storage)]
        is_branch = isinstance(stmt, If) and not stmt.orelse and set(stmt.then) <= {*loads}
        if not isinstance(stmt, Copy) and not is_branch:
            return [(copy, "it is in a loop or branch with other statements") for copy in loads]
        found = []
        for number, copy in enumerate(loads):
            tile = copy.dst.buffer
            reason = self._why_not(copy) or self._why_dependent(stmt, before)
            if not reason and tile in buffers_in((*before, *loads[:number])):
                reason = f"{tile} is used before it in the same iteration"
            if not reason and not all(_is_only_under(stmt, user, tile) for user in after):
                reason = f"{tile} is used where its condition may not hold"
            found.append((copy, reason))
        return found

    def read_by(self, exprs: Iterable[Expr], before: tuple[Stmt, ...]) -> set[str]:
        """The buffers that expressions read, including the Lets ``before`` them."""
        known = {stmt.var.name: stmt.value for stmt in before if isinstance(stmt, Let)}
        found, left = set[str](), list(exprs)
        while left:
            for part in walk_expr(left.pop()):
                if isinstance(part, Load):
                    found.add(self.storage.owners[part.buffer])
                if isinstance(part, Var) and part.name in known:
                    left.append(known.pop(part.name))
        return found

    def _why_not(self, copy: Copy) -> str:
        """Why a copy cannot be asynchronous in the loop, at any place; empty if it can."""
        choice = choose_load(copy, self.storage, self.arch)
        if choice.instruction == "copy":
            return choice.reason
        storage, src, tile = self.storage, copy.src.buffer, copy.dst.buffer
        if storage.owners[src] in self.written:
            return f"the loop writes {src}"
        if tile in storage.viewed:
            return f"{tile} is seen as more than one buffer"
        return "" if storage.is_whole(copy.dst) else f"it fills only a part of {tile}"

    def _why_dependent(self, stmt: Stmt, before: tuple[Stmt, ...]) -> str:
        """The results of the loop on which the bounds and the condition of ``stmt`` depend; empty if none."""
        exprs = [expr for inner in walk((stmt,)) for expr in expressions(inner)]
        late = self.read_by(exprs, before) & self.written
        if late:
            return f"it depends on {min(late)}, which the loop writes"
        bound = {s.var.name for s in walk(before) if isinstance(s, Atomic) and s.var is not None}
        if bound & variables_in((stmt, *needed_lets(before, (stmt,)))):
            return "it depends on an atomic update"
        return ""


def _is_only_under(load: Stmt, user: Stmt, tile: str) -> bool:
    """Whether ``user`` uses a tile only if the condition under which ``load`` fills it holds."""
    if not isinstance(load, If) or tile not in buffers_in((user,)):
        return True
    return isinstance(user, If) and user.cond == load.cond and tile not in buffers_in(user.orelse)

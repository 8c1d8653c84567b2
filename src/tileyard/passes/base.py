"""Defines a pass: from a Program to a Program, with the reasons for what it left; and slices of tiles."""

from collections.abc import Iterable
from functools import cached_property
from typing import Protocol

from tileyard.base.model import Record
from tileyard.ir.nodes import Atomic, Break, Fill, For, Let, Load, Program, Stmt, Store, Var, While
from tileyard.ir.walk import bodies, buffer_effects, expressions, own_effects, walk_expr
from tileyard.passes.storage import Storage

_REPEATABLE = ("serial", "unroll", "pipelined")


class Note(Record):
    """Why a pass left its input's statement ``number``, or a count there; ``other`` is a second, or -1."""

    number: int
    text: str
    other: int = -1


class Passed(Record):
    """A pass's result: the Program, its statements' source numbers in pre-order, and the reasons."""

    program: Program
    origins: tuple[int, ...]
    notes: tuple[Note, ...] = ()


class Pass(Protocol):
    """A frozen dataclass, its fields the options. It keeps Programs valid, and their results the same."""

    @property
    def name(self) -> str:
        """The name of the pass, as in ``plan-pipeline``."""

    def run(self, program: Program) -> Passed:
        """Rewrite ``program``."""


class CannotSlice(Exception):
    """A statement needs something that only the whole Program has: the reason."""


class Slicer:
    """Slices of one Program, in which each statement is a separate object."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._around: dict[int, tuple[Stmt, ...]] = {}
        self._binders: dict[str, Stmt] = {}
        self._writers: dict[str, list[Stmt]] = {}
        self._breaks: dict[int, list[Stmt]] = {}
        self._read(storage.program.body, ())

    def around(self, stmt: Stmt) -> tuple[Stmt, ...]:
        """The statements whose bodies contain ``stmt``, outermost first."""
        return self._around[id(stmt)]

    @cached_property
    def written(self) -> frozenset[str]:
        """The owners of the storage that the Program writes."""
        return buffer_effects(self._storage.program.body).through(self._storage.owners).written

    def slice(self, roots: Iterable[Stmt]) -> frozenset[int]:
        """The identities of ``roots``, which are copies, and of all that they need. Raises CannotSlice."""
        needed, left = set[int](), list(roots)
        while left:
            stmt = left.pop()
            if id(stmt) in needed:
                continue
            needed.add(id(stmt))
            left += self._around[id(stmt)]
            left += self._breaks.get(id(stmt), ())
            self._require_repeatable(stmt)
            for part in (part for expr in expressions(stmt) for part in walk_expr(expr)):
                if isinstance(part, Var) and part.name in self._binders:
                    left.append(self._binders[part.name])
                if isinstance(part, Load):
                    left += self._sources(part.buffer)
        return frozenset(needed)

    def _read(self, body: tuple[Stmt, ...], around: tuple[Stmt, ...]) -> None:
        for stmt in body:
            self._around[id(stmt)] = around
            if isinstance(stmt, Let | Atomic) and stmt.var is not None:
                self._binders[stmt.var.name] = stmt
            for name in own_effects(stmt).written:
                self._writers.setdefault(name, []).append(stmt)
            if isinstance(stmt, Break):
                loop = next(one for one in reversed(around) if isinstance(one, For | While))
                self._breaks.setdefault(id(loop), []).append(stmt)
            for inner in bodies(stmt):
                self._read(inner, (*around, stmt))

    def _require_repeatable(self, stmt: Stmt) -> None:
        if isinstance(stmt, Atomic):
            raise CannotSlice("it depends on an atomic update")
        if isinstance(stmt, For) and stmt.kind not in _REPEATABLE:
            raise CannotSlice(f"it depends on a {stmt.kind} loop")

    def _sources(self, name: str) -> list[Stmt]:
        if self._storage.owners[name] not in self.written:
            return []
        writers = self._writers.get(name, [])
        is_private = (
            self._storage.buffers[name].scope == "local" and name not in self._storage.viewed
        )
        if is_private and all(isinstance(stmt, Store | Fill) for stmt in writers):
            return writers
        raise CannotSlice(f"it depends on {name}, which the kernel writes")

"""Finds what a kernel addresses to single threads: their own values, and the memory that statements
access. A thread has its own values where its index is used: variables, and registers (``local``).
"""

from dataclasses import dataclass, field
from typing import Any

from tileyard.frontend.scope import key_of
from tileyard.frontend.threads import Threads, parts_ways
from tileyard.frontend.tir_queries import (
    PARALLEL,
    REGISTERS,
    THREAD_INDEX,
    bodies_of,
    call_name,
    counts,
    dimension_of,
    heads_of,
    is_bound_to_threads,
    is_load,
    is_loop,
    is_var,
    nodes_of,
    pointed_of,
    used_together,
)

_NO_BODY = ("Bind", "BufferStore", "Evaluate", "AssertStmt")

_PURE = frozenset(
    {
        "tirx.bitwise_and",
        "tirx.bitwise_not",
        "tirx.bitwise_or",
        "tirx.bitwise_xor",
        "tirx.likely",
        "tirx.shift_left",
        "tirx.shift_right",
    }
)


@dataclass(frozen=True, kw_only=True)
class Access:
    """An access of one statement to memory that several threads see. If it ``is_atomic``, it only
    updates; ``rows`` are the threads' dimensions in the element's indices, each with its position.
    """

    is_write: bool
    is_atomic: bool
    rows: frozenset[tuple[int, int]]


@dataclass(frozen=True, kw_only=True)
class Leaf:
    """The accesses of one statement without its body, by the memory's identity. If it
    ``is_repeated``, all threads do it several times, and may wait for each other in between.
    """

    touched: dict[object, list[Access]] = field(default_factory=dict)
    is_repeated: bool

    def conflicts(self, other: "Leaf", dimensions: frozenset[int]) -> bool:
        """Whether what one thread does in one statement may change what another thread does in the other."""
        for data, mine in self.touched.items():
            theirs = other.touched.get(data, [])
            both = [*mine, *theirs]
            if not theirs or not any(access.is_write for access in both):
                continue
            if all(access.is_atomic for access in both):
                continue
            shared = frozenset.intersection(*(access.rows for access in both))
            if not dimensions <= {dimension for _, dimension in shared}:
                return True
        return False


class ThreadCode:
    """Determines which variables and registers of a function belong to each thread. ``threads``
    decides conditions on the thread's index alone; ``kept`` are buffers with values of single
    threads, by the variable's identity.
    """

    def __init__(self, threads: Threads) -> None:
        self._threads = threads
        self._indices: dict[object, int] = {}
        self._vars: set[object] = set()
        self._own: set[object] = set()
        self._together: set[object] = set()
        self.kept: dict[object, str] = {}

    def study(self, body: Any) -> None:  # noqa: ANN401 (TVM's nodes are untyped)
        """Find everything in the body of a function that belongs to each thread."""
        self._together = used_together(body)
        known = -1
        while known != len(self._vars) + len(self._own):
            known = len(self._vars) + len(self._own)
            self._visit(body, is_own=False)

    def is_own(self, tir: Any) -> bool:  # noqa: ANN401
        """Whether each thread has its own content in this buffer."""
        return key_of(tir.data) in self._own

    def depends(self, expr: Any) -> bool:  # noqa: ANN401
        """Whether an expression may differ from thread to thread."""
        return any(map(self._is_mention, nodes_of(expr)))

    def is_pure(self, expr: Any) -> bool:  # noqa: ANN401
        """Whether an expression is only arithmetic on variables."""
        nodes = nodes_of(expr)
        are_known = all(call_name(node) in _PURE for node in nodes if type(node).__name__ == "Call")
        return are_known and not any(map(is_load, nodes))

    def mentions(self, stmt: Any) -> bool:  # noqa: ANN401
        """Whether a statement, roles aside, does something for a single thread. One whose number of
        executions matters does, unless threads divide it among them.
        """
        decides = self._threads.decides
        match type(stmt).__name__:
            case "For" if is_loop(stmt, PARALLEL):
                return any(map(self._is_mention, nodes_of(stmt)))
            case "IfThenElse":
                inside = any(map(self.mentions, bodies_of(stmt)))
                if decides(stmt.condition) and (parts_ways(stmt) or not inside):
                    return inside
                return inside or self.depends(stmt.condition)
            case "Bind" if call_name(stmt.value) == THREAD_INDEX or decides(stmt.value):
                return False
            case kind if kind in _NO_BODY:
                is_each = len(self._threads.everyone) > 1 and counts(stmt)
                return is_each or any(map(self._is_mention, nodes_of(stmt)))
            case _:
                heads = any(map(self.depends, heads_of(stmt)))
                return heads or any(map(self.mentions, bodies_of(stmt)))

    # ---- values of single threads -----------------------------------------------------------

    def _is_mention(self, node: Any) -> bool:  # noqa: ANN401
        if is_var(node):
            return key_of(node) in self._vars
        return _is_access(node) and self.is_own(node.buffer)

    def _visit(self, stmt: Any, *, is_own: bool, is_shared: bool = False) -> None:  # noqa: ANN401
        """Note what ``stmt`` makes a thread's own; ``is_own``: some may run it; ``is_shared``: all
        divide it.
        """
        is_count = not is_shared and type(stmt).__name__ in _NO_BODY and counts(stmt)
        match type(stmt).__name__:
            case "Bind":
                if call_name(stmt.value) == THREAD_INDEX:
                    self._indices[key_of(stmt.var)] = int(stmt.value.args[0].value)
                    self._vars.add(key_of(stmt.var))
                elif is_count or self.depends(stmt.value):
                    self._vars.add(key_of(stmt.var))
            case "BufferStore":
                if is_own or is_count or any(map(self.depends, (stmt.value, *stmt.indices))):
                    self._note_register(stmt.buffer)
            case "Evaluate":
                if is_own or self.depends(stmt.value):
                    for node in filter(is_load, nodes_of(stmt)):
                        self._note_register(node.buffer)
            case "For":
                if is_bound_to_threads(stmt):
                    self._indices[key_of(stmt.loop_var)] = dimension_of(stmt)
                    self._vars.add(key_of(stmt.loop_var))
                elif any(map(self.depends, heads_of(stmt))):
                    self._vars.add(key_of(stmt.loop_var))
                    is_own = True
                is_shared = is_shared or int(stmt.kind) == PARALLEL
            case "IfThenElse":
                is_own = is_own or (self.depends(stmt.condition) and not parts_ways(stmt))
            case "While":
                is_own = is_own or self.depends(stmt.condition)
            case _:
                pass
        for body in bodies_of(stmt):
            self._visit(body, is_own=is_own, is_shared=is_shared)

    def _note_register(self, tir: Any) -> None:  # noqa: ANN401
        if self._is_register(tir):
            self._own.add(key_of(tir.data))

    def _is_register(self, tir: Any) -> bool:  # noqa: ANN401
        """Whether ``tir`` is a thread's register; also a fragment that threads never divide among them."""
        scope = str(tir.scope())
        is_alone = scope == "local.fragment" and key_of(tir.data) not in self._together
        return is_alone or scope in REGISTERS

    def sets_for_all(self, stmt: Any) -> bool:  # noqa: ANN401
        """Whether ``stmt`` sets registers that hold the same value for all threads."""
        nodes = nodes_of(stmt)
        stored = [node.buffer for node in nodes if type(node).__name__ == "BufferStore"]
        pointed = [place.buffer for node in nodes for place in pointed_of(node)]
        return any(self._is_register(b) and not self.is_own(b) for b in (*stored, *pointed))

    # ---- accesses ---------------------------------------------------------------------------

    def _leaf(self, stmt: Any, *, is_repeated: bool) -> Leaf:  # noqa: ANN401
        parts = (stmt,) if type(stmt).__name__ in _NO_BODY else heads_of(stmt)
        found = Leaf(is_repeated=is_repeated)
        for part in parts:
            atomics = {
                key_of(inner)
                for node in nodes_of(part)
                if call_name(node).startswith("tl.atomic_")
                for inner in nodes_of(node.args[0])
                if is_load(inner)
            }
            pointed = {key_of(inner) for node in nodes_of(part) for inner in pointed_of(node)}
            for node in nodes_of(part):
                if not _is_access(node) or self._is_register(node.buffer):
                    continue
                access = Access(
                    is_write=not is_load(node) or key_of(node) in pointed,
                    is_atomic=key_of(node) in atomics,
                    rows=self._rows(node.indices),
                )
                found.touched.setdefault(key_of(node.buffer.data), []).append(access)
        return found

    def _rows(self, indices: Any) -> frozenset[tuple[int, int]]:  # noqa: ANN401
        return frozenset(
            (place, self._indices[key_of(index)])
            for place, index in enumerate(indices)
            if is_var(index) and key_of(index) in self._indices
        )

    def leaves(self, stmt: Any, *, is_repeated: bool = False) -> list[Leaf]:  # noqa: ANN401
        """The accesses of statements in order; in loops of unequal lengths no thread can wait for others."""
        found = [self._leaf(stmt, is_repeated=is_repeated)]
        if type(stmt).__name__ in ("For", "While"):
            is_repeated = not any(map(self.depends, heads_of(stmt)))
        for body in bodies_of(stmt):
            found += self.leaves(body, is_repeated=is_repeated)
        return [leaf for leaf in found if leaf.touched]


def _is_access(node: Any) -> bool:  # noqa: ANN401
    return type(node).__name__ in ("BufferLoad", "BufferStore")

"""Determines the threads of a block that run a branch, roles, and the barriers at which they wait.
Conditions on the thread's index are decided thread by thread. Roles are parts of a block's threads
that wait for each other at barriers; where none waits, each branch is done once, at its place.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

from tilelang import tvm

from tileyard.base.model import SourceLine
from tileyard.frontend.scope import Scope, key_of
from tileyard.frontend.tir_queries import (
    TILE_OPS,
    call_name,
    calls_of,
    find_barriers,
    free_vars,
    is_load,
    nodes_of,
)
from tileyard.ir.nodes import Atomic, Roles, Stmt, Sync
from tileyard.ir.walk import buffer_effects

ThreadSet = frozenset[int]

_WAITS = frozenset({"tl.mbarrier_wait_parity"})
_ARRIVES = frozenset(
    {
        "tirx.ptx_arrive_barrier",
        "tirx.ptx_arrive_barrier_expect_tx",
        "tl.ptx_cp_async_barrier_noinc",
        "tl.named_barrier_arrive",
    }
)
_BY_ONE = frozenset({"tl.tileop.tma_copy"})
"""Tile operations that a single thread may start."""


class Threads:
    """The threads of a block by number, the first dimension fastest. ``extents`` are their numbers
    in each dimension, ``dimensions`` those of thread-index variables, by identity. ``running``
    threads of ``everyone`` run the code being lowered, ``asked`` ones its conditions admit: fewer
    run if roles are lowered one by one.
    """

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self.extents: tuple[int, ...] = ()
        self.dimensions: dict[object, int] = {}
        self._values: dict[object, Any] = {}
        self._vars: dict[object, Any] = {}
        self._known: dict[object, ThreadSet] = {}
        self._analyzer = tvm.arith.Analyzer()
        self.everyone: ThreadSet = frozenset()
        self.running: ThreadSet = frozenset()
        self.asked: ThreadSet = frozenset()

    def launch(self, extents: Sequence[int]) -> None:
        """Note the number of threads of a block in each dimension."""
        self.extents = tuple(extents)
        self.everyone = frozenset(range(math.prod(extents)))
        self.running = self.asked = self.everyone

    def bind(self, var: Any, dimension: int) -> None:  # noqa: ANN401 (TVM's nodes are untyped)
        """Note that ``var`` is a thread's index in a dimension."""
        self.dimensions[key_of(var)] = dimension
        self._vars[key_of(var)] = var

    def bind_value(self, var: Any, value: Any) -> None:  # noqa: ANN401
        """Note that ``var`` is ``value``, which contains only threads' indices."""
        self._values[key_of(var)] = self._resolved(value)

    @property
    def wide(self) -> list[int]:
        """The dimensions with more than one thread, or the first one; the last dimension first."""
        found = [i for i, extent in enumerate(self.extents) if extent > 1]
        return found[::-1] or [0]

    def decides(self, expr: Any) -> bool:  # noqa: ANN401
        """Whether ``expr`` depends only on the thread's index."""
        if _is_election(expr):
            return True
        if any(map(is_load, nodes_of(expr))):
            return False
        used = [key_of(var) for var in free_vars(expr)]
        return bool(used) and all(key in self.dimensions or key in self._values for key in used)

    def where(self, condition: Any) -> ThreadSet:  # noqa: ANN401
        """The threads of the block for which ``condition``, which their indices decide, holds."""
        if _is_election(condition):
            every = int(condition.args[0].value) or max(len(self.everyone), 1)
            return frozenset(thread for thread in self.everyone if thread % every == 0)
        key = key_of(condition)
        if key not in self._known:
            resolved = self._resolved(condition)
            places = itertools.product(*map(range, reversed(self.extents)))
            self._known[key] = frozenset(
                number for number, place in enumerate(places) if self._holds(resolved, place[::-1])
            )
        return self._known[key]

    def where_decided(self, condition: Any) -> ThreadSet:  # noqa: ANN401
        """The same; all threads for a condition that their indices do not decide."""
        return self.where(condition) if self.decides(condition) else self.everyone

    def _resolved(self, expr: Any) -> Any:  # noqa: ANN401
        known = {
            var: self._values[key_of(var)] for var in free_vars(expr) if key_of(var) in self._values
        }
        return tvm.tirx.stmt_functor.substitute(expr, known) if known else expr

    def _holds(self, condition: Any, place: tuple[int, ...]) -> bool:  # noqa: ANN401
        numbers = {
            self._vars[key]: tvm.tirx.const(place[dimension], self._vars[key].dtype)
            for key, dimension in self.dimensions.items()
        }
        value = self._analyzer.simplify(tvm.tirx.stmt_functor.substitute(condition, numbers))
        if type(value).__name__ != "IntImm":
            self._scope.refuse(f"condition {condition} on threads")
        return bool(int(value.value))


def _is_election(condition: Any) -> bool:  # noqa: ANN401
    """Whether the condition elects one thread of a number of threads."""
    return call_name(condition) == "tl.tl_shuffle_elect"


def split(conditions: Iterable[ThreadSet], everyone: ThreadSet) -> list[ThreadSet]:
    """The classes of threads that no condition distinguishes, by their first thread."""
    classes: dict[tuple[bool, ...], set[int]] = {}
    listed = list(conditions)
    for thread in sorted(everyone):
        mark = tuple(thread in condition for condition in listed)
        classes.setdefault(mark, set()).add(thread)
    return [frozenset(found) for found in classes.values()]


def waits(stmt: Any) -> bool:  # noqa: ANN401
    """Whether something below ``stmt`` waits for other threads."""
    return not _WAITS.isdisjoint(calls_of(stmt))


def _meetings(stmt: Any) -> list[int]:  # noqa: ANN401
    """The number of threads that meet at each numbered barrier at which something below ``stmt`` waits."""
    syncs = (node for node in nodes_of(stmt) if call_name(node) == "tirx.tvm_storage_sync")
    counts = [node.args[2] for node in syncs if len(node.args) > 2]
    return [int(count.value) for count in counts if type(count).__name__ == "IntImm"]


def parts_ways(branch: Any) -> bool:  # noqa: ANN401
    """Whether a branch on the thread is for a role, and not for one thread that acts for all."""
    calls = calls_of(branch)
    together = {name for name in calls if name.startswith(TILE_OPS)} - _BY_ONE
    return bool(together) or not _WAITS.isdisjoint(calls)


def touches_barriers(stmt: Any) -> bool:  # noqa: ANN401
    """Whether something below ``stmt`` arrives at a barrier, or waits at one."""
    return not (_WAITS | _ARRIVES).isdisjoint(calls_of(stmt)) or bool(_meetings(stmt))


def branches(stmt: Any) -> list[Any]:  # noqa: ANN401
    """All branches below ``stmt``, and ``stmt`` itself if it is one."""
    return [node for node in nodes_of(stmt) if type(node).__name__ == "IfThenElse"]


class _Use(NamedTuple):
    threads: ThreadSet
    is_read: bool
    is_write: bool
    where: SourceLine | None


class RoleLowering:
    """Lowers what depends on the thread; ``lower`` does the rest, ``note`` numbers a statement."""

    def __init__(
        self,
        scope: Scope,
        threads: Threads,
        lower: Callable[[Any], tuple[Stmt, ...]],
        note: Callable[[], None],
    ) -> None:
        self._scope = scope
        self._threads = threads
        self._lower = lower
        self._note = note
        self._is_role = False
        self._registers = 0
        self._uses: dict[str, dict[_Use, None]] = {}
        scope.on_load = partial(self._note_use, is_read=True, is_write=False)

    def branch(self, stmt: Any) -> tuple[Stmt, ...]:  # noqa: ANN401 (TVM's nodes are untyped)
        """The statements for the threads that run this: each side once, if it has any threads."""
        threads = self._threads
        chosen, running, asked = threads.where(stmt.condition), threads.running, threads.asked
        sides = ((stmt.then_case, asked & chosen), (stmt.else_case, asked - chosen))
        found: list[Stmt] = []
        for body, threads.asked in sides:
            threads.running = running & threads.asked
            if body is not None and threads.running:
                found += self._lower(body)
        threads.running, threads.asked = running, asked
        return tuple(found)

    def are_in(self, body: Any) -> bool:  # noqa: ANN401
        """Whether parts of the threads wait for each other below ``body``."""
        return waits(body) or any(map(self._meets_others, branches(body)))

    def _meets_others(self, branch: Any) -> bool:  # noqa: ANN401
        """Whether a side of a branch on the thread waits at a numbered barrier for more than its own."""
        threads = self._threads
        if not threads.decides(branch.condition):
            return False
        chosen = threads.where(branch.condition)
        sides = ((branch.then_case, chosen), (branch.else_case, threads.everyone - chosen))
        return any(
            count > len(own) for side, own in sides if side is not None for count in _meetings(side)
        )

    def body(self, body: Any) -> tuple[Stmt, ...]:  # noqa: ANN401
        """A body whose threads wait for each other: one role per class that no condition separates."""
        conditions = [
            self._threads.where(branch.condition)
            for branch in branches(body)
            if self._is_for_a_role(branch)
        ]
        roles = split(conditions, self._threads.running)
        if len(roles) < 2:
            return self._lower(body)
        found: list[Stmt] = []
        ahead: list[Any] = []
        late: list[Any] = []
        for stmt in tvm.tirx.stmt_list(body):
            if type(stmt).__name__ == "Bind" and ahead:
                late.append(stmt)
            elif touches_barriers(stmt) or any(map(self._is_for_a_role, branches(stmt))):
                ahead, late = [*ahead, *late, stmt], []
            else:
                found += self._lower_roles(ahead, roles)
                found += [part for inner in (*late, stmt) for part in self._lower(inner)]
                ahead, late = [], []
        found += self._lower_roles(ahead, roles)
        found += [part for inner in late for part in self._lower(inner)]
        return tuple(found)

    def _is_for_a_role(self, branch: Any) -> bool:  # noqa: ANN401
        is_decided = self._threads.decides(branch.condition)
        return is_decided and (parts_ways(branch) or self._meets_others(branch))

    def _lower_roles(self, stmts: list[Any], roles: list[ThreadSet]) -> tuple[Stmt, ...]:
        if not stmts:
            return ()
        self._note()
        everyone, self._is_role = self._threads.running, True
        met: set[int] = set()
        if self._scope.has_thread_sync and everyone == self._threads.everyone:
            met = find_barriers(stmts, self._threads.where_decided, everyone)
        bodies, registers = [], []
        for self._threads.running in roles:
            self._registers = 0
            body: list[Stmt] = []
            for number, stmt in enumerate(stmts):
                body += self._meet(stmt) if number in met else ()
                body += self._lower(stmt)
            bodies.append(tuple(body))
            registers.append(self._registers)
        self._threads.running, self._is_role = everyone, False
        kept = [number for number, body in enumerate(bodies) if body]
        asked = tuple(registers[number] for number in kept)
        return (
            Roles(
                tuple(bodies[number] for number in kept),
                tuple(_ranges(roles[number]) for number in kept),
                asked if any(asked) else (),
            ),
        )

    def ask_for_registers(self, count: int) -> None:
        """Note that each thread of the current role requests this number of registers."""
        self._registers = count
        if not self._is_role:
            self._scope.lose("set_max_nreg outside of roles")

    def _meet(self, stmt: Any) -> tuple[Stmt, ...]:  # noqa: ANN401
        """The barrier of all threads that TileLang puts before ``stmt``."""
        before = self._scope.enter(stmt)
        self._note()
        self._scope.where = before
        threads = self._threads
        return (Sync(len(threads.running), len(threads.everyone), given=True),)

    def require_one(self, what: str) -> None:
        """Refuse code that the threads of several roles run together."""
        self._scope.require(
            not self._is_role or self._threads.running == self._threads.asked,
            what,
            "by the threads of several roles together is not covered",
        )

    def require_one_update(self, stmts: tuple[Stmt, ...]) -> None:
        """Refuse atomic updates that every thread repeats: outside of parallel loops each thread does."""
        if len(self._threads.running) < 2:
            return
        for stmt in stmts:
            if isinstance(stmt, Atomic) and (stmt.var is not None or stmt.kind in ("add", "xor")):
                self._scope.refuse(
                    f"atomic {stmt.kind}", "by every thread of a block is not covered"
                )

    def note_registers(self, stmts: tuple[Stmt, ...]) -> None:
        """Note which threads use registers that each thread has for itself."""
        effects = buffer_effects(stmts)
        for name in effects.read | effects.written:
            self._note_use(name, is_read=name in effects.read, is_write=name in effects.written)

    def _note_use(self, name: str, *, is_read: bool, is_write: bool) -> None:
        use = _Use(self._threads.asked, is_read, is_write, self._scope.where)
        self._uses.setdefault(name, {})[use] = None

    def require_own_registers(self) -> None:
        """Refuse threads that read a register without taking part in all writes to it: each has its own."""
        uses: dict[str, dict[_Use, None]] = {}
        for buffer in self._scope.buffers:
            owner = buffer.view_of or buffer.name
            if buffer.scope in ("fragment", "local") and owner not in self._scope.position.own:
                uses.setdefault(owner, {}).update(self._uses.get(buffer.name, {}))
        for name, found in uses.items():
            writers = {use.threads for use in found if use.is_write}
            readers = [use for use in found if use.is_read]
            for use in sorted(readers, key=lambda use: use.is_write):  # read-only ones first
                if any(not use.threads <= threads for threads in writers):
                    self._scope.where = use.where
                    self._scope.refuse(
                        f"register {name}", "that other threads write is not covered"
                    )


def _ranges(threads: ThreadSet) -> tuple[tuple[int, int], ...]:
    numbers = sorted(threads)
    firsts = [one for one in numbers if one - 1 not in threads]
    ends = [one + 1 for one in numbers if one + 1 not in threads]
    return tuple(zip(firsts, ends, strict=True))

"""Lowers what a kernel addresses to single threads: they run side by side, statement by statement.
That is an order that a GPU may take: all threads complete a statement before any begins the next.
Statements whose effects no other thread sees are done together, thread by thread.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from tilelang import tvm

from tileyard.frontend.expressions import lower_expr
from tileyard.frontend.externs import is_mark
from tileyard.frontend.hints import CALL_HINTS, GROUP_CALLS, THREAD_SYNCS
from tileyard.frontend.scope import Scope, key_of
from tileyard.frontend.thread_code import Leaf, ThreadCode
from tileyard.frontend.threads import RoleLowering, Threads, parts_ways
from tileyard.frontend.tir_queries import (
    ALLREDUCE,
    PARALLEL,
    THREAD_BINDING,
    bodies_of,
    call_name,
    heads_of,
    is_alone,
    is_loop,
    leaves_loop,
)
from tileyard.ir.nodes import Const, Expr, For, If, Load, LoopKind, Op, Stmt, Store, Var
from tileyard.ir.walk import convert

_FOLDS = {"Add": "add", "Max": "max", "Min": "min", "Mul": "mul"}
_DIMENSIONS = "xyz"


class Lowering(NamedTuple):
    """The body's lowering: ``lower`` takes any statement, ``lower_plain`` one for all threads,
    ``numbered`` registers statements made here, ``note`` one more whose body follows.
    """

    lower: Callable[[Any], tuple[Stmt, ...]]
    lower_plain: Callable[[Any], tuple[Stmt, ...]]
    numbered: Callable[[tuple[Stmt, ...]], tuple[Stmt, ...]]
    note: Callable[[], None]


class Lockstep:
    """Lowers statements for single threads. ``code`` knows what belongs to each thread."""

    def __init__(
        self,
        scope: Scope,
        code: ThreadCode,
        threads: Threads,
        roles: RoleLowering,
        lowering: Lowering,
    ) -> None:
        self._scope = scope
        self._code = code
        self._threads = threads
        self._roles = roles
        self._do = lowering
        self._mask: str | None = None

    def takes(self, stmt: Any) -> bool:  # noqa: ANN401 (TVM's nodes are untyped)
        """Whether ``stmt`` is lowered here."""
        kind = type(stmt).__name__
        is_frame = kind == "SBlockRealize" or (is_loop(stmt, THREAD_BINDING))
        position = self._scope.position
        # The body of a loop whose iterations are divided among the threads is done once per element.
        if is_frame or position.is_single or position.is_spread or not self._threads.extents:
            return False
        return self._mask is not None or self._code.mentions(stmt)

    def lower(self, stmt: Any) -> tuple[Stmt, ...]:  # noqa: ANN401
        """The statements of all threads, in turn; raises UnsupportedError."""
        found: list[Stmt] = []
        group: list[Callable[[], tuple[Stmt, ...]]] = []
        touched: list[Leaf] = []
        dimensions = frozenset(self._threads.wide)

        def finish() -> None:
            found.extend(self._each(group))
            group.clear()
            touched.clear()

        for item in tvm.tirx.stmt_list(stmt):
            self._scope.enter(item)
            value = getattr(item, "value", None)
            if call_name(value) in CALL_HINTS | THREAD_SYNCS or is_mark(value):
                continue
            if call_name(value) in GROUP_CALLS:
                if self._mask is not None:
                    self._scope.give_up(call_name(value))
                    continue
                finish()
                found += self._do.lower_plain(item)
                continue
            if self._is_pure_binding(item):
                self._scope.defer(item.var, item.value, is_ready=True)
                continue
            if self._mask is None and not self._code.mentions(item):
                finish()
                found += self._do.lower(item)
                continue
            leaves = self._code.leaves(item)
            if not self._is_independent(item, leaves):
                finish()
                found += self._split(item)
                continue
            if any(a.conflicts(b, dimensions) for a in touched for b in leaves):
                finish()
            group.append(self._thunk(item))
            touched += leaves
        finish()
        return tuple(found)

    # ---- thread by thread -------------------------------------------------------------------

    def _is_pure_binding(self, item: Any) -> bool:  # noqa: ANN401
        """Whether ``item`` binds a value that reads no memory: it can be repeated wherever it is needed."""
        return (
            type(item).__name__ == "Bind"
            and self._code.depends(item.value)
            and self._code.is_pure(item.value)
            and not self._threads.decides(item.value)
        )

    def _is_independent(self, item: Any, leaves: list[Leaf]) -> bool:  # noqa: ANN401
        """Whether each thread can do ``item`` as a whole before the next one begins."""
        if not is_alone(item) or leaves_loop(item) or self._code.sets_for_all(item):
            return False
        pairs = ((a, b) for i, a in enumerate(leaves) for b in leaves[i + (not a.is_repeated) :])
        return not any(a.conflicts(b, frozenset(self._threads.wide)) for a, b in pairs)

    def _thunk(self, item: Any) -> Callable[[], tuple[Stmt, ...]]:  # noqa: ANN401
        """The lowering of ``item`` for one thread. A value that it binds is kept for later statements."""
        if type(item).__name__ != "Bind":
            return lambda: self._do.lower(item)
        where = self._scope.where
        kept = self._own_buffer(str(item.var.name), self._scope.dtype(item.var.dtype, "value"))
        self._code.kept[key_of(item.var)] = kept

        def bind() -> tuple[Stmt, ...]:
            before, self._scope.where = self._scope.where, where
            value = lower_expr(self._scope, item.value)
            store = Store(kept, self._scope.position.indices, value)
            made = self._do.numbered((*self._scope.take_hoisted(), store))
            self._scope.where = before
            return made

        return bind

    def _own_buffer(self, name: str, dtype: str) -> str:
        return self._scope.new_buffer(name, dtype, self._scope.position.extents)

    def _each(self, group: Sequence[Callable[[], tuple[Stmt, ...]]]) -> tuple[Stmt, ...]:
        if not group:
            return ()
        self._roles.require_one("what single threads do")
        mask = self._mask
        loops = self._loops()
        for _ in range(len(loops) + (mask is not None)):
            self._do.note()
        with self._at([loop.var for loop in loops]):
            body = tuple(part for thunk in group for part in thunk())
            if mask is not None:
                body = (If(self._masked(mask), body),)
        return _nest(loops, body)

    def _masked(self, mask: str) -> Expr:
        return Load(mask, self._scope.position.indices, "bool")

    def _loops(self, kind: LoopKind = "threads") -> list[For]:
        """A loop for each dimension of the block with several threads, the last dimension outermost."""
        asked, everyone = self._threads.asked, self._threads.everyone
        wide = self._threads.wide
        if asked != everyone:
            first, count = min(asked, default=0), len(asked)
            self._scope.require(
                wide == [0] and asked == frozenset(range(first, first + count)),
                "what some threads do",
                ", whose indices do not form one range, is not covered",
            )
            return [self._loop(0, first, count, kind)]
        return [self._loop(i, 0, self._threads.extents[i], kind) for i in wide]

    def _loop(self, dimension: int, start: int, count: int, kind: LoopKind) -> For:
        var = Var(self._scope.names.take(f"t{_DIMENSIONS[dimension]}"), "int32")
        return For(var, Const(start, "int32"), Const(count, "int32"), kind, ())

    def _at(self, row: Sequence[Var]) -> Any:  # noqa: ANN401 (a context manager)
        """The context for lowering for the thread whose indices are ``row``, in the order of ``_loops``."""
        known: dict[int, Expr] = dict(zip(self._threads.wide, row, strict=True))
        values: dict[object, Expr] = {
            key: known.get(dimension, Const(0, "int32"))
            for key, dimension in self._threads.dimensions.items()
        }
        values |= {
            key: Load(kept, tuple(row), self._scope.named(kept).dtype)
            for key, kept in self._code.kept.items()
        }
        return self._scope.position.at(row, values)

    # ---- all threads together ---------------------------------------------------------------

    def _split(self, item: Any) -> tuple[Stmt, ...]:  # noqa: ANN401
        """A statement in which threads see each other's effects: all do one part of it before the next."""
        refuse = self._scope.refuse
        differs = any(map(self._code.depends, heads_of(item)))
        match type(item).__name__:
            case "For" if is_loop(item, PARALLEL):
                return refuse(
                    f"parallel loop over {item.loop_var.name}",
                    "with what single threads know is not covered",
                )
            case "IfThenElse" if differs:
                return self._branch(item)
            case "For" | "While" as kind if differs:
                return refuse(
                    f"{kind.lower()} loop",
                    "in which some threads wait for others is not covered",
                )
            case "AttrStmt" if call_name(getattr(item.body, "value", None)) == ALLREDUCE:
                return self._allreduce(item)
            case "Evaluate":
                return refuse(
                    call_name(item.value).rsplit(".", 1)[-1], "by single threads is not covered"
                )
            case kind if not bodies_of(item):
                return refuse(f"statement {kind}", "by single threads is not covered")
            case _:
                return self._do.lower_plain(item)

    def _branch(self, item: Any) -> tuple[Stmt, ...]:  # noqa: ANN401
        if self._threads.decides(item.condition) and parts_ways(item) and self._mask is None:
            return self._do.lower_plain(item)
        outside = self._mask
        chosen = self._own_buffer("runs", "bool")
        found = self._set_mask(chosen, outside, lambda: lower_expr(self._scope, item.condition))
        found += self.lower(item.then_case)
        if item.else_case is not None:
            others = self._own_buffer("runs", "bool")
            found += self._set_mask(
                others, outside, lambda: Op("not", (self._masked(chosen),), "bool")
            )
            found += self.lower(item.else_case)
        self._mask = outside
        return found

    def _set_mask(
        self, mask: str, outside: str | None, condition: Callable[[], Expr]
    ) -> tuple[Stmt, ...]:
        """Note for each thread whether it runs the statements that follow, under ``mask`` from here on."""

        def store() -> tuple[Stmt, ...]:
            if outside is None:
                runs = convert(condition(), "bool")
            else:
                with self._scope.conditionally():
                    runs = Op("and", (self._masked(outside), convert(condition(), "bool")), "bool")
            store = Store(mask, self._scope.position.indices, runs)
            return self._do.numbered((*self._scope.take_hoisted(), store))

        self._mask = None
        found = self._each([store])
        self._mask = mask
        return found

    def _allreduce(self, item: Any) -> tuple[Stmt, ...]:  # noqa: ANN401
        scope, reducer = self._scope, item.node
        count, value, condition, target, *axes = list(item.body.value.args)
        name = _FOLDS.get(type(reducer.result[0]).__name__ if len(reducer.result) == 1 else "")
        is_plain = int(count.value) == 1 and type(condition).__name__ == "IntImm"
        if name is None or not is_plain or not int(condition.value):
            scope.refuse("tvm_thread_allreduce", "of this form is not covered")
        scope.require(
            self._mask is None and self._threads.asked == self._threads.everyone,
            "tvm_thread_allreduce",
            "by some threads only is not covered",
        )
        folded = {self._threads.dimensions.get(key_of(axis)) for axis in axes}
        scope.require(
            None not in folded,
            "tvm_thread_allreduce",
            "over something else than threads is not covered",
        )
        over = [dimension in folded for dimension in self._threads.wide]
        reads, writes = self._loops("serial"), self._loops("serial")
        outer = [loop for loop, is_folded in zip(writes, over, strict=True) if not is_folded]
        inner = [loop for loop, is_folded in zip(writes, over, strict=True) if is_folded]
        terms = [loop for loop, is_folded in zip(reads, over, strict=True) if is_folded]
        row = [pair[not is_folded] for *pair, is_folded in zip(reads, writes, over, strict=True)]
        with self._at([loop.var for loop in row]):
            term = lower_expr(scope, value)
            start = lower_expr(scope, reducer.identity_element[0])
        total = scope.new_buffer("total", term.dtype, (Const(1, "int32"),))
        zero = (Const(0, "int32"),)
        old = Load(total, zero, term.dtype)
        with self._at([loop.var for loop in writes]):
            place = lower_expr(scope, target)
        if not isinstance(place, Load):
            scope.refuse("tvm_thread_allreduce", "into no element is not covered")
        body: tuple[Stmt, ...] = (
            Store(total, zero, convert(start, term.dtype)),
            *_nest(terms, (Store(total, zero, Op(name, (old, term), term.dtype)),)),
            *_nest(inner, (Store(place.buffer, place.indices, convert(old, place.dtype)),)),
        )
        return self._do.numbered(_nest(outer, body))


def _nest(loops: Sequence[For], body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    for loop in reversed(loops):
        body = (For(loop.var, loop.start, loop.extent, loop.kind, body),)
    return body

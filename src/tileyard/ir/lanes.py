"""Runs a nest of parallel loops for all its iterations, its lanes, at once, with the results of one
by one. Statements run for all lanes and accesses are noted; if two lanes touch an element that one
of them writes, all is undone: then only ``interpret.py`` knows the result.
"""

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypeGuard

import numpy as np

from tileyard.base.errors import BindError, KernelFault
from tileyard.base.model import Value
from tileyard.ir.dtypes import find_dtype
from tileyard.ir.interpret import Blocked, Run
from tileyard.ir.lane_conflicts import (
    Access,
    Accessor,
    Array,
    Conflict,
    Frame,
    Integers,
    LaneEvaluator,
    Loops,
    find_conflicts,
    update,
)
from tileyard.ir.meanings import cut_tensor_float
from tileyard.ir.nodes import Atomic, Const, Expr, For, If, Let, Load, Program, Stmt, Store, Var
from tileyard.ir.specs import Evaluator, convert_scalar
from tileyard.ir.tiles import Memory
from tileyard.ir.walk import walk, walk_expr

SPREAD = ("parallel", "vectorized", "threads")
"""Kinds of loops whose iterations threads execute side by side."""
Literals = dict[int, tuple[Const, np.generic]]
Tick = Callable[[], None]
Refusal = Literal["statement", "bounds", "layout", "fault", "conflict", "order"]
"""Why a nest has to run lane by lane: an unknown statement, a loop that lanes begin differently,
an array with gaps, a fault, elements of several lanes, or atomic updates whose order matters."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NestPlan:
    """A nest, kept lest its identity is reused: its loops, outermost first, and what lanes do."""

    nest: For
    loops: tuple[For, ...]
    body: tuple[Stmt, ...]
    is_known: bool


def is_spread(stmt: Stmt) -> TypeGuard[For]:
    """Whether ``stmt`` is a loop whose iterations have no order. A vectorized one with a store to
    the same element has one: TileLang does not vectorize it.
    """
    if not isinstance(stmt, For) or stmt.kind not in SPREAD:
        return False
    return stmt.kind != "vectorized" or not _stores_again(stmt)


def _stores_again(loop: For) -> bool:
    inside = list(walk(loop.body))
    varying = {loop.var.name, *(stmt.var.name for stmt in inside if isinstance(stmt, Let))}

    def varies(place: Store) -> bool:
        parts = (part for index in place.indices for part in walk_expr(index))
        return any(isinstance(part, Var) and part.name in varying for part in parts)

    return not all(varies(stmt) for stmt in inside if isinstance(stmt, Store))


def plan_nest(nest: For) -> NestPlan:
    """The plan of a loop that ``is_spread``."""
    loops, body = _collapse(nest)
    is_known = all(_is_known(stmt) for stmt in walk(nest.body))
    return NestPlan(nest=nest, loops=loops, body=body, is_known=is_known)


def _is_known(stmt: Stmt) -> bool:
    match stmt:
        case Let() | Store() | If():
            return True
        case Atomic():
            return stmt.var is None
        case For():
            return stmt.kind in ("serial", "unroll", *SPREAD)
        case _:
            return False


def _collapse(nest: For) -> tuple[tuple[For, ...], tuple[Stmt, ...]]:
    """The loops that make up the lanes, and what a lane does, bindings before an inner loop included."""
    *before, last = nest.body or (None,)
    if last is None or not is_spread(last) or not all(isinstance(stmt, Let) for stmt in before):
        return (nest,), nest.body
    loops, body = _collapse(last)
    bound = {nest.var.name, *(stmt.var.name for stmt in before if isinstance(stmt, Let))}
    for loop in loops:
        for part in (*walk_expr(loop.start), *walk_expr(loop.extent)):
            if isinstance(part, Load) or (isinstance(part, Var) and part.name in bound):
                return (nest,), nest.body
    return (nest, *loops), (*(stmt for stmt in before if stmt is not None), *body)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Report:
    """The result of a nest. With a ``refusal`` nothing has changed, and ``accesses`` are those
    before it; those of a "conflict" are complete unless a lane's decision depends on what another
    wrote. ``conflicts`` also holds benign ones of nests that ran.
    """

    refusal: Refusal | None = None
    accesses: tuple[Access, ...] = ()
    conflicts: tuple[Conflict, ...] = ()


class _Refused(Exception):
    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal)
        self.refusal: Refusal = refusal


class Lanes:
    """Runs nests on ``memory`` with the ``values`` of variables, which it reads and does not
    change. ``tick`` is called in each iteration of a serial loop; what it raises ends the run.
    """

    def __init__(
        self, memory: Memory, values: Mapping[str, np.generic], tick: Tick = lambda: None
    ) -> None:
        self._memory = memory
        self._values = values
        self._tick = tick
        self._plans: dict[int, NestPlan] = {}
        self._literals: Literals = {}

    def run(self, nest: For) -> Report:
        """Run a loop that ``is_spread``, or refuse to and change nothing."""
        plan = self._plans.get(id(nest)) or self._plans.setdefault(id(nest), plan_nest(nest))
        if not plan.is_known:
            return Report(refusal="statement")
        run = _LaneRun(nest, self._memory, self._literals, self._tick)
        try:
            with np.errstate(all="ignore"):
                return run.nest(plan, self._values)
        except _Refused as refused:
            refusal = refused.refusal
        except (KernelFault, BindError):
            refusal = "fault"
        run.undo()
        return Report(refusal=refusal, accesses=tuple(run.accesses), conflicts=run.conflicts)


def interpret_lanes(
    program: Program, arrays: Sequence[Array], scalars: Sequence[Value] = ()
) -> list[Array]:
    """Same results and errors as ``interpret``, in a fraction of its time. Nothing is printed."""
    run = NestRun(program, arrays, scalars, lambda _: None)
    run.grid()
    return run.written()


class NestRun(Run):
    """A run in the synchronous meaning that runs nests at once where possible."""

    def _body(self, body: tuple[Stmt, ...]) -> Generator[Blocked, None, bool]:
        for stmt in body:
            if is_spread(stmt) and self._run_nest(stmt):
                continue
            if (yield from super()._body((stmt,))):
                return True
        return False

    def _run_nest(self, nest: For) -> bool:
        """Run a nest at once; False if it has to run lane by lane."""
        return self._lanes.run(nest).refusal is None

    @cached_property
    def _lanes(self) -> Lanes:
        return Lanes(self._memory, self._values)


class _LaneRun:
    def __init__(self, nest: For, memory: Memory, literals: Literals, tick: Tick) -> None:
        self._tick = tick
        self.accesses: list[Access] = []
        self.conflicts: tuple[Conflict, ...] = ()
        self._memory = memory
        self._at: Accessor = nest
        self._inner: dict[str, int] = {}  # the values of serial loops
        self._flat: dict[str, Array] = {}
        self._undo: list[tuple[Array, Integers, Array]] = []
        self._value = LaneEvaluator(self._load, literals).value

    def nest(self, plan: NestPlan, values: Mapping[str, np.generic]) -> Report:
        number = Evaluator(values, self._memory.load).number
        bounds = [(number(loop.start), number(loop.extent)) for loop in plan.loops]
        shape = tuple(max(extent, 0) for _, extent in bounds)
        if 0 in shape:
            return Report()
        lanes = np.arange(int(np.prod(shape)))
        names: dict[str, Any] = dict(values)
        for loop, (start, extent), index in zip(
            plan.loops, bounds, np.unravel_index(lanes, shape), strict=True
        ):
            convert_scalar(start, loop.var.dtype)
            convert_scalar(start + extent - 1, loop.var.dtype)
            names[loop.var.name] = (index + start).astype(find_dtype(loop.var.dtype).numpy)
        self.body(plan.body, Frame(lanes, names))
        variables = [loop.var.name for loop in plan.loops]

        def loops(lane: int) -> Loops:
            return tuple((name, int(names[name][lane])) for name in variables)

        self._judge(loops)
        return Report(accesses=tuple(self.accesses), conflicts=self.conflicts)

    def _judge(self, loops: Callable[[int], Loops]) -> None:
        arrays = {access.buffer: self._memory.array(access.buffer) for access in self.accesses}
        found = find_conflicts(self.accesses, arrays, loops)
        self.conflicts = found.conflicts
        if not all(conflict.is_benign for conflict in found.conflicts):
            raise _Refused("conflict")
        if found.is_ordered:
            raise _Refused("order")

    def undo(self) -> None:
        for content, elements, old in reversed(self._undo):
            content[elements] = old

    # ---- statements -------------------------------------------------------------------------

    def body(self, body: tuple[Stmt, ...], frame: Frame) -> None:
        for stmt in body:
            match stmt:
                case Let():
                    self._at = stmt
                    frame.names[stmt.var.name] = self._value(stmt.value, frame)
                case Store() | Atomic():
                    self._at = stmt
                    self._store(stmt, frame)
                case If():
                    self._at = stmt
                    self._branch(stmt, frame)
                case For():
                    for inside in self._iterate(stmt, frame):
                        self.body(stmt.body, inside)
                case _:
                    raise _Refused("statement")

    def _branch(self, stmt: If, frame: Frame) -> None:
        cond = self._value(stmt.cond, frame)
        if cond.ndim == 0:
            self.body(stmt.then if cond else stmt.orelse, frame)
            return
        for mask, branch in ((cond, stmt.then), (~cond, stmt.orelse)):
            if branch and mask.any():
                self.body(branch, frame.pick(mask))

    def _iterate(self, stmt: For, frame: Frame) -> Iterator[Frame]:
        """The lanes of each iteration; they begin with the same value, but may end before others."""
        self._at = stmt
        start, extent = (self._value(bound, frame) for bound in (stmt.start, stmt.extent))
        if start.ndim:
            raise _Refused("bounds")
        first = int(start)
        for index in range(first, first + int(extent.max())):
            self._tick()
            self._inner[stmt.var.name] = index
            inside = frame.pick(extent > index - first) if extent.ndim else frame
            inside.names[stmt.var.name] = convert_scalar(index, stmt.var.dtype)
            yield inside
        self._inner.pop(stmt.var.name, None)

    def _store(self, stmt: Store | Atomic, frame: Frame) -> None:
        elements, inside = self._elements(stmt.buffer, stmt.indices, frame)
        if inside is not None:
            if not inside.any():
                return
            frame, elements = frame.pick(inside), elements[inside]
        value = self._value(stmt.value, frame)
        content = self._content(stmt.buffer)
        elements = np.broadcast_to(elements, frame.lanes.shape)
        values = np.broadcast_to(value, frame.lanes.shape)
        before = content[elements]
        self._undo.append((content, elements, before))
        if isinstance(stmt, Atomic):
            self._note(stmt.buffer, elements, frame, is_write=True)
            update(content, elements, values, stmt.kind)
        else:
            self._note(stmt.buffer, elements, frame, is_write=True, values=values, before=before)
            content[elements] = values

    def _note(
        self,
        buffer: str,
        elements: Integers,
        frame: Frame,
        *,
        is_write: bool = False,
        **stored: Array,
    ) -> None:
        access = Access(
            stmt=self._at,
            buffer=buffer,
            elements=elements,
            lanes=frame.lanes,
            is_write=is_write,
            inner=tuple(self._inner.items()),
            **stored,
        )
        self.accesses.append(access)

    # ---- memory -----------------------------------------------------------------------------

    def _content(self, buffer: str) -> Array:
        if buffer not in self._flat:
            array = self._memory.array(buffer)
            if not array.flags.c_contiguous:
                raise _Refused("layout")
            self._flat[buffer] = array.reshape(-1)
        return self._flat[buffer]

    def _elements(
        self, buffer: str, indices: tuple[Expr, ...], frame: Frame
    ) -> tuple[Any, Array | None]:
        """The positions of elements, and which are inside the buffer, None if all; some are arrays."""
        place: Any = np.int64(0)
        inside: Any = np.True_
        for index, size in zip(indices, self._memory.array(buffer).shape, strict=True):
            at = self._value(index, frame).astype(np.int64)
            inside = inside & (at.view(np.uint64) < np.uint64(size))
            place = place * size + at
        if inside.all():
            return place, None
        if buffer in self._memory.tiles:
            raise _Refused("fault")
        shape = frame.lanes.shape
        return np.broadcast_to(place, shape), np.broadcast_to(inside, shape)

    def _load(self, load: Load, frame: Frame) -> Any:  # noqa: ANN401 (a NumPy scalar or an array)
        elements, inside = self._elements(load.buffer, load.indices, frame)
        content = self._content(load.buffer)
        if inside is None:
            self._note(load.buffer, np.broadcast_to(elements, frame.lanes.shape), frame)
            found = content[elements]
        else:
            found = np.zeros(frame.lanes.shape, content.dtype)
            if inside.any():
                self._note(load.buffer, elements[inside], frame.pick(inside))
                found[inside] = content[elements[inside]]
        if load.buffer in self._memory.tensor_floats:
            cut = cut_tensor_float(np.atleast_1d(found))
            return cut if found.ndim else cut[0]
        return found

"""Finds what changes between two Programs of different sizes, or between two iterations of a loop.
In expressions that decide (``control.py``), the value of a variable, dimension or literal changes
by a known number, and what is computed from it; or nothing is concluded.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from tileyard.ir.dtypes import find_dtype
from tileyard.ir.nodes import (
    Atomic,
    Cast,
    Const,
    Expr,
    For,
    Let,
    Load,
    Op,
    Program,
    Region,
    Roles,
    Scalar,
    Stmt,
    Var,
)
from tileyard.ir.ranges import Interval, Ranges
from tileyard.ir.walk import bodies, expressions, walk_expr
from tileyard.sync.control import Control, find_control

_WIDE = ("int32", "int64", "uint32", "uint64")
_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")


class Differ(Exception):
    """Two Programs are not known to decide in the same way."""


@dataclass(frozen=True, kw_only=True)
class Form:
    """A Program with the ``numbers`` of its dimensions and scalar parameters."""

    program: Program
    numbers: Mapping[str, int]
    control: Control


def form_of(program: Program, numbers: Mapping[str, int]) -> Form | None:
    """The Form of a Program; None if what decides is not known before it runs."""
    control = find_control(program)
    if control is None:
        return None
    return Form(program=program, numbers=numbers, control=control)


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """``change`` is the left side's less the right side's, None if unknown; ``scope`` binds variables."""

    expr: Op
    change: int | None
    scope: tuple[For | Let, ...]


class Changes:
    """The changes from ``before`` to ``after`` if the variables of ``loops`` change by ``shift``.

    ``comparisons`` are those of ``after`` in these loops; ``extents`` has each waiting loop's
    further iterations. Raises Differ if the structures differ, or if something that decides, no
    comparison, changes in the loops, or ``everywhere``, where comparisons outside the loops may not
    change either. ``loose`` ignores such changes.
    """

    def __init__(
        self,
        before: Form,
        after: Form,
        loops: frozenset[str],
        shift: int = 0,
        mode: Literal["loops", "everywhere", "loose"] = "loops",
    ) -> None:
        self.extents: dict[str, int] = {}
        self.comparisons: list[Comparison] = []
        self._before, self._after = before, after
        numbers = {name: n - before.numbers[name] for name, n in after.numbers.items()}
        self._steps = {**numbers, **dict.fromkeys(loops, shift)}
        self._loops, self._everywhere, self._is_loose = loops, mode == "everywhere", mode == "loose"
        self._lets: dict[str, tuple[Expr, Expr]] = {}
        self._unknown: set[str] = set()
        self._scope: list[For | Let] = []
        self._is_inside = False
        if _frame(before) != _frame(after):
            raise Differ
        grids = (form.program.grid for form in (before, after))
        for one, other in zip(*grids, strict=True):
            self._keep(one.extent, other.extent)
        self._body(before.program.body, after.program.body)

    # ---- statements -------------------------------------------------------------------------

    def _body(self, before: tuple[Stmt, ...], after: tuple[Stmt, ...]) -> None:
        depth = len(self._scope)
        if len(before) != len(after):
            raise Differ
        for one, other in zip(before, after, strict=True):
            if _describe(one) != _describe(other):
                raise Differ
            is_inside = self._is_inside
            if isinstance(one, For) and isinstance(other, For):
                self._loop(one, other)
            elif is_inside or self._everywhere:
                self._decide(one, other)
            if isinstance(one, Let) and isinstance(other, Let):
                self._lets[one.var.name] = one.value, other.value
                self._scope.append(other)
            if isinstance(one, Atomic) and one.var is not None:
                self._unknown.add(one.var.name)
            for inner in zip(bodies(one), bodies(other), strict=True):
                self._body(*inner)
            if isinstance(other, For):
                self._scope.pop()
            self._is_inside = is_inside
        del self._scope[depth:]

    def _loop(self, one: For, other: For) -> None:
        if one.var.name in self._before.control.loops:
            more = self._change(one.extent, other.extent)
            if more is None:
                raise Differ
            self.extents[one.var.name] = more
            self._keep(one.start, other.start)
        elif self._is_inside or self._everywhere:
            self._decide(one, other)
        self._is_inside |= one.var.name in self._loops
        self._scope.append(other)

    def _decide(self, one: Stmt, other: Stmt) -> None:
        found = (self._before.control.deciding(one), self._after.control.deciding(other))
        pairs = [list(some) for some in found]
        if len(pairs[0]) != len(pairs[1]):
            raise Differ
        for pair in zip(*pairs, strict=True):
            self._keep(*pair)

    def _keep(self, one: Expr, other: Expr) -> None:
        known = len(self.comparisons)
        changed = self._change(one, other) != 0
        if not self._is_inside:
            changed |= any(found.change != 0 for found in self.comparisons[known:])
            del self.comparisons[known:]
        if changed and not self._is_loose:
            raise Differ

    # ---- expressions ------------------------------------------------------------------------

    def _change(self, one: Expr, other: Expr) -> int | None:
        """``other`` minus ``one``; 0 for equal values that are not integers. None if not known."""
        match one, other:
            case Const(), Const():
                are_whole = isinstance(one.value, int) and isinstance(other.value, int)
                if one == other or not are_whole:
                    return 0 if one == other else None
                return int(other.value - one.value)
            case Var(), Var() if one.name == other.name:
                return self._variable(one.name)
            case Load(), Load() if one.buffer == other.buffer:
                places = [*map(self._change, one.indices, other.indices)]
                control = self._before.control
                is_counter = control.owner(one.buffer) in control.counters
                return 0 if is_counter and not any(place != 0 for place in places) else None
            case Cast(), Cast() if one.dtype == other.dtype:
                change = self._change(one.value, other.value)
                is_exact = one.dtype in _WIDE and not find_dtype(one.value.dtype).is_float
                return change if is_exact or change == 0 else None
            case Op(), Op() if one.name == other.name and len(one.args) == len(other.args):
                return self._op(one, other)
            case _:
                return None

    def _variable(self, name: str) -> int | None:
        if name in self._lets:
            return self._change(*self._lets[name])
        return None if name in self._unknown else self._steps.get(name, 0)

    def _op(self, one: Op, other: Op) -> int | None:
        changes = [*map(self._change, one.args, other.args)]
        if one.name in _COMPARISONS:
            left, right = changes
            change = None if left is None or right is None else left - right
            self.comparisons.append(Comparison(expr=other, change=change, scope=tuple(self._scope)))
            return 0
        if None in changes:
            return None
        known = [change for change in changes if change is not None]
        if not any(known):
            return 0
        return _combine(other, known)


def _frame(form: Form) -> object:
    program, control = form.program, form.control
    tiles = [one for one in program.buffers if one.scope != "global"]
    return tiles, program.threads, control.tracked, control.counters, control.loops


def _combine(op: Op, changes: list[int]) -> int | None:
    """The change of ``op`` with its arguments; None if it depends on the arguments' values."""
    literals = [
        int(arg.value) if isinstance(arg, Const) and not change else None
        for arg, change in zip(op.args, changes, strict=True)
    ]
    change, number = changes[0], literals[-1]
    match op.name:
        case "add":
            return sum(changes)
        case "sub":
            return change - changes[1]
        case "neg":
            return -change
        case "mul" if number is not None or literals[0] is not None:
            return change * number if number is not None else changes[1] * (literals[0] or 0)
        case "min" | "max" | "select":
            *_, one, other = changes
            return one if one == other else None
        case "floordiv" | "floormod" if number and number > 0 and change % number == 0:
            return change // number if op.name == "floordiv" else 0
        case "shr" if number is not None and number >= 0 and change % (1 << number) == 0:
            return change >> number
        case "bitand" if (
            number is not None and number >= 0 and change % (1 << number.bit_length()) == 0
        ):
            return 0
        case _:
            return None


def _describe(stmt: Stmt) -> tuple[object, ...]:
    """A statement without its expressions and nested bodies, for comparison."""
    own: list[object] = [type(stmt), stmt.threads if isinstance(stmt, Roles) else ()]
    for name in stmt.__struct_fields__:
        value = getattr(stmt, name)
        match value:
            case Region() | Load():
                own.append(value.buffer)
            case Var():
                own.append(value)
            case str() | int() | bool():
                own.append(value)
            case _:
                pass
    own += [
        part.buffer
        for expr in expressions(stmt)
        for part in walk_expr(expr)
        if isinstance(part, Load)
    ]
    return tuple(own)


# ---- where comparisons have their final value ------------------------------------------------------


def find_side(form: Form, comparison: Comparison, at: Mapping[str, int]) -> int:
    """-1 if the left side is certainly less than the right one in these iterations, 1 if greater, else 0."""
    ranges = Ranges(form.program)
    scalars = [param.var for param in form.program.params if isinstance(param, Scalar)]
    for var in (*form.program.dims, *scalars):
        if var.name in form.numbers:
            number = form.numbers[var.name]
            ranges.bind(var, Interval(number, number))
    for axis in form.program.grid:
        ranges.bind(axis.var, Interval(0, max(ranges.of(axis.extent).high - 1, 0)))
    for stmt in comparison.scope:
        if isinstance(stmt, Let):
            if not find_dtype(stmt.var.dtype).is_float:
                ranges.bind(stmt.var, ranges.of(stmt.value))
        elif stmt.var.name in at:
            ranges.bind(stmt.var, Interval(at[stmt.var.name], at[stmt.var.name]))
        else:
            ranges.bind_loop(stmt)
    left, right = (ranges.of(arg) for arg in comparison.expr.args)
    return int(left.low > right.high) - int(left.high < right.low)

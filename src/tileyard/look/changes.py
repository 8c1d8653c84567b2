"""Small changes of one statement: other operators, indices, constants, variables, options of tile
operations. The plausible ones come first. Whether a changed Program is valid and right is for others to
find out.
"""

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from tileyard.ir.dtypes import is_float
from tileyard.ir.nodes import (
    AnyTileOperation,
    Atomic,
    Cast,
    Const,
    Copy,
    Expr,
    Fill,
    For,
    Gemm,
    If,
    Let,
    Load,
    Op,
    Program,
    Reduce,
    Region,
    Scalar,
    SparseGemm,
    Stmt,
    Store,
    TileOperation,
    Var,
    While,
)
from tileyard.ir.rewrite import with_expressions
from tileyard.ir.walk import bodies, expressions, replace_parts, walk, walk_expr
from tileyard.reduce.edits import all_buffers, replace_statements

FAMILIES: tuple[tuple[str, ...], ...] = (
    ("add", "sub", "mul", "div", "min", "max"),
    ("floordiv", "floormod", "add", "sub", "mul"),
    ("lt", "le", "gt", "ge", "eq", "ne"),
    ("and", "or"),
    ("exp", "exp2", "exp10"),
    ("log", "log2", "log10"),
    ("sqrt", "rsqrt"),
    ("sin", "cos"),
    ("floor", "ceil", "round", "trunc"),
    ("neg", "abs"),
)
"""Operations that are taken for each other."""
_ORDERED = ("sub", "div", "floordiv", "floormod", "lt", "le", "gt", "ge", "pow")
_KINDS = ("sum", "max", "min", "abssum", "absmax")
MOST_NUMBERS = 8
"""Whole numbers of a Program that are tried in other places."""
LARGEST = 4096
"""The largest of these: a loop may have as many iterations then."""


@dataclass(frozen=True, kw_only=True)
class Change:
    """``stmts`` in the place of statement ``number``. With a ``hole`` a number is looked for, ``start`` is
    the present one: ``stmts`` then have that. ``rank``: smaller is more plausible.
    """

    number: int
    stmts: tuple[Stmt, ...]
    rank: int
    hole: Callable[[float], tuple[Stmt, ...]] | None = None
    start: float = 0.0
    others: Mapping[int, tuple[Stmt, ...]] = field(default_factory=dict)

    def apply(self, program: Program, value: float | None = None) -> Program:
        """``program`` with this change."""
        stmts = self.stmts if value is None or self.hole is None else self.hole(value)
        return replace_statements(program, {self.number: stmts, **self.others})


def with_outer(program: Program, numbers: Sequence[int]) -> list[int]:
    """The statements with the loops and conditions around them, each after what it contains."""
    paths = {number: scope.path[::2][::-1] for number, scope in _scopes(program)}
    return list(dict.fromkeys(one for number in numbers for one in (number, *paths[number])))


class Changes:
    """The changes of a Program's statements."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._stmts = list(walk(program.body))
        self._buffers = all_buffers(program)
        self._scopes = dict(_scopes(program))
        found = Counter(
            part.value
            for stmt in self._stmts
            for expr in expressions(stmt)
            for part in walk_expr(expr)
            if isinstance(part, Const)
            and type(part.value) is int
            and 1 < abs(part.value) <= LARGEST
        )
        self._numbers = [int(value) for value, _ in found.most_common(MOST_NUMBERS)]

    def of(self, numbers: Sequence[int]) -> list[Change]:
        """The changes of these statements, the more plausible ones first, each statement in its turn."""
        each = [sorted(self._of_one(number), key=lambda one: one.rank) for number in numbers]
        ranks = sorted({change.rank for changes in each for change in changes})
        found: list[Change] = []
        for rank in ranks:
            same = [[one for one in changes if one.rank == rank] for changes in each]
            turns = itertools.zip_longest(*same)
            found += [one for turn in turns for one in turn if one is not None]
        return found

    def _of_one(self, number: int) -> Iterator[Change]:
        stmt = self._stmts[number]
        self._scope = self._scopes[number]
        seen = {stmt}
        for rank, other in self._variants(stmt):
            if other not in seen:
                seen.add(other)
                yield Change(number=number, stmts=(other,), rank=rank)
        for expr in dict.fromkeys(_values(stmt)):
            for part in dict.fromkeys(walk_expr(expr)):
                if (
                    isinstance(part, Const)
                    and is_float(part.dtype)
                    and abs(float(part.value)) < 1e30
                ):
                    yield self._hole(number, stmt, part)
        if isinstance(stmt, If):
            yield Change(number=number, stmts=stmt.then, rank=2)
        elif isinstance(stmt, TileOperation | Store):
            yield Change(number=number, stmts=(), rank=2)
        yield from self._swap(number, stmt)

    def _hole(self, number: int, stmt: Stmt, const: Const) -> Change:
        def fill(value: float) -> tuple[Stmt, ...]:
            new = Const(value, const.dtype)
            return (
                with_expressions(
                    stmt,
                    lambda e: replace_parts(e, lambda p: new if p is const or p == const else None),
                ),
            )

        rank = 1 if const.value in (0, 1, -1) else 0
        start = float(const.value)
        return Change(number=number, stmts=(stmt,), rank=rank, hole=fill, start=start)

    def _swap(self, number: int, stmt: Stmt) -> Iterator[Change]:
        """The statement and the next one of its body in the other order."""
        following = number + 1 + sum(1 for _ in walk(tuple(itertools.chain(*bodies(stmt)))))
        if following >= len(self._stmts) or isinstance(stmt, Let):
            return
        other = self._stmts[following]
        if self._scopes[following].path == self._scopes[number].path and not isinstance(other, Let):
            yield Change(number=number, stmts=(other,), rank=2, others={following: (stmt,)})

    # ---- statements -------------------------------------------------------------------------

    def _variants(self, stmt: Stmt) -> Iterator[tuple[int, Stmt]]:
        replace = msgspec.structs.replace
        match stmt:
            case Store() | Atomic():
                for rank, value in self._exprs(stmt.value):
                    yield rank, replace(stmt, value=value)
                for rank, indices in self._tuples(stmt.indices):
                    yield rank, replace(stmt, indices=indices)
                for name in self._alike(stmt.buffer):
                    yield 2, replace(stmt, buffer=name)
                if isinstance(stmt, Store):
                    old = Load(stmt.buffer, stmt.indices, stmt.value.dtype)
                    for op in ("add", "mul", "max"):
                        yield 3, replace(stmt, value=Op(op, (old, stmt.value), stmt.value.dtype))
                else:
                    for kind in ("add", "max", "min"):
                        yield 1, replace(stmt, kind=kind)
            case Let():
                for rank, value in self._exprs(stmt.value):
                    yield rank, replace(stmt, value=value)
            case For():
                for rank, extent in self._exprs(stmt.extent):
                    yield rank, replace(stmt, extent=extent)
                for rank, start in self._exprs(stmt.start):
                    yield rank + 1, replace(stmt, start=start)
                one = Const(1, stmt.extent.dtype)
                yield 1, replace(stmt, extent=Op("add", (stmt.extent, one), stmt.extent.dtype))
                yield 1, replace(stmt, extent=Op("sub", (stmt.extent, one), stmt.extent.dtype))
            case If() | While():
                for rank, cond in self._exprs(stmt.cond):
                    yield rank, replace(stmt, cond=cond)
                yield 1, replace(stmt, cond=Op("not", (stmt.cond,), "bool"))
            case Copy() | Fill() | Gemm() | SparseGemm() | Reduce():
                yield from self._operations(stmt)
            case _:
                pass

    def _operations(self, stmt: AnyTileOperation) -> Iterator[tuple[int, Stmt]]:
        replace = msgspec.structs.replace
        for name in ("transpose_a", "transpose_b", "clear"):
            if name in stmt.__struct_fields__:
                yield 1, replace(stmt, **{name: not getattr(stmt, name)})
        if isinstance(stmt, Fill):
            for name in self._buffers:
                yield 2, replace(stmt, dst=self._whole(name))
            for rank, value in self._exprs(stmt.value):
                yield rank, replace(stmt, value=value)
        if isinstance(stmt, Reduce):
            for kind in _KINDS:
                yield 1, replace(stmt, kind=kind)
            for axis in range(len(stmt.src.starts)):
                yield 1, replace(stmt, axis=axis)
        fields = [
            name for name in stmt.__struct_fields__ if isinstance(getattr(stmt, name), Region)
        ]
        for name in fields:
            for rank, region in self._regions(getattr(stmt, name)):
                yield rank, replace(stmt, **{name: region})
        if len(fields) > 2:
            first, second = fields[0], fields[-2]
            yield 1, replace(stmt, **{first: getattr(stmt, second), second: getattr(stmt, first)})
        elif isinstance(stmt, Copy):
            yield 2, replace(stmt, src=stmt.dst, dst=stmt.src)

    def _whole(self, name: str) -> Region:
        shape = self._buffers[name].shape
        return Region(name, tuple(Const(0, size.dtype) for size in shape), shape)

    def _regions(self, region: Region) -> Iterator[tuple[int, Region]]:
        replace = msgspec.structs.replace
        shape = self._buffers[region.buffer].shape
        for name in self._alike(region.buffer):
            yield 2, replace(region, buffer=name)
        for axis, (start, extent) in enumerate(zip(region.starts, region.extents, strict=True)):
            if extent == shape[axis]:  # there is no other place
                continue
            for rank, other in (*self._exprs(start), *self._strides(start, extent)):
                starts = (*region.starts[:axis], other, *region.starts[axis + 1 :])
                yield rank, replace(region, starts=starts)
        for left, right in itertools.combinations(range(len(region.starts)), 2):
            yield 2, replace(region, starts=_swapped(region.starts, left, right))

    def _strides(self, start: Expr, extent: Expr) -> Iterator[tuple[int, Expr]]:
        """The places of tiles, as multiples of the extent by each variable."""
        yield 1, Const(0, start.dtype)
        for name in self._scope.names:
            if self._scope.dtypes[name] == start.dtype:
                var = Var(name, start.dtype)
                yield (
                    1,
                    Op("mul", (var, extent), start.dtype)
                    if extent != Const(1, start.dtype)
                    else var,
                )

    # ---- expressions ------------------------------------------------------------------------

    def _tuples(self, exprs: tuple[Expr, ...]) -> Iterator[tuple[int, tuple[Expr, ...]]]:
        for place, expr in enumerate(exprs):
            for rank, other in self._exprs(expr):
                yield rank, (*exprs[:place], other, *exprs[place + 1 :])
        for left, right in itertools.combinations(range(len(exprs)), 2):
            yield 1, _swapped(exprs, left, right)

    def _exprs(self, expr: Expr) -> Iterator[tuple[int, Expr]]:
        """The expression with one of its parts changed."""
        match expr:
            case Const():
                yield from self._constants(expr)
            case Var():
                yield from self._variables(expr)
            case Load():
                for name in self._alike(expr.buffer):
                    yield 1, Load(name, expr.indices, expr.dtype)
                for rank, indices in self._tuples(expr.indices):
                    yield rank, Load(expr.buffer, indices, expr.dtype)
            case Op():
                yield from self._operators(expr)
                for place, arg in enumerate(expr.args):
                    for rank, other in self._exprs(arg):
                        args = (*expr.args[:place], other, *expr.args[place + 1 :])
                        yield rank, Op(expr.name, args, expr.dtype)
            case Cast():
                for rank, other in self._exprs(expr.value):
                    yield rank, Cast(other, expr.dtype)

    def _operators(self, expr: Op) -> Iterator[tuple[int, Expr]]:
        for family in FAMILIES:
            if expr.name in family:
                for name in family:
                    yield 1, Op(name, expr.args, expr.dtype)
        if expr.name in _ORDERED:
            yield 1, Op(expr.name, (expr.args[1], expr.args[0]), expr.dtype)
        if expr.name == "select":
            yield 1, Op("select", (expr.args[0], expr.args[2], expr.args[1]), expr.dtype)
        for arg in expr.args:
            if arg.dtype == expr.dtype:
                yield 2, arg

    def _constants(self, expr: Const) -> Iterator[tuple[int, Expr]]:
        value = expr.value
        if isinstance(value, bool):
            yield 1, Const(not value, expr.dtype)
        elif is_float(expr.dtype):
            for other in (0.0, 1.0, -value, float("inf"), float("-inf")):
                yield 1, Const(other, expr.dtype)
        else:
            near = (value + 1, value - 1, 2 * value, value // 2, -value, 0, 1)
            for other in near:
                yield 1, Const(int(other), expr.dtype)
            for other in self._numbers:
                yield 2, Const(other, expr.dtype)

    def _variables(self, expr: Var) -> Iterator[tuple[int, Expr]]:
        for name in self._scope.names:
            if self._scope.dtypes[name] == expr.dtype:
                yield 1, Var(name, expr.dtype)
        if not is_float(expr.dtype) and expr.dtype != "bool":
            one = Const(1, expr.dtype)
            yield 2, Op("add", (expr, one), expr.dtype)
            yield 2, Op("sub", (expr, one), expr.dtype)
            yield 3, Const(0, expr.dtype)

    def _alike(self, buffer: str) -> list[str]:
        """Other buffers of the same dtype and shape."""
        own = self._buffers[buffer]
        return [
            one.name
            for one in self._buffers.values()
            if one.name != buffer
            and one.dtype == own.dtype
            and one.shape == own.shape
            and one.scope != "barrier"
        ]


@dataclass(frozen=True, kw_only=True)
class _Scope:
    """The variables that a statement sees, the innermost first, and the place of its body."""

    names: tuple[str, ...]
    dtypes: Mapping[str, str]
    path: tuple[int, ...]


def _scopes(program: Program) -> Iterator[tuple[int, _Scope]]:
    given = [axis.var for axis in program.grid] + list(program.dims)
    given += [param.var for param in program.params if isinstance(param, Scalar)]
    numbers = itertools.count()

    def inside(
        body: tuple[Stmt, ...], seen: list[Var], path: tuple[int, ...]
    ) -> Iterator[tuple[int, _Scope]]:
        known = list(seen)
        for stmt in body:
            number = next(numbers)
            names = tuple(var.name for var in reversed(known))
            yield number, _Scope(names=names, dtypes={v.name: v.dtype for v in known}, path=path)
            more = [stmt.var] if isinstance(stmt, For) else []
            for at, inner in enumerate(bodies(stmt)):
                yield from inside(inner, known + more, (*path, number, at))
            if isinstance(stmt, Let | Atomic) and stmt.var is not None:
                known.append(stmt.var)

    return inside(program.body, given, ())


def _swapped(exprs: tuple[Expr, ...], left: int, right: int) -> tuple[Expr, ...]:
    changed = list(exprs)
    changed[left], changed[right] = exprs[right], exprs[left]
    return tuple(changed)


def _values(stmt: Stmt) -> tuple[Expr, ...]:
    match stmt:
        case Store() | Atomic() | Let() | Fill():
            return (stmt.value,)
        case If():
            return (stmt.cond,)
        case _:
            return ()

"""Small changes of one statement: other operators, indices, constants, variables, options of tile
operations, a factor or summand more. The plausible ones come first. Whether a changed Program is valid and
right is for others to find out.
"""

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

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
from tileyard.ir.rewrite import Names, with_expressions
from tileyard.ir.walk import (
    bodies,
    buffer_effects,
    children,
    expressions,
    replace_parts,
    walk,
    walk_expr,
    written_region,
)
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
ARITHMETIC = ("add", "sub", "mul", "div")
"""Operators that are also tried with the operands grouped in another way."""
FUNCTIONS = ("exp", "log", "sqrt", "sin", "tanh", "abs", "neg")
"""Functions of one float that are taken for each other, one of each family."""
NEUTRAL = {"mul": 1.0, "add": 0.0}
"""Operations with the number beside which nothing changes."""
_ORDERED = ("sub", "div", "floordiv", "floormod", "lt", "le", "gt", "ge", "pow")
_KINDS = ("sum", "max", "min", "abssum", "absmax")
MOST_NUMBERS = 8
"""Whole numbers of a Program that are tried in other places."""
LARGEST = 4096
"""The largest of these: a loop may have as many iterations then."""


@dataclass(frozen=True, kw_only=True)
class Change:
    """``stmts`` in the place of statement ``number``. With a ``hole`` a number is looked for, ``start`` is
    the present one: ``stmts`` then have that. ``rank``: smaller is more plausible. It ``adds`` a loop before
    or after the statement, or nothing. It ``is_extra`` if it is a factor or summand more.
    """

    number: int
    stmts: tuple[Stmt, ...]
    rank: int
    hole: Callable[[float], tuple[Stmt, ...]] | None = None
    start: float = 0.0
    adds: Literal["", "before", "after"] = ""
    is_extra: bool = False
    others: Mapping[int, tuple[Stmt, ...]] = field(default_factory=dict)

    @property
    def place(self) -> tuple[int, bool]:
        """The place in the order: of those with one rank, a search for a number takes longest."""
        return self.rank, self.hole is not None

    def apply(self, program: Program, value: float | None = None) -> Program:
        """``program`` with this change."""
        stmts = self.stmts if value is None or self.hole is None else self.hole(value)
        return replace_statements(program, {self.number: stmts, **self.others})


def with_outer(program: Program, numbers: Sequence[int]) -> list[int]:
    """The statements with the loops and conditions around them, each after what it contains."""
    paths = {number: scope.path[::2][::-1] for number, scope in _scopes(program)}
    return list(dict.fromkeys(one for number in numbers for one in (number, *paths[number])))


class Changes:
    """The changes of a Program's statements. If a result ``is_scaled``, a factor or summand is plausible."""

    def __init__(self, program: Program, *, is_scaled: bool = False) -> None:
        self._program = program
        self._extra = 1 if is_scaled else 2
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
        each = [list(self._of_one(number)) for number in numbers]
        found: list[Change] = []
        for place in sorted({change.place for changes in each for change in changes}):
            same = [[one for one in changes if one.place == place] for changes in each]
            turns = itertools.zip_longest(*same)
            found += [one for turn in turns for one in turn if one is not None]
        return found

    def _of_one(self, number: int) -> Iterator[Change]:
        stmt = self._stmts[number]
        self._scope = self._scopes[number]
        seen = {stmt}
        for rank, other in itertools.chain(self._other_buffers(stmt), self._variants(stmt)):
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
                    yield _hole(number, stmt, part)
        yield from self._scaled(number, stmt)
        if isinstance(stmt, If):
            yield Change(number=number, stmts=stmt.then, rank=2)
        elif isinstance(stmt, TileOperation | Store):
            yield Change(number=number, stmts=(), rank=2)
        yield from self._swap(number, stmt)

    # ---- factors and summands ---------------------------------------------------------------

    def _scaled(self, number: int, stmt: Stmt) -> Iterator[Change]:
        """A factor or summand more: at each operand of a value, or for a tile that an operation writes or
        copies out. It is a number, or of a tile with an element for each row, column or element.
        """
        if isinstance(stmt, Store | Let):
            for part in dict.fromkeys(_operands(stmt.value)):
                for op in NEUTRAL:
                    hole = _hole(number, stmt, part, op)
                    yield replace(hole, rank=self._extra, is_extra=True)
                if isinstance(stmt, Store):
                    for op, other in self._beside(stmt.buffer, stmt.indices):
                        if other.dtype == part.dtype:
                            new = {part: Op(op, (part, other), part.dtype)}
                            yield Change(number=number, stmts=_with(stmt, new), rank=3)
        elif isinstance(stmt, Reduce | Gemm):
            into = written_region(stmt)
            if into is not None:
                if isinstance(stmt, Gemm) and not stmt.clear and self._scope.path:
                    yield from self._rescaled(number, stmt, into)
                yield from self._with_loop(number, stmt, into, "after")
        elif isinstance(stmt, Copy) and self._buffers[stmt.src.buffer].scope != "global":
            yield from self._with_loop(number, stmt, stmt.src, "before")

    def _with_loop(
        self, number: int, stmt: Stmt, region: Region, adds: Literal["before", "after"]
    ) -> Iterator[Change]:
        dtype = self._buffers[region.buffer].dtype
        if not is_float(dtype):
            return
        names, indices = Names(self._program), list[Expr]()
        loops: list[tuple[Var, Expr]] = []
        for start, extent in zip(region.starts, region.extents, strict=True):
            if extent == Const(1, extent.dtype):
                indices.append(start)
                continue
            var = Var(names.fresh("ijkl"[min(len(loops), 3)]), start.dtype)
            loops.append((var, extent))
            indices.append(
                var if start == Const(0, start.dtype) else Op("add", (start, var), var.dtype)
            )
        load = Load(region.buffer, tuple(indices), dtype)

        def make(op: str, other: Expr) -> tuple[Stmt, ...]:
            value = Op(op, (load, other), dtype)
            made: Stmt = Store(region.buffer, load.indices, value)
            for var, extent in reversed(loops):
                made = For(var, Const(0, var.dtype), extent, "parallel", (made,))
            return (made, stmt) if adds == "before" else (stmt, made)

        for op, neutral in NEUTRAL.items():
            hole = partial(lambda op, value: make(op, Const(value, dtype)), op)
            yield Change(
                number=number,
                stmts=(stmt,),
                rank=self._extra,
                hole=hole,
                start=neutral,
                adds=adds,
                is_extra=True,
            )
        for op, other in self._beside(region.buffer, load.indices):
            yield Change(number=number, stmts=make(op, other), rank=3, adds=adds)

    def _rescaled(self, number: int, stmt: Gemm, into: Region) -> Iterator[Change]:
        """What a product adds to scaled before it, most likely by a tile that each step makes."""
        made = buffer_effects((self._stmts[self._scope.path[-2]],)).written
        for change in self._with_loop(number, stmt, into, "before"):
            for value in itertools.chain(*map(_values, walk(change.stmts))):
                if isinstance(value, Op) and value.name in ("mul", "div"):
                    other = value.args[1]
                    is_made = isinstance(other, Load) and other.buffer in made
                    yield replace(change, rank=0 if is_made and value.name == "mul" else 1)

    def _beside(self, buffer: str, indices: tuple[Expr, ...]) -> Iterator[tuple[str, Load]]:
        """Operations with the elements of tiles that belong to an element: of its row, its column, or all."""
        own = self._buffers[buffer]
        for one in self._buffers.values():
            if one.name == buffer or one.dtype != own.dtype or one.scope in ("global", "barrier"):
                continue
            fits = [indices] if one.shape == own.shape else []
            if len(one.shape) == 1 < len(own.shape):
                fits = [
                    (at,)
                    for at, size in zip(indices, own.shape, strict=True)
                    if size == one.shape[0]
                ]
            for places in fits:
                for name in ("mul", "div", "add", "sub"):
                    yield name, Load(one.name, places, one.dtype)

    def _swap(self, number: int, stmt: Stmt) -> Iterator[Change]:
        """The statement and the next one of its body in the other order."""
        following = number + 1 + sum(1 for _ in walk(tuple(itertools.chain(*bodies(stmt)))))
        if following >= len(self._stmts) or isinstance(stmt, Let):
            return
        other = self._stmts[following]
        if self._scopes[following].path == self._scopes[number].path and not isinstance(other, Let):
            yield Change(number=number, stmts=(other,), rank=2, others={following: (stmt,)})

    # ---- statements -------------------------------------------------------------------------

    def _other_buffers(self, stmt: Stmt) -> Iterator[tuple[int, Stmt]]:
        """Another buffer of one shape and type in the place of one that is read or written."""
        for part in dict.fromkeys(part for expr in expressions(stmt) for part in walk_expr(expr)):
            if isinstance(part, Load):
                for name in self._alike(part.buffer):
                    (other,) = _with(stmt, {part: Load(name, part.indices, part.dtype)})
                    yield 1, other
        for field_name in stmt.__struct_fields__:
            region = getattr(stmt, field_name)
            if isinstance(region, Region):
                for name in self._alike(region.buffer):
                    into = msgspec.structs.replace(region, buffer=name)
                    is_larger = region is written_region(stmt) or isinstance(stmt, Reduce)
                    rank = 2 if is_larger else 1
                    yield rank, msgspec.structs.replace(stmt, **{field_name: into})
        if isinstance(stmt, Store | Atomic):
            for name in self._alike(stmt.buffer):
                yield 1, msgspec.structs.replace(stmt, buffer=name)

    def _variants(self, stmt: Stmt) -> Iterator[tuple[int, Stmt]]:
        match stmt:
            case Store() | Atomic():
                for rank, value in self._exprs(stmt.value):
                    yield rank, msgspec.structs.replace(stmt, value=value)
                for rank, indices in self._tuples(stmt.indices):
                    yield rank, msgspec.structs.replace(stmt, indices=indices)
                if isinstance(stmt, Store):
                    old = Load(stmt.buffer, stmt.indices, stmt.value.dtype)
                    for op in ("add", "mul", "max"):
                        yield (
                            3,
                            msgspec.structs.replace(
                                stmt, value=Op(op, (old, stmt.value), stmt.value.dtype)
                            ),
                        )
                else:
                    for kind in ("add", "max", "min"):
                        yield 1, msgspec.structs.replace(stmt, kind=kind)
            case Let():
                for rank, value in self._exprs(stmt.value):
                    yield rank, msgspec.structs.replace(stmt, value=value)
            case For():
                for rank, extent in self._exprs(stmt.extent):
                    yield rank, msgspec.structs.replace(stmt, extent=extent)
                for rank, start in self._exprs(stmt.start):
                    yield rank + 1, msgspec.structs.replace(stmt, start=start)
                one = Const(1, stmt.extent.dtype)
                yield (
                    1,
                    msgspec.structs.replace(
                        stmt, extent=Op("add", (stmt.extent, one), stmt.extent.dtype)
                    ),
                )
                yield (
                    1,
                    msgspec.structs.replace(
                        stmt, extent=Op("sub", (stmt.extent, one), stmt.extent.dtype)
                    ),
                )
            case If() | While():
                for rank, cond in self._exprs(stmt.cond):
                    yield rank, msgspec.structs.replace(stmt, cond=cond)
                yield 1, msgspec.structs.replace(stmt, cond=Op("not", (stmt.cond,), "bool"))
            case Copy() | Fill() | Gemm() | SparseGemm() | Reduce():
                yield from self._operations(stmt)
            case _:
                pass

    def _operations(self, stmt: AnyTileOperation) -> Iterator[tuple[int, Stmt]]:
        for name in ("transpose_a", "transpose_b", "clear"):
            if name in stmt.__struct_fields__:
                yield 1, msgspec.structs.replace(stmt, **{name: not getattr(stmt, name)})
        if isinstance(stmt, Fill):
            for name in self._buffers:
                yield 2, msgspec.structs.replace(stmt, dst=self._whole(name))
            for rank, value in self._exprs(stmt.value):
                yield rank, msgspec.structs.replace(stmt, value=value)
        if isinstance(stmt, Reduce):
            for kind in _KINDS:
                yield 1, msgspec.structs.replace(stmt, kind=kind)
            for axis in range(len(stmt.src.starts)):
                yield 1, msgspec.structs.replace(stmt, axis=axis)
        fields = [
            name for name in stmt.__struct_fields__ if isinstance(getattr(stmt, name), Region)
        ]
        for name in fields:
            for rank, region in self._regions(getattr(stmt, name)):
                yield rank, msgspec.structs.replace(stmt, **{name: region})
        if len(fields) > 2:
            first, second = fields[0], fields[-2]
            yield (
                1,
                msgspec.structs.replace(
                    stmt, **{first: getattr(stmt, second), second: getattr(stmt, first)}
                ),
            )
        elif isinstance(stmt, Copy):
            yield 2, msgspec.structs.replace(stmt, src=stmt.dst, dst=stmt.src)

    def _whole(self, name: str) -> Region:
        shape = self._buffers[name].shape
        return Region(name, tuple(Const(0, size.dtype) for size in shape), shape)

    def _regions(self, region: Region) -> Iterator[tuple[int, Region]]:
        shape = self._buffers[region.buffer].shape
        for axis, (start, extent) in enumerate(zip(region.starts, region.extents, strict=True)):
            if extent == shape[axis]:  # there is no other place
                continue
            for rank, other in (*self._exprs(start), *self._strides(start, extent)):
                starts = (*region.starts[:axis], other, *region.starts[axis + 1 :])
                yield rank, msgspec.structs.replace(region, starts=starts)
        for left, right in itertools.combinations(range(len(region.starts)), 2):
            yield 2, msgspec.structs.replace(region, starts=_swapped(region.starts, left, right))

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
                    yield 1, _simplify(Op(name, expr.args, expr.dtype))
        if expr.name in FUNCTIONS:
            for name in FUNCTIONS:
                yield 2, Op(name, expr.args, expr.dtype)
        yield from ((2, other) for other in _regrouped(expr))
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


def _hole(number: int, stmt: Stmt, part: Expr, op: str = "") -> Change:
    """A number is looked for in the place of the constant ``part``, or with ``op`` beside the ``part``."""

    def fill(value: float) -> tuple[Stmt, ...]:
        const = Const(value, part.dtype)
        new = Op(op, (part, const), part.dtype) if op else const
        return _with(stmt, {part: new})

    if op or not isinstance(part, Const):
        return Change(number=number, stmts=(stmt,), rank=2, hole=fill, start=NEUTRAL[op])
    rank, start = 1 if part.value in (0, 1, -1) else 0, float(part.value)
    return Change(number=number, stmts=(stmt,), rank=rank, hole=fill, start=start)


def _simplify(expr: Op) -> Expr:
    """``x * 1``, ``1 * x``, ``x + 0``, ``0 + x``, ``x - 0`` and ``x // 1`` as ``x``."""
    left, right = expr.args[0], expr.args[-1]
    neutral = {"mul": 1, "div": 1, "floordiv": 1, "add": 0, "sub": 0}.get(expr.name)
    if isinstance(right, Const) and right.value == neutral:
        return left
    is_first = expr.name in NEUTRAL and isinstance(left, Const) and left.value == neutral
    return right if is_first else expr


def _swapped(exprs: tuple[Expr, ...], left: int, right: int) -> tuple[Expr, ...]:
    changed = list(exprs)
    changed[left], changed[right] = exprs[right], exprs[left]
    return tuple(changed)


def _with(stmt: Stmt, known: Mapping[Expr, Expr]) -> tuple[Stmt, ...]:
    """A statement with other expressions in the place of these."""
    return (with_expressions(stmt, lambda expr: replace_parts(expr, known.get)),)


def _regrouped(expr: Op) -> Iterator[Expr]:
    """``(a + b) * c`` as ``a + (b * c)``, and the other way, with one of the operators changed or none."""
    if expr.name not in ARITHMETIC or not is_float(expr.dtype):
        return
    left, right = expr.args
    for name in ARITHMETIC:
        if isinstance(left, Op) and left.name in ARITHMETIC:
            for outer, inner in ((left.name, name), (name, expr.name)):
                regrouped = Op(inner, (left.args[1], right), expr.dtype)
                yield Op(outer, (left.args[0], regrouped), expr.dtype)
        if isinstance(right, Op) and right.name in ARITHMETIC:
            for outer, inner in ((right.name, name), (name, expr.name)):
                regrouped = Op(inner, (left, right.args[0]), expr.dtype)
                yield Op(outer, (regrouped, right.args[1]), expr.dtype)


def _operands(expr: Expr) -> Iterator[Expr]:
    """The float parts of a value that are no constants, without those of indices and conditions."""
    if isinstance(expr, Const) or not is_float(expr.dtype):
        return
    yield expr
    if isinstance(expr, Op | Cast):
        for part in children(expr):
            yield from _operands(part)


def _values(stmt: Stmt) -> tuple[Expr, ...]:
    match stmt:
        case Store() | Atomic() | Let() | Fill():
            return (stmt.value,)
        case If():
            return (stmt.cond,)
        case _:
            return ()

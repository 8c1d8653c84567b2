"""Guards divisors whose results are not stored: in a ragged tile's tail, filled with zeros, or under a false
condition. A divisor of 0 becomes 1 if the result certainly reaches no array; any other 0 is the kernel's
fault. A value stored directly into an array is not computed beyond its edge.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import reduce
from itertools import count

import msgspec

from tileyard.ir.dtypes import is_float
from tileyard.ir.nodes import (
    Break,
    Const,
    Copy,
    Expr,
    For,
    If,
    Let,
    Load,
    Op,
    Program,
    Region,
    Roles,
    Stmt,
    Store,
    Tensor,
    Var,
    While,
)
from tileyard.ir.ranges import Ranges
from tileyard.ir.specs import scalar_params
from tileyard.ir.verify_exprs import is_one
from tileyard.ir.walk import (
    bodies,
    children,
    convert,
    expressions,
    own_effects,
    replace_parts,
    walk,
    walk_expr,
)

_DIVISIONS = frozenset({"floordiv", "floormod", "truncdiv", "truncmod"})

_MOST_PARTS = 50
"""Most parts of an expression that replaces a variable: code that hashes doubles it at each step."""

_Path = tuple[tuple[Stmt, int], ...]
"""The bodies around a statement, outermost first: pairs of a statement and the index of its body."""

_Tests = tuple[tuple[Expr, ...], ...]
"""When a value reaches no array: in each group, one way to an array, at least one condition holds."""


class _Site(msgspec.Struct, frozen=True, kw_only=True):
    """A statement that assigns ``value`` to a variable, or to the element of a buffer at
    ``indices``. A copy is one for each element of its box, numbered by ``own``.
    """

    number: int
    path: _Path
    target: str
    indices: tuple[Expr, ...]
    value: Expr
    own: frozenset[str] = frozenset()

    @property
    def loops(self) -> tuple[For, ...]:
        return tuple(stmt for stmt, _ in self.path if isinstance(stmt, For))


def guard_divisors(program: Program) -> Program:
    """``program`` with a condition at each divisor whose result may reach no array."""
    guard = _Guard(program)
    return msgspec.structs.replace(program, body=guard.body(program.body, count()))


class _Guard:
    def __init__(self, program: Program) -> None:
        self._program = program
        params = (param.buffer for param in program.params if isinstance(param, Tensor))
        self._buffers = {buffer.name: buffer for buffer in (*params, *program.buffers)}
        self._views = {name for b in program.buffers if b.view_of for name in (b.name, b.view_of)}
        grid = (axis.var for axis in program.grid)
        known = (*program.dims, *scalar_params(program), *grid)
        self._constants = frozenset(var.name for var in known)
        self._lets: dict[Expr, Expr] = {}
        self._sites: dict[int, _Site] = {}
        self._uses: dict[str, list[int]] = defaultdict(list)
        self._tests: dict[int, _Tests | None] = {}
        self._find(program.body, (), count())

    def _find(self, body: tuple[Stmt, ...], path: _Path, numbers: Iterator[int]) -> None:
        for stmt in body:
            number = next(numbers)
            if isinstance(stmt, Let):
                value = self._plain(stmt.value)
                if sum(1 for _ in walk_expr(value)) <= _MOST_PARTS:
                    self._lets[stmt.var] = value
            for name in own_effects(stmt).read | _names(expressions(stmt)):
                self._uses[name].append(number)
            site = _site(stmt, number, path, self._lets)
            if site is not None:
                self._sites[number] = site
            for branch, inner in enumerate(bodies(stmt)):
                self._find(inner, (*path, (stmt, branch)), numbers)

    def body(self, body: tuple[Stmt, ...], numbers: Iterator[int]) -> tuple[Stmt, ...]:
        return tuple(self._stmt(stmt, self._sites.get(next(numbers)), numbers) for stmt in body)

    def _stmt(self, stmt: Stmt, site: _Site | None, numbers: Iterator[int]) -> Stmt:
        replace = msgspec.structs.replace
        match stmt:
            case Let() | Store() if site is not None:
                return replace(stmt, value=self._guarded(stmt.value, site))
            case For() | While():
                return replace(stmt, body=self.body(stmt.body, numbers))
            case If():
                then = self.body(stmt.then, numbers)
                return replace(stmt, then=then, orelse=self.body(stmt.orelse, numbers))
            case Roles():
                return replace(stmt, bodies=tuple(self.body(b, numbers) for b in stmt.bodies))
            case _:
                return stmt

    def _guarded(self, value: Expr, site: _Site) -> Expr:
        bound = self._bound(site)
        divisors = (divisor for part in walk_expr(value) for divisor in _divisors(part))
        is_risky = any(not _names([self._plain(divisor)]) <= bound for divisor in divisors)
        tests = self._when_unused(site) if is_risky and not self._is_array(site.target) else None
        if tests is None:
            return value
        ranges = Ranges(self._program)
        for loop in site.loops:
            ranges.bind_loop(loop)
        possible = [[test for test in group if not _is_never(test, ranges)] for group in tests]
        if not all(possible):
            return value
        return _with_divisors(value, [_joined("or", group) for group in possible])

    def _plain(self, expr: Expr) -> Expr:
        """``expr`` with variables that name short expressions replaced by these."""
        return _substituted(expr, self._lets)

    def _bound(self, site: _Site) -> frozenset[str]:
        return self._constants | site.own | {loop.var.name for loop in site.loops}

    def _is_array(self, name: str) -> bool:
        return name in self._buffers and self._buffers[name].scope == "global"

    def _when_unused(self, site: _Site) -> _Tests | None:
        """When the result of ``site`` reaches no array; None if it always may."""
        if site.number not in self._tests:
            self._tests[site.number] = self._followed(site)
        return self._tests[site.number]

    def _followed(self, site: _Site) -> _Tests | None:
        found: list[tuple[Expr, ...]] = []
        for number in self._uses[site.target]:
            use = self._sites.get(number)
            if use is None or number <= site.number or site.target in _names(use.indices):
                return None
            for read, conds in _uses(use.value, site.target):
                tests = self._when_unused_by(site, use, tuple(map(self._plain, read)), conds)
                if tests is None:
                    return None
                found += tests
        return None if site.target in self._views else tuple(dict.fromkeys(found))

    def _when_unused_by(
        self, site: _Site, use: _Site, read: tuple[Expr, ...], conds: tuple[Expr, ...]
    ) -> _Tests | None:
        """The same for one use: ``use`` reads the element ``read`` where ``conds`` hold."""
        shared = sum(a is b for a, b in zip(site.path, use.path, strict=False))
        if not self._is_whole(site, site.path[shared:], read):
            return None
        for stmt, branch in use.path[shared:]:
            if isinstance(stmt, If):
                conds += (_not(stmt.cond) if branch else stmt.cond,)
        tests = [_not(self._plain(cond)) for cond in conds]
        further: _Tests | None = ((),)
        if self._is_array(use.target):
            shape = self._buffers[use.target].shape
            for index, extent in zip(use.indices, shape, strict=True):
                common = "int64" if index.dtype != extent.dtype else index.dtype
                sides = (convert(index, common), convert(extent, common))
                below = Op("lt", (index, Const(0, index.dtype)), "bool")
                tests += [below, Op("ge", sides, "bool")]
        else:
            further = self._when_unused(use)
        bound, found = self._bound(site), list[tuple[Expr, ...]]()
        known: dict[Expr, Expr] = {
            a: b for a, b in zip(read, site.indices, strict=True) if isinstance(a, Var)
        }
        for more in ((),) if further is None else further:
            group = dict.fromkeys(_substituted(test, known) for test in (*tests, *more))
            found.append(tuple(test for test in group if _names([test]) <= bound))
        return tuple(found) if all(found) else None

    def _is_whole(self, site: _Site, around: _Path, read: tuple[Expr, ...]) -> bool:
        """Whether the element ``read`` is always one that ``site`` has just written. ``around`` are
        the loops of ``site`` that do not contain the reader: they have completed by then.
        """
        own = self._constants | site.own
        for loop, _ in around:
            if not isinstance(loop, For) or _names([loop.start, loop.extent]):
                return False
            if any(isinstance(part, Break) for part in walk(loop.body)):
                return False
            own |= {loop.var.name}
        pairs = zip(site.indices, read, strict=True)
        return all(at == index or _names([at]) <= own for at, index in pairs)


def _site(stmt: Stmt, number: int, path: _Path, lets: Mapping[Expr, Expr]) -> _Site | None:
    indices: tuple[Expr, ...] = ()
    own: tuple[Var, ...] = ()
    match stmt:
        case Let():
            target, value = stmt.var.name, stmt.value
        case Store():
            target, indices, value = stmt.buffer, stmt.indices, stmt.value
        case Copy(src=src, dst=dst) if all(isinstance(e, Const) for e in src.extents):
            wide = sum(not is_one(extent) for extent in src.extents)
            own = tuple(Var(f"{number} {axis}", "int32") for axis in range(wide))
            target, indices = dst.buffer, _element(dst, own)
            value = Load(src.buffer, _element(src, own), "")
        case _:
            return None
    return _Site(
        number=number,
        path=path,
        target=target,
        indices=tuple(_substituted(index, lets) for index in indices),
        value=value,
        own=frozenset(var.name for var in own),
    )


def _element(region: Region, own: tuple[Var, ...]) -> tuple[Expr, ...]:
    """The indices in its buffer of the element with the numbers ``own`` of a box."""
    numbers = iter(own)
    return tuple(
        start if is_one(extent) else _sum(start, next(numbers))
        for start, extent in zip(region.starts, region.extents, strict=True)
    )


def _sum(start: Expr, number: Var) -> Expr:
    if start == Const(0, start.dtype):
        return number
    return Op("add", (start, convert(number, start.dtype)), start.dtype)


def _uses(
    expr: Expr, name: str, conds: tuple[Expr, ...] = ()
) -> Iterator[tuple[tuple[Expr, ...], tuple[Expr, ...]]]:
    """The elements of ``name``, a buffer or variable, in ``expr``, and the conditions on which they count."""
    if isinstance(expr, Op) and expr.name == "select":
        cond, then, orelse = expr.args
        yield from _uses(cond, name, conds)
        yield from _uses(then, name, (*conds, cond))
        yield from _uses(orelse, name, (*conds, _not(cond)))
        return
    if isinstance(expr, Load) and expr.buffer == name:
        yield expr.indices, conds
    if isinstance(expr, Var) and expr.name == name:
        yield (), conds
    for part in children(expr):
        yield from _uses(part, name, conds)


def _divisors(expr: Expr) -> tuple[Expr, ...]:
    if isinstance(expr, Op) and expr.name in _DIVISIONS and not is_float(expr.dtype):
        return expr.args[1:]
    return ()


def _with_divisors(value: Expr, conds: list[Expr]) -> Expr:
    """``value`` with divisors that become 1 where they are 0 and ``conds`` hold."""

    def known(part: Expr) -> Expr | None:
        if not (isinstance(part, Op) and _divisors(part)):
            return None
        dividend, divisor = (replace_parts(arg, known) for arg in part.args)
        cond = _joined("and", [Op("eq", (divisor, Const(0, divisor.dtype)), "bool"), *conds])
        safe = Op("select", (cond, Const(1, divisor.dtype), divisor), divisor.dtype)
        return Op(part.name, (dividend, safe), part.dtype)

    return replace_parts(value, known)


def _is_never(test: Expr, ranges: Ranges) -> bool:
    match test:
        case Op(name="lt", args=(index, Const(value=0))) if not is_float(index.dtype):
            return ranges.of(index).low >= 0
        case Op(name="ge", args=(index, extent)) if not is_float(index.dtype):
            return ranges.is_below(index, extent)
        case _:
            return False


def _names(exprs: Iterable[Expr]) -> frozenset[str]:
    parts = [part for expr in exprs for part in walk_expr(expr)]
    variables = {part.name for part in parts if isinstance(part, Var)}
    return frozenset(variables | {part.buffer for part in parts if isinstance(part, Load)})


def _joined(name: str, conds: list[Expr]) -> Expr:
    return reduce(lambda a, b: Op(name, (a, b), "bool"), conds)


def _not(cond: Expr) -> Expr:
    return Op("not", (cond,), "bool")


def _substituted(expr: Expr, known: Mapping[Expr, Expr]) -> Expr:
    return replace_parts(
        expr, lambda part: convert(known[part], part.dtype) if part in known else None
    )

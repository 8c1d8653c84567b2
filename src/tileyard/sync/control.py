"""Finds what decides how a Program runs: what chooses statements, barriers and elements. Tiles' content
mostly decides nothing: two runs whose deciding expressions have equal values have the same order.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from tileyard.ir.dtypes import find_dtype
from tileyard.ir.lanes import is_spread
from tileyard.ir.nodes import (
    Atomic,
    Await,
    Break,
    Buffer,
    Const,
    Expr,
    For,
    If,
    Issue,
    Let,
    Load,
    Op,
    Program,
    Region,
    Roles,
    Stmt,
    Store,
    Synchronization,
    Var,
    While,
)
from tileyard.ir.specs import tensors
from tileyard.ir.walk import (
    bodies,
    children,
    expressions,
    own_effects,
    read_regions,
    walk,
    walk_expr,
    written_region,
)
from tileyard.sync.extents import is_waiting

_LAZY = ("select", "and", "or")
Names = frozenset[str]


_READ, _ATOMIC, _ISSUED = "read", "atomic", "issued"


@dataclass(frozen=True, kw_only=True)
class Control:
    """The parts of one Program that decide how it runs. ``loops`` are the outermost ones whose
    iterations wait or overlap: numbers by variable. Accesses to ``tracked`` buffers can conflict
    within a block; the content of ``counters`` and the variables ``held``, bound to it, decide too.
    Blocks are alike if neither their place nor any tile or array decides.
    """

    loops: dict[str, int]
    tracked: frozenset[str]
    counters: frozenset[str]
    held: frozenset[str]
    are_blocks_alike: bool
    buffers: dict[str, Buffer] = field(repr=False)

    def deciding(self, stmt: Stmt) -> Iterator[Expr]:
        """The deciding expressions of ``stmt`` itself, in order, without nested bodies."""
        written = written_region(stmt)
        regions = (*read_regions(stmt), *((written,) if written else ()))
        for region in regions:
            yield from self._places(region)
        match stmt:
            case For():
                yield from (stmt.start, stmt.extent)
            case If():
                yield stmt.cond
            case Synchronization():
                yield from expressions(stmt)
            case Issue() if stmt.barrier is not None:
                yield from stmt.barrier.indices
            case Store() | Atomic():
                yield from self._element(stmt)
            case _:
                pass
        for expr in expressions(stmt):
            yield from self._inside(expr)

    def _places(self, region: Region) -> Iterator[Expr]:
        if self._matters(region.buffer):
            yield from (*region.starts, *region.extents)

    def _element(self, stmt: Store | Atomic) -> Iterator[Expr]:
        if self._matters(stmt.buffer):
            yield from stmt.indices
        else:  # outside a global array the value is not computed
            for index, extent in zip(stmt.indices, self.buffers[stmt.buffer].shape, strict=True):
                yield Op("ge", (index, Const(0, index.dtype)), "bool")
                yield Op("lt", (index, extent), "bool")
        if self.owner(stmt.buffer) in self.counters:
            yield stmt.value

    def _inside(self, expr: Expr) -> Iterator[Expr]:
        """The parts of ``expr`` that decide which elements it reads."""
        if isinstance(expr, Load) and self._matters(expr.buffer):
            yield from expr.indices
        if isinstance(expr, Op) and expr.name in _LAZY and any(map(self._loads, expr.args[1:])):
            yield expr.args[0]
        for part in children(expr):
            yield from self._inside(part)

    def _loads(self, expr: Expr) -> bool:
        return any(isinstance(p, Load) and self._matters(p.buffer) for p in walk_expr(expr))

    def _matters(self, buffer: str) -> bool:
        """Whether accesses can be mistakes: conflicts, out of bounds, or reads of unwritten memory."""
        return self.buffers[buffer].scope != "global" or self.owner(buffer) in self.tracked

    def owner(self, buffer: str) -> str:
        """The buffer that owns its storage."""
        return self.buffers[buffer].view_of or buffer


def find_control(program: Program) -> Control | None:
    """A Program's Control; None, unknown, if a loop ends itself or a wait is not for a barrier."""
    stmts = list(walk(program.body))
    if any(isinstance(stmt, While | Break | Await) for stmt in stmts):
        return None
    buffers = {one.name: one for one in program.buffers}
    buffers |= {tensor.buffer.name: tensor.buffer for tensor in tensors(program)}
    control = Control(
        loops=dict(_outer_loops(program)),
        tracked=frozenset(_find_tracked(program, buffers)),
        counters=frozenset(),
        held=frozenset(),
        are_blocks_alike=False,
        buffers=buffers,
    )
    lets = {stmt.var.name: stmt.value for stmt in stmts if isinstance(stmt, Let)}
    axes = {axis.var.name for axis in program.grid}
    before = None
    while before != control:  # values stored in a counter decide as well
        before = control
        found = {expr for stmt in stmts for expr in _with_lets(control.deciding(stmt), lets)}
        loaded = {control.owner(one) for one in _loaded(found)}
        counters = frozenset(one for one in loaded if buffers[one].scope == "local")
        held = (
            name
            for name, value in lets.items()
            if not counters.isdisjoint(map(control.owner, _loaded([value])))
        )
        names = {part.name for one in found for part in walk_expr(one) if isinstance(part, Var)}
        control = replace(
            control,
            counters=counters,
            held=frozenset(held),
            are_blocks_alike=not axes & names and loaded == counters,
        )
    return control


def _with_lets(exprs: Iterable[Expr], lets: dict[str, Expr]) -> Iterator[Expr]:
    left, seen = list(exprs), set[str]()
    while left:
        expr = left.pop()
        yield expr
        names = {part.name for part in walk_expr(expr) if isinstance(part, Var)} - seen
        seen |= names
        left += [lets[name] for name in names if name in lets]


def _loaded(exprs: Iterable[Expr]) -> set[str]:
    return {part.buffer for one in exprs for part in walk_expr(one) if isinstance(part, Load)}


def _outer_loops(program: Program) -> Iterator[tuple[str, int]]:
    numbers = {id(stmt): number for number, stmt in enumerate(walk(program.body))}

    def inside(body: tuple[Stmt, ...]) -> Iterator[tuple[str, int]]:
        for stmt in body:
            if isinstance(stmt, For) and not is_spread(stmt) and is_waiting(stmt):
                yield stmt.var.name, numbers[id(stmt)]
            else:
                for inner in bodies(stmt):
                    yield from inside(inner)

    return inside(program.body)


def _find_tracked(program: Program, buffers: dict[str, Buffer]) -> Iterator[str]:
    """Tiles that threads share, and global arrays, except those only read, or only written by one role."""
    touched: dict[str, set[object]] = {}

    def note(body: tuple[Stmt, ...], role: object, *, is_issued: bool) -> None:
        for stmt in body:
            effects = own_effects(stmt)
            for name in effects.written:
                way = _ATOMIC if isinstance(stmt, Atomic) else _ISSUED if is_issued else role
                touched.setdefault(buffers[name].view_of or name, set()).add(way)
            for name in effects.read - (effects.written if isinstance(stmt, Atomic) else set()):
                touched.setdefault(buffers[name].view_of or name, set()).add(_READ)
            for number, inner in enumerate(bodies(stmt)):
                inner_role = (id(stmt), number) if isinstance(stmt, Roles) else role
                note(inner, inner_role, is_issued=is_issued or isinstance(stmt, Issue))

    note(program.body, None, is_issued=False)
    for name, ways in touched.items():
        scope = buffers[name].scope
        if scope in ("shared", "fragment") or (
            scope == "global" and (len(ways) > 1 or _ISSUED in ways)
        ):
            yield name


def deciding_numbers(program: Program) -> Names:
    """The passed tensors of whole numbers whose content, or what is computed from it, decides something."""
    origins: dict[str, Names] = {
        tensor.buffer.name: frozenset([tensor.buffer.name])
        for tensor in tensors(program)
        if tensor.role != "out" and not find_dtype(tensor.buffer.dtype).is_float
    }
    owners = {one.name: one.view_of for one in program.buffers if one.view_of}
    stmts = list(walk(program.body))

    def of(names: Iterable[str]) -> Names:
        return frozenset().union(*(origins.get(owners.get(one, one), Names()) for one in names))

    before: dict[str, Names] = {}
    while before != origins:
        before = dict(origins)
        for stmt in stmts:
            effects = own_effects(stmt)
            seen = of((*effects.read, *_names(expressions(stmt))))
            bound = (stmt.var.name,) if isinstance(stmt, Let | Atomic | For) and stmt.var else ()
            for name in (*effects.written, *bound) if seen else ():
                owner = owners.get(name, name)
                origins[owner] = origins.get(owner, Names()) | seen
    return of(name for stmt in stmts for name in _names(_deciding(stmt)))


def _deciding(stmt: Stmt) -> Iterator[Expr]:
    """The expressions of ``stmt`` itself that decide."""
    written = written_region(stmt)
    for region in (*read_regions(stmt), *((written,) if written else ())):
        yield from (*region.starts, *region.extents)
    match stmt:
        case For():
            yield from (stmt.start, stmt.extent)
        case If() | While():
            yield stmt.cond
        case Store() | Atomic():
            yield from stmt.indices
        case Synchronization():
            yield from expressions(stmt)
        case _:
            pass
    for expr in expressions(stmt):
        for part in walk_expr(expr):
            if isinstance(part, Load):
                yield from part.indices


def _names(exprs: Iterable[Expr]) -> Iterator[str]:
    for expr in exprs:
        for part in walk_expr(expr):
            if isinstance(part, Load):
                yield part.buffer
            elif isinstance(part, Var):
                yield part.name

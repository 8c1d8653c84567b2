"""Describes statements as nests of loops over rows, and combines adjacent ones into passes over
their rows. Copies, parallel loops and reductions have one form. A pass combines those over the same
rows, which read of others' results only the element at the same place.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from tileyard.ir.nodes import (
    Axis,
    Cast,
    Copy,
    Expr,
    For,
    Load,
    Op,
    Reduce,
    Stmt,
    Store,
    Var,
)
from tileyard.ir.walk import replace_parts, walk_expr
from tileyard.targets.cpu.emit.context import Bound, Context
from tileyard.targets.cpu.emit.copies import Boxes
from tileyard.targets.cpu.emit.exprs import can_fail
from tileyard.targets.cpu.emit.loops import (
    ROW_FUNCTIONS,
    Fold,
    Step,
    has_gain,
    interior_tests,
    is_along,
    is_independent,
    moves,
    plain_stores,
    replace_in,
)
from tileyard.targets.cpu.emit.tiles import (
    ZERO,
    add,
    constant,
    find_extents,
    find_number,
    is_zero,
    moved,
    pair_dimensions,
    reads,
)

# ---- statements as nests --------------------------------------------------------------------------


FLOATS = frozenset({"float32", "float16", "bfloat16"})
"""The dtypes that a pass writes and folds."""

LEAST = 16
"""Least number of elements of a row for which a pass pays for its beginning and its end."""

FOLDS = frozenset({"sum", "max", "min", "abssum", "absmax"})
"""Reductions for which tile.h folds vectors."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Nest:
    """Loops over rows, ``along`` the last of their variables, and the steps for each element.
    ``sizes`` are all loops' extents; those of 1 have no variable.
    """

    sizes: tuple[int, ...]
    variables: tuple[Var, ...]
    steps: tuple[Step, ...]

    @property
    def along(self) -> Var:
        """The variable that counts the elements of a row."""
        return self.variables[-1]

    @property
    def columns(self) -> int:
        """Number of elements of a row."""
        return self.sizes[-1]

    @property
    def elements(self) -> int:
        """Number of times that the steps run."""
        return math.prod(self.sizes)

    def loop(self) -> For:
        """The nest as a statement of the Program, its folds as stores of the folded values."""
        body: tuple[Stmt, ...] = tuple(
            Store(step.buffer, step.indices, step.value) for step in self.steps
        )
        for var, size in zip(self.variables[::-1], self.sizes[::-1], strict=True):
            loop = For(var, ZERO, constant(size), "parallel", body)
            body = (loop,)
        return loop


def innermost(loop: For) -> For:
    """The innermost of nested loops."""
    while isinstance(loop.body[0], For):
        loop = loop.body[0]
    return loop


def loads(step: Step) -> Iterator[Load]:
    """The elements that a step reads, without the one that a fold adds to."""
    return reads(step.value) if isinstance(step, Fold) else reads(*step.indices, step.value)


def as_nest(ctx: Context, stmt: Stmt) -> Nest | None:
    """A statement as a nest; None if it is not one. Its variables need not be in any Program."""
    match stmt:
        case For():
            nest = _from_loop(ctx, stmt)
        case Copy():
            nest = _from_copy(ctx, stmt)
        case Reduce():
            nest = _from_reduce(ctx, stmt)
        case _:
            return None
    return nest if nest is not None and nest.sizes and nest.columns >= LEAST else None


def _from_loop(ctx: Context, stmt: For) -> Nest | None:
    loops = [stmt]
    while len(loops[-1].body) == 1 and isinstance(loops[-1].body[0], For):
        loops.append(loops[-1].body[0])
    known: dict[Expr, Expr] = {}
    sizes: dict[Var, int] = {}
    for loop in loops:
        extent = find_number(loop.extent)
        if (
            loop.kind not in ("parallel", "vectorized")
            or extent is None
            or not is_zero(loop.start)
            or loop.var.dtype != "int32"
            or loop.var.name in ctx.outliving
        ):
            return None
        if extent == 1:
            known[loop.var] = ZERO
        else:
            sizes[loop.var] = extent
    stores = plain_stores(loops[-1])
    if loops[-1].var not in sizes or stores is None or not is_independent(ctx, loops[-1]):
        return None
    steps = tuple(replace_in(_converted(ctx, store), known.get) for store in stores)
    return Nest(sizes=tuple(sizes.values()), variables=tuple(sizes), steps=steps)


def _converted(ctx: Context, store: Store) -> Store:
    dtype = ctx.dtype(store.buffer)
    value = store.value if store.value.dtype == dtype else Cast(store.value, dtype)
    return Store(store.buffer, store.indices, value)


def _from_copy(ctx: Context, stmt: Copy) -> Nest | None:
    src, dst, extents = stmt.src, stmt.dst, find_extents(stmt.dst)
    is_elsewhere = dst.buffer in ctx.plan.keeping.tiles or id(stmt) in ctx.plan.forwarding.copies
    pairs = pair_dimensions(src, dst)
    if is_elsewhere or extents is None or pairs is None:
        return None
    boxes, variables = Boxes(src=src, dst=dst, pairs=pairs), _variables(pairs)
    coordinates = tuple(variables.get(d, ZERO) for d in range(len(extents)))
    target = tuple(add(at, x) for at, x in zip(dst.starts, coordinates, strict=True))
    if not variables or not boxes.has_rows or max(variables) != len(extents) - 1:
        return None
    value = Load(src.buffer, boxes.source_indices(coordinates), ctx.dtype(src.buffer))
    return Nest(
        sizes=tuple(extents[d] for d in variables),
        variables=tuple(variables.values()),
        steps=(_converted(ctx, Store(dst.buffer, target, value)),),
    )


def _variables(dimensions: Iterable[int]) -> dict[int, Var]:
    """A variable per dimension, with names that are in no Program: they are replaced at once."""
    return {d: Var(f"@{d}", "int32") for d in dimensions}


def _from_reduce(ctx: Context, stmt: Reduce) -> Nest | None:
    src, dst, extents = stmt.src, stmt.dst, find_extents(stmt.src)
    axis = stmt.axis % len(src.extents)
    pairs = pair_dimensions(src, dst, axis)
    if (
        stmt.kind not in FOLDS
        or axis != len(src.extents) - 1
        or extents is None
        or pairs is None
        or ctx.element_type(src.buffer) != "float"
        or ctx.dtype(dst.buffer) not in ("float32", ctx.dtype(src.buffer))
    ):
        return None
    variables = _variables((*pairs.values(), axis))
    fold = Fold(
        buffer=dst.buffer,
        indices=moved(dst, {mine: variables[other] for mine, other in pairs.items()}),
        value=Load(src.buffer, moved(src, variables), ctx.dtype(src.buffer)),
        kind=stmt.kind,
        clear=stmt.clear,
    )
    sizes = tuple(extents[d] for d in variables)
    return Nest(sizes=sizes, variables=tuple(variables.values()), steps=(fold,))


# ---- passes ---------------------------------------------------------------------------------------

_MOST = 8
"""Most statements per pass: registers have no room for more values."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Pass:
    """Some statements as one nest. If ``tests`` do not hold before it, the statements run one by one. The
    first ``late`` steps belong to the block before, which a thread's first block does not have. The axes
    of the blocks before and after have the names of ``others``.
    """

    statements: tuple[Stmt, ...]
    nest: Nest
    tests: dict[Bound, str] = field(default_factory=dict)
    late: int = 0
    others: tuple[tuple[Axis, ...], ...] = ()


def find_pass(ctx: Context, body: Sequence[Stmt]) -> Pass | None:
    """The longest pass that ``body`` begins with; None if it does not pay."""
    found: Pass | None = None
    nest = Nest(sizes=(), variables=(), steps=())
    touched: list[set[str]] = []
    standing, reads_tile = set(ctx.repeats), False
    for i, stmt in enumerate(body[:_MOST]):
        here = as_nest(ctx, stmt)
        if here is None or (nest.sizes and nest.sizes != here.sizes):
            break
        if not nest.sizes:
            stems = [*("i" for _ in here.sizes[1:]), "j"]
            counters = map(ctx.counter, stems, here.sizes)
            nest = Nest(sizes=here.sizes, variables=tuple(counters), steps=())
        reads_tile |= any(load.buffer in standing for step in here.steps for load in loads(step))
        own: dict[Expr, Expr] = dict(zip(here.variables, nest.variables, strict=True))
        steps = _repeated(ctx, [replace_in(step, own.get) for step in here.steps], standing)
        if steps is None:
            break
        touched.append(_storages(ctx, here.steps) | _storages(ctx, steps))
        nest = replace(nest, steps=(*nest.steps, *steps))
        longer = _checked(ctx, tuple(body[: i + 1]), nest)
        if longer is None or (longer.tests and reads_tile):
            break
        if _is_connected(touched):
            found = longer
    if found is None or not (reads_tile or _has_gain(ctx, found)):
        return None
    return found


def _has_gain(ctx: Context, found: Pass) -> bool:
    if len(found.statements) > 1:
        return True
    (stmt,) = found.statements
    loop = innermost(found.nest.loop())
    with ctx.assuming(ctx.assumed | set(found.tests)):
        return isinstance(stmt, For) and any(
            isinstance(step, Store) and has_gain(ctx, step, loop) for step in found.nest.steps
        )


def _repeated(ctx: Context, steps: Iterable[Step], standing: set[str]) -> tuple[Step, ...] | None:
    """The steps with unfilled, unwritten tiles' elements replaced by their sources; None if a step
    may read past such a tile's end: its source may be larger.
    """

    def known(expr: Expr) -> Expr | None:
        if not isinstance(expr, Load) or expr.buffer not in standing:
            return None
        return ctx.repeats[expr.buffer](tuple(replace_parts(at, known) for at in expr.indices))

    found: list[Step] = []
    for step in steps:
        for load in reads(*step.indices, step.value):
            if load.buffer in standing and ctx.open_bounds(load.buffer, load.indices):
                return None
        found.append(replace_in(step, known))
        if isinstance(step, Store):
            standing.discard(step.buffer)
    return tuple(found)


# ---- what is legal --------------------------------------------------------------------------------


def _storages(ctx: Context, steps: tuple[Step, ...]) -> set[str]:
    return {ctx.storage(one.buffer) for step in steps for one in (step, *loads(step))}


def _is_connected(touched: Sequence[set[str]]) -> bool:
    """Whether shared buffers connect all statements."""
    first, *others = map(set, touched)
    while joined := [other for other in others if other & first]:
        first = first.union(*joined)
        others = [other for other in others if not other & first]
    return not others


def _checked(ctx: Context, statements: tuple[Stmt, ...], nest: Nest) -> Pass | None:
    """The statements as a pass, if it writes the same as they do one after another."""
    if not all(_is_covered(ctx, step) for step in nest.steps) or not is_by_element(ctx, nest):
        return None
    tests = interior_tests(ctx, nest.loop())
    with ctx.assuming(ctx.assumed | set(tests)):
        for step in nest.steps:
            is_open = any(ctx.open_bounds(x.buffer, x.indices) for x in (step, *loads(step)))
            if is_open or (isinstance(step, Store) and can_fail(ctx, step.value)):
                return None
    return Pass(statements=statements, nest=nest, tests=tests)


def _is_covered(ctx: Context, step: Step) -> bool:
    operations = {part.name for part in walk_expr(step.value) if isinstance(part, Op)}
    is_known = (
        step.value.dtype in FLOATS if isinstance(step, Fold) else not operations & ROW_FUNCTIONS
    )
    is_in_panels = any(ctx.in_panels(one.buffer) is not None for one in (step, *loads(step)))
    return is_known and not is_in_panels and ctx.dtype(step.buffer) in FLOATS


def is_by_element(ctx: Context, nest: Nest) -> bool:
    """Whether no element of the nest touches what another element writes, except for the folds. What a
    row's fold writes may be read by the steps before it: they read it where the row begins.
    """
    stores = [step for step in nest.steps if isinstance(step, Store)]
    folds = {ctx.storage(step.buffer): step for step in nest.steps if isinstance(step, Fold)}
    stored = {ctx.storage(store.buffer): (store.buffer, store.indices) for store in stores}
    uses: list[Store | Load] = [*stores, *(load for step in nest.steps for load in loads(step))]
    return (
        len(folds) + len(stores) == len(nest.steps)
        and not stored.keys() & folds.keys()
        and all(is_along(store.indices, nest.along) for store in stores)
        and all(_is_apart(store.indices, nest) for store in stores)
        and all(
            stored.get(ctx.storage(one.buffer)) in (None, (one.buffer, one.indices)) for one in uses
        )
        and all(
            fold is None
            or (
                fold in nest.steps[i + 1 :]
                and (fold.buffer, fold.indices) == (load.buffer, load.indices)
            )
            for i, step in enumerate(nest.steps)
            for load in loads(step)
            for fold in [folds.get(ctx.storage(load.buffer))]
        )
    )


def _is_apart(indices: tuple[Expr, ...], nest: Nest) -> bool:
    """Whether different values of the variables certainly give different indices."""
    inside = {at: [var for var in nest.variables if var in walk_expr(at)] for at in indices}
    alone = {found[0] for at, found in inside.items() if len(found) == 1 and moves((at,), found[0])}
    return alone == set(nest.variables)

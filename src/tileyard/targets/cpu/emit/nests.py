"""Statements as nests of loops over rows: copies, parallel loops and reductions in one form."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from tileyard.errors import UnsupportedError
from tileyard.ir.nodes import (
    Cast,
    Const,
    Copy,
    Expr,
    For,
    Load,
    Reduce,
    ReduceKind,
    Region,
    Stmt,
    Store,
    Var,
)
from tileyard.ir.walk import replace_parts, walk_expr
from tileyard.targets.cpu.emit.context import Context, add
from tileyard.targets.cpu.emit.copies import long_dimensions, match_boxes, same_extent
from tileyard.targets.cpu.emit.parallel import is_independent
from tileyard.targets.cpu.emit.row_rules import plain_stores

FLOATS = frozenset({"float32", "float16", "bfloat16"})
"""Types of what a pass writes and folds."""

LEAST = 16
"""Elements of a row from which on a pass is worth its beginning and its end."""

FOLDS = frozenset({"sum", "max", "min", "abssum", "absmax"})
"""Reductions that tile.h folds by the vector."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Fold:
    """The values ``source`` of a row, folded into one element of ``buffer``."""

    buffer: str
    indices: tuple[Expr, ...]
    source: Expr
    kind: ReduceKind
    clear: bool


Step = Store | Fold


@dataclass(frozen=True, kw_only=True, slots=True)
class Nest:
    """Loops over rows, ``along`` the last of their variables, and what is done to each element.

    ``sizes`` are the extents of all loops; those of extent 1 have no variable.
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
        """Elements of a row."""
        return self.sizes[-1]

    @property
    def elements(self) -> int:
        """How often the steps are done."""
        return math.prod(self.sizes)

    def loop(self) -> For:
        """The same as one statement of the Program, folds as stores of what they fold."""
        body: tuple[Stmt, ...] = tuple(
            step if isinstance(step, Store) else Store(step.buffer, step.indices, step.source)
            for step in self.steps
        )
        for var, size in reversed(tuple(zip(self.variables, self.sizes, strict=True))):
            zero, extent = Const(0, "int32"), Const(size, "int32")
            body = (For(var, zero, extent, "parallel", body),)
        (loop,) = body
        if not isinstance(loop, For):
            raise AssertionError("a nest has at least one loop")
        return loop


def innermost(loop: For) -> For:
    """The innermost of loops that stand one in the other."""
    while isinstance(loop.body[0], For):
        loop = loop.body[0]
    return loop


def loads(step: Step) -> Iterator[Load]:
    """What a step reads; what a fold adds to is left out."""
    read = (step.source,) if isinstance(step, Fold) else (*step.indices, step.value)
    for expr in read:
        yield from (part for part in walk_expr(expr) if isinstance(part, Load))


# ---- statements as nests --------------------------------------------------------------------------


def as_nest(ctx: Context, stmt: Stmt) -> Nest | None:
    """A statement as a nest; None where it is none. Its variables may be no Program's."""
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
    sizes, variables = [], []
    for loop in loops:
        if (
            loop.kind not in ("parallel", "vectorized")
            or not isinstance(loop.extent, Const)
            or loop.start != Const(0, loop.start.dtype)
            or loop.var.dtype != "int32"
            or loop.var.name in ctx.outliving
        ):
            return None
        if loop.extent.value == 1:
            known[loop.var] = Const(0, "int32")
            continue
        sizes.append(int(loop.extent.value))
        variables.append(loop.var)
    stores = plain_stores(loops[-1])
    if not variables or stores is None or not is_independent(ctx, loops[-1]):
        return None
    if loops[-1].var != variables[-1]:
        return None
    steps = tuple(_substituted(_converted(ctx, store), known) for store in stores)
    return Nest(sizes=tuple(sizes), variables=tuple(variables), steps=steps)


def _converted(ctx: Context, store: Store) -> Store:
    """The same with a value of the buffer's own type."""
    dtype = ctx.dtype(store.buffer)
    value = store.value if store.value.dtype == dtype else Cast(store.value, dtype)
    return Store(store.buffer, store.indices, value)


def _substituted(step: Store, known: dict[Expr, Expr]) -> Store:
    indices = tuple(replace_parts(at, known.get) for at in step.indices)
    return Store(step.buffer, indices, replace_parts(step.value, known.get))


def _from_copy(ctx: Context, stmt: Copy) -> Nest | None:
    src, dst = stmt.src, stmt.dst
    is_elsewhere = dst.buffer in ctx.plan.keeping.tiles or id(stmt) in ctx.plan.forwarding.copies
    if is_elsewhere or not _is_constant(dst):
        return None
    try:
        boxes = match_boxes(src, dst)
    except UnsupportedError:
        return None
    variables = {
        d: Var(f"@{d}", "int32") for d in long_dimensions(dst)
    }  # names that no Program has: they are replaced at once
    zero = Const(0, "int32")
    coordinates = tuple(variables.get(d, zero) for d in range(len(dst.extents)))
    target = tuple(add(at, x) for at, x in zip(dst.starts, coordinates, strict=True))
    if not variables or not boxes.has_rows or max(variables) != len(dst.extents) - 1:
        return None
    value = Load(src.buffer, boxes.source_indices(coordinates), ctx.dtype(src.buffer))
    return Nest(
        sizes=tuple(_size(dst.extents[d]) for d in variables),
        variables=tuple(variables.values()),
        steps=(_converted(ctx, Store(dst.buffer, target, value)),),
    )


def _from_reduce(ctx: Context, stmt: Reduce) -> Nest | None:
    src, dst = stmt.src, stmt.dst
    axis = stmt.axis % len(src.extents)
    kept, targets = [i for i in long_dimensions(src) if i != axis], long_dimensions(dst)
    dtype = ctx.dtype(dst.buffer)
    if (
        stmt.kind not in FOLDS
        or axis != len(src.extents) - 1
        or not _is_constant(src)
        or len(kept) != len(targets)
        or not all(
            same_extent(src.extents[i], dst.extents[j]) for i, j in zip(kept, targets, strict=True)
        )
        or ctx.element_type(src.buffer) != "float"
        or dtype not in ("float32", ctx.dtype(src.buffer))
    ):
        return None
    variables = [Var(f"@{i}", "int32") for i in (*kept, axis)]
    source, target = list(src.starts), list(dst.starts)
    for var, i in zip(variables, (*kept, axis), strict=True):
        source[i] = add(source[i], var)
    for var, j in zip(variables, targets, strict=False):
        target[j] = add(target[j], var)
    fold = Fold(
        buffer=dst.buffer,
        indices=tuple(target),
        source=Load(src.buffer, tuple(source), ctx.dtype(src.buffer)),
        kind=stmt.kind,
        clear=stmt.clear,
    )
    sizes = tuple(_size(src.extents[i]) for i in (*kept, axis))
    return Nest(sizes=sizes, variables=tuple(variables), steps=(fold,))


def _is_constant(region: Region) -> bool:
    return all(isinstance(extent, Const) for extent in region.extents)


def _size(extent: Expr) -> int:
    if not isinstance(extent, Const):
        raise AssertionError("the extents of regions in nests are constants")
    return int(extent.value)


def renamed(nest: Nest, variables: tuple[Var, ...]) -> tuple[Step, ...]:
    """The steps of a nest with other variables."""
    known: dict[Expr, Expr] = dict(zip(nest.variables, variables, strict=True))
    found: list[Step] = []
    for step in nest.steps:
        if isinstance(step, Store):
            found.append(_substituted(step, known))
            continue
        source = replace_parts(step.source, known.get)
        indices = tuple(replace_parts(at, known.get) for at in step.indices)
        found.append(replace(step, indices=indices, source=source))
    return tuple(found)

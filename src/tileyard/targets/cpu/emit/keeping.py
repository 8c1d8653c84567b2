"""Tiles that are kept from block to block: what another block has copied already is not copied again.

That holds for a tile which is only filled by one copy, from an array that is only read, if blocks
exist that would copy the same. Each content has a slot of its own and a tag that says which it is.
Where not all contents fit, blocks are run in groups of columns, so that those of a group do.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from tileyard.ir.effects import written_region
from tileyard.ir.nodes import Axis, Const, Copy, Expr, For, Load, Op, Program, Store, Tensor, Var
from tileyard.ir.walk import walk, walk_expr
from tileyard.targets.cpu.emit.tiles import Rows, Tile

BUDGET = 12 << 20
"""Bytes of scratch memory that kept tiles may take on each thread."""

_ZERO = Const(0, "int64")


@dataclass(frozen=True, kw_only=True, slots=True)
class Kept:
    """One copy: the tile's content goes into slot ``slot`` of ``slots``, marked with ``tag``.

    ``tag`` is above 0 and different for each content.
    """

    slots: int
    slot: Expr
    tag: Expr


@dataclass(frozen=True, kw_only=True, slots=True)
class Keeping:
    """What is kept, by the tile's name. Blocks run in groups of ``group`` columns, 0 for all."""

    tiles: dict[str, Kept] = field(default_factory=dict)
    group: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class _Digit:
    """A variable that the source's place depends on, and how many values it has."""

    var: Var
    value: Expr
    count: int


@dataclass(frozen=True, kw_only=True, slots=True)
class _Candidate:
    """A tile that could be kept: ``digits`` tell its contents apart."""

    tile: Tile
    digits: tuple[_Digit, ...]

    def has(self, axis: Axis) -> bool:
        """Whether blocks at other places of ``axis`` need other contents."""
        return any(digit.var == axis.var for digit in self.digits)

    def bytes(self, axes: tuple[Axis, ...]) -> int:
        """Memory for all contents that differ in anything but these axes."""
        outside = {axis.var for axis in axes}
        count = 1
        for digit in self.digits:
            count *= 1 if digit.var in outside else digit.count
        return count * self.tile.bytes


def find_kept(program: Program, tiles: Iterable[Tile]) -> Keeping:
    """What is kept within the budget. Contents that depend on the last axis change with it."""
    axes = [axis for axis in program.grid if axis.extent != Const(1, axis.extent.dtype)]
    found = [_find_candidate(program, axes, tile) for tile in tiles]
    candidates = [candidate for candidate in found if candidate is not None]
    if not candidates:
        return Keeping()
    first, last = axes[0], axes[-1]
    columns = _count(first)
    fixed = [c for c in candidates if first is last or not c.has(first)]
    moving = [c for c in candidates if c not in fixed]
    left, kept = BUDGET, []
    for candidate in fixed:
        if candidate.bytes((last,)) <= left:
            left -= candidate.bytes((last,))
            kept.append(candidate)
    for_each = sum(candidate.bytes((first, last)) for candidate in moving)
    group = min(left // for_each, columns) if for_each else columns
    if group >= 2:
        groups = -(-columns // group)
        group = -(-columns // groups)
        kept += moving
    width = 0 if group in (0, columns) or len(kept) == len(fixed) else group
    return Keeping(
        tiles={c.tile.name: _keep(c, first if width else None, last, width) for c in kept},
        group=width,
    )


def _find_candidate(program: Program, axes: list[Axis], tile: Tile) -> _Candidate | None:
    if isinstance(tile.layout, Rows) or len(tile.shape) != 2:
        return None
    copy = _only_copy(program, tile.name)
    sources = {
        param.buffer.name
        for param in program.params
        if isinstance(param, Tensor) and param.role == "in"
    }
    if copy is None or copy.src.buffer not in sources:
        return None
    parts = [part for start in copy.src.starts for part in walk_expr(start)]
    used = {part for part in parts if isinstance(part, Var)} - set(program.dims)
    if any(isinstance(part, Load) for part in parts) or all(axis.var in used for axis in axes):
        return None
    loops = {stmt.var: stmt for stmt in walk(program.body) if isinstance(stmt, For)}
    digits = [_digit(program, loops, var) for var in sorted(used, key=lambda var: var.name)]
    known = tuple(digit for digit in digits if digit is not None)
    return _Candidate(tile=tile, digits=known) if len(known) == len(digits) else None


def _only_copy(program: Program, buffer: str) -> Copy | None:
    """The statement that writes ``buffer``, if it is one copy."""
    writers = []
    for stmt in walk(program.body):
        region = written_region(stmt)
        if region is not None and region.buffer == buffer:
            writers.append(stmt)
        elif isinstance(stmt, Store) and stmt.buffer == buffer:
            return None
    return writers[0] if len(writers) == 1 and isinstance(writers[0], Copy) else None


def _digit(program: Program, loops: dict[Var, For], var: Var) -> _Digit | None:
    for axis in program.grid:
        if axis.var == var and isinstance(axis.extent, Const):
            return _Digit(var=var, value=var, count=_count(axis))
    loop = loops.get(var)
    if loop is None or not isinstance(loop.extent, Const) or not isinstance(loop.start, Const):
        return None
    value: Expr = var if loop.start.value == 0 else Op("sub", (var, loop.start), var.dtype)
    return _Digit(var=var, value=value, count=int(loop.extent.value))


def _count(axis: Axis) -> int:
    return int(axis.extent.value) if isinstance(axis.extent, Const) else 1


def _keep(candidate: _Candidate, first: Axis | None, last: Axis, width: int) -> Kept:
    """Slots for all contents but those of other groups and other places of the last axis."""
    slot: Expr = _ZERO
    tag: Expr = _ZERO
    slots = 1
    for digit in candidate.digits:
        tag = _append(tag, digit.value, digit.count)
        if first is not None and digit.var == first.var:
            column = Op(
                "floormod", (digit.value, Const(width, digit.value.dtype)), digit.value.dtype
            )
            slot, slots = _append(slot, column, width), slots * width
        elif digit.var != last.var:
            slot, slots = _append(slot, digit.value, digit.count), slots * digit.count
    return Kept(slots=slots, slot=slot, tag=Op("add", (tag, Const(1, "int64")), "int64"))


def _append(number: Expr, value: Expr, count: int) -> Expr:
    """``number`` with one more digit."""
    if count == 1:
        return number
    if number == _ZERO:
        return value
    return Op("add", (Op("mul", (number, Const(count, "int64")), "int64"), value), "int64")

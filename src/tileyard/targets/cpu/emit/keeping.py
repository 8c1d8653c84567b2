"""Tiles that are kept from block to block: what one block has copied, no block copies again.

That holds for a tile which is only filled by one copy, from an array that is only read, if blocks
exist that would copy the same. Each content has a slot of its own in the memory that all threads
share: whoever comes first fills it. Blocks are run in groups of columns whose contents fit in a cache.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from tileyard.ir.effects import written_region
from tileyard.ir.nodes import (
    Atomic,
    Axis,
    Const,
    Copy,
    Expr,
    For,
    Load,
    Op,
    Program,
    Roles,
    Store,
    Tensor,
    Var,
)
from tileyard.ir.walk import walk, walk_expr
from tileyard.targets.cpu.emit.tiles import Rows, Tile

MOST_BYTES = 512 << 20
"""Memory that kept tiles may take."""

CACHE_BYTES = 12 << 20
"""How much of it one group of columns may use."""

_ZERO = Const(0, "int64")


@dataclass(frozen=True, kw_only=True, slots=True)
class Kept:
    """One copy: the tile's content goes into slot ``slot`` of ``slots``."""

    slots: int
    slot: Expr


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
    """What is kept, as far as memory allows."""
    axes = [axis for axis in program.grid if axis.extent != Const(1, axis.extent.dtype)]
    found = [_find_candidate(program, axes, tile) for tile in tiles]
    left, kept = MOST_BYTES, []
    for candidate in found:
        if candidate is not None and candidate.bytes(()) <= left:
            left -= candidate.bytes(())
            kept.append(candidate)
    if not kept:
        return Keeping()
    return Keeping(tiles={c.tile.name: _keep(c) for c in kept}, group=_group(kept, axes))


def _group(kept: list[_Candidate], axes: list[Axis]) -> int:
    """How many columns of the first axis a cache holds, as the last axis moves on; 0 for all."""
    first, last = axes[0], axes[-1]
    if first is last:
        return 0
    fixed = sum(c.bytes((last,)) for c in kept if not c.has(first))
    for_each = sum(c.bytes((first, last)) for c in kept if c.has(first))
    columns = _count(first)
    group = (CACHE_BYTES - fixed) // for_each if for_each else columns
    if group < 2 or group >= columns:
        return 0
    groups = -(-columns // group)
    return -(-columns // groups)


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
    if any(isinstance(stmt, Roles) for stmt in walk(program.body)):
        return None  # whose copies are made for readers that go on by themselves
    loops = {stmt.var: stmt for stmt in walk(program.body) if isinstance(stmt, For)}
    # Loops inside a block last: what it needs next then lies behind what it has.
    order = sorted(used, key=lambda var: (var in loops, var.name))
    digits = [_digit(program, loops, var) for var in order]
    known = tuple(digit for digit in digits if digit is not None and digit.count > 0)
    return _Candidate(tile=tile, digits=known) if len(known) == len(digits) else None


def _only_copy(program: Program, buffer: str) -> Copy | None:
    """The statement that writes ``buffer``, if it is one copy."""
    writers = []
    for stmt in walk(program.body):
        region = written_region(stmt)
        if region is not None and region.buffer == buffer:
            writers.append(stmt)
        elif isinstance(stmt, Atomic | Store) and stmt.buffer == buffer:
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


def _keep(candidate: _Candidate) -> Kept:
    slot: Expr = _ZERO
    slots = 1
    for digit in candidate.digits:
        slot, slots = _append(slot, digit.value, digit.count), slots * digit.count
    return Kept(slots=slots, slot=slot)


def _append(number: Expr, value: Expr, count: int) -> Expr:
    """``number`` with one more digit."""
    if count == 1:
        return number
    if number == _ZERO:
        return value
    return Op("add", (Op("mul", (number, Const(count, "int64")), "int64"), value), "int64")

"""Tiles that are kept from block to block: what one block has copied, no block copies again.

That holds for a tile which is only filled by one copy, from an array that is only read, if blocks
exist that would copy the same. Where memory has room for all contents, each has a slot of its own in
the memory that all threads share: whoever comes first fills it. Else each thread keeps those that it
will need again soon, in slots that say which content they hold. Blocks are run in groups of columns
whose contents fit.
"""

import math
from collections.abc import Sequence
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
from tileyard.ir.ranges import Ranges
from tileyard.ir.walk import walk, walk_expr
from tileyard.targets.cpu.emit.tiles import Rows, Tile

MOST_BYTES = 12 << 20
"""Memory that tiles may take, kept ones and all others: a run takes no more than 16 MiB a thread."""

_ZERO = Const(0, "int64")


@dataclass(frozen=True, kw_only=True, slots=True)
class Kept:
    """One copy: the tile's content goes into slot ``slot`` of ``slots``.

    Slots are those of all threads, each for one content, or with ``content`` each thread's own: that is
    the number of the content, and slots hold several in turn.
    """

    slots: int
    slot: Expr
    content: Expr | None = None

    @property
    def is_shared(self) -> bool:
        """Whether the slots are those of all threads."""
        return self.content is None


@dataclass(frozen=True, kw_only=True, slots=True)
class Keeping:
    """What is kept, by the tile's name. Blocks run in groups of ``group`` columns, 0 for all."""

    tiles: dict[str, Kept] = field(default_factory=dict)
    group: int = 0

    @property
    def claims(self) -> int:
        """Slots of all threads."""
        return sum(kept.slots for kept in self.tiles.values() if kept.is_shared)

    @property
    def tags(self) -> int:
        """Slots of each thread."""
        return sum(kept.slots for kept in self.tiles.values() if not kept.is_shared)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Digit:
    """A variable that the source's place depends on, and how many values it has."""

    var: Var
    value: Expr
    count: int
    is_loop: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class _Candidate:
    """A tile that could be kept: ``digits`` tell its contents apart."""

    tile: Tile
    digits: tuple[_Digit, ...]

    def has(self, axis: Axis) -> bool:
        """Whether blocks at other places of ``axis`` need other contents."""
        return any(digit.var == axis.var for digit in self.digits)

    @property
    def bytes(self) -> int:
        """Memory for all contents."""
        return math.prod(digit.count for digit in self.digits) * self.tile.bytes

    @property
    def inside(self) -> tuple[_Digit, ...]:
        """What tells the contents apart that one block needs."""
        return tuple(digit for digit in self.digits if digit.is_loop)

    @property
    def block_bytes(self) -> int:
        """Memory for all contents that one block needs."""
        return math.prod(digit.count for digit in self.inside) * self.tile.bytes


def find_kept(program: Program, tiles: Sequence[Tile]) -> Keeping:
    """What is kept, as far as memory allows."""
    axes = [axis for axis in program.grid if axis.extent != Const(1, axis.extent.dtype)]
    found = [_find_candidate(program, axes, tile) for tile in tiles]
    candidates = [candidate for candidate in found if candidate is not None]
    if not candidates:
        return Keeping()
    left = MOST_BYTES - sum(tile.bytes for tile in tiles)
    if sum(candidate.bytes for candidate in candidates) > left:
        return _keep_own(candidates, axes, left)
    return Keeping(tiles={candidate.tile.name: _keep(candidate) for candidate in candidates})


def _keep_own(candidates: list[_Candidate], axes: list[Axis], left: int) -> Keeping:
    """What each thread keeps by itself in ``left`` bytes.

    Blocks that follow each other along the first axis need the same of some tiles. Of those that change
    with it, as many columns are kept as there is room for, because the other axes come back to them.
    """
    first = axes[0]
    kept: dict[str, Kept] = {}
    moving = [candidate for candidate in candidates if candidate.has(first)]
    for candidate in sorted(candidates, key=lambda c: c.block_bytes):
        if not candidate.has(first) and candidate.block_bytes <= left:
            left -= candidate.block_bytes
            kept[candidate.tile.name] = _keep_in_turn(candidate, None, 1)
    columns = min(left // sum(c.block_bytes for c in moving) if moving else 0, _count(first))
    if columns < (2 if kept else 1):
        return Keeping(tiles=kept)
    columns = -(-_count(first) // -(-_count(first) // columns))
    kept |= {c.tile.name: _keep_in_turn(c, first, columns) for c in moving}
    return Keeping(tiles=kept, group=columns if columns < _count(first) else 0)


def _keep_in_turn(candidate: _Candidate, first: Axis | None, columns: int) -> Kept:
    """Slots for what one block needs, for as many columns of ``first``."""
    slot: Expr = _ZERO
    slots = 1
    if first is not None and columns > 1:
        slot = Op("floormod", (first.var, Const(columns, first.var.dtype)), first.var.dtype)
        slots = columns
    for digit in candidate.inside:
        slot, slots = _append(slot, digit.value, digit.count), slots * digit.count
    content: Expr = _ZERO
    for digit in candidate.digits:
        content = _append(content, digit.value, digit.count)
    return Kept(slots=slots, slot=slot, content=content)


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
    loops, ranges = {}, Ranges(program)
    for stmt in walk(program.body):
        if isinstance(stmt, For):
            loops[stmt.var] = stmt
            ranges.bind_loop(stmt)
    # Loops inside a block last: what it needs next then lies behind what it has.
    order = sorted(used, key=lambda var: (var in loops, var.name))
    digits = [_digit(program, loops, ranges, var) for var in order]
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


def _digit(program: Program, loops: dict[Var, For], ranges: Ranges, var: Var) -> _Digit | None:
    for axis in program.grid:
        if axis.var == var and isinstance(axis.extent, Const):
            return _Digit(var=var, value=var, count=_count(axis), is_loop=False)
    loop = loops.get(var)
    if loop is None or not isinstance(loop.start, Const):
        return None
    value: Expr = var if loop.start.value == 0 else Op("sub", (var, loop.start), var.dtype)
    return _Digit(var=var, value=value, count=ranges.of(loop.extent).high, is_loop=True)


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

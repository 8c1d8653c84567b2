"""Tiles that are kept from block to block: what another block has copied already is not copied again.

That holds for a tile which is only filled by one copy, from an array that is only read, if blocks
exist that would copy the same. Each content has a slot of its own and a tag that says which it is.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from tileyard.ir.effects import written_region
from tileyard.ir.nodes import Const, Copy, Expr, For, Load, Op, Program, Store, Tensor, Var
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

    copy: Copy
    slots: int
    slot: Expr
    tag: Expr


@dataclass(frozen=True, kw_only=True, slots=True)
class _Digit:
    """A variable that the source's place depends on, and how many values it has."""

    value: Expr
    count: int


def find_kept(program: Program, tiles: Iterable[Tile]) -> dict[str, Kept]:
    """The tiles that are kept, by name; earlier ones come first to the budget."""
    read_only = {
        param.buffer.name
        for param in program.params
        if isinstance(param, Tensor) and param.role == "in"
    }
    left, found = BUDGET, {}
    for tile in tiles:
        if isinstance(tile.layout, Rows) or len(tile.shape) != 2:
            continue
        copy = _only_copy(program, tile.name)
        if copy is None or copy.src.buffer not in read_only:
            continue
        kept = _keep(program, copy)
        if kept is not None and kept.slots * tile.bytes <= left:
            left -= kept.slots * tile.bytes
            found[tile.name] = kept
    return found


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


def _keep(program: Program, copy: Copy) -> Kept | None:
    """How the contents are told apart; None where that is not known, or no content comes twice."""
    parts = [part for start in copy.src.starts for part in walk_expr(start)]
    if any(isinstance(part, Load) for part in parts):
        return None
    used = {part for part in parts if isinstance(part, Var)} - set(program.dims)
    axes = [axis for axis in program.grid if axis.extent != Const(1, axis.extent.dtype)]
    if all(axis.var in used for axis in axes):
        return None
    digits: list[_Digit] = []
    slots = 1
    slot: Expr = _ZERO
    loops = {stmt.var: stmt for stmt in walk(program.body) if isinstance(stmt, For)}
    for var in sorted(used, key=lambda var: var.name):
        digit = _digit(program, loops, var)
        if digit is None:
            return None
        digits.append(digit)
        # Blocks come in the order of the first axes: one value of the last one at a time.
        if not axes or var != axes[-1].var:
            slot = _append(slot, digit)
            slots *= digit.count
    tag: Expr = _ZERO
    for digit in digits:
        tag = _append(tag, digit)
    return Kept(copy=copy, slots=slots, slot=slot, tag=Op("add", (tag, Const(1, "int64")), "int64"))


def _digit(program: Program, loops: dict[Var, For], var: Var) -> _Digit | None:
    for axis in program.grid:
        if axis.var == var and isinstance(axis.extent, Const):
            return _Digit(value=var, count=int(axis.extent.value))
    loop = loops.get(var)
    if loop is None or not isinstance(loop.extent, Const) or not isinstance(loop.start, Const):
        return None
    value: Expr = var if loop.start.value == 0 else Op("sub", (var, loop.start), var.dtype)
    return _Digit(value=value, count=int(loop.extent.value))


def _append(number: Expr, digit: _Digit) -> Expr:
    """``number`` with one more digit."""
    if digit.count == 1:
        return number
    if number == _ZERO:
        return digit.value
    count = Const(digit.count, "int64")
    return Op("add", (Op("mul", (number, count), "int64"), digit.value), "int64")

"""Finds copies that need not be made: gemms can read the source in place, or another block has made it.

A tile is kept from block to block if one copy alone fills it, from a read-only array, and other blocks copy
the same. If all contents fit in memory, each has a slot of its own in the memory of all threads, filled by
the first. Otherwise each thread keeps those that it will need again soon, in slots that record their
content. Blocks run in groups of columns whose contents fit.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tileyard.ir.nodes import (
    Atomic,
    Axis,
    Buffer,
    Const,
    Copy,
    Expr,
    For,
    Gemm,
    Load,
    Op,
    Program,
    Region,
    Roles,
    Stmt,
    Store,
    Var,
)
from tileyard.ir.ranges import Ranges
from tileyard.ir.specs import tensors
from tileyard.ir.walk import (
    buffer_effects,
    expressions,
    own_effects,
    read_regions,
    walk,
    walk_expr,
    written_region,
)
from tileyard.targets.cpu.emit.tiles import Rows, Tile, covers, find_bodies, find_number, reads

# ---- copies that are left out ---------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class Forwarding:
    """The copies left out, by identity; the tiles left out with them, each with its source."""

    copies: frozenset[int] = frozenset()
    sources: Mapping[str, str] = field(default_factory=dict)

    def left(self, stmt: Gemm) -> Region:
        """The region from which the left operand of ``stmt`` is read."""
        source = self.sources.get(stmt.a.buffer)
        return stmt.a if source is None else Region(source, stmt.a.starts, stmt.a.extents)


def find_forwarded(program: Program) -> Forwarding:
    """Copies of a whole tile into one of the same dtype that is only a left operand of gemms, which follow
    in its body or in a statement that does. Nothing writes the source until the last of them.
    """
    body = tuple(walk(program.body))
    if any(
        isinstance(stmt, Roles) for stmt in body
    ):  # which advance in turns, not in program order
        return Forwarding()
    tiles = _plain_tiles(program)
    copies, sources = set[int](), dict[str, str]()
    for statements in find_bodies(program.body):
        for place, stmt in enumerate(statements):
            if not isinstance(stmt, Copy) or not _is_whole_copy(stmt, tiles):
                continue
            name, source = stmt.dst.buffer, stmt.src.buffer
            readers = [x for x in body if isinstance(x, Gemm) and x.a.buffer == name]
            uses = sum(_uses(x, name) for x in body)
            if not readers or uses != len(readers) + 1 or any(x.transpose_a for x in readers):
                continue
            if _is_unchanged(statements[place + 1 :], readers, source):
                copies.add(id(stmt))
                sources[name] = source
    return Forwarding(copies=frozenset(copies), sources=sources)


def _plain_tiles(program: Program) -> dict[str, Buffer]:
    """The matrices in tiles whose memory has only one name."""
    viewed = {buffer.view_of for buffer in program.buffers}
    return {
        buffer.name: buffer
        for buffer in program.buffers
        if buffer.scope != "global"
        and len(buffer.shape) == 2
        and not buffer.view_of
        and buffer.name not in viewed
    }


def _is_whole_copy(stmt: Copy, tiles: dict[str, Buffer]) -> bool:
    src, dst = tiles.get(stmt.src.buffer), tiles.get(stmt.dst.buffer)
    return (
        src is not None
        and dst is not None
        and src is not dst
        and (src.dtype, src.shape) == (dst.dtype, dst.shape)
        and covers(stmt.src, src.shape)
        and covers(stmt.dst, dst.shape)
    )


def _uses(stmt: Stmt, buffer: str) -> int:
    regions = [*read_regions(stmt), written_region(stmt)]
    count = sum(region is not None and region.buffer == buffer for region in regions)
    count += isinstance(stmt, Store | Atomic) and stmt.buffer == buffer
    return count + sum(load.buffer == buffer for load in reads(*expressions(stmt)))


def _is_unchanged(following: tuple[Stmt, ...], readers: list[Gemm], source: str) -> bool:
    """Whether all ``readers`` come next, and nothing writes ``source`` before the last of them."""
    left = {id(reader) for reader in readers}
    for stmt in following:
        if source in buffer_effects((stmt,)).written:
            return False
        left -= {id(inner) for inner in walk((stmt,))}
        if not left:
            return True
    return False


# ---- tiles that are kept --------------------------------------------------------------------------


MOST_BYTES = 12 << 20
"""Most bytes of all tiles, kept ones and others: a run takes no more than 16 MiB per thread."""


_ZERO = Const(0, "int64")


@dataclass(frozen=True, kw_only=True, slots=True)
class Kept:
    """One copy: the tile's content goes into slot ``slot`` of ``slots``. Without ``content`` all threads
    share the slots, one per content; with it, the content's number, each thread's own hold several in turn.
    """

    slots: int
    slot: Expr
    content: Expr | None = None

    @property
    def is_shared(self) -> bool:
        """Whether all threads share the slots."""
        return self.content is None


@dataclass(frozen=True, kw_only=True, slots=True)
class Keeping:
    """The kept copies by the tile's name. Blocks run in groups of ``group`` columns, 0 for all."""

    tiles: dict[str, Kept] = field(default_factory=dict)
    group: int = 0

    @property
    def claims(self) -> int:
        """Number of slots that all threads share."""
        return sum(kept.slots for kept in self.tiles.values() if kept.is_shared)

    @property
    def tags(self) -> int:
        """Number of slots per thread."""
        return sum(kept.slots for kept in self.tiles.values() if not kept.is_shared)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Digit:
    """A variable that the source's place depends on, and the number of its values."""

    var: Var
    value: Expr
    count: int
    is_loop: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class _Candidate:
    """A tile that could be kept: ``digits`` identify its contents."""

    tile: Tile
    digits: tuple[_Digit, ...]

    def has(self, axis: Axis) -> bool:
        return any(digit.var == axis.var for digit in self.digits)

    @property
    def bytes(self) -> int:
        """Bytes for all contents."""
        return math.prod(digit.count for digit in self.digits) * self.tile.bytes

    @property
    def inside(self) -> tuple[_Digit, ...]:
        """The digits that identify the contents within one block."""
        return tuple(digit for digit in self.digits if digit.is_loop)

    @property
    def block_bytes(self) -> int:
        """Bytes for all contents that one block needs."""
        return math.prod(digit.count for digit in self.inside) * self.tile.bytes


def find_kept(program: Program, tiles: Sequence[Tile]) -> Keeping:
    """The copies to keep, as far as memory allows."""
    axes = [axis for axis in program.grid if find_number(axis.extent) != 1]
    found = [_find_candidate(program, axes, tile) for tile in tiles]
    candidates = [candidate for candidate in found if candidate is not None]
    if not candidates:
        return Keeping()
    left = MOST_BYTES - sum(tile.bytes for tile in tiles)
    if sum(candidate.bytes for candidate in candidates) > left:
        return _keep_own(candidates, axes, left)
    kept: dict[str, Kept] = {}
    for candidate in candidates:
        slot, slots = _number(candidate.digits, _ZERO, 1)
        kept[candidate.tile.name] = Kept(slots=slots, slot=slot)
    return Keeping(tiles=kept)


def _keep_own(candidates: list[_Candidate], axes: list[Axis], left: int) -> Keeping:
    """The copies that each thread keeps by itself in ``left`` bytes. Successive blocks along the
    first axis need the same content of some tiles; of others, as many columns are kept as fit,
    because the other axes return to them.
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
    """Slots for the contents of one block, times ``columns`` columns of ``first``."""
    begin: Expr = _ZERO
    if first is not None and columns > 1:
        begin = Op("floormod", (first.var, Const(columns, first.var.dtype)), first.var.dtype)
    slot, slots = _number(candidate.inside, begin, columns)
    content, _ = _number(candidate.digits, _ZERO, 1)
    return Kept(slots=slots, slot=slot, content=content)


def _find_candidate(program: Program, axes: list[Axis], tile: Tile) -> _Candidate | None:
    if isinstance(tile.layout, Rows) or len(tile.shape) != 2:
        return None
    body = tuple(walk(program.body))
    writers = [stmt for stmt in body if tile.name in own_effects(stmt).written]
    copy = writers[0] if len(writers) == 1 else None
    sources = {tensor.buffer.name for tensor in tensors(program) if tensor.role == "in"}
    if not isinstance(copy, Copy) or copy.src.buffer not in sources:
        return None
    parts = [part for start in copy.src.starts for part in walk_expr(start)]
    used = {part for part in parts if isinstance(part, Var)} - set(program.dims)
    # The copies of roles are made for readers that advance independently.
    has_roles = any(isinstance(stmt, Roles) for stmt in body)
    is_read = any(isinstance(part, Load) for part in parts)
    if has_roles or is_read or all(axis.var in used for axis in axes):
        return None
    loops, ranges = {}, Ranges(program)
    for stmt in body:
        if isinstance(stmt, For):
            loops[stmt.var] = stmt
            ranges.bind_loop(stmt)
    # Loops inside a block last: the content it needs next then follows the current one.
    order = sorted(used, key=lambda var: (var in loops, var.name))
    digits = [_digit(program, loops, ranges, var) for var in order]
    known = tuple(digit for digit in digits if digit is not None and digit.count > 0)
    return _Candidate(tile=tile, digits=known) if len(known) == len(digits) else None


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


def _number(digits: tuple[_Digit, ...], first: Expr, count: int) -> tuple[Expr, int]:
    """The number that ``first``, a digit of ``count`` values, and ``digits`` form; and its values' count."""
    for digit in digits:
        if digit.count > 1 and first == _ZERO:
            first = digit.value
        elif digit.count > 1:
            first = Op("mul", (first, Const(digit.count, "int64")), "int64")
            first = Op("add", (first, digit.value), "int64")
        count *= digit.count
    return first, count

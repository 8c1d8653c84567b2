"""Copies between tiles that are left out: the gemms that read the copy can read what was copied."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from tileyard.ir.effects import buffer_effects, expressions, read_regions, written_region
from tileyard.ir.nodes import (
    Atomic,
    Buffer,
    Const,
    Copy,
    For,
    Gemm,
    If,
    Load,
    Program,
    Region,
    Roles,
    Stmt,
    Store,
    While,
)
from tileyard.ir.walk import walk, walk_expr


@dataclass(frozen=True, kw_only=True, slots=True)
class Forwarding:
    """The copies that are left out, by identity; the tiles that vanish with them, each with its source."""

    copies: frozenset[int] = frozenset()
    sources: Mapping[str, str] = field(default_factory=dict)

    def left(self, stmt: Gemm) -> Region:
        """Where the left operand of ``stmt`` is read."""
        source = self.sources.get(stmt.a.buffer)
        return stmt.a if source is None else Region(source, stmt.a.starts, stmt.a.extents)


def find_forwarded(program: Program) -> Forwarding:
    """Copies of a whole tile into one of the same dtype that is only a left operand of gemms.

    The gemms follow the copy in its body, or inside a statement that does, and until the last of them
    nothing writes what was copied.
    """
    body = tuple(walk(program.body))
    if any(isinstance(stmt, Roles) for stmt in body):  # which go on in turns, not as they stand
        return Forwarding()
    tiles = _plain_tiles(program)
    copies, sources = set[int](), dict[str, str]()
    for statements in _bodies(program.body):
        for place, stmt in enumerate(statements):
            if not isinstance(stmt, Copy) or not _is_whole_copy(stmt, tiles):
                continue
            name, source = stmt.dst.buffer, stmt.src.buffer
            readers = [x for x in body if isinstance(x, Gemm) and x.a.buffer == name]
            uses = sum(_uses(x, name) for x in body)
            if not readers or uses != len(readers) + 1 or any(x.transpose_a for x in readers):
                continue
            if source not in sources and _is_unchanged(statements[place + 1 :], readers, source):
                copies.add(id(stmt))
                sources[name] = source
    return Forwarding(copies=frozenset(copies), sources=sources)


def _plain_tiles(program: Program) -> dict[str, Buffer]:
    """Matrices in tiles that have one name only."""
    viewed = {buffer.view_of for buffer in program.buffers}
    return {
        buffer.name: buffer
        for buffer in program.buffers
        if buffer.scope != "global"
        and len(buffer.shape) == 2
        and not buffer.view_of
        and buffer.name not in viewed
    }


def _bodies(body: tuple[Stmt, ...]) -> Iterator[tuple[Stmt, ...]]:
    """``body`` and all bodies inside it, but those of parallel loops."""
    yield body
    for stmt in body:
        match stmt:
            case For(kind="parallel"):
                continue
            case For() | While():
                yield from _bodies(stmt.body)
            case If():
                yield from _bodies(stmt.then)
                yield from _bodies(stmt.orelse)
            case _:
                continue


def _is_whole_copy(stmt: Copy, tiles: dict[str, Buffer]) -> bool:
    src, dst = tiles.get(stmt.src.buffer), tiles.get(stmt.dst.buffer)
    if src is None or dst is None or src is dst:
        return False
    same = src.dtype == dst.dtype and src.shape == dst.shape
    return same and _is_all(stmt.src, src) and _is_all(stmt.dst, dst)


def _is_all(region: Region, buffer: Buffer) -> bool:
    starts_at_0 = all(isinstance(at, Const) and at.value == 0 for at in region.starts)
    return starts_at_0 and [_number(x) for x in region.extents] == [
        _number(x) for x in buffer.shape
    ]


def _number(expr: object) -> object:
    return expr.value if isinstance(expr, Const) else expr


def _uses(stmt: Stmt, buffer: str) -> int:
    """How often ``stmt`` itself, nested bodies aside, has to do with ``buffer``."""
    regions = [*read_regions(stmt), written_region(stmt)]
    count = sum(region is not None and region.buffer == buffer for region in regions)
    count += isinstance(stmt, Store | Atomic) and stmt.buffer == buffer
    parts = (part for expr in expressions(stmt) for part in walk_expr(expr))
    return count + sum(isinstance(part, Load) and part.buffer == buffer for part in parts)


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

"""Gives tiles in shared memory the swizzle with the fewest bank conflicts that their units can use. Layouts
of fragments are left to TileLang, the user's stay. A tile has none if no swizzle beats rows, or TileLang
knows more about an access. Notes have each access's conflicts in rows and in the swizzle.
"""

from collections import defaultdict
from dataclasses import dataclass, field

import msgspec
import numpy as np

from tileyard.ir.dtypes import find_dtype
from tileyard.ir.nodes import (
    Atomic,
    Buffer,
    Const,
    Copy,
    Issue,
    Layout,
    Product,
    Program,
    Region,
    Stmt,
    Store,
    TileOperation,
)
from tileyard.ir.walk import number_statements, walk
from tileyard.passes.bank_conflicts import (
    GROUP,
    SPANS,
    Access,
    constant_shape,
    count_ways,
    find_accesses,
    laid_out_addresses,
    make_swizzle,
    possible_spans,
    swizzled_addresses,
)
from tileyard.passes.base import Note, Passed
from tileyard.passes.instructions import (
    WARPGROUP,
    WGMMA_M,
    Architecture,
    choose_product,
    count_threads,
    find_architecture,
)
from tileyard.passes.storage import Storage

_MOST_COLUMNS = 256
"""Largest number of columns of one wgmma."""

_TRANSPOSED = 2
"""Size in bytes of the elements whose columns ldmatrix can read."""


@dataclass(frozen=True, kw_only=True)
class Inferred:
    """A Program with layouts, what is to be said about accesses, and for each tile in shared memory that has
    no layout the reason.
    """

    program: Program
    notes: tuple[Note, ...]
    left: dict[str, str]


@dataclass(frozen=True)
class InferSharedLayouts:
    """Chooses layouts for the units of an architecture such as ``sm_80``."""

    architecture: str
    name: str = "infer-shared-layouts"

    def run(self, program: Program) -> Passed:
        """Choose layouts for the tiles without one."""
        found = self.infer(program)
        return Passed(
            program=found.program,
            origins=tuple(number for number, _ in number_statements(program)),
            notes=found.notes,
        )

    def infer(self, program: Program) -> Inferred:
        """Choose layouts, and say why a tile has none. UsageError for an unknown architecture."""
        inference = _Inference(Storage(program), find_architecture(self.architecture))
        buffers = tuple(map(inference.with_layout, program.buffers))
        return Inferred(
            program=msgspec.structs.replace(program, buffers=buffers),
            notes=tuple(sorted(inference.notes, key=lambda note: note.number)),
            left=inference.left,
        )


@dataclass
class _Uses:
    """A tile's uses: ``reasons`` why its layout is TileLang's, and each use's largest span by statement.
    ``is_matrix`` if a product reads it; ``strict`` has the products that can read only swizzles.
    """

    reasons: dict[int, str] = field(default_factory=dict)
    limits: dict[int, int] = field(default_factory=dict)
    strict: set[int] = field(default_factory=set)
    first: int = -1
    is_matrix: bool = False


class _Inference:
    def __init__(self, storage: Storage, arch: Architecture) -> None:
        self._storage, self._arch = storage, arch
        self._buffers, program = storage.buffers, storage.program
        self._uses: dict[str, _Uses] = defaultdict(_Uses)
        self._accesses: dict[str, list[Access]] = defaultdict(list)
        for access in find_accesses(storage):
            self._accesses[access.buffer].append(access)
        issued: dict[int, Issue] = {}
        for number, stmt in number_statements(program):
            if isinstance(stmt, Issue):
                issued |= {id(inner): stmt for inner in walk(stmt.body)}
            self._note_uses(number, stmt, issued.get(id(stmt)))
        self.notes: list[Note] = []
        self.left: dict[str, str] = {}

    # ---- requirements of uses ---------------------------------------------------------------

    def _note_uses(self, number: int, stmt: Stmt, issue: Issue | None) -> None:
        if isinstance(stmt, TileOperation):
            for name, use in stmt.uses.items():
                self._leave(number, getattr(stmt, name).buffer, use)
        match stmt:
            case Copy():
                for region in (stmt.src, stmt.dst):
                    self._note_copy(number, region, issue)
            case _ if isinstance(stmt, Product):
                self._note_product(number, stmt)
            case Atomic():
                self._leave(number, stmt.buffer, "it is updated atomically")
            case Store() if issue is not None:
                self._leave(number, stmt.buffer, "its elements are copied one by one")
            case _:
                pass

    def _leave(self, number: int, buffer: str, reason: str) -> None:
        self._uses[buffer].reasons.setdefault(number, reason)

    def _note_copy(self, number: int, region: Region, issue: Issue | None) -> None:
        """Note a copy: a TMA box consists of whole groups of rows, none of them longer than the span."""
        if issue is None or issue.unit not in ("tma", "tma_store"):
            return
        tile = self._buffers[region.buffer]
        if tile.scope != "shared":
            return
        sizes = (1, *(int(n.value) if isinstance(n, Const) else 1 for n in region.extents))
        rows, columns = sizes[-2:]
        row = columns * self._size(tile)
        span = next((span for span in SPANS if row % span == 0), 0)
        if rows % GROUP or not span:
            self._leave(number, tile.name, "TMA copies a part of it that no swizzle divides")
        else:
            self._uses[tile.name].limits[number] = span

    def _note_product(self, number: int, stmt: Product) -> None:
        is_wgmma = choose_product(stmt, self._storage, self._arch).instruction == "wgmma"
        for region, is_rows in ((stmt.a, not stmt.transpose_a), (stmt.b, stmt.transpose_b)):
            tile = self._buffers[region.buffer]
            if tile.scope != "shared":
                continue
            uses = self._uses[tile.name]
            uses.is_matrix = True
            if self._size(tile) != _TRANSPOSED and not is_rows:
                self._leave(number, tile.name, "a product reads its columns element by element")
            if not is_wgmma:
                continue
            uses.strict.add(number)
            spans = self._spans_of_wgmma(region, is_rows, stmt)
            if len(spans) == 1 and 0 not in spans:
                uses.limits[number] = min(spans)
            else:
                self._leave(
                    number, tile.name, "how wgmma reads it depends on the warps that share it"
                )

    def _spans_of_wgmma(self, region: Region, is_rows: bool, stmt: Product) -> set[int]:
        """The largest spans that divide what an instruction reads of a row, 0: none; several if unknown."""
        (extent,) = region.extents[-1:]
        if not isinstance(extent, Const):
            return set()
        length = int(extent.value)
        lengths = [length]
        if not is_rows and region is stmt.a:
            lengths = [WGMMA_M]
        elif not is_rows:  # groups of four warps may share the columns
            groups = range(1, count_threads(self._storage.program, stmt) // WARPGROUP + 1)
            lengths = [min(length // n, _MOST_COLUMNS) for n in groups if length % n == 0]
        size = self._size(self._buffers[region.buffer])
        return {next((s for s in SPANS if n * size % s == 0), 0) for n in lengths}

    def _size(self, buffer: Buffer) -> int:
        return find_dtype(buffer.dtype).bits // 8

    # ---- the choice -------------------------------------------------------------------------

    def with_layout(self, buffer: Buffer) -> Buffer:
        """``buffer`` with its layout, if it is a tile in shared memory that should have one."""
        if buffer.scope != "shared" or buffer.view_of or not constant_shape(buffer):
            return buffer
        if buffer.layout is not None:
            self._check_pinned(buffer, buffer.layout)
            return buffer
        uses, accesses = self._uses[buffer.name], self._accesses[buffer.name]
        ways = {span: self._count(buffer, accesses, span) for span in (0, *possible_spans(buffer))}
        span, reason = self._choose(buffer, uses, accesses, ways)
        if not span:
            self.left[buffer.name] = reason
        for at, access in enumerate(accesses):
            self._describe(access, ways[0][at], ways[span][at] if span else 0, span, reason)
        return (
            msgspec.structs.replace(buffer, layout=make_swizzle(buffer, span)) if span else buffer
        )

    def _choose(
        self, buffer: Buffer, uses: _Uses, accesses: list[Access], ways: dict[int, list[int]]
    ) -> tuple[int, str]:
        """The span for a tile, or 0 and the reason why it has none."""
        if buffer.name in self._storage.viewed:
            return 0, "it is seen as more than one buffer"
        if uses.reasons:
            return 0, next(iter(uses.reasons.values()))
        spans = [span for span in ways if span]
        if not spans:
            return 0, "no swizzle divides its rows"
        limit = min(uses.limits.values(), default=SPANS[0])
        self._note_disagreement(buffer, uses)
        spans = [span for span in spans if span <= limit]
        depths = sorted({access.depth for access in accesses}, reverse=True)

        def cost(span: int) -> tuple[int, ...]:
            """Conflicts, most loops first; on a tie, a product takes the largest span, and others rows."""
            found = ways[span]
            parts = (
                sum(found[at] - 1 for at, access in enumerate(accesses) if access.depth == depth)
                for depth in depths
            )
            return (*parts, -span if uses.is_matrix else span)

        best = min([*spans, *([] if uses.strict else [0])], key=cost, default=0)
        return best, "no swizzle has fewer"

    def _count(self, buffer: Buffer, accesses: list[Access], span: int) -> list[int]:
        return [
            count_ways(swizzled_addresses(buffer, span, access.at), access.width)
            for access in accesses
        ]

    # ---- notes ------------------------------------------------------------------------------

    def _describe(self, access: Access, rows: int, after: int, span: int, reason: str) -> None:
        said = f"{access.buffer} is {access.how}: {rows}-way bank conflicts in rows"
        if span:
            self._note(access.number, f"{said}, {after}-way with a swizzle of {span} bytes")
        elif rows > 1:
            self._note(access.number, f"{said}; its layout is left to TileLang: {reason}")

    def _note(self, number: int, text: str, other: int = -1) -> None:
        self.notes.append(Note(number=number, text=text, other=other))

    def _note_disagreement(self, buffer: Buffer, uses: _Uses) -> None:
        least = min(uses.limits, key=lambda number: uses.limits[number], default=-1)
        for number, span in uses.limits.items():
            if span > uses.limits[least]:
                self._note(
                    number,
                    f"{buffer.name} could have a swizzle of {span} bytes here, "
                    f"and another use allows {uses.limits[least]}",
                    least,
                )

    def _check_pinned(self, buffer: Buffer, layout: Layout) -> None:
        shape, uses = constant_shape(buffer), self._uses[buffer.name]
        addresses = laid_out_addresses(buffer, layout)
        if len(np.unique(addresses)) < len(addresses):
            self._note_pinned(buffer, "puts two elements at one place")
            return
        whole = tuple(np.indices(shape).reshape(len(shape), -1))
        same = [
            span
            for span in (0, *possible_spans(buffer))
            if np.array_equal(addresses, swizzled_addresses(buffer, span, whole))
        ]
        for number in uses.limits:
            if number in uses.strict and not any(same):
                self._note(
                    number,
                    f"the layout that {buffer.name} is given is not a swizzle that wgmma reads",
                )
            elif not same:
                self._note(
                    number, f"the layout that {buffer.name} is given is not a swizzle that TMA has"
                )

    def _note_pinned(self, buffer: Buffer, problem: str) -> None:
        number = min((access.number for access in self._accesses[buffer.name]), default=-1)
        self._note(number, f"the layout that {buffer.name} is given {problem}")

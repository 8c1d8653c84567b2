"""Decides, before any C is written, how gemms are computed and tile-local buffers stored. Integers
that only gemms read are stored as floats if no unit multiplies them and their products are exact.
"""

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from tileyard.base.errors import UnsupportedError
from tileyard.ir.dtypes import find_dtype, is_float, is_integer
from tileyard.ir.nodes import (
    Atomic,
    Buffer,
    Copy,
    Fill,
    Gemm,
    Program,
    Region,
    Store,
)
from tileyard.ir.specs import tensors
from tileyard.ir.walk import expressions, own_effects, walk
from tileyard.targets.cpu.emit.keeping import Forwarding, Keeping, find_forwarded, find_kept
from tileyard.targets.cpu.emit.scalars import C_BYTES, SCALARS
from tileyard.targets.cpu.emit.tiles import (
    LINE,
    ColumnPanels,
    Layout,
    RowPanels,
    Rows,
    Shape,
    Tile,
    constant_shape,
    extent_of,
    find_number,
    is_same,
    is_whole,
    is_zero_fill,
    reads,
    register_shape,
    row_stride,
    split_rows,
    tiles_of,
)
from tileyard.targets.cpu.emit.units import Unit, find_unit
from tileyard.targets.cpu.machine import Machine

CLAIM_BYTES = 4
"""Bytes of the state of a slot that all threads share: free, being filled, or filled."""

TAG_BYTES = 8
"""Bytes of the number of the content that a thread's slot holds, 0 for none."""

_WHOLE = 1 << 24
"""The number up to which floats hold all integers."""

_WORD = 32
"""Bits of an accumulator of integers."""

_HALF = 16
"""Bits of the narrowest float that is kept as itself."""

_SMALL = 32
"""Most elements of a buffer of scope ``local`` that is a C variable."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GemmPlan:
    """One gemm of (m, k) by (k, n) that reads ``a``. ``shape`` is None for plain loops;
    ``staged_a`` and ``staged_b`` are tiles that operands are copied into, None to read in place;
    ``staged_c`` is the product's before it is added to ``c``, None to add at once.
    """

    m: int
    n: int
    k: int
    a: Region
    shape: Shape | None = None
    staged_a: Tile | None = None
    staged_b: Tile | None = None
    staged_c: Tile | None = None

    @property
    def steps(self) -> int:
        """Number of steps along k of the micro-kernel."""
        return -(-self.k // self.shape.fold) if self.shape else self.k


@dataclass(kw_only=True, slots=True)
class Plan:
    """All tiles by name, staging tiles (``@...``) included; all gemms by their statement's
    identity. Shared memory begins with ``claims`` numbers, one per slot of all threads, a thread's
    with ``keeping.tags``, one per own slot; ``workspaces`` has the workspaces' places.
    """

    tiles: dict[str, Tile] = field(default_factory=dict)
    gemms: dict[int, GemmPlan] = field(default_factory=dict)
    keeping: Keeping = field(default_factory=Keeping)
    forwarding: Forwarding = field(default_factory=Forwarding)
    workspaces: dict[str, int] = field(default_factory=dict)
    scratch_bytes: int = 0
    shared_bytes: int = 0
    claims: int = 0


def make_plan(
    program: Program, machine: Machine, claims: int = 0, *, is_plain: bool = False
) -> Plan:
    """The plan for ``program``, with room for at least ``claims`` claims. Raises UnsupportedError.
    If it ``is_plain``, tiles are in rows of a thread's memory, and every copy is made.
    """
    return _Planner(program, machine, is_plain=is_plain).make(claims)


class _Planner:
    def __init__(self, program: Program, machine: Machine, *, is_plain: bool) -> None:
        self._is_plain = is_plain
        self._program = program
        self._machine = machine
        self._tiles = [buffer for buffer in program.buffers if buffer.scope != "global"]
        self._shapes = {buffer.name: constant_shape(buffer) for buffer in self._tiles}
        views = [buffer for buffer in program.buffers if buffer.view_of]
        self._aliased = {name for view in views for name in (view.name, view.view_of)}
        buffers = (*program.buffers, *(tensor.buffer for tensor in tensors(program)))
        self._dtypes = {buffer.name: buffer.dtype for buffer in buffers}
        self._forwarding = Forwarding() if is_plain else find_forwarded(program)
        self._lefts: set[str] = set()
        self._stages: dict[Tile, Tile] = {}
        self._plan = Plan(forwarding=self._forwarding)

    def make(self, claims: int) -> Plan:
        gemms = [stmt for stmt in walk(self._program.body) if isinstance(stmt, Gemm)]
        self._lefts = {self._forwarding.left(stmt).buffer for stmt in gemms if not stmt.transpose_a}
        shapes = {id(stmt): self._shape(stmt) for stmt in gemms}
        layouts = {} if self._is_plain else self._layouts(gemms, shapes)
        narrow = set[str]() if self._is_plain else self._narrow(shapes)
        results = {stmt.c.buffer for stmt in gemms}
        used_by_tiles = {name for stmt in walk(self._program.body) for name in tiles_of(stmt)}
        variables = {
            buffer.name
            for buffer in self._tiles
            if buffer.scope == "local" and buffer.name not in used_by_tiles and not self._is_plain
        }
        tiles = [
            replace(
                self._tile(buffer, layouts, buffer.name in results, buffer.name in variables),
                is_narrow=buffer.name in narrow,
            )
            for buffer in self._tiles
            if buffer.name not in self._forwarding.sources
        ]
        self._plan.keeping = Keeping() if self._is_plain else find_kept(self._program, tiles)
        self._plan.claims = max(self._plan.keeping.claims, claims)
        self._plan.shared_bytes = -(-CLAIM_BYTES * self._plan.claims // LINE) * LINE
        self._plan.scratch_bytes = -(-TAG_BYTES * self._plan.keeping.tags // LINE) * LINE
        self._place_workspaces()
        for tile in tiles:
            kept = self._plan.keeping.tiles.get(tile.name)
            self._add(
                tile if kept is None else replace(tile, slots=kept.slots, is_shared=kept.is_shared)
            )
        for stmt in gemms:
            self._plan.gemms[id(stmt)] = self._gemm(stmt, shapes[id(stmt)])
        return self._plan

    def _place_workspaces(self) -> None:
        for buffer in self._program.buffers:
            if buffer.scope == "global" and not buffer.view_of:
                elements = math.prod(constant_shape(buffer))
                self._plan.workspaces[buffer.name] = self._plan.shared_bytes
                size = elements * find_dtype(buffer.dtype).bits // 8
                self._plan.shared_bytes += -(-size // LINE) * LINE

    def _add(self, tile: Tile) -> Tile:
        size = -(-tile.bytes // LINE) * LINE
        if tile.is_shared:
            tile = replace(tile, offset=self._plan.shared_bytes)
            self._plan.shared_bytes += size
        elif not tile.is_variable and not tile.view_of:
            tile = replace(tile, offset=self._plan.scratch_bytes)
            self._plan.scratch_bytes += size
        self._plan.tiles[tile.name] = tile
        return tile

    def _tile(
        self, buffer: Buffer, layouts: dict[str, Layout], is_result: bool, is_variable: bool
    ) -> Tile:
        shape = self._shapes[buffer.name]
        scalar = SCALARS[buffer.dtype].tile
        if buffer.name in self._aliased:
            return self._aliased_tile(buffer)
        lanes = self._machine.vector_bytes // C_BYTES[scalar] if is_result else 1
        stride = row_stride(shape[-1] if shape else 1, len(shape), scalar, lanes)
        if is_result and buffer.name in self._lefts and stride * C_BYTES[scalar] % LINE == 0:
            stride += (
                lanes  # otherwise all elements of one step are in the same bank, as in ``Shape``
            )
        layout = layouts.get(buffer.name, Rows(stride=stride))
        tile = Tile(name=buffer.name, dtype=buffer.dtype, shape=shape, layout=layout)
        if tile.packing is not None:
            tile = replace(tile, dtype=tile.packing.dtype)
        elif buffer.name in layouts and is_integer(buffer.dtype):
            tile = replace(tile, dtype="float32")
        small = tile.matrices * tile.matrix_elements <= _SMALL
        return replace(tile, is_variable=is_variable and small)

    def _aliased_tile(self, buffer: Buffer) -> Tile:
        """A tile that has views, or is a view: without padding. Raises UnsupportedError."""
        kinds = {self._dtypes[name] for name in (buffer.name, buffer.view_of or buffer.name)}
        if len(kinds) > 1 and any(SCALARS[kind].narrow for kind in kinds):
            raise UnsupportedError(
                f"view {buffer.name} of {buffer.view_of} as {buffer.dtype} is not covered in tiles",
                operation="view",
                buffer=buffer.name,
            )
        shape = self._shapes[buffer.name]
        return Tile(
            name=buffer.name,
            dtype=buffer.dtype,
            shape=shape,
            layout=Rows(stride=shape[-1] if shape else 1),
            view_of=buffer.view_of,
        )

    # ---- gemms ------------------------------------------------------------------------------

    def _sizes(self, stmt: Gemm) -> tuple[int, int, int]:
        m, n = extent_of(stmt.c, -2), extent_of(stmt.c, -1)
        k = extent_of(stmt.a, -2 if stmt.transpose_a else -1)
        leading = (extent for one in (stmt.a, stmt.b, stmt.c) for extent in one.extents[:-2])
        if any(find_number(extent) != 1 for extent in leading):
            raise UnsupportedError(
                "gemm of more than one matrix", operation="gemm", buffer=stmt.c.buffer
            )
        return m, n, k

    def _shape(self, stmt: Gemm) -> Shape | None:
        """The register block, None if the types or the place of ``c`` need plain loops."""
        _, n, _ = self._sizes(stmt)
        if stmt.c.buffer not in self._shapes:
            return None
        kinds = [self._dtypes[region.buffer] for region in (stmt.a, stmt.b, stmt.c)]
        if unit := find_unit(self._machine, *kinds):
            return register_shape(self._machine, unit.scalar, n, unit)
        if all(map(is_integer, kinds)):
            return register_shape(self._machine, "float", n) if self._is_exact(stmt) else None
        scalar = SCALARS[kinds[2]].tile
        if scalar == "float" and "float64" in kinds:
            return None
        return register_shape(self._machine, scalar, n)

    def _is_exact(self, stmt: Gemm) -> bool:
        """Whether a product of integers is exact in floats, however its sums are grouped."""
        _, _, k = self._sizes(stmt)
        a, b, c = (find_dtype(self._dtypes[r.buffer]) for r in (stmt.a, stmt.b, stmt.c))
        largest = [max(-kind.range[0], kind.range[1]) for kind in (a, b)]
        return k * largest[0] * largest[1] <= _WHOLE and c.bits >= _WORD

    def _result(self, stmt: Gemm, shape: Shape) -> Tile | None:
        """The staging tile of the product; None for ``c`` itself, of floats with room for whole vectors."""
        m, n, _ = self._sizes(stmt)
        c = stmt.c.buffer
        has_room = c not in self._aliased and is_whole(stmt.c, self._shapes[c])
        if (is_float(self._dtypes[c]) or shape.unit) and (n % shape.lanes == 0 or has_room):
            return None
        rows = Rows(stride=row_stride(n, 2, shape.scalar, shape.columns))
        return self._stage("product", shape, (m, n), rows)

    def _stage(self, stem: str, shape: Shape, extents: tuple[int, int], layout: Layout) -> Tile:
        """A tile of the planner's own; those with the same place in a gemm, extents and layout are one."""
        kinds = {"double": "float64", "float": "float32", "uint32_t": "uint32"}
        packing = None if isinstance(layout, Rows) else layout.packing
        dtype = packing.dtype if packing else kinds[shape.scalar]
        name = f"@{stem}_{'x'.join(map(str, extents))}"
        tile = Tile(name=name, dtype=dtype, shape=extents, layout=layout)
        if tile not in self._stages:
            self._stages[tile] = self._add(replace(tile, name=f"{name}_{len(self._stages)}"))
        return self._stages[tile]

    def _gemm(self, stmt: Gemm, shape: Shape | None) -> GemmPlan:
        m, n, k = self._sizes(stmt)
        left = self._forwarding.left(stmt)
        if shape is None:
            return GemmPlan(m=m, n=n, k=k, a=left)
        staged_a = staged_b = None
        a = self._plan.tiles.get(left.buffer)
        extents = (k, m) if stmt.transpose_a else (m, k)
        if shape.unit:
            layout = self._packed_a(stmt, shape, shape.unit)
            if a is None or a.layout != layout:
                staged_a = self._stage("staged", shape, extents, layout)
        elif a is None or a.scalar != shape.scalar or isinstance(a.layout, ColumnPanels):
            rows = Rows(stride=row_stride(extents[1], 2, shape.scalar, 1))
            staged_a = self._stage("staged", shape, extents, rows)
        b = self._plan.tiles.get(stmt.b.buffer)
        is_scalar = shape.unit or (b is not None and b.scalar == shape.scalar)
        if b is None or b.layout != _column_panels(shape, stmt) or not is_scalar:
            extents = (n, k) if stmt.transpose_b else (k, n)
            staged_b = self._stage("packed", shape, extents, _column_panels(shape, stmt))
        return GemmPlan(
            m=m,
            n=n,
            k=k,
            a=left,
            shape=shape,
            staged_a=staged_a,
            staged_b=staged_b,
            staged_c=self._result(stmt, shape),
        )

    # ---- layouts ----------------------------------------------------------------------------

    def _layouts(self, gemms: list[Gemm], shapes: dict[int, Shape | None]) -> dict[str, Layout]:
        """The layouts of the buffers that are stored as gemms read them."""
        wanted: dict[str, list[Layout | None]] = defaultdict(list)
        for name in self._other_uses():
            wanted[name].append(None)
        for stmt in gemms:
            shape = shapes[id(stmt)]
            left = self._forwarding.left(stmt)
            wanted[left.buffer].append(self._wanted_a(stmt, left, shape))
            wanted[stmt.b.buffer].append(
                _column_panels(shape, stmt)
                if shape is not None and self._is_operand(stmt, stmt.b, shape)
                else None
            )
            wanted[stmt.c.buffer].append(None)
        return {
            name: wish
            for name, (wish, *others) in wanted.items()
            if wish is not None and all(other == wish for other in others)
        }

    def _wanted_a(self, stmt: Gemm, left: Region, shape: Shape | None) -> Layout | None:
        if shape is None or stmt.transpose_a or not self._is_operand(stmt, left, shape):
            return None
        if shape.unit:
            return self._packed_a(stmt, shape, shape.unit)
        m, _, _ = self._sizes(stmt)
        return RowPanels(split=split_rows(m, shape.rows), chunk=shape.chunk)

    def _packed_a(self, stmt: Gemm, shape: Shape, unit: Unit) -> Layout:
        """The left operand as words along k: panels of rows or, if it is (k, m), one panel of columns."""
        m, _, _ = self._sizes(stmt)
        if stmt.transpose_a:
            return ColumnPanels(columns=m, transposed=False, packing=unit.left)
        return RowPanels(
            split=split_rows(m, shape.rows), chunk=shape.chunk * unit.fold, packing=unit.left
        )

    def _is_operand(self, stmt: Gemm, region: Region, shape: Shape) -> bool:
        """Whether a whole tile could be stored as the micro-kernel reads it: integers as floats."""
        name = region.buffer
        is_exact = all(self._is_integer(part) for part in (stmt.a, stmt.b, stmt.c))
        return bool(
            name in self._shapes
            and len(self._shapes[name]) >= 2
            and (shape.unit or is_exact or SCALARS[self._dtypes[name]].tile == shape.scalar)
            and is_whole(region, self._shapes[name])
        )

    def _narrow(self, shapes: dict[int, Shape | None]) -> set[str]:
        """The tiles of bfloat16 that only products by a unit read, in this type, however they are written."""
        others = set(self._aliased)
        for stmt in walk(self._program.body):
            effects = own_effects(stmt)
            shape = shapes.get(id(stmt))
            if isinstance(stmt, Gemm):
                others.add(stmt.c.buffer)
            if shape is None or shape.unit is None:
                others |= effects.read
            if not isinstance(stmt, Store | Copy | Fill):
                others |= effects.written
        return {name for name in self._shapes if self._dtypes[name] == "bfloat16"} - others

    def _other_uses(self) -> Iterator[str]:
        """Buffers used by anything other than a gemm's operands, a whole copy in, or a whole fill."""
        yield from self._aliased
        for stmt in walk(self._program.body):
            if id(stmt) in self._forwarding.copies:
                continue
            yield from (load.buffer for load in reads(*expressions(stmt)))
            match stmt:
                case Store() | Atomic():
                    yield stmt.buffer
                case Gemm():
                    pass
                case Fill():
                    if not self._is_whole_tile(stmt.dst) or not is_zero_fill(stmt):
                        yield stmt.dst.buffer
                case Copy():
                    yield stmt.src.buffer
                    is_cast = self._dtypes[stmt.src.buffer] != self._dtypes[stmt.dst.buffer]
                    if (
                        not self._is_whole_tile(stmt.dst)
                        or not is_same(stmt.src.extents[-1], stmt.dst.extents[-1])
                        or (is_cast and self._may_widen(stmt.dst))
                    ):
                        yield stmt.dst.buffer
                case _:
                    yield from tiles_of(stmt)

    def _is_integer(self, region: Region) -> bool:
        return is_integer(self._dtypes[region.buffer])

    def _may_widen(self, region: Region) -> bool:
        """Whether gemms may keep a tile in another type, to which no conversion gives its own numbers."""
        kind = find_dtype(self._dtypes[region.buffer])
        return is_integer(kind.name) or kind.bits < _HALF

    def _is_whole_tile(self, region: Region) -> bool:
        return region.buffer in self._shapes and is_whole(region, self._shapes[region.buffer])


def _column_panels(shape: Shape, stmt: Gemm) -> ColumnPanels:
    packing = shape.unit.right if shape.unit else None
    return ColumnPanels(columns=shape.columns, transposed=stmt.transpose_b, packing=packing)

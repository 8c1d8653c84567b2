"""Hypothesis strategies for small legal Programs that run without a fault. Indices are kept in
range by ``%``, divisors and shift counts are constants, loops short, and tiles filled first.
"""

import math
from collections.abc import Sequence

from hypothesis import strategies as st

from tileyard.ir.dtypes import DTYPES, is_float
from tileyard.ir.nodes import (
    Atomic,
    AtomicKind,
    Axis,
    Break,
    Buffer,
    Cast,
    Const,
    Copy,
    Expr,
    Fill,
    For,
    Gemm,
    If,
    Let,
    Load,
    Op,
    Param,
    Program,
    Reduce,
    Region,
    Scalar,
    Scope,
    Stmt,
    Store,
    Tensor,
    Var,
    While,
)

_SIZES = st.integers(1, 4)
_DTYPES = ("float32", "float16", "bfloat16", "float64", "int32", "int8", "uint8", "int64")
_FLOAT_UNARY = ("exp2", "sqrt", "tanh", "sigmoid", "floor", "round", "sin", "erf")


def _int(value: int, dtype: str = "int32") -> Const:
    return Const(value, dtype)


@st.composite
def literals(draw: st.DrawFn, dtype: str) -> Expr:
    """A literal of ``dtype``, infinities and zeros of both signs included."""
    kind = DTYPES[dtype]
    if kind.kind == "bool":
        return Const(draw(st.booleans()), dtype)
    if kind.is_float:
        return Const(draw(st.floats(allow_nan=False)), dtype)
    least, greatest = kind.range
    return Const(draw(st.integers(least, greatest)), dtype)


class _Maker:
    """Draws statements, and expressions over the visible ``vars`` and ``buffers``. ``is_exact``:
    only operations equal on all targets to the last bit. ``unread`` buffers have undefined content;
    ``read_only`` ones are not written.
    """

    def __init__(self, draw: st.DrawFn, *, is_exact: bool) -> None:
        self.draw = draw
        self.vars: list[Var] = []
        self.buffers: list[Buffer] = []
        self.unread: set[str] = set()
        self.read_only: set[str] = set()
        self._unary = ("sqrt", "floor", "round", "ceil", "trunc") if is_exact else _FLOAT_UNARY
        self._count = 0

    def name(self, stem: str) -> str:
        """A unique name."""
        self._count += 1
        return f"{stem}{self._count}"

    # ---- expressions ------------------------------------------------------------------------

    def expr(self, dtype: str, depth: int = 3) -> Expr:
        """An expression of ``dtype``."""
        draw = self.draw
        leaves = [Var(v.name, v.dtype) for v in self.vars if v.dtype == dtype]
        loads = [b for b in self.buffers if b.dtype == dtype and b.name not in self.unread]
        choice = draw(st.integers(0, 5 if depth else 2))
        if choice == 0 and leaves:
            return draw(st.sampled_from(leaves))
        if choice == 1 and loads:
            buffer = draw(st.sampled_from(loads))
            return Load(buffer.name, self.indices(buffer, depth - 1), dtype)
        if choice <= 2:
            return draw(literals(dtype))
        if choice == 3 and dtype != "bool":
            source = draw(st.sampled_from(_DTYPES))
            return Cast(self.expr(source, depth - 1), dtype)
        if choice == 4:
            return Op(
                "select",
                (self.expr("bool", depth - 1), *(self.expr(dtype, depth - 1) for _ in range(2))),
                dtype,
            )
        return self._op(dtype, depth - 1)

    def _op(self, dtype: str, depth: int) -> Expr:
        draw, kind = self.draw, DTYPES[dtype]
        if kind.kind == "bool":
            return self._bool(depth)
        if kind.is_float:
            if draw(st.booleans()):
                name = draw(st.sampled_from((*self._unary, "neg", "abs")))
                return Op(name, (self.expr(dtype, depth),), dtype)
            name = draw(st.sampled_from(("add", "sub", "mul", "div", "min", "max")))
            return Op(name, (self.expr(dtype, depth), self.expr(dtype, depth)), dtype)
        name = draw(
            st.sampled_from(
                (
                    *("add", "sub", "mul", "min", "max", "bitand", "bitor", "bitxor", "bitnot"),
                    *("floordiv", "floormod", "truncdiv", "truncmod", "shl", "shr", "neg"),
                )
            )
        )
        if name in ("bitnot", "neg"):
            return Op(name, (self.expr(dtype, depth),), dtype)
        right = self.expr(dtype, depth)
        if name in ("shl", "shr"):
            right = _int(draw(st.integers(0, kind.bits - 1)), dtype)
        elif name.endswith(("div", "mod")):
            right = _int(draw(st.integers(1, 9)), dtype)
        return Op(name, (self.expr(dtype, depth), right), dtype)

    def _bool(self, depth: int) -> Expr:
        name = self.draw(st.sampled_from(("eq", "ne", "lt", "le", "gt", "ge", "and", "or", "not")))
        if name == "not":
            return Op(name, (self.expr("bool", depth),), "bool")
        side = "bool" if name in ("and", "or") else self.draw(st.sampled_from(_DTYPES))
        return Op(name, (self.expr(side, depth), self.expr(side, depth)), "bool")

    def indices(self, buffer: Buffer, depth: int = 1) -> tuple[Expr, ...]:
        """Indices of one element; those of a global buffer may be outside it."""
        found: list[Expr] = []
        for extent in buffer.shape:
            index = self.expr("int32", max(depth, 0))
            size = extent.value if isinstance(extent, Const) else 1
            if buffer.scope != "global":
                index = Op("floormod", (index, _int(int(size))), "int32")
            found.append(index)
        return tuple(found)

    # ---- statements -------------------------------------------------------------------------

    def body(self, depth: int, loops: int) -> tuple[Stmt, ...]:
        """Some statements, with bindings that end with them."""
        seen = len(self.vars)
        count = self.draw(st.integers(1, 3))
        found = [stmt for _ in range(count) for stmt in self.stmts(depth, loops)]
        del self.vars[seen:]
        return tuple(found)

    def stmts(self, depth: int, loops: int) -> list[Stmt]:
        """One statement, or a few that belong together."""
        plain = (
            self._store,
            self._store,
            self._fill,
            self._let,
            self._reduce,
            self._gemm,
            self._atomic,
            self._view,
        )
        nested = (self._loop, self._branch, self._while)
        choice = self.draw(st.integers(0, len(plain) + (len(nested) if depth else 0) - 1))
        if choice < len(plain):
            return plain[choice]()
        return nested[choice - len(plain)](depth, loops)

    def _writable(self) -> Buffer:
        choices = [b for b in self.buffers if b.name not in self.read_only]
        return self.draw(st.sampled_from(choices))

    def _store(self) -> list[Stmt]:
        buffer = self._writable()
        return [Store(buffer.name, self.indices(buffer), self.expr(buffer.dtype))]

    def _atomic(self) -> list[Stmt]:
        choices = [
            buffer
            for buffer in self.buffers
            if buffer.name not in self.read_only | self.unread and buffer.dtype != "bool"
        ]
        if not choices:
            return self._store()
        buffer = self.draw(st.sampled_from(choices))
        kinds: list[AtomicKind] = ["add", "max", "min", "exchange"]
        if not is_float(buffer.dtype):
            kinds += ["and", "or", "xor"]
        kind = self.draw(st.sampled_from(kinds))
        indices, value = self.indices(buffer), self.expr(buffer.dtype)
        if self.draw(st.booleans()):
            return [Atomic(buffer.name, indices, value, kind)]
        var = Var(self.name("v"), buffer.dtype)
        self.vars.append(var)
        return [Atomic(buffer.name, indices, value, kind, var)]

    def _view(self) -> list[Stmt]:
        """A view of a tile as one row, for later statements."""
        tiles = [b for b in self.buffers if b.scope != "global" and not b.view_of and b.shape]
        tiles = [tile for tile in tiles if tile.name not in self.read_only]
        if not tiles:
            return self._store()
        tile = self.draw(st.sampled_from(tiles))
        count = math.prod(int(e.value) for e in tile.shape if isinstance(e, Const))
        name = self.name("r")
        self.buffers.append(Buffer(name, tile.dtype, (_int(count),), tile.scope, view_of=tile.name))
        return self._store()

    def _fill(self) -> list[Stmt]:
        buffer = self._writable()
        value = self.expr(self.draw(st.sampled_from(_DTYPES)), 1)
        return [Fill(self._box(buffer), value)]

    def _let(self) -> list[Stmt]:
        dtype = self.draw(st.sampled_from((*_DTYPES, "bool")))
        value = self.expr(dtype)
        var = Var(self.name("v"), dtype)
        self.vars.append(var)
        return [Let(var, value)]

    def _box(self, buffer: Buffer) -> Region:
        starts, extents = [], []
        for extent in buffer.shape:
            size = int(extent.value) if isinstance(extent, Const) else 1
            length = self.draw(st.integers(1, size))
            starts.append(_int(self.draw(st.integers(0, size - length))))
            extents.append(_int(length))
        return Region(buffer.name, tuple(starts), tuple(extents))

    def tile(self, dtype: str, shape: Sequence[int]) -> Buffer:
        """A new tile-local buffer."""
        scopes: list[Scope] = ["shared", "fragment", "local"]
        scope = self.draw(st.sampled_from(scopes))
        buffer = Buffer(self.name("t"), dtype, tuple(map(_int, shape)), scope)
        self.buffers.append(buffer)
        return buffer

    def whole(self, buffer: Buffer) -> Region:
        """All of a buffer."""
        return Region(buffer.name, (_int(0),) * len(buffer.shape), buffer.shape)

    def _made(self, dtype: str, shape: Sequence[int]) -> tuple[Buffer, list[Stmt]]:
        """A new tile with content: copied from a parameter, also from outside it, or filled."""
        buffer = self.tile(dtype, shape)
        sources = [
            b
            for b in self.buffers
            if b.scope == "global" and b.name not in self.unread and len(b.shape) == len(shape)
        ]
        if self.draw(st.booleans()) and sources:
            source = self.draw(st.sampled_from(sources))
            starts = tuple(_int(self.draw(st.integers(-2, 3))) for _ in shape)
            region = Region(source.name, starts, buffer.shape)
            return buffer, [Copy(region, self.whole(buffer))]
        return buffer, [Fill(self.whole(buffer), self.expr(dtype, 1))]

    def _gemm(self) -> list[Stmt]:
        m, n, k = (self.draw(_SIZES) for _ in range(3))
        is_float = self.draw(st.booleans())
        dtype = self.draw(
            st.sampled_from(("float32", "float16") if is_float else ("int8", "int32"))
        )
        flip_a, flip_b = self.draw(st.booleans()), self.draw(st.booleans())
        a, made_a = self._made(dtype, (k, m) if flip_a else (m, k))
        b, made_b = self._made(dtype, (n, k) if flip_b else (k, n))
        c, made_c = self._made("float32" if is_float else "int32", (m, n))
        regions = (self.whole(a), self.whole(b), self.whole(c))
        clear = self.draw(st.booleans())
        return [*made_a, *made_b, *made_c, Gemm(*regions, flip_a, flip_b, clear)]

    def _reduce(self) -> list[Stmt]:
        shape = (self.draw(_SIZES), self.draw(_SIZES))
        axis = self.draw(st.integers(0, 1))
        dtype = self.draw(st.sampled_from(("float32", "int32")))
        src, made = self._made(dtype, shape)
        dst, also = self._made(dtype, (shape[1 - axis],))
        kind = self.draw(st.sampled_from(("sum", "max", "min", "abssum", "absmax")))
        stmt = Reduce(
            self.whole(src),
            self.whole(dst),
            kind=kind,  # type: ignore[arg-type]
            axis=axis,
            clear=self.draw(st.booleans()),
        )
        return [*made, *also, stmt]

    def _loop(self, depth: int, loops: int) -> list[Stmt]:
        kind = self.draw(st.sampled_from(("serial", "unroll", "pipelined")))
        var = Var(self.name("i"), "int32")
        extent = _int(self.draw(st.integers(0, 3)))
        start = _int(self.draw(st.integers(0, 2)))
        self.vars.append(var)
        body = self.body(depth - 1, loops + 1)
        self.vars.remove(var)
        stages = 2 if kind == "pipelined" else 0
        return [For(var, start, extent, kind, body, stages)]  # type: ignore[arg-type]

    def _branch(self, depth: int, loops: int) -> list[Stmt]:
        cond = self.expr("bool", 2)
        then = self.body(depth - 1, loops)
        if loops and self.draw(st.booleans()):
            then = (*then, Break())
        orelse = self.body(depth - 1, loops) if self.draw(st.booleans()) else ()
        return [If(cond, then, orelse)]

    def _while(self, depth: int, loops: int) -> list[Stmt]:
        """A loop that ends by a counter, which its body cannot access."""
        counter = Buffer(self.name("n"), "int32", (_int(1),), "local")
        body = self.body(depth - 1, loops + 1)
        self.buffers.append(counter)
        self.read_only.add(counter.name)
        element = Load(counter.name, (_int(0),), "int32")
        cond = Op("gt", (element, _int(0)), "bool")
        step = Store(counter.name, (_int(0),), Op("sub", (element, _int(1)), "int32"))
        first = Store(counter.name, (_int(0),), _int(self.draw(st.integers(0, 2))))
        return [first, While(cond, (step, *body))]


def _params(maker: _Maker) -> list[Param]:
    draw = maker.draw
    params: list[Param] = []
    roles = ("in", "out", "inout")
    for role in draw(st.lists(st.sampled_from(roles), min_size=1, max_size=3)):
        dtype = draw(st.sampled_from((*_DTYPES, "bool")))
        shape = tuple(_int(draw(_SIZES)) for _ in range(draw(st.integers(1, 2))))
        buffer = Buffer(maker.name("P"), dtype, shape, "global")
        params.append(Tensor(buffer, role))  # type: ignore[arg-type]
        maker.buffers.append(buffer)
        if role == "in":
            maker.read_only.add(buffer.name)
        if role == "out":
            maker.unread.add(buffer.name)
    if draw(st.booleans()):
        var = Var(maker.name("s"), draw(st.sampled_from(_DTYPES)))
        params.append(Scalar(var))
        maker.vars.append(var)
    return params


@st.composite
def programs(draw: st.DrawFn, *, max_blocks: int = 4, is_exact: bool = False) -> Program:
    """A legal Program of a few statements over small arrays. Blocks may write the same elements:
    only ``max_blocks=1`` excludes that order matters; ``is_exact`` that roundings do.
    """
    maker = _Maker(draw, is_exact=is_exact)
    params = _params(maker)
    grid: list[Axis] = []
    while max_blocks > 1 and len(grid) < 2 and draw(st.booleans()):
        extent = draw(st.integers(1, min(2, max_blocks)))
        grid.append(Axis(Var(maker.name("b"), "int32"), _int(extent)))
        max_blocks //= extent
    maker.vars += [axis.var for axis in grid]
    maker.tile(draw(st.sampled_from(_DTYPES)), (draw(_SIZES), draw(_SIZES)))
    body = maker.body(2, 0)
    tiles = tuple(buffer for buffer in maker.buffers if buffer.scope != "global")
    fills = tuple(Fill(maker.whole(tile), _int(1)) for tile in tiles)
    return Program(
        name="generated",
        params=tuple(params),
        dims=(),
        grid=tuple(grid),
        threads=draw(st.sampled_from(((), (128,), (32, 4, 1)))),
        buffers=tiles,
        body=fills + body,
    )

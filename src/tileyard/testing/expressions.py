"""Hypothesis strategies for expressions that are legal where they stand, and fault nowhere."""

from hypothesis import strategies as st

from tileyard.ir.dtypes import DTYPES
from tileyard.ir.nodes import Buffer, Cast, Const, Expr, Load, Op, Var

DTYPE_NAMES = ("float32", "float16", "bfloat16", "float64", "int32", "int8", "uint8", "int64")
_FLOAT_UNARY = ("exp2", "sqrt", "tanh", "sigmoid", "floor", "round", "sin", "erf")


def int_literal(value: int, dtype: str = "int32") -> Const:
    """An integer literal."""
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


class ExprMaker:
    """Draws expressions over ``vars`` and ``buffers``, which are what is in sight.

    With ``is_exact`` only operations are drawn whose results all targets share to the last bit.
    ``unread`` are buffers whose content is undefined.
    """

    def __init__(self, draw: st.DrawFn, *, is_exact: bool) -> None:
        self.draw = draw
        self.vars: list[Var] = []
        self.buffers: list[Buffer] = []
        self.unread: set[str] = set()
        self._unary = ("sqrt", "floor", "round", "ceil", "trunc") if is_exact else _FLOAT_UNARY
        self._count = 0

    def name(self, stem: str) -> str:
        """A name that nothing else has."""
        self._count += 1
        return f"{stem}{self._count}"

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
            source = draw(st.sampled_from(DTYPE_NAMES))
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
            right = int_literal(draw(st.integers(0, kind.bits - 1)), dtype)
        elif name.endswith(("div", "mod")):
            right = int_literal(draw(st.integers(1, 9)), dtype)
        return Op(name, (self.expr(dtype, depth), right), dtype)

    def _bool(self, depth: int) -> Expr:
        name = self.draw(st.sampled_from(("eq", "ne", "lt", "le", "gt", "ge", "and", "or", "not")))
        if name == "not":
            return Op(name, (self.expr("bool", depth),), "bool")
        side = "bool" if name in ("and", "or") else self.draw(st.sampled_from(DTYPE_NAMES))
        return Op(name, (self.expr(side, depth), self.expr(side, depth)), "bool")

    def indices(self, buffer: Buffer, depth: int = 1) -> tuple[Expr, ...]:
        """Indices of one element; those of a global buffer may lie outside it."""
        found: list[Expr] = []
        for extent in buffer.shape:
            index = self.expr("int32", max(depth, 0))
            size = extent.value if isinstance(extent, Const) else 1
            if buffer.scope != "global":
                index = Op("floormod", (index, int_literal(int(size))), "int32")
            found.append(index)
        return tuple(found)

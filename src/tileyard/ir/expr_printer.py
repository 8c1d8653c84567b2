"""Prints expressions and regions of Program text; ``printer.py`` prints what stands around them."""

import math
from collections.abc import Sequence

from tileyard.errors import InvalidProgramError
from tileyard.ir import syntax
from tileyard.ir.dtypes import DTYPES
from tileyard.ir.nodes import (
    Atomic,
    Buffer,
    Cast,
    Const,
    Expr,
    For,
    Let,
    Load,
    Op,
    Program,
    Region,
    Stmt,
    Tensor,
    Var,
)
from tileyard.ir.ops import OPS

_ZERO = Const(0, "int32")
_ONE = Const(1, "int32")


class ExprPrinter:
    """Keeps what the reader will know at each point, so that only what it cannot infer is stated."""

    def __init__(self, program: Program) -> None:
        self.buffers: dict[str, Buffer] = {}
        self.scalars: dict[str, str] = {}
        for param in program.params:
            if isinstance(param, Tensor):
                self.buffers[param.buffer.name] = param.buffer
            else:
                self.scalars[param.var.name] = param.var.dtype
        for var in (*program.dims, *(axis.var for axis in program.grid)):
            self.scalars[var.name] = var.dtype
        for buffer in program.buffers:
            self.buffers[buffer.name] = buffer

    def declare(self, stmt: Stmt) -> None:
        """Note the variable that ``stmt`` brings into being."""
        if isinstance(stmt, Let | For | Atomic) and stmt.var is not None:
            self.scalars[stmt.var.name] = stmt.var.dtype

    # ---- names and regions ------------------------------------------------------------------

    @staticmethod
    def name(name: str) -> str:
        """A name, checked."""
        if not syntax.is_name(name):
            raise InvalidProgramError(f"{name!r} cannot be a name in a Program")
        return name

    def indices(self, exprs: Sequence[Expr]) -> str:
        """Expressions with commas between them."""
        return ", ".join(map(self.expr, exprs)) or "()"

    def region(self, region: Region) -> str:
        """A region as it stands in a call."""
        buffer = self.buffers.get(region.buffer)
        shape = buffer.shape if buffer is not None else ()
        known = len(region.starts) == len(region.extents) == len(shape)
        parts = []
        for number, (start, extent) in enumerate(zip(region.starts, region.extents, strict=False)):
            if known and start == _ZERO and extent == shape[number]:
                parts.append(":")
            elif extent == _ONE and extent.dtype == "int32":
                parts.append(self.expr(start))
            else:
                parts.append(f"{self.expr(start)} : +{self.expr(extent, level=syntax.PREFIX)}")
        name = self.name(region.buffer)
        if known and all(part == ":" for part in parts):
            return name
        return f"{name}[{', '.join(parts) or '()'}]"

    # ---- expressions ------------------------------------------------------------------------

    def expr(self, expr: Expr, hint: str | None = None, level: int = 0) -> str:
        """``expr`` in parentheses where it binds less tightly than ``level``."""
        match expr:
            case Const():
                return self._const(expr, hint)
            case Var():
                known = self.scalars.get(expr.name) == expr.dtype
                return self._typed(self.name(expr.name), expr, known)
            case Load():
                buffer = self.buffers.get(expr.buffer)
                known = buffer is not None and buffer.dtype == expr.dtype
                text = f"{self.name(expr.buffer)}[{self.indices(expr.indices)}]"
                return self._typed(text, expr, known)
            case Cast():
                if syntax.is_literal(expr.value):
                    return f"cast({self.expr(expr.value)}, {expr.dtype})"
                return f"{expr.dtype}({self.expr(expr.value)})"
            case Op():
                return self._op(expr, hint, level)

    @staticmethod
    def _typed(text: str, expr: Expr, known: bool) -> str:
        return text if known else f"typed({text}, {expr.dtype})"

    @staticmethod
    def _const(const: Const, hint: str | None) -> str:
        if const.dtype == "bool":
            return str(bool(const.value))
        is_float = const.dtype in DTYPES and DTYPES[const.dtype].is_float
        value = float(const.value) if is_float else const.value
        if isinstance(value, float) and math.isnan(value):
            raise InvalidProgramError("NaN is not a literal", hint='it is Op("nan", (), dtype)')
        text = repr(value) if is_float else str(int(value))
        if syntax.literal_dtype(is_float, hint) == const.dtype:
            return text
        return f"{const.dtype}({text})"

    def _op(self, op: Op, hint: str | None, level: int) -> str:
        operands = [op.args[number] for number in syntax.operands(op.name, op.args)]
        solid = [arg.dtype for arg in operands if not syntax.is_literal(arg)]
        natural = syntax.result_dtype(op.name, solid or [arg.dtype for arg in operands])
        is_given = op.name in OPS and OPS[op.name].result == "given"
        if natural != op.dtype and not is_given:
            return f"typed({self._spell(op, solid[0] if solid else None, None)[0]}, {op.dtype})"
        outer = syntax.outer_hint(op.name, hint)
        text, own = self._spell(op, solid[0] if solid else outer, outer)
        return f"({text})" if own < level else text

    def _spell(self, op: Op, beside: str | None, outer: str | None) -> tuple[str, int]:
        """The text of ``op`` with its precedence. Numbers are hinted at by ``beside``."""
        row = OPS.get(op.name)

        def arg(number: int, level: int = 0) -> str:
            value = op.args[number]
            return self.expr(value, beside if syntax.is_literal(value) else outer, level)

        own = syntax.PRECEDENCE.get(op.name, syntax.TIGHTEST)
        if row is None or len(op.args) != row.arity or op.name not in syntax.PRECEDENCE:
            args = [arg(number) for number in range(len(op.args))]
            if row is not None and row.result == "given":
                args.append(op.dtype)
            return f"{op.name if row is None else row.name}({', '.join(args)})", syntax.TIGHTEST
        if op.name == "select":
            cond = self.expr(op.args[0], level=own + 1)
            return f"{arg(1, own + 1)} if {cond} else {arg(2, own)}", own
        if row.arity == 1:
            if syntax.is_literal(op.args[0]):
                return f"{op.name}({arg(0)})", syntax.TIGHTEST
            space = " " if row.symbol.isalpha() else ""
            return f"{row.symbol}{space}{arg(0, own)}", own
        left, right = syntax.side_precedences(op.name)
        return f"{arg(0, left)} {row.symbol} {arg(1, right)}", own

"""Prints Programs in the language that ``reader.py`` describes."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import assert_never

from tileyard.base.errors import InvalidProgramError
from tileyard.ir import syntax
from tileyard.ir.dtypes import DTYPES
from tileyard.ir.meanings import OPS
from tileyard.ir.nodes import (
    Assert,
    Atomic,
    Await,
    Break,
    Buffer,
    Cast,
    Const,
    Expr,
    For,
    If,
    Issue,
    Layout,
    Let,
    Load,
    Op,
    Param,
    Print,
    Program,
    Region,
    Roles,
    Scalar,
    Stmt,
    Store,
    Synchronization,
    TileOperation,
    Var,
    While,
)
from tileyard.ir.specs import scalar_params, tensors
from tileyard.ir.walk import walk

_INDENT = "    "


def print_program(program: Program, comments: Mapping[int, str] | None = None) -> str:
    """The canonical text of ``program``, with a final newline and ``comments`` after these
    statements. Raises InvalidProgramError if a name is not a legal identifier.
    """
    printer = _Printer(program)
    if comments:
        numbered = enumerate(walk(program.body))
        printer.comments = {id(stmt): comments[n] for n, stmt in numbered if n in comments}
    params = ", ".join(printer.param(param) for param in program.params)
    lines = [f"def {printer.name(program.name)}({params}):"]
    lines += [_INDENT + printer.scalar(var, "dim") for var in program.dims]
    for axis in program.grid:
        extent = printer.expr(axis.extent, axis.var.dtype)
        lines.append(f"{_INDENT}{printer.scalar(axis.var, 'grid')}[{extent}]")
    if program.threads:
        lines.append(f"{_INDENT}threads({', '.join(map(str, program.threads))})")
    for buffer in program.buffers:
        scope = "memory" if buffer.scope == "global" else buffer.scope
        lines.append(_INDENT + printer.buffer(buffer, f"{scope}.") + printer.origin(buffer))
    for tensor in tensors(program):
        if tensor.buffer.layout is not None:
            lines.append(_INDENT + tensor.buffer.name + printer.origin(tensor.buffer))
    lines += ["", *printer.body(program.body, 1)]
    return "\n".join(lines) + "\n"


def print_statement(program: Program, stmt: Stmt) -> str:
    """The first line of ``stmt`` as it is printed in ``program``, for messages."""
    return _informed(program).statement(stmt, 0)[0]


def print_layout(program: Program, buffer: Buffer) -> str:
    """The layout of a buffer that has one, as in its declaration."""
    return _informed(program).origin(buffer).removeprefix(" = ")


def print_expr(program: Program, expr: Expr) -> str:
    """``expr`` as it is printed in ``program``, for messages."""
    return _informed(program).expr(expr)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _informed(program: Program) -> "_Printer":
    printer = _Printer(program)
    for stmt in walk(program.body):
        printer.declare(stmt)
    return printer


class _Printer:
    """Tracks what the reader will know at each point, so that only what it cannot infer is stated."""

    def __init__(self, program: Program) -> None:
        arrays = (tensor.buffer for tensor in tensors(program))
        self.buffers = {buffer.name: buffer for buffer in (*arrays, *program.buffers)}
        variables = (*scalar_params(program), *program.dims, *(axis.var for axis in program.grid))
        self.scalars = {var.name: var.dtype for var in variables}
        self.comments: dict[int, str] = {}

    def element(self, buffer: str) -> str | None:
        """The dtype of a buffer's elements; None if it is not declared."""
        return self.buffers[buffer].dtype if buffer in self.buffers else None

    def declare(self, stmt: Stmt) -> None:
        if isinstance(stmt, Let | For | Atomic) and stmt.var is not None:
            self.scalars[stmt.var.name] = stmt.var.dtype

    # ---- names and regions ------------------------------------------------------------------

    @staticmethod
    def name(name: str) -> str:
        if not syntax.is_name(name):
            raise InvalidProgramError(f"{name!r} cannot be a name in a Program")
        return name

    def indices(self, exprs: Sequence[Expr]) -> str:
        return ", ".join(map(self.expr, exprs)) or "()"

    def region(self, region: Region) -> str:
        """A region as printed in a call."""
        buffer = self.buffers.get(region.buffer)
        shape = buffer.shape if buffer is not None else ()
        known = len(region.starts) == len(region.extents) == len(shape)
        parts = []
        for number, (start, extent) in enumerate(zip(region.starts, region.extents, strict=False)):
            if known and start == syntax.ZERO and extent == shape[number]:
                parts.append(":")
            elif extent == syntax.ONE:
                parts.append(self.expr(start))
            else:
                parts.append(f"{self.expr(start)} : +{self.expr(extent, level=syntax.PREFIX)}")
        name = self.name(region.buffer)
        if known and all(part == ":" for part in parts):
            return name
        return f"{name}[{', '.join(parts) or '()'}]"

    # ---- expressions ------------------------------------------------------------------------

    def expr(self, expr: Expr, hint: str | None = None, level: int = 0) -> str:
        """``expr``, in parentheses if it binds less tightly than ``level``."""
        match expr:
            case Const():
                return self._const(expr, hint)
            case Var():
                known = self.scalars.get(expr.name) == expr.dtype
                return self._typed(self.name(expr.name), expr, known)
            case Load():
                text = f"{self.name(expr.buffer)}[{self.indices(expr.indices)}]"
                return self._typed(text, expr, self.element(expr.buffer) == expr.dtype)
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
        """The text of ``op`` with its precedence. ``beside`` is the hint for numbers."""
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
        is_comparison = own == syntax.PRECEDENCE["eq"]  # a chain of two means something else
        left = arg(0, own + 1 if is_comparison else own)
        return f"{left} {row.symbol} {arg(1, own + 1)}", own

    # ---- names and storage ------------------------------------------------------------------

    def buffer(self, buffer: Buffer, prefix: str) -> str:
        if buffer.scope == "barrier":
            return f"{self.name(buffer.name)}: barrier[{', '.join(map(str, buffer.arrivals))}]"
        shape = self.indices(buffer.shape)
        comma = "," if len(buffer.strides) == 1 else ""
        strides = f" @ ({self.indices(buffer.strides)}{comma})" if buffer.strides else ""
        return f"{self.name(buffer.name)}: {prefix}{buffer.dtype}[{shape}]{strides}"

    def origin(self, buffer: Buffer) -> str:
        if buffer.layout is not None:
            return f" = {self._layout(buffer.layout, len(buffer.shape))}"
        return f" = {self.name(buffer.view_of)}" if buffer.view_of else ""

    def _layout(self, layout: Layout, rank: int) -> str:
        outside = self.scalars
        self.scalars = {**outside, **dict.fromkeys(syntax.layout_indices(rank), "int32")}
        args = list(map(self.expr, layout.place))
        args += [f"thread={self.expr(layout.thread)}"] if layout.thread is not None else []
        args += [f"copies={layout.copies}"] if layout.copies != 1 else []
        self.scalars = outside
        return f"layout({', '.join(args)})"

    def scalar(self, var: Var, word: str) -> str:
        """A variable declared as ``word``, with its type if that is not int32."""
        return f"{self.name(var.name)}: {word}" + ("" if var.dtype == "int32" else f".{var.dtype}")

    def param(self, param: Param) -> str:
        if isinstance(param, Scalar):
            return f"{self.name(param.var.name)}: {param.var.dtype}"
        return self.buffer(param.buffer, "" if param.role == "in" else f"{param.role}.")

    # ---- statements -------------------------------------------------------------------------

    def body(self, body: Sequence[Stmt], depth: int) -> list[str]:
        if not body:
            return [f"{_INDENT * depth}pass"]
        return [line for stmt in body for line in self._commented(stmt, depth)]

    def _commented(self, stmt: Stmt, depth: int) -> list[str]:
        head, *rest = self.statement(stmt, depth)
        comment = self.comments.get(id(stmt))
        return [head if comment is None else f"{head}  # {comment}", *rest]

    def statement(self, stmt: Stmt, depth: int) -> list[str]:
        pad = _INDENT * depth
        match stmt:
            case Let():
                return [pad + self._let(stmt)]
            case Store():
                value = self.expr(stmt.value, self.element(stmt.buffer))
                return [f"{pad}{self.name(stmt.buffer)}[{self.indices(stmt.indices)}] = {value}"]
            case For():
                return self._loop(stmt, depth)
            case If():
                return self._branch(stmt, depth, "if")
            case While():
                return [f"{pad}while {self.expr(stmt.cond)}:", *self.body(stmt.body, depth + 1)]
            case Break():
                return [f"{pad}break"]
            case Roles():
                return [f"{pad}with roles:", *self._roles(stmt, depth + 1)]
            case Await():
                return [f"{pad}wait({self._condition(stmt)})"]
            case Atomic():
                return [pad + self._atomic(stmt)]
            case Print():
                parts = [_quoted(stmt.message), *map(self.expr, stmt.values)]
                return [f"{pad}print({', '.join(parts)})"]
            case Assert():
                return [f"{pad}assert {self._condition(stmt)}"]
            case Issue():
                place = [self.expr(stmt.barrier)] if stmt.barrier is not None else []
                head = f"{pad}with issue({', '.join([_quoted(stmt.unit), *place])}):"
                return [head, *self.body(stmt.body, depth + 1)]
            case TileOperation() | Synchronization():
                return [pad + self._call(stmt)]
            case _:
                assert_never(stmt)

    def _condition(self, stmt: Await | Assert) -> str:
        said = [_quoted(stmt.message)] if stmt.message else []
        return ", ".join([self.expr(stmt.cond), *said])

    def _roles(self, stmt: Roles, depth: int) -> list[str]:
        ranges = stmt.threads or ((),) * len(stmt.bodies)
        registers = stmt.registers or (0,) * len(stmt.bodies)
        lines = []
        for body, own, count in zip(stmt.bodies, ranges, registers, strict=True):
            args = [str(bound) for pair in own for bound in pair]
            args += [f"registers={count}"] if count else []
            head = f"role({', '.join(args)})" if args else "role"
            lines += [f"{_INDENT * depth}with {head}:", *self.body(body, depth + 1)]
        return lines

    def _let(self, stmt: Let) -> str:
        value = self.expr(stmt.value)
        self.declare(stmt)
        stated = "" if stmt.value.dtype == stmt.var.dtype else f": {stmt.var.dtype}"
        return f"{self.name(stmt.var.name)}{stated} = {value}"

    def _atomic(self, stmt: Atomic) -> str:
        place = f"{self.name(stmt.buffer)}[{self.indices(stmt.indices)}]"
        text = f"atomic_{stmt.kind}({place}, {self.expr(stmt.value, self.element(stmt.buffer))})"
        self.declare(stmt)
        if stmt.var is None:
            return text
        stated = "" if self.element(stmt.buffer) == stmt.var.dtype else f": {stmt.var.dtype}"
        return f"{self.name(stmt.var.name)}{stated} = {text}"

    def _loop(self, stmt: For, depth: int) -> list[str]:
        nest = [stmt]
        while syntax.is_plain_loop(nest[-1]) and len(nest[-1].body) == 1:
            inner = nest[-1].body[0]
            if not syntax.is_plain_loop(inner) or inner.kind != stmt.kind:
                break
            nest.append(inner)
        args = [self.expr(loop.extent, loop.var.dtype) for loop in nest]
        dtype = stmt.var.dtype
        if stmt.start != Const(0, dtype):
            args.append(f"start={self.expr(stmt.start, dtype)}")
        if dtype != "int32":
            args.append(f"dtype={dtype}")
        if stmt.stages:
            args.append(f"stages={stmt.stages}")
        schedule = {"order": stmt.order, "stage": stmt.stage, "group": stmt.group}
        args += [f"{word}={value}" for word, value in schedule.items() if value]
        names = ", ".join(self.name(loop.var.name) for loop in nest)
        for loop in nest:
            self.declare(loop)
        head = f"{_INDENT * depth}for {names} in {stmt.kind}({', '.join(args)}):"
        return [head, *self.body(nest[-1].body, depth + 1)]

    def _branch(self, stmt: If, depth: int, word: str) -> list[str]:
        pad = _INDENT * depth
        lines = [f"{pad}{word} {self.expr(stmt.cond)}:", *self.body(stmt.then, depth + 1)]
        if len(stmt.orelse) == 1 and isinstance(stmt.orelse[0], If):
            return lines + self._branch(stmt.orelse[0], depth, "elif")
        if stmt.orelse:
            lines += [f"{pad}else:", *self.body(stmt.orelse, depth + 1)]
        return lines

    def _call(self, stmt: Stmt) -> str:
        name = str(stmt.__struct_config__.tag)
        hint = None
        args = []
        for field in syntax.FIELDS[name]:
            value = getattr(stmt, field.name)
            if isinstance(value, Region):
                hint = hint or self.element(value.buffer)
                args.append(self.region(value))
            elif isinstance(value, Expr):
                args.append(self.expr(value, hint))
            elif value != field.default:
                plain = _quoted(value) if isinstance(value, str) else repr(value)
                args.append(f"{field.name}={plain}")
        return f"{name}({', '.join(args)})"

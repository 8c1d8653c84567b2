"""Reads expressions, regions and types of Program text; ``reader.py`` reads the rest."""

import ast
import math
from collections.abc import Sequence
from typing import NoReturn

import msgspec

from tileyard.base.errors import InvalidProgramError
from tileyard.ir import syntax
from tileyard.ir.dtypes import DTYPES
from tileyard.ir.meanings import OPS
from tileyard.ir.nodes import Buffer, Cast, Const, Expr, Load, Op, Region, Var

_SYMBOLS: dict[type[ast.AST], str] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "div",
    ast.FloorDiv: "floordiv",
    ast.Mod: "floormod",
    ast.BitAnd: "bitand",
    ast.BitOr: "bitor",
    ast.BitXor: "bitxor",
    ast.LShift: "shl",
    ast.RShift: "shr",
    ast.Eq: "eq",
    ast.NotEq: "ne",
    ast.Lt: "lt",
    ast.LtE: "le",
    ast.Gt: "gt",
    ast.GtE: "ge",
    ast.And: "and",
    ast.Or: "or",
    ast.USub: "neg",
    ast.Not: "not",
    ast.Invert: "bitnot",
}


def fail(node: ast.AST, message: str) -> NoReturn:
    """Raise InvalidProgramError with the line of ``node``."""
    raise InvalidProgramError(f"line {getattr(node, 'lineno', 0)}: {message}")


def require(node: ast.AST, holds: bool, message: str) -> None:
    """Raise InvalidProgramError with the line of ``node`` unless ``holds``."""
    if not holds:
        fail(node, message)


def plain(node: ast.expr) -> object:
    """The value of a Python literal."""
    try:
        return ast.literal_eval(node)
    except ValueError:
        fail(node, f"{ast.unparse(node)} is not a plain value")


def plain_int(node: ast.expr) -> int:
    """The value of an integer literal."""
    value = plain(node)
    return value if isinstance(value, int) else fail(node, f"{value!r} is not an integer")


def plain_text(node: ast.expr) -> str:
    """The value of a string literal."""
    value = plain(node)
    return value if isinstance(value, str) else fail(node, f"{value!r} is not a text")


def read_dtype(node: ast.expr) -> str:
    """The scalar type that ``float32`` or ``scope.float32`` names."""
    name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
    return name if name in DTYPES else fail(node, f"{ast.unparse(node)} is not a scalar type")


class ExprReader:
    """Reads expressions over the names known so far: ``buffers``, and dtypes of ``scalars``."""

    def __init__(self) -> None:
        self.buffers: dict[str, Buffer] = {}
        self.scalars: dict[str, str] = {}

    def known_buffer(self, node: ast.expr) -> Buffer:
        """The buffer that ``node`` names."""
        name = node.id if isinstance(node, ast.Name) else ""
        if name not in self.buffers:
            fail(node, f"{ast.unparse(node)} is not a buffer")
        return self.buffers[name]

    def region(self, node: ast.expr) -> Region:
        """The region that ``node`` describes."""
        if isinstance(node, ast.Name):
            shape = self.known_buffer(node).shape
            return Region(node.id, (syntax.ZERO,) * len(shape), shape)
        if not isinstance(node, ast.Subscript):
            fail(node, f"{ast.unparse(node)} is not a region of a buffer")
        buffer = self.known_buffer(node.value)
        spans = [self._span(part, buffer, n) for n, part in enumerate(_elements(node.slice))]
        starts = tuple(start for start, _ in spans)
        return Region(buffer.name, starts, tuple(extent for _, extent in spans))

    def _span(self, part: ast.expr, buffer: Buffer, number: int) -> tuple[Expr, Expr]:
        match part:
            case ast.Slice(lower=None, upper=None, step=None):
                is_there = number < len(buffer.shape)
                require(part, is_there, f"{buffer.name} has only {len(buffer.shape)} dimensions")
                return syntax.ZERO, buffer.shape[number]
            case ast.Slice(
                lower=ast.expr() as lower,
                upper=ast.UnaryOp(op=ast.UAdd(), operand=extent),
                step=None,
            ):
                return self.read(lower), self.read(extent)
            case ast.Slice():
                fail(part, "a slice is `start : +extent` or `:`")
            case _:
                return self.read(part), syntax.ONE

    def read_all(self, node: ast.expr) -> tuple[Expr, ...]:
        """The expressions of a tuple, or the single expression."""
        return tuple(self.read(part) for part in _elements(node))

    def read(self, node: ast.expr, hint: str | None = None) -> Expr:
        """The expression; a bare number takes ``hint`` as its dtype if its kind agrees."""
        match node:
            case ast.Name(id=name) if name != "inf":
                require(node, name in self.scalars, f"{name} is not a variable")
                return Var(name, self.scalars[name])
            case ast.Subscript():
                buffer = self.known_buffer(node.value)
                return Load(buffer.name, self.read_all(node.slice), buffer.dtype)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _SYMBOLS:
                return self._op(_SYMBOLS[type(op)], [left, right], hint)
            case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _SYMBOLS:
                return self._op(_SYMBOLS[type(op)], [left, right], hint)
            case ast.BoolOp(op=op, values=[first, *rest]):
                result = self.read(first)
                for value in rest:
                    result = Op(_SYMBOLS[type(op)], (result, self.read(value)), "bool")
                return result
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return self._op("select", [test, body, orelse], hint)
            case ast.Call(func=ast.Name(id=name)):
                return self._call(name, node, hint)
            case ast.UnaryOp(op=op, operand=operand) if (
                _number(node) is None and type(op) in _SYMBOLS
            ):
                return self._op(_SYMBOLS[type(op)], [operand], hint)
        literal = _number(node)
        if literal is None:
            fail(node, f"{ast.unparse(node)} is not an expression")
        if isinstance(literal, bool):
            return Const(literal, "bool")
        return Const(literal, syntax.literal_dtype(isinstance(literal, float), hint))

    def _call(self, name: str, node: ast.Call, hint: str | None) -> Expr:
        args = node.args
        if name in DTYPES:
            require(node, len(args) == 1, f"{name} converts one value")
            number = _number(args[0])
            if number is None or isinstance(number, bool):
                return Cast(self.read(args[0]), name)
            return Const(float(number) if DTYPES[name].is_float else number, name)
        if name == "cast" and len(args) == 2:
            return Cast(self.read(args[0]), read_dtype(args[1]))
        if name == "typed" and len(args) == 2:
            return self._typed(args[0], read_dtype(args[1]))
        require(node, name in OPS, f"{name} is not a scalar operation")
        if OPS[name].result != "given":
            return self._op(name, args, hint)
        require(node, bool(args), f"{name} states its type last")
        inner = tuple(self.read(arg) for arg in args[:-1])
        return Op(name, inner, read_dtype(args[-1]))

    def _typed(self, node: ast.expr, dtype: str) -> Expr:
        match node:
            case ast.Name(id=name):
                return Var(name, dtype)
            case ast.Subscript(value=ast.Name(id=name)):
                return Load(name, self.read_all(node.slice), dtype)
            case _:
                return msgspec.structs.replace(self.read(node), dtype=dtype)

    def _op(self, name: str, args: Sequence[ast.expr], hint: str | None) -> Op:
        """An operation whose numbers take the dtype of the first operand that is not a number."""
        outer = syntax.outer_hint(name, hint)
        chosen = syntax.operands(name, args)
        read: dict[int, Expr] = {}
        for number, arg in enumerate(args):
            if number not in chosen:
                read[number] = self.read(arg)
            elif not _is_literal(arg):
                read[number] = self.read(arg, outer)
        solid = [read[number].dtype for number in chosen if number in read]
        for number in chosen:
            if number not in read:
                read[number] = self.read(args[number], solid[0] if solid else outer)
        dtypes = solid or [read[number].dtype for number in chosen]
        result = syntax.result_dtype(name, dtypes)
        return Op(name, tuple(read[number] for number in range(len(args))), result or "int32")


def _elements(node: ast.expr) -> Sequence[ast.expr]:
    return node.elts if isinstance(node, ast.Tuple) else [node]


def _number(node: ast.expr) -> bool | int | float | None:
    """The value of a literal, with its sign; None for anything else."""
    match node:
        case ast.Constant(value=bool() | int() | float() as value):
            return value
        case ast.Name(id="inf"):
            return math.inf
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            inner = None if isinstance(operand, ast.UnaryOp) else _number(operand)
            return None if inner is None or isinstance(inner, bool) else -inner
        case _:
            return None


def _is_literal(node: ast.expr) -> bool:
    match node:
        case ast.Call(func=ast.Name(id=name), args=[arg]) if name in DTYPES:
            node = arg
    number = _number(node)
    return number is not None and not isinstance(number, bool)


SCOPES = ("memory", "shared", "fragment", "local", "barrier")
"""Scopes in the declaration of a non-parameter buffer."""


def is_declaration(stmt: ast.stmt) -> bool:
    """Whether ``stmt`` is in the head: the threads, a layout, or a name with a scope or without a value."""
    if isinstance(stmt, ast.Expr | ast.Assign) and isinstance(stmt.value, ast.Call):
        word = "threads" if isinstance(stmt, ast.Expr) else "layout"
        return isinstance(stmt.value.func, ast.Name) and stmt.value.func.id == word
    if not isinstance(stmt, ast.AnnAssign):
        return False
    return stmt.value is None or prefix_of(stmt.annotation) in SCOPES


def prefix_of(note: ast.expr) -> str:
    """The first word of a type: ``grid`` of ``grid.int64[8]``, ``shared`` of ``shared.float32[8]``."""
    match note:
        case ast.Name(id=name):
            return name
        case ast.Subscript(value=inner) | ast.Attribute(value=inner) | ast.BinOp(left=inner):
            return prefix_of(inner)
        case _:
            return ""


def annotated(head: Sequence[ast.stmt], *words: str) -> list[ast.AnnAssign]:
    """The declarations of ``head`` whose type begins with one of ``words``."""
    return [s for s in head if isinstance(s, ast.AnnAssign) and prefix_of(s.annotation) in words]

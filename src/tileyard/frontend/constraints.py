"""Constraints on configs as text: arithmetic and comparisons over parameters and arguments. A text is read
into the few kinds of nodes below, and never given to Python. What a whole space makes of it is not here.
"""

import ast
import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import msgspec

from tileyard.base.errors import UsageError
from tileyard.base.model import Value

MOST_NESTED = 100
SUPPORTED = (
    "it may have numbers, texts, parameters and arguments, + - * / // %, comparisons, and, or, not, in (..), "
    "min, max and abs"
)


class Const(msgspec.Struct, frozen=True, tag="const"):
    """A value; None: undefined, as a division by zero."""

    value: Value | None


class Name(msgspec.Struct, frozen=True, tag="name"):
    """A parameter or an argument."""

    name: str


class Op(msgspec.Struct, frozen=True, tag="op"):
    """An operation, by its word or sign, on one or more parts; ``in`` has its choices as parts."""

    sign: str
    parts: "tuple[Expr, ...]"


Expr: TypeAlias = Const | Name | Op
NUMBER, TEXT = "number", "text"
Kinds = frozenset[str]
"""The kinds of values that a part can have: numbers, truth values among them, or texts."""


@dataclass(frozen=True)
class Constraint:
    """A constraint, as written and as read."""

    text: str
    expr: Expr

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The parameters and arguments that it names, in its order."""
        return tuple(dict.fromkeys(list_names(self.expr)))

    def accepts(self, values: Mapping[str, Value]) -> bool:
        """Whether it holds for these values. It does not where it is undefined: where it divides by zero or
        compares a text with a number, unless the other side of an ``and`` or ``or`` decides.
        """
        return is_true(evaluate(self.expr, values)) is True


def read_constraint(text: str) -> Constraint:
    """Read a constraint. Raises UsageError naming the place in the text."""
    if not text.strip():
        raise UsageError("a constraint is empty", SUPPORTED)
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except SyntaxError as error:
        column = error.offset or len(text.strip()) + 1
        message = f"constraint {text!r}: {error.msg}, at column {column}"
        raise UsageError(message, SUPPORTED) from None
    except (ValueError, MemoryError, RecursionError):
        raise UsageError(f"constraint {text[:80]!r} cannot be read", SUPPORTED) from None
    return Constraint(text.strip(), _Reader(text.strip()).read(tree))


_SIGNS: dict[type[ast.AST], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.And: "and",
    ast.Or: "or",
    ast.Not: "not",
    ast.USub: "neg",
    ast.UAdd: "pos",
}
_FUNCTIONS = ("min", "max", "abs")


class _Reader:
    """Turns the tree of a text into nodes."""

    def __init__(self, text: str) -> None:
        self._text = text

    def read(self, tree: ast.expr, depth: int = 0) -> Expr:
        """The nodes of a part. Raises UsageError for what is not supported."""
        if depth > MOST_NESTED:
            raise UsageError(f"constraint {self._text[:80]!r} is nested too deeply")

        def read(part: ast.expr) -> Expr:
            return self.read(part, depth + 1)

        match tree:
            case ast.Constant(value=value) if value is None:
                return Const("None")  # as configs have it
            case ast.Constant(value=value) if type(value) in (bool, int, float, str):
                return Const(value)  # type: ignore[arg-type]  # a plain one
            case ast.Name(id=name):
                return Name(name)
            case ast.UnaryOp(op=op, operand=operand) if type(op) in _SIGNS:
                return Op(_SIGNS[type(op)], (read(operand),))
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _SIGNS:
                return Op(_SIGNS[type(op)], (read(left), read(right)))
            case ast.BoolOp(op=op, values=values):
                return Op(_SIGNS[type(op)], tuple(map(read, values)))
            case ast.Compare(left=first, ops=ops, comparators=rights):
                pairs = tuple(
                    self._compare(tree, left, op, right, depth + 1)
                    for left, op, right in zip((first, *rights), ops, rights, strict=False)
                )
                return pairs[0] if len(pairs) == 1 else Op("and", pairs)
            case ast.Call(func=ast.Name(id="abs" as name), args=[_] as parts, keywords=[]):
                return Op(name, tuple(map(read, parts)))
            case ast.Call(
                func=ast.Name(id="min" | "max" as name), args=[_, *_] as parts, keywords=[]
            ):
                return Op(name, tuple(map(read, parts)))
            case _:
                raise self._refuse(tree)

    def _compare(
        self, tree: ast.expr, left: ast.expr, op: ast.cmpop, right: ast.expr, depth: int
    ) -> Expr:
        first = self.read(left, depth)
        if isinstance(op, ast.In | ast.NotIn) and isinstance(right, ast.Tuple | ast.List | ast.Set):
            found = Op("in", (first, *(self.read(part, depth) for part in right.elts)))
            return found if isinstance(op, ast.In) else Op("not", (found,))
        if type(op) in _SIGNS:
            return Op(_SIGNS[type(op)], (first, self.read(right, depth)))
        raise self._refuse(tree)

    def _refuse(self, tree: ast.expr) -> UsageError:
        part = ast.get_source_segment(self._text, tree) or self._text
        return UsageError(
            f"constraint {self._text!r}: {part!r} is not supported, at column {tree.col_offset + 1}",
            SUPPORTED,
        )


def list_names(expr: Expr) -> Iterator[str]:
    """The names in an expression, each as often as it is there."""
    match expr:
        case Name(name):
            yield name
        case Op(_, parts):
            for part in parts:
                yield from list_names(part)
        case Const():
            pass


# ---- one point ---------------------------------------------------------------------------------------

_ARITHMETIC: dict[str, Callable[..., Value]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
    "neg": operator.neg,
    "pos": operator.pos,
    "abs": abs,
}
_ORDERS: dict[str, Callable[..., Value]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "min": min,
    "max": max,
}
_EQUALITIES: dict[str, Callable[..., Value]] = {"==": operator.eq, "!=": operator.ne}


def apply(sign: str, *values: Value | None) -> Value | None:
    """The result of an operation that is not and, or, not; None if it is undefined."""
    known = [value for value in values if value is not None]
    if sign == "in":
        found = [apply("==", values[0], one) for one in values[1:]]
        return join_truth("or", found)
    if len(known) < len(values):
        return None
    if sign in _EQUALITIES:
        return _EQUALITIES[sign](*known)
    if sign in _ARITHMETIC and any(isinstance(value, str) for value in known):
        return None
    try:
        return (_ARITHMETIC.get(sign) or _ORDERS[sign])(*known)
    except (ArithmeticError, TypeError):
        return None


def join_truth(sign: str, values: Sequence[Value | None]) -> bool | None:
    """The ``and`` or ``or`` of values: what one of them decides counts, even if others are undefined."""
    truths = [is_true(value) for value in values]
    decides = sign == "or"
    if decides in truths:
        return decides
    return None if None in truths else not decides


def is_true(value: Value | None) -> bool | None:
    """Whether a value is true; None for an undefined one, and for a text."""
    return None if value is None or isinstance(value, str) else bool(value)


def evaluate(expr: Expr, values: Mapping[str, Value]) -> Value | None:
    """The value of an expression; None where it is undefined."""
    match expr:
        case Const(value):
            return value
        case Name(name):
            return values.get(name)
        case Op(sign, parts):
            return combine(sign, [evaluate(part, values) for part in parts])


def evaluate_formula(what: str, formula: str, values: Mapping[str, Value]) -> float:
    """The number above 0 that a formula of arithmetic gives, 0 for an empty one. Raises UsageError beginning
    ``what``.
    """
    if not formula:
        return 0.0
    try:
        read = read_constraint(formula)
    except UsageError:  # its message is of a constraint
        read = Constraint(formula, Const(None))
    for name in read.names:
        if not _is_plain_number(values.get(name)):
            known = ", ".join(key for key, value in values.items() if _is_plain_number(value))
            raise UsageError(
                f"{what} {formula}: {name} is not a number of the kernel's arguments",
                f"these are: {known or 'none'}",
            )
    number = evaluate(read.expr, values)
    if not (_is_plain_number(number) and 0 < float(number or 0) < math.inf):
        hint = "numbers and arguments joined by + - * / // %, for example 2*M*N*K"
        raise UsageError(f"{what} {formula} gives no number above 0", hint)
    return float(number or 0)


def _is_plain_number(value: object) -> bool:
    return type(value) in (int, float)


def combine(sign: str, values: Sequence[Value | None]) -> Value | None:
    """The result of any operation."""
    if sign == "not":
        truth = is_true(values[0])
        return None if truth is None else not truth
    return join_truth(sign, values) if sign in ("and", "or") else apply(sign, *values)


def put_constants(expr: Expr, values: Mapping[str, Value]) -> Expr:
    """The expression with values in place of names, and what follows from these alone computed."""
    match expr:
        case Name(name) if name in values:
            return Const(values[name])
        case Op(sign, parts):
            made = tuple(put_constants(part, values) for part in parts)
            known = [part.value for part in made if isinstance(part, Const)]
            return Const(combine(sign, known)) if len(known) == len(made) else Op(sign, made)
        case _:
            return expr


# ---- parameters that only count sometimes ---------------------------------------------------------------


def find_activity(
    name: str, conditions: Mapping[str, Constraint], within: tuple[str, ...] = ()
) -> Expr:
    """Where a parameter counts: where its condition holds, and all parameters that this names count. Raises
    UsageError for a parameter that depends on itself.
    """
    condition = conditions[name]
    parts = [condition.expr]
    for other in condition.names:
        if other in (name, *within):
            raise UsageError(f"when {condition.text!r}: whether {name} counts depends on itself")
        if other in conditions:
            parts.append(find_activity(other, conditions, (*within, name)))
    return parts[0] if len(parts) == 1 else Op("and", tuple(parts))


def limit_to_active(constraint: Constraint, conditions: Mapping[str, Constraint]) -> Expr:
    """The constraint, which does not apply where a parameter that it names does not count."""
    guards = tuple(
        Op("not", (find_activity(name, conditions),))
        for name in constraint.names
        if name in conditions
    )
    return Op("or", (*guards, constraint.expr)) if guards else constraint.expr


# ---- kinds of values -----------------------------------------------------------------------------------


def check_kinds(constraint: Constraint, expr: Expr, kinds: Mapping[str, Kinds]) -> None:
    """Raise UsageError for an operation that is undefined for all values of these kinds."""
    _find_kinds(constraint, expr, kinds)


def kind_of(value: Value) -> str:
    """The kind of a value."""
    return TEXT if isinstance(value, str) else NUMBER


def _find_kinds(constraint: Constraint, expr: Expr, kinds: Mapping[str, Kinds]) -> Kinds:
    if isinstance(expr, Const):
        return frozenset() if expr.value is None else frozenset({kind_of(expr.value)})
    if isinstance(expr, Name):
        return kinds.get(expr.name, frozenset())
    sign = expr.sign
    parts = [_find_kinds(constraint, part, kinds) for part in expr.parts]
    known = [part for part in parts if part]
    if sign in (*_ARITHMETIC, "and", "or", "not"):
        for part, found in zip(expr.parts, parts, strict=True):
            if found == {TEXT}:
                what = f"{spell(part)} is a text, and {sign} takes numbers"
                if sign in ("and", "or", "not"):
                    what = f"{spell(part)} is a text, and neither true nor false"
                raise UsageError(f"constraint {constraint.text!r}: {what}")
        return frozenset({NUMBER})
    if sign in _ORDERS and known and not frozenset.intersection(*known):
        told = " and ".join(
            f"{spell(part)} ({min(found)})" for part, found in zip(expr.parts, parts, strict=True)
        )
        raise UsageError(f"constraint {constraint.text!r}: {sign} cannot compare {told}")
    return frozenset.union(*known) if sign in ("min", "max") and known else frozenset({NUMBER})


_WORDS = {"neg": "-", "pos": "+", "not": "not "}


def spell(expr: Expr) -> str:
    """The expression as text, for messages."""
    match expr:
        case Const(value):
            return repr(value)
        case Name(name):
            return name
        case Op(sign, parts):
            told = [f"({spell(part)})" if isinstance(part, Op) else spell(part) for part in parts]
            if sign in _FUNCTIONS:
                return f"{sign}({', '.join(map(spell, parts))})"
            if sign == "in":
                return f"{told[0]} in ({', '.join(told[1:])})"
            return f" {sign} ".join(told) if len(told) > 1 else _WORDS.get(sign, sign) + told[0]

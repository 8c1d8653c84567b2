"""Evaluates ``${{ ... }}`` of workflows as far as it is known before a run; unknown parts stay as text."""

import ast
import re
from collections.abc import Iterable, Mapping
from itertools import product

from tileyard.verbs.test.plan.files.parameters import show_value

_EXPRESSION = re.compile(r"\$\{\{(.*?)\}\}", re.DOTALL)
_TOKEN = re.compile(
    r"'(?P<text>(?:[^']|'')*)'|(?P<name>[A-Za-z_][\w.*-]*)|(?P<sign>&&|\|\||!(?!=))|\s+"
)
_WORDS = {"&&": " and ", "||": " or ", "!": "~", "true": "True", "false": "False", "null": "None"}
_COMPARED = re.compile(
    r"([A-Za-z_][\w.-]*)\s*[!=]=\s*'([^']*)'|'([^']*)'\s*[!=]=\s*([A-Za-z_][\w.-]*)"
)
_CONTEXT = re.compile(r"(?<![\w.'-])[A-Za-z_][\w-]*\.[\w.-]*")
MOST_CASES = 4096
"""Maximum number of combinations of values tried on two conditions; beyond it both are assumed to hold."""


class _Unknown:
    """A value that is known only in a run."""


_Value = str | float | bool | None | _Unknown


def fill(text: str, known: Mapping[str, str]) -> str:
    """A text in which each expression with a known value is replaced by it."""

    def put(found: re.Match[str]) -> str:
        value = _read(found[1], known)
        return (
            found[0] if isinstance(value, _Unknown) else "" if value is None else show_value(value)
        )

    return _EXPRESSION.sub(put, text)


def holds(condition: str, known: Mapping[str, str]) -> bool | None:
    """Whether an ``if:`` holds; None if that is known only in a run."""
    inner = _EXPRESSION.fullmatch(condition.strip())
    value = _read(inner[1] if inner else condition, known) if condition.strip() else True
    return None if isinstance(value, _Unknown) else bool(value)


def can_both_hold(
    first: Iterable[str], second: Iterable[str], events: Iterable[str], *, is_same_run: bool
) -> frozenset[str]:
    """The events at which all these conditions may hold. Two runs share only ``github``."""
    conditions = [one for one in (*first, *second) if one]
    values: dict[str, set[str]] = {}
    for left, text, other_text, right in _COMPARED.findall("\n".join(conditions)):
        name = left or right
        if name != "github.event_name" and (is_same_run or name.startswith("github.")):
            values.setdefault(name, {"\0"}).add(text or other_text)
    count = 1
    for one in values.values():
        count *= len(one)
    cases = list(product(*values.values())) if count <= MOST_CASES else [()]
    found = set()
    for event in events:
        for case in cases:
            known = {**dict(zip(values, case, strict=False)), "github.event_name": event}
            if all(holds(text, known) is not False for text in conditions):
                found.add(event)
    return frozenset(found)


def is_implied(condition: str, others: Iterable[str], event: str, *, is_same_run: bool) -> bool:
    """Whether a condition holds at an event if the others do: always, or by one of equal meaning there."""
    if holds(condition, {"github.event_name": event}):
        return True
    shared = ("github.", "vars.", *(("needs.", "inputs.") if is_same_run else ()))
    names = _CONTEXT.findall(condition)
    return condition in others and bool(names) and all(one.startswith(shared) for one in names)


def _read(text: str, known: Mapping[str, str]) -> _Value:
    """The value of an expression, whose syntax is nearly Python's."""

    def put(found: re.Match[str]) -> str:
        if found["text"] is not None:
            return repr(found["text"].replace("''", "'"))
        name, sign = found["name"], found["sign"]
        return _WORDS.get(name or sign, f"_[{name!r}]" if name else " ")

    try:
        return _evaluate(ast.parse(_TOKEN.sub(put, text).strip(), mode="eval").body, known)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return _Unknown()


def _evaluate(node: ast.expr, known: Mapping[str, str]) -> _Value:
    match node:
        case ast.Constant(value=str() | bool() | int() | float() | None as value):
            return value
        case ast.Subscript(value=ast.Name(), slice=ast.Constant(value=str(name))):
            return known.get(name, _Unknown())
        case ast.UnaryOp(op=ast.Invert(), operand=operand):
            inner = _evaluate(operand, known)
            return inner if isinstance(inner, _Unknown) else not inner
        case ast.BoolOp(op=op, values=parts):
            values = [_evaluate(part, known) for part in parts]
            unknown: _Unknown | None = None
            for one in values:
                if isinstance(one, _Unknown):
                    unknown = one
                elif bool(one) != isinstance(op, ast.And) and (unknown is None or not one):
                    return one
            return values[-1] if unknown is None else unknown
        case ast.Compare(left=left, ops=[ast.Eq() | ast.NotEq() as op], comparators=[right]):
            one, other = _evaluate(left, known), _evaluate(right, known)
            if isinstance(one, _Unknown) or isinstance(other, _Unknown):
                return _Unknown()
            return (show_value(one).casefold() == show_value(other).casefold()) == isinstance(
                op, ast.Eq
            )
        case ast.Call(func=ast.Subscript(slice=ast.Constant(value="always" | "success"))):
            return True
        case ast.Call(func=ast.Subscript(slice=ast.Constant(value="cancelled"))):
            return False
        case _:
            return _Unknown()

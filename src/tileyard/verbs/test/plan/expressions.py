"""Expressions that select cases: texts joined by ``and``, ``or`` and ``not``, as in pytest's ``-k``."""

import ast
import re
from collections.abc import Callable, Iterator

from tileyard.base.errors import UsageError

_WORD = re.compile(r"[^\s()]+")
_OPERATORS = ("and", "or", "not")
Cases = frozenset[str]


def is_expression(text: str) -> bool:
    """Whether a text is more than the name of cases, which contains no blanks."""
    return bool(re.search(r"\s", text.strip()))


def select(text: str, every: Cases, find: Callable[[str], Cases]) -> Cases:
    """The cases of ``every`` that an expression selects; ``find`` gives a text's. Raises UsageError."""
    words = [word for word in _WORD.findall(text) if word not in _OPERATORS]
    numbers: Iterator[int] = iter(range(len(words)))
    # Python's own parser reads it, with a name for each text, because texts may contain what it cannot read.
    plain = _WORD.sub(lambda one: one[0] if one[0] in _OPERATORS else f"_{next(numbers)}", text)
    try:
        return _evaluate(ast.parse(plain.strip(), mode="eval").body, every, words, find)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise UsageError(
            f"{text!r} is not an expression of names with and, or, not",
            "for example 'rows and not (f16 or slow)'",
        ) from None


def _evaluate(
    node: ast.expr, every: Cases, words: list[str], find: Callable[[str], Cases]
) -> Cases:
    """The cases of a part of an expression. Raises ValueError if it is not such a part."""
    match node:
        case ast.BoolOp(op=ast.And(), values=values):
            return every.intersection(*(_evaluate(one, every, words, find) for one in values))
        case ast.BoolOp(values=values):
            return Cases().union(*(_evaluate(one, every, words, find) for one in values))
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return every - _evaluate(operand, every, words, find)
        case ast.Name(id=name):
            return find(words[int(name[1:])])
        case _:
            raise ValueError(ast.dump(node))

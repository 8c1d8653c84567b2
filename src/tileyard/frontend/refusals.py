"""Says in a user's terms what TileLang and TVM refuse, then in their own, cut short. Imports neither."""

import ast
import linecache
import re
import sys
import textwrap
from collections.abc import Mapping

from tileyard.base.wording import show_value

WORDS_LENGTH = 160
"""Most characters of the compiler's own words."""
CODE_LENGTH = 80
"""Most characters of the user's line that are quoted."""

_SEES_NO_VALUE = (
    "Python cannot decide on a value that is known only when the kernel runs: use T.if_then_else, "
    "T.min, T.max, &, |"
)

_RULES: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern, re.DOTALL), sentence)
    for pattern, sentence in (
        (r"Literal value (\S+) exceeds \w+ of (\w+)", r"\1 is not a value of \2"),
        (
            r"Expected integer argument as \w+ of (\S+) operator[^,]*, but received (.+?) of type (\w+)",
            r"\1 takes integers, and \2 is \3",
        ),
        (
            r"dtype\(\)\.is_u?int\(\).*? is false: *(\S[^\n]*)",
            r"this takes integers, and \1 is no integer",
        ),
        (
            r"dtype\(\)\.is_bool\(\)\) is false",
            "`and`, `or` and `not` take conditions, and an operand is a number",
        ),
        (r"StructuralEqual check failed", "the shapes of the two sides differ"),
        (r"Divide by zero|pb->value != 0", "division by zero"),
        (
            r"multiple types of integer divisions",
            "/ of integers is ambiguous: write //, or convert to a float first",
        ),
        (r"Cannot use and / or / not operator|cannot use and / or / not", _SEES_NO_VALUE),
        (
            r"T\.gemm (\w+) shape check failed: \w+ = (\d+), \w+ = (\d+)",
            r"the operands of T.gemm differ in \1: \2 and \3",
        ),
        (r"Operator (\S+) is not registered", r"there is no operation \1"),
        (
            r"Mismatched type on argument #(\d+) when calling.*?Expected `(.+?)` but got `(.+?)`",
            r"an argument has the wrong type: \3 in place of \2",
        ),
        (
            r"Layout infer conflict between (\w+) and (\w+)",
            r"\1 and \2 lie on different threads: let one of them pass through shared memory",
        ),
        (
            r"no available layout found",
            "no layout over the threads fits all tiles of a T.Parallel loop: "
            "index its fragments by the loop's own variables",
        ),
        (
            r"it->second\.indices, indices\)\) is false: (\w+): ([^\n]+) and ([^\n]+)",
            r"a T.Parallel loop uses the fragment \1 at \2 and at \3, and each iteration may use one place",
        ),
        (r"Check failed: .*? is false: *([A-Z][^\n]* [^\n]*)", r"\1"),
        (r"^(?:In|in) T\.Parallel loop:\s*(\S[^\n]*)", r"a T.Parallel loop is refused: \1"),
    )
)
"""Patterns of texts that TileLang 0.1.15 and its TVM raise, with what they say in a user's terms."""

_RAW = re.compile(
    r"Check failed|ICHECK|Internal|StructuralEqual|Mismatched type|is false\b|\bTVM\b"
    r"|and / or / not|shape check failed"
    r"|Layout infer|::|->|^\s*$|in T\.Parallel loop:\s*$"
)
"""Signs of a text that is about the compiler's own code."""


def find_sentence(text: str) -> str:
    """What a compiler's text says in a user's terms; empty if it says so itself, or is not known."""
    for pattern, sentence in _RULES:
        found = pattern.search(text)
        if found is not None:
            return " ".join(found.expand(sentence).split())
    return ""


def explain_refusal(text: str, file: str = "", line: int = 0) -> str:
    """The sentence for what TileLang raised at a user's line; empty if unknown, or it says so itself."""
    said, code = find_sentence(text), quote_line(file, line)
    if said:
        return f"{said}, in {code}" if code else said
    return (
        f"TileLang does not take {code or 'this kernel'}" if _RAW.search(first_line(text)) else ""
    )


def first_line(text: str) -> str:
    """The first line of a text that is not empty, cut short."""
    first = next((one for one in text.splitlines() if one.strip()), "")
    return textwrap.shorten(first, WORDS_LENGTH, placeholder=" ...")


def quote_line(file: str, line: int) -> str:
    """The code of a line between backticks; empty if it is not known."""
    code = linecache.getline(file, line).strip() if file else ""
    return f"`{textwrap.shorten(code, CODE_LENGTH, placeholder=' ...')}`" if code else ""


def explain_assertion(file: str, line: int, values: Mapping[str, object]) -> str:
    """What a failed assertion without a message asserts, with the values of its names."""
    code = linecache.getline(file, line).strip()
    try:
        (statement,) = ast.parse(code).body
    except (SyntaxError, ValueError):
        statement = None
    if not isinstance(statement, ast.Assert):
        return f"an assertion fails, in {quote_line(file, line)}" if code else "an assertion fails"
    names = [node.id for node in ast.walk(statement.test) if isinstance(node, ast.Name)]
    known = {
        name: values[name] for name in names if isinstance(values.get(name), int | float | str)
    }
    where = ", ".join(f"{name} = {show_value(value)}" for name, value in known.items())
    asserted = f"`{ast.unparse(statement.test)}` does not hold"
    return f"{asserted}, where {where}" if where else asserted


def is_compilers(file: str) -> bool:
    """Whether a source file is TileLang's or TVM's, as far as these are imported."""
    homes = (getattr(sys.modules.get(name), "__file__", None) for name in ("tilelang", "tvm"))
    return any(home and file.startswith(f"{home.rpartition('/')[0]}/") for home in homes)

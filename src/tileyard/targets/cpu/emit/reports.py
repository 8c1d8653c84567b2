"""What a kernel says while it runs, in C: lines that it prints, assertions that it checks, its failures.

Lines of the user's files are not in it: statements are told by number, and ``told.py`` knows the rest.
"""

from collections.abc import Iterable

from tileyard.ir.dtypes import find_dtype
from tileyard.ir.interpret import describe_print
from tileyard.ir.nodes import Assert, Expr, Load, Print, Var
from tileyard.ir.text import print_expr
from tileyard.ir.walk import walk_expr
from tileyard.targets.cpu.emit.context import Context
from tileyard.targets.cpu.emit.exprs import value

MOST_VALUES = 6
"""How many values are told of an assertion that fails."""


def emit_print(ctx: Context, stmt: Print) -> None:
    """Write one line to standard output, whole among those of other threads."""
    shown = [_conversion(ctx, expr) for expr in stmt.values]
    form = describe_print(stmt.message.replace("%", "%%"), [mark for mark, _ in shown])
    parts = ["report", str(ctx.statement), _quoted(form), *(text for _, text in shown)]
    ctx.out.line(f"TY_PRINT({', '.join(parts)});")


def emit_assert(ctx: Context, stmt: Assert) -> None:
    """Write a check that ends the launch where it fails, and tells the values that it is about."""
    said = stmt.message or print_expr(ctx.program, stmt.cond)
    site = ctx.fault(f"assertion failed: {said}")
    ctx.out.line(f"if (!({value(ctx, stmt.cond)})) {failure(ctx, site, (stmt.cond,))}")


def failure(ctx: Context, site: int, about: Iterable[Expr] = ()) -> str:
    """The C statement that ends the launch at a site; told are the values that ``about`` depend on."""
    shown = dict.fromkeys(
        part for expr in about for part in walk_expr(expr) if isinstance(part, Var | Load)
    )
    forms, texts = [], []
    for part in list(shown)[:MOST_VALUES]:
        mark, text = _conversion(ctx, part)
        forms.append(f"{print_expr(ctx.program, part).replace('%', '%%')} = {mark}")
        texts.append(text)
    return f"return ty_fail({', '.join(('report', str(site), _quoted(', '.join(forms)), *texts))});"


def _conversion(ctx: Context, expr: Expr) -> tuple[str, str]:
    """How a value is printed: printf's conversion, and the value in the C type that it takes."""
    dtype = find_dtype(expr.dtype)
    mark, kind = "%lld", "long long"
    if dtype.is_float:
        mark, kind = ("%.17g" if dtype.bits == 64 else "%.9g"), "double"
    elif dtype.kind == "uint":
        mark, kind = "%llu", "unsigned long long"
    return mark, f"({kind})({value(ctx, expr)})"


def _quoted(text: str) -> str:
    """``text`` as a string literal of C; what is not plain ASCII in octal."""
    parts = [
        chr(byte) if 32 <= byte < 127 and chr(byte) not in '\\"?' else f"\\{byte:03o}"
        for byte in text.encode("utf-8", "replace")
    ]
    return f'"{"".join(parts)}"'

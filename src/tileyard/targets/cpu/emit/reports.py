"""What a kernel says while it runs, in C: lines that it prints, assertions that it checks."""

from tileyard.ir.dtypes import find_dtype
from tileyard.ir.nodes import Assert, Expr, Print
from tileyard.targets.cpu.emit.context import Context
from tileyard.targets.cpu.emit.exprs import value


def emit_print(ctx: Context, stmt: Print) -> None:
    """Write one line to standard output, whole among those of other threads."""
    form, texts = stmt.message.replace("%", "%%"), []
    for expr in stmt.values:
        mark, kind = _format(expr)
        form += f" {mark}"
        texts.append(f", ({kind})({value(ctx, expr)})")
    ctx.out.line(f'dprintf(1, {_quoted(form)} "\\n"{"".join(texts)});')
    ctx.functions.setdefault("extern int dprintf(int, const char *, ...);\n", "")


def emit_assert(ctx: Context, stmt: Assert) -> None:
    """Write a check that ends the launch where it fails."""
    site = ctx.fault(stmt.message or "an assertion fails")
    ctx.out.line(f"if (!ty_require({value(ctx, stmt.cond)}, &fault, {site})) return fault;")


def _format(expr: Expr) -> tuple[str, str]:
    """How a value is printed: printf's conversion, and the C type that it takes."""
    dtype = find_dtype(expr.dtype)
    if dtype.is_float:
        return ("%.17g" if dtype.bits == 64 else "%.9g"), "double"
    if dtype.kind == "uint":
        return "%llu", "unsigned long long"
    return "%lld", "long long"


def _quoted(text: str) -> str:
    """``text`` as a string literal of C; what is not plain ASCII in octal."""
    parts = [
        chr(byte) if 32 <= byte < 127 and chr(byte) not in '\\"?' else f"\\{byte:03o}"
        for byte in text.encode("utf-8", "replace")
    ]
    return f'"{"".join(parts)}"'

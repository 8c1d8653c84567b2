"""Writes atomic updates, prints and assertions, and roles that wait for each other in C.

Where blocks share memory, updates are atomic CPU operations, unless one thread runs all blocks; a
tile is one thread's own. The kernel reports statements by number: ``binary.py`` has the user's
lines. Roles advance in turns, each a ``switch`` entered at its last wait; bindings and loop
counters must outlive it, so they are declared outside.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NoReturn, assert_never

from tileyard.base.errors import InvalidProgramError, UnsupportedError
from tileyard.ir.dtypes import find_dtype, is_float
from tileyard.ir.interpret import describe_deadlock, describe_print
from tileyard.ir.nodes import (
    Assert,
    Atomic,
    Await,
    Break,
    Expr,
    For,
    If,
    Issue,
    Let,
    Load,
    Print,
    Roles,
    Stmt,
    Store,
    Synchronization,
    TileOperation,
    Var,
    While,
)
from tileyard.ir.printer import print_expr
from tileyard.ir.walk import walk, walk_expr
from tileyard.targets.cpu.emit.context import Context
from tileyard.targets.cpu.emit.exprs import (
    condition,
    element,
    from_memory,
    require_written,
    to_memory,
    value,
)
from tileyard.targets.cpu.emit.scalars import BINARY, SCALARS, from_bits


def refuse(stmt: TileOperation | Issue | Synchronization) -> NoReturn:
    """Refuse operations that this target does not support, and statements that ``passes.settle`` removes."""
    tag = str(stmt.__struct_config__.tag)
    if isinstance(stmt, TileOperation):
        raise UnsupportedError(f"{tag} is not covered", operation=tag)
    raise InvalidProgramError(f"{tag} in a Program that is not settled")


# ---- atomic updates -------------------------------------------------------------------------------


def emit_atomic(ctx: Context, stmt: Atomic) -> None:
    """Write an update, and bind the old content if the statement does."""
    dtype = ctx.dtype(stmt.buffer)
    text = value(ctx, stmt.value)
    target = element(ctx, stmt.buffer, stmt.indices)
    if stmt.buffer not in ctx.arrays:
        if ctx.is_sanitized:
            ctx.out.line(f"{require_written(ctx, stmt.buffer, f'&{target}')};")
        old = from_memory(ctx, stmt.buffer, target)
        if stmt.var is not None:
            ctx.out.line(f"{ctx.binding(stmt.var)} = {old};")
            old = ctx.names[stmt.var.name]
        ctx.out.line(
            f"{target} = {to_memory(ctx, stmt.buffer, combine(stmt.kind, dtype, old, text))};"
        )
        return
    inside = condition(ctx, stmt.buffer, stmt.indices)
    call = f"{_function(ctx, stmt.kind, dtype)}(&{target}, {text}, threads)"
    if stmt.var is None:
        ctx.out.line(f"if ({inside}) {call};" if inside else f"{call};")
        return
    old = f"{inside} ? {call} : 0" if inside else call
    ctx.out.line(f"{ctx.binding(stmt.var)} = {old};")


def combine(kind: str, dtype: str, old: str, new: str) -> str:
    """The new content of an element in C, a value of ``dtype``."""
    scalar = SCALARS[dtype]
    if kind == "exchange":
        return new
    if f"bit{kind}" in BINARY:
        return f"({scalar.value})({old} {BINARY[f'bit{kind}'][0]} ({new}))"
    if kind == "add" and find_dtype(dtype).is_float:
        total = f"{old} + ({new})"
        return f"ty_round_{scalar.narrow}({total})" if scalar.narrow else total
    return f"ty_{kind}_{scalar.suffix}({old}, {new})"


def _function(ctx: Context, kind: str, dtype: str) -> str:
    """The name of the C function for this type; it is written once."""
    scalar, bits = SCALARS[dtype], find_dtype(dtype).bits
    mark = scalar.narrow or scalar.suffix
    name = f"ty_atomic_{kind}_{mark}"
    word = f"uint{bits}_t"
    read, write = from_bits("word", dtype), f"({word})next"
    if is_float(dtype):
        write = f"{'ty_pack' if scalar.narrow else 'ty_to_bits'}_{mark}(next)"
    text = f"""TY_INLINE {scalar.value} {name}(void *place, {scalar.value} value, int32_t threads) {{
  {word} word = __atomic_load_n(({word} *)place, __ATOMIC_RELAXED);
  if (threads == 1) {{
    const {scalar.value} old = {read}, next = {combine(kind, dtype, "old", "value")};
    *({word} *)place = {write};
    return old;
  }}
  for (;;) {{
    const {scalar.value} old = {read}, next = {combine(kind, dtype, "old", "value")};
    if (__atomic_compare_exchange_n(({word} *)place, &word, {write}, 1, __ATOMIC_ACQ_REL,
                                    __ATOMIC_RELAXED))
      return old;
  }}
}}
"""
    ctx.functions.setdefault(text, "")
    return name


# ---- prints and failures --------------------------------------------------------------------------


MOST_VALUES = 6
"""Most values that a failed assertion reports."""


def emit_print(ctx: Context, stmt: Print) -> None:
    """Write a print of one line to standard output, not mixed with those of other threads."""
    shown = [_conversion(ctx, expr) for expr in stmt.values]
    form = describe_print(stmt.message.replace("%", "%%"), [mark for mark, _ in shown])
    parts = ["report", str(ctx.statement), _quoted(form), *(text for _, text in shown)]
    ctx.out.line(f"TY_PRINT({', '.join(parts)});")


def emit_assert(ctx: Context, stmt: Assert) -> None:
    """Write a check that ends the launch if it fails, and reports the values it depends on."""
    site = ctx.fault(f"assertion failed: {stmt.message or print_expr(ctx.program, stmt.cond)}")
    ctx.out.line(f"if (!({value(ctx, stmt.cond)})) {failure(ctx, site, (stmt.cond,))}")


def failure(ctx: Context, site: int, about: Iterable[Expr] = ()) -> str:
    """The C statement that ends the launch at a site, unless the block has failed before, and reports the
    values that ``about`` depend on.
    """
    shown = dict.fromkeys(
        part for expr in about for part in walk_expr(expr) if isinstance(part, Var | Load)
    )
    told = [(part, *_conversion(ctx, part)) for part in list(shown)[:MOST_VALUES]]
    form = ", ".join(
        f"{print_expr(ctx.program, part).replace('%', '%%')} = {mark}" for part, mark, _ in told
    )
    arguments = ("report", str(site), _quoted(form), *(text for _, _, text in told))
    told_first = "fault.site ? ty_failed(report, &fault)"
    return f"return {told_first} : ty_fail({', '.join(arguments)});"


def _conversion(ctx: Context, expr: Expr) -> tuple[str, str]:
    """The printf conversion of a value, and the value in the C type that it takes."""
    dtype = find_dtype(expr.dtype)
    mark, kind = "%lld", "long long"
    if dtype.is_float:
        mark, kind = ("%.17g" if dtype.bits == 64 else "%.9g"), "double"
    elif dtype.kind == "uint":
        mark, kind = "%llu", "unsigned long long"
    return mark, f"({kind})({value(ctx, expr)})"


def _quoted(text: str) -> str:
    """``text`` as a C string literal, with anything but plain ASCII in octal."""
    parts = [
        chr(byte) if 32 <= byte < 127 and chr(byte) not in '\\"?' else f"\\{byte:03o}"
        for byte in text.encode("utf-8", "replace")
    ]
    return f'"{"".join(parts)}"'


# ---- roles ----------------------------------------------------------------------------------------


@dataclass(kw_only=True, slots=True)
class Role:
    """One role's body while it is written. ``waits`` has the fault of each of its waits, in order."""

    at: str
    rests: str
    moved: str
    waits: list[int] = field(default_factory=list)


def emit_roles(ctx: Context, stmt: Roles, write: Callable[[Role, int], None]) -> None:
    """Write all roles; ``write`` writes the body of one, by its number."""
    out, moved = ctx.out, ctx.names.fresh("moved_")
    roles = [
        Role(at=ctx.names.fresh(f"role{i}_"), rests=ctx.names.fresh(f"rest{i}_"), moved=moved)
        for i in range(len(stmt.bodies))
    ]
    out.line("/* roles advance in turns: each goes on until it has to wait, or has ended */")
    with out.block(""):
        for var in _outliving(stmt):
            ctx.outliving.add(var.name)
            out.line(f"{SCALARS[var.dtype].value} {ctx.names[var.name]};")
        out.line(f"int32_t {', '.join(f'{role.at} = 0' for role in roles)}, {moved} = 1;")
        with out.block(f"while ({moved})"):
            out.line(f"{moved} = 0;")
            for number, role in enumerate(roles):
                with out.block(f"switch ({role.at})"):
                    out.line("case 0:;")
                    write(role, number)
                    out.line(f"{role.at} = -1, {moved} = 1;")
                    out.line("default:;")
                out.line(f"{role.rests}:;")
        _emit_deadlock(ctx, roles)


def emit_wait(ctx: Context, stmt: Await, role: Role | None) -> None:
    """Write a wait; without another role, the awaited condition must already hold."""
    site = ctx.fault(describe_deadlock(stmt.message))
    if role is None:
        ctx.out.line(f"if (!({value(ctx, stmt.cond)})) {failure(ctx, site)}")
        return
    role.waits.append(site)
    number = len(role.waits)
    ctx.out.line(f"{role.at} = {number}, {role.moved} = 1;")
    ctx.out.line(f"case {number}:")
    ctx.out.line(f"if (!({value(ctx, stmt.cond)})) goto {role.rests};")
    ctx.out.line(f"{role.moved} = 1;")


def _outliving(stmt: Roles) -> Iterator[Var]:
    """The variables that are bound or counted before a possible wait."""
    todo: list[Stmt] = [inner for body in stmt.bodies for inner in body]
    while todo:
        match todo.pop(0):
            case Let(var=var) | Atomic(var=Var() as var):
                yield var
            case For() as loop if any(isinstance(inner, Await) for inner in walk((loop,))):
                yield loop.var
                todo += loop.body
            case While() as loop:
                todo += loop.body
            case If() as branch:
                todo += [*branch.then, *branch.orelse]
            case Roles() as inner:
                todo += [each for body in inner.bodies for each in body]
            case For() | Atomic() | Store() | Print() | Assert() | Break() | Await():
                pass
            case TileOperation():
                pass
            case Issue() | Synchronization() as other:
                refuse(other)
            case unknown:
                assert_never(unknown)


def _emit_deadlock(ctx: Context, roles: list[Role]) -> None:
    stuck, count = ctx.names.fresh("stuck_"), ctx.names.fresh("stuck_count_")
    waiting = [role for role in roles if role.waits]
    if not waiting:
        return
    ctx.out.line(f"int32_t {stuck}[{len(waiting)}], {count} = 0;")
    for role in waiting:
        table = f"((const int32_t[]){{{', '.join(map(str, role.waits))}}})"
        ctx.out.line(f"if ({role.at} > 0) {stuck}[{count}++] = {table}[{role.at} - 1];")
    ctx.out.line(f"if ({count}) return ty_stuck(report, {stuck}, {count});")

"""Atomic updates of single elements in C.

In memory that blocks share they are atomic operations of the CPU, unless one thread runs all blocks; a
tile is one thread's own.
"""

from tileyard.ir.dtypes import find_dtype
from tileyard.ir.nodes import Atomic
from tileyard.targets.cpu.emit.context import Context
from tileyard.targets.cpu.emit.exprs import (
    condition,
    element,
    from_memory,
    to_memory,
    value,
)
from tileyard.targets.cpu.emit.scalars import SCALARS

_OPERATORS = {"and": "&", "or": "|", "xor": "^"}


def emit_atomic(ctx: Context, stmt: Atomic) -> None:
    """Write an update, and bind the old content where the statement does."""
    dtype = ctx.dtype(stmt.buffer)
    text = value(ctx, stmt.value)
    target = element(ctx, stmt.buffer, stmt.indices)
    if stmt.buffer not in ctx.arrays:
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
    if kind in _OPERATORS:
        return f"({scalar.value})({old} {_OPERATORS[kind]} ({new}))"
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
    if scalar.narrow:
        read, write = f"ty_from_{mark}(word)", f"ty_pack_{mark}(next)"
    elif find_dtype(dtype).is_float:
        read, write = f"ty_from_bits_{mark}(word)", f"ty_to_bits_{mark}(next)"
    else:
        read, write = f"({scalar.value})word", f"({word})next"
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

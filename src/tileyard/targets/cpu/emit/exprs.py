"""Writes scalar expressions in C: values of expressions, and elements of buffers."""

from collections.abc import Callable, Sequence
from typing import assert_never

from tileyard.ir.dtypes import find_dtype, is_float, is_integer
from tileyard.ir.nodes import Axis, Cast, Const, Expr, Load, Op, Var
from tileyard.ir.ranges import Interval
from tileyard.targets.cpu.emit.context import Context
from tileyard.targets.cpu.emit.scalars import (
    BINARY,
    CALL,
    CAST,
    DIVISIONS,
    EXACT,
    PREFIX,
    SCALARS,
    TERNARY,
    C,
    cast,
    from_bits,
    literal,
    unrounded_cast,
)
from tileyard.targets.cpu.emit.tiles import Rows


def value(ctx: Context, expr: Expr) -> str:
    """``expr`` in C, in the C type that variables of its dtype have."""
    return _value(ctx, expr).text


def value_as(ctx: Context, expr: Expr, dtype: str) -> str:
    """``value``, converted to ``dtype``."""
    text = value(ctx, expr)
    return text if expr.dtype == dtype else cast(f"({text})", expr.dtype, dtype)


def unrounded(ctx: Context, expr: Expr) -> tuple[str, str]:
    """As ``value`` without the final rounding, and the narrow type to round to, empty for none."""
    found = _unrounded(ctx, expr)
    return found[0].text, found[1]


def index(ctx: Context, expr: Expr) -> str:
    """An integer expression in C that is right if its true value fits in 64 bits."""
    return _index(ctx, expr).text


def index_term(ctx: Context, expr: Expr) -> str:
    """``index``, in parentheses if a product needs them."""
    return _index(ctx, expr).inside(14)


def index_side(ctx: Context, expr: Expr) -> str:
    """``index``, in parentheses if a comparison needs them."""
    return _index(ctx, expr).inside(11)


def declare_axes(ctx: Context, axes: Sequence[Axis], rest: str) -> None:
    """Declare the variables of ``axes``, the first the fastest, for block number ``rest``."""
    for i, axis in enumerate(axes):
        extent = index_term(ctx, axis.extent)
        kind = SCALARS[axis.var.dtype].value
        text = rest if i == len(axes) - 1 else f"{rest} % {extent}"
        value = f"({text})" if " " in text else text
        ctx.out.line(f"const {kind} {ctx.names[axis.var.name]} = ({kind}){value};")
        rest = f"{rest} / {extent}"


def condition(ctx: Context, buffer: str, indices: tuple[Expr, ...]) -> str:
    """The C test that an element is inside its buffer; empty if that is certain."""
    tests = []
    for (at, extent), low, high in ctx.open_bounds(buffer, indices):
        i, n = _index(ctx, at), _index(ctx, extent)
        if low and high:
            tests.append(f"ty_inside({i.text}, {n.text})")
        elif low:
            tests.append(f"{i.inside(10)} >= 0")
        else:
            tests.append(is_below(ctx, at, extent))
    return " && ".join(tests)


def is_below(ctx: Context, at: Expr, extent: Expr) -> str:
    """The C test that a sum of what is not negative is below ``extent``: not if it has wrapped."""
    if at.dtype == "int64" and not ctx.ranges.is_exact(at):
        return f"ty_inside({index(ctx, at)}, {index(ctx, extent)})"
    return f"{index_side(ctx, at)} < {index_side(ctx, extent)}"


def guard(ctx: Context, buffer: str, indices: tuple[Expr, ...]) -> str:
    """The C condition before a statement on an element, which skips it for an element outside its array."""
    test = condition(ctx, buffer, indices) if buffer in ctx.arrays else ""
    return f"if ({test}) " if test else ""


def place(ctx: Context, buffer: str, indices: tuple[Expr, ...]) -> str:
    """An element as a C lvalue, its indices not checked."""
    texts = [index(ctx, at) for at in indices]
    return ctx.names[buffer] + "".join(f"[{text}]" for text in texts or ["0"])


def element(ctx: Context, buffer: str, indices: tuple[Expr, ...]) -> str:
    """An element as a C lvalue. In a tile, an index that may be outside is checked."""
    if buffer in ctx.arrays:
        return place(ctx, buffer, indices)
    tile = ctx.plan.tiles[buffer]
    if not isinstance(tile.layout, Rows):
        raise AssertionError(f"{buffer} is kept for gemms and not in rows")
    open_ = {bound for bound, _, _ in ctx.open_bounds(buffer, indices)}
    texts = []
    for at, extent in zip(indices, ctx.shape(buffer), strict=True):
        text = index(ctx, at)
        if (at, extent) in open_:
            site = ctx.fault(f"an index of {buffer} is outside its shape {list(tile.shape)}", at)
            text = f"ty_index({text}, {index(ctx, extent)}, &fault, {site})"
        texts.append(text)
    return ctx.names[buffer] + "".join(f"[{text}]" for text in texts or ["0"])


def load(ctx: Context, buffer: str, indices: tuple[Expr, ...]) -> C:
    """The value of an element; 0 outside an array."""
    inside = condition(ctx, buffer, indices) if buffer in ctx.arrays else ""
    read = from_memory(ctx, buffer, element(ctx, buffer, indices))
    return C(f"{inside} ? {read} : 0", TERNARY) if inside else C(read)


def load_as(ctx: Context, buffer: str, indices: tuple[Expr, ...], dtype: str) -> str:
    """``load``, converted to ``dtype``."""
    return cast(f"({load(ctx, buffer, indices).text})", ctx.dtype(buffer), dtype)


def from_memory(ctx: Context, buffer: str, text: str) -> str:
    """The value that an lvalue of a buffer holds."""
    narrow = ctx.narrow(buffer)
    return f"ty_from_{narrow}({text})" if narrow else text


def to_memory(ctx: Context, buffer: str, text: str) -> str:
    """The C value to assign to an lvalue of a buffer so that it holds ``text``, a value of its dtype."""
    narrow = ctx.narrow(buffer)
    return f"ty_pack_{narrow}({text})" if narrow else text


def store(ctx: Context, buffer: str, indices: tuple[Expr, ...], text: str) -> None:
    """Write the statement that sets an element to ``text``, unless it is outside an array."""
    target = element(ctx, buffer, indices)
    if ctx.is_sanitized and buffer not in ctx.arrays:
        with ctx.out.block(""):
            ctx.out.line(f"{ctx.element_type(buffer)} *const to_ = &{target};")
            ctx.out.line(f"*to_ = {text};")
            note_written(ctx, buffer, "to_")
        return
    ctx.out.line(f"{guard(ctx, buffer, indices)}{target} = {to_memory(ctx, buffer, text)};")


def require_written(ctx: Context, buffer: str, address: str, count: str = "1") -> str:
    """The C call that reports a read of unwritten tile elements; its value is their address."""
    size = f"{count} * sizeof({ctx.element_type(buffer)})"
    site = ctx.fault(f"{buffer} is read where nothing has been written in this block")
    last = ctx.last_writes[ctx.storage(buffer)]
    return (
        f"ty_require_written({address}, {size}, {ctx.plan.scratch_bytes}, &fault, {site}, {last})"
    )


def note_written(ctx: Context, buffer: str, address: str, count: str = "1") -> None:
    """Write that this block has written tile elements, and with which statement."""
    size = f"{count} * sizeof({ctx.element_type(buffer)})"
    ctx.out.line(f"ty_note_written({address}, {size}, {ctx.plan.scratch_bytes});")
    last = ctx.last_writes[ctx.storage(buffer)]
    ctx.out.line(f"{last} = {ctx.fault(f'the last write to {buffer} before that')};")


def can_fail(ctx: Context, expr: Expr) -> bool:
    """Whether ``expr`` contains a run-time check, for instance of a divisor."""
    known, ctx.faults = ctx.faults, []
    value(ctx, expr)
    fails = bool(ctx.faults)
    ctx.faults = known
    return fails


# ---- indices ------------------------------------------------------------------------------------


def _index(ctx: Context, expr: Expr) -> C:
    if _never_wraps(ctx, expr):
        return _value(ctx, expr)
    return _wide(ctx, expr)


_WIDENED = frozenset({"add", "sub", "mul", "min", "max", "floordiv", "floormod"})
"""Operations that are computed in 64 bits if their own dtype, which has fewer, may not hold the result."""


def _never_wraps(ctx: Context, expr: Expr) -> bool:
    if not isinstance(expr, Op) or expr.name not in _WIDENED:
        return True
    is_sure = expr.name not in ("add", "sub", "mul") or ctx.ranges.is_exact(expr)
    return is_sure and all(_never_wraps(ctx, arg) for arg in expr.args)


def _wide(ctx: Context, expr: Expr) -> C:
    if isinstance(expr, Op) and expr.name in _WIDENED and expr.dtype != "int64":
        left, right = (_wide(ctx, arg) for arg in expr.args)
        if expr.name in BINARY:
            symbol, binds = BINARY[expr.name]
            return C(f"{left.inside(binds)} {symbol} {right.inside(binds + 1)}", binds)
        is_division = expr.name in DIVISIONS
        other = _divisor(ctx, expr, right.text, "i64") if is_division else right.text
        return C(f"ty_{expr.name}_i64({left.text}, {other})")
    inner = _value(ctx, expr)
    if isinstance(expr, Const) or expr.dtype == "int64":
        return inner
    return C(f"(int64_t){inner.inside(PREFIX)}", CAST)


# ---- values -------------------------------------------------------------------------------------


def _value(ctx: Context, expr: Expr) -> C:
    inner, rounding = _unrounded(ctx, expr)
    return C(f"ty_round_{rounding}({inner.text})") if rounding else inner


def _unrounded(ctx: Context, expr: Expr) -> tuple[C, str]:
    """``expr`` without its final rounding, and the narrow type to round to."""
    if ctx.known and expr in ctx.known:
        return C(ctx.known[expr]), ""
    match expr:
        case Const():
            text = literal(expr)
            return C(text, PREFIX if text.startswith("-") else CALL), ""
        case Var():
            return C(ctx.names[expr.name]), ""
        case Load() if ctx.is_sanitized and expr.buffer not in ctx.arrays:
            kind = ctx.element_type(expr.buffer)
            checked = require_written(
                ctx, expr.buffer, f"&{load(ctx, expr.buffer, expr.indices).text}"
            )
            return C(f"*(const {kind} *){checked}", PREFIX), ""
        case Load():
            return load(ctx, expr.buffer, expr.indices), ""
        case Cast():
            return _cast(ctx, expr)
        case Op():
            return _op(ctx, expr)
        case _:
            assert_never(expr)


def _cast(ctx: Context, expr: Cast) -> tuple[C, str]:
    source = expr.value.dtype
    inner = _value(ctx, expr.value)
    if source == expr.dtype:
        return inner, ""
    widest = 64
    if is_integer(source):
        interval = ctx.ranges.of(expr.value)
        widest = max(interval.high, -interval.low - 1, 0).bit_length()
    text, rounding = unrounded_cast(inner.inside(PREFIX), source, expr.dtype, widest)
    return C(text, CAST), rounding


def _op(ctx: Context, op: Op) -> tuple[C, str]:
    args = [_value(ctx, arg) for arg in op.args]
    if op.name in _SPECIAL:
        return _SPECIAL[op.name](ctx, op, args), ""
    scalar = SCALARS[op.args[0].dtype]
    rounding = SCALARS[op.dtype].narrow
    if op.name in BINARY:
        return _binary(ctx, op, args), rounding if is_float(op.dtype) else ""
    if op.name in DIVISIONS:
        return _division(ctx, op, args), ""
    form = f"odd_{op.name}" if rounding and op.name == "fma" else op.name
    call = f"ty_{form}_{scalar.suffix}({', '.join(arg.text for arg in args)})"
    if op.name in ("min", "max") or op.name in EXACT or op.dtype == "bool":
        return C(call), ""
    return C(call), rounding


def _binary(ctx: Context, op: Op, args: list[C]) -> C:
    symbol, binds = BINARY[op.name]
    text = f"{args[0].inside(binds)} {symbol} {args[1].inside(binds + 1)}"
    dtype = find_dtype(op.dtype)
    if dtype.kind == "bool" or dtype.is_float:
        return C(text, binds)
    scalar = SCALARS[op.dtype]
    if op.name.startswith("bit"):
        return C(text, binds) if dtype.bits >= 32 else C(f"({scalar.value})({text})", CAST)
    if ctx.ranges.is_exact(op) or op.dtype in ("uint32", "uint64"):
        return C(text, binds)
    return C(f"ty_{op.name}_{scalar.suffix}({args[0].text}, {args[1].text})")


def _division(ctx: Context, op: Op, args: list[C]) -> C:
    left, right = (ctx.ranges.of(arg) for arg in op.args)
    suffix = SCALARS[op.dtype].suffix
    if right.low > 0 and (left.low >= 0 or op.name.startswith("trunc")):
        return C(f"{args[0].inside(13)} {DIVISIONS[op.name]} {args[1].inside(14)}", 13)
    return C(f"ty_{op.name}_{suffix}({args[0].text}, {_divisor(ctx, op, args[1].text, suffix)})")


def _divisor(ctx: Context, op: Op, text: str, suffix: str) -> str:
    interval = ctx.ranges.of(op.args[1])
    if interval.low > 0 or interval.high < 0:
        return text
    return f"ty_divisor_{suffix}({text}, &fault, {ctx.fault('an integer is divided by zero')})"


def _select(ctx: Context, op: Op, args: list[C]) -> C:
    test, yes, no = args
    text = f"{test.inside(TERNARY + 1)} ? {yes.inside(TERNARY + 1)} : {no.inside(TERNARY)}"
    return C(text, TERNARY)


def _negate(ctx: Context, op: Op, args: list[C]) -> C:
    if is_float(op.dtype):
        return C(f"-{args[0].inside(PREFIX + 1)}", PREFIX)
    return C(f"ty_neg_{SCALARS[op.dtype].suffix}({args[0].text})")


def _shift(ctx: Context, op: Op, args: list[C]) -> C:
    left, places = args[0], args[1].text
    scalar, bits = SCALARS[op.dtype], find_dtype(op.dtype).bits
    if not ctx.ranges.of(op.args[1]).within(Interval(0, bits - 1)):
        site = ctx.fault(f"an integer of {bits} bits is shifted out of range", op.args[1])
        places = f"ty_count_{scalar.suffix}({places}, &fault, {site})"
    if op.name == "shl":
        return C(f"ty_shl_{scalar.suffix}({left.text}, {places})")
    return C(f"({scalar.value})({left.inside(12)} >> ({places}))", CAST)


def _invert(ctx: Context, op: Op, args: list[C]) -> C:
    inner = args[0].inside(PREFIX + 1)
    if op.dtype == "bool":
        return C(f"!{inner}", PREFIX)
    return C(f"({SCALARS[op.dtype].value})~{inner}", CAST)


def _reinterpret(ctx: Context, op: Op, args: list[C]) -> C:
    source, scalar = find_dtype(op.args[0].dtype), SCALARS[op.args[0].dtype]
    if scalar.narrow:
        word = f"ty_to_{scalar.narrow}({args[0].text})"
    elif source.is_float:
        word = f"ty_to_bits_{scalar.suffix}({args[0].text})"
    else:
        word = f"(uint{source.bits}_t){args[0].inside(PREFIX)}"
    if op.dtype == "bool":
        return C(f"({word} != 0)")
    return C(from_bits(word, op.dtype), CALL if is_float(op.dtype) else CAST)


_SPECIAL: dict[str, Callable[[Context, Op, list[C]], C]] = {
    "select": _select,
    "neg": _negate,
    "not": _invert,
    "shl": _shift,
    "shr": _shift,
    "bitnot": _invert,
    "reinterpret": _reinterpret,
    "nan": lambda ctx, op, args: C("TY_NAN"),
}
"""Operations that need more than an operator or a call on their arguments."""

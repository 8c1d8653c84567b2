"""Values of whole vectors in C, for passes: expressions over contiguous elements.

What vectors do not do, such as arithmetic of integers, is done by a loop over a few elements of memory
that compilers make vectors of.
"""

from collections.abc import Callable

from tileyard.ir.nodes import Cast, Const, Expr, Load, Op, Store, Var
from tileyard.ir.ranges import Interval
from tileyard.ir.walk import replace_parts, walk_expr
from tileyard.targets.cpu.emit.context import Bound, Context
from tileyard.targets.cpu.emit.exprs import place, unrounded, value
from tileyard.targets.cpu.emit.groups import Part, count_at_once, is_along
from tileyard.targets.cpu.emit.nests import FLOATS, Fold, Nest, innermost, loads
from tileyard.targets.cpu.emit.operators import unrounded_cast
from tileyard.targets.cpu.emit.scalars import SCALARS, literal

_BINARY = frozenset({"add", "sub", "mul", "div", "min", "max"})
_UNARY = frozenset({"neg", "abs", "sqrt", "rsqrt", "exp", "exp2"})
_ROUNDING = _BINARY - {"min", "max"} | _UNARY - {"neg", "abs"}
"""Operations whose result a narrow type need not hold."""

_MARKS = frozenset({"f16", "bf16"})
_BYTES = {"int8": "i8", "uint8": "u8"}

_AT_ONCE = 32
"""Elements of four vectors."""

QUAD, ONE, LACED = "quad", "one", "laced"
LENGTHS = {QUAD: "TY_QUAD", ONE: "TY_LANES"}
"""How many elements a form has, in C."""


def is_laced(ctx: Context, nest: Nest, unwritten: frozenset[str]) -> bool:
    """Whether quads are laced: two vectors become one of bfloat16 in order, without a permutation.

    Rows of other floats cost more then, those of float16 most of all.
    """

    def memory(name: str) -> str:
        return ctx.dtype(name) if name in ctx.arrays else "float32"

    written = {step.buffer for step in nest.steps if isinstance(step, Store)} - unwritten
    rows = (x for step in nest.steps for x in loads(step) if is_along(x.indices, nest.along))
    read = {x.buffer for x in rows if x.dtype in FLOATS} - unwritten
    kinds = [memory(name) for name in (*written, *read)]
    return (
        "bfloat16" in map(memory, written)
        and "float16" not in kinds
        and kinds.count("bfloat16") > kinds.count("float32")
    )


def narrow_rows(ctx: Context, nest: Nest) -> list[Load]:
    """What the folds of a nest read, if that is narrow rows whose bits tell the result as well."""
    rows = []
    for step in nest.steps:
        row = step.source if isinstance(step, Fold) else None
        if isinstance(row, Cast) and row.dtype == "float32":
            row = row.value
        if (
            not isinstance(step, Fold)
            or not isinstance(row, Load)
            or step.kind not in ("max", "min", "absmax")
            or row.buffer not in ctx.arrays
            or SCALARS[row.dtype].narrow not in _MARKS
            or not is_along(row.indices, nest.along)
            or nest.columns % _AT_ONCE
        ):
            return []
        rows.append(row)
    return rows


class Vectors:
    """Writes values of the elements of a nest's rows, as so many vectors as ``form`` says.

    ``same`` names in C what does not change along a row, ``spilled`` the memory of values that the
    statements around have in vectors. Quads are ``laced`` or in the usual order.
    """

    def __init__(self, ctx: Context, nest: Nest, *, laced: bool) -> None:
        self._ctx = ctx
        self._laced = laced
        self._at = nest.along
        self._loop = innermost(nest.loop())
        self.form = QUAD
        self.same: dict[Expr, str] = {}
        self.spilled: dict[Expr, str] = {}

    @property
    def moved(self) -> str:
        """The form's name in loads and stores."""
        return LACED if self._laced and self.form == QUAD else self.form

    def rounded(self, text: str, rounding: str) -> str:
        """Vectors rounded to a narrow type, if any."""
        return f"ty_{self.form}_round_{rounding}({text})" if rounding else text

    def write(self, expr: Expr) -> str:
        """Vectors of the values of ``expr``, a float."""
        return self.rounded(*self.unrounded(expr))

    def unrounded(self, expr: Expr) -> tuple[str, str]:
        """As ``write``, but the last step left out: the narrow type to which it is to be rounded."""
        ctx, form = self._ctx, self.form
        if expr in self.same:
            return f"ty_{form}_of({self.same[expr]})", ""
        if expr in ctx.known:
            return ctx.known[expr], ""
        narrow = SCALARS[expr.dtype].narrow
        match expr:
            case Const():
                return f"ty_{form}_of({literal(expr)})", ""
            case Load() if self._is_row(expr) and expr.dtype in FLOATS:
                mark = narrow if expr.buffer in ctx.arrays and narrow else "f32"
                return f"ty_{self.moved}_load_{mark}(&{place(ctx, expr.buffer, expr.indices)})", ""
            case Op() if expr.dtype in FLOATS and expr.name in _BINARY | _UNARY:
                args = ", ".join(self.write(arg) for arg in expr.args)
                rounding = narrow if expr.name in _ROUNDING else ""
                return f"ty_{form}_{expr.name}({args})", rounding
            case Cast() if expr.dtype in FLOATS:
                return self._cast(expr)
        return self._by_element(expr)

    def _is_row(self, expr: Load) -> bool:
        return is_along(expr.indices, self._at)

    def _cast(self, expr: Cast) -> tuple[str, str]:
        inner = expr.value
        if inner.dtype in FLOATS:
            return unrounded_cast(self.write(inner), inner.dtype, expr.dtype)
        if inner.dtype not in _BYTES:
            return self._by_element(expr)
        _, rounding = unrounded(self._ctx, expr)
        mark = _BYTES[inner.dtype]
        if isinstance(inner, Load) and self._is_row(inner):
            first = place(self._ctx, inner.buffer, inner.indices)
        else:
            first = f"{self._in_memory(inner, value)}[0]"
        return f"ty_{self.moved}_load_{mark}(&{first})", rounding

    def whole(self, expr: Expr) -> str:
        """The name of an array that holds ``expr``, an integer, of each element of the vectors."""
        return self._in_memory(expr, value)

    # ---- by way of memory -----------------------------------------------------------------------------

    def _by_element(self, expr: Expr) -> tuple[str, str]:
        """What vectors do not do, computed into a few elements of memory."""
        rounding = unrounded(self._ctx, expr)[1]
        if rounding not in _MARKS:
            row, rounding = self._in_memory(expr, value), ""
        else:
            row = self._in_memory(expr, lambda ctx, x: unrounded(ctx, x)[0])
        return f"ty_{self.moved}_load_f32({row})", rounding

    def _in_memory(self, expr: Expr, text: Callable[[Context, Expr], str]) -> str:
        """The name of an array that holds ``text`` of ``expr`` for each element of the vectors."""
        ctx, out, length = self._ctx, self._ctx.out, LENGTHS[self.form]
        for part in walk_expr(expr):
            if isinstance(part, Load) and part.dtype in FLOATS and part not in self.spilled:
                self._spill(part)
        row, kind = ctx.names.fresh("part"), SCALARS[expr.dtype].value
        before, ctx.known = ctx.known, {**self.same, **self.spilled}
        out.line(f"{kind} {row}[{length}] __attribute__((aligned(64)));")
        ctx.names.alias(self._at.name, "at_")
        count = count_at_once(expr, self._loop) if self.form == QUAD else 1
        out.line("TY_SHORT")
        with out.block(f"for (int32_t e_ = 0; e_ < {length} / {count}; ++e_)"):
            if count == 1:
                out.line(f"const int32_t n_ = e_, at_ = {self._at.name} + n_;")
                out.line(f"{row}[n_] = {text(ctx, expr)};")
            else:
                self._together(expr, count, lambda x: f"{row}[n_] = {text(ctx, x)};")
        ctx.names.alias(self._at.name, self._at.name)
        ctx.known = before
        return row

    def _together(self, expr: Expr, count: int, line: Callable[[Expr], str]) -> None:
        """``count`` elements at once, so that no division of their number is left."""
        ctx, out, at = self._ctx, self._ctx.out, self._at
        group = Var(ctx.names.fresh(f"{at.name}_by_{count}"), at.dtype)
        ctx.names.bind(group.name)
        inside = ctx.ranges.of(at)
        ctx.ranges.bind(group, Interval(inside.low // count, inside.high // count))
        out.line(f"const int32_t {group.name} = {at.name} / {count} + e_;")
        for rest in range(count):
            bounds: set[Bound] = set()
            part = Part(ctx=ctx, var=at, group=group, count=count, rest=rest, bounds=bounds)
            resolved = replace_parts(expr, part.resolve)
            with out.block(""), ctx.assuming(ctx.assumed | bounds):
                out.line(f"const int32_t n_ = {count} * e_ + {rest}, at_ = {at.name} + n_;")
                out.line(line(resolved))

    def _spill(self, part: Load) -> None:
        """Write what vectors hold, or read from narrow memory, to where single elements are read."""
        ctx = self._ctx
        if part not in ctx.known and not (self._is_row(part) and ctx.scalar(part.buffer).narrow):
            return
        if part in self.same:
            return
        row, text = ctx.names.fresh("part"), self.write(part)
        ctx.out.line(f"float {row}[{LENGTHS[self.form]}] __attribute__((aligned(64)));")
        if self.form == QUAD:
            ctx.out.line(f"ty_{self.moved}_store_f32({row}, {text}, 0);")
        else:
            ctx.out.line(f"ty_store_f32({row}, {text});")
        self.spilled[part] = f"{row}[n_]"

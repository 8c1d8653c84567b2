"""Contiguous elements moved and converted: the C for one row of a copy."""

from dataclasses import dataclass

from tileyard.ir.dtypes import TENSOR_FLOAT
from tileyard.targets.cpu.emit.context import Context
from tileyard.targets.cpu.emit.exprs import from_memory, to_memory
from tileyard.targets.cpu.emit.operators import cast
from tileyard.targets.cpu.emit.scalars import SCALARS


def write(ctx: Context, buffer: str, function: str) -> str:
    """The function that does the same as ``function`` of tile.h, if need be past the caches.

    It takes one argument more, ``ctx.large[buffer]``, where the buffer has one.
    """
    if buffer not in ctx.large:
        return function
    return "ty_write" if function == "memcpy" else function.replace("ty_row", "ty_write", 1)


@dataclass(frozen=True, kw_only=True, slots=True)
class Move:
    """How elements go from one buffer to another."""

    source: str
    target: str

    def is_plain(self, ctx: Context) -> bool:
        """Whether memory is the same on both sides, bit by bit."""
        if ctx.element_type(self.source) != ctx.element_type(self.target):
            return False
        a, b = ctx.dtype(self.source), ctx.dtype(self.target)
        if a == TENSOR_FLOAT and self.source in ctx.arrays:
            return a == b and self.target in ctx.arrays
        if a == b:
            return True
        # In tiles, narrow floats are floats already.
        return SCALARS[a].value == SCALARS[b].value == "float" and b == "float32"

    def row(self, ctx: Context, to: str, source: str, count: str) -> None:
        """Write the move of ``count`` contiguous elements between two addresses."""
        large = f", {ctx.large[self.target]}" if self.target in ctx.large else ""
        if self.is_plain(ctx):
            size = f"{count} * sizeof({ctx.element_type(self.target)})"
            ctx.out.line(f"{write(ctx, self.target, 'memcpy')}({to}, {source}, {size}{large});")
            return
        function = self._row_function(ctx)
        if function:
            function = write(ctx, self.target, function)
            ctx.out.line(f"{function}({to}, {source}, {count}{large});")
            return
        with ctx.out.block(""):
            ctx.out.line(f"const {ctx.element_type(self.source)} *from_ = {source};")
            ctx.out.line(f"{ctx.element_type(self.target)} *to_ = {to};")
            ctx.out.line("TY_INDEPENDENT")
            with ctx.out.block(f"for (int64_t e_ = 0; e_ < {count}; ++e_)"):
                ctx.out.line(f"to_[e_] = {self.element(ctx, 'from_[e_]')};")

    def element(self, ctx: Context, source: str) -> str:
        """What an lvalue of the target is set to, given one of the source."""
        read = from_memory(ctx, self.source, source)
        converted = cast(read, ctx.dtype(self.source), ctx.dtype(self.target))
        return to_memory(ctx, self.target, converted)

    def _row_function(self, ctx: Context) -> str:
        """The function of tile.h that moves whole rows so; empty where there is none."""
        a, b = ctx.scalar(self.source), ctx.scalar(self.target)
        held = a.narrow if self.source in ctx.arrays else ""
        if held and ctx.element_type(self.target) == "float":
            is_kept = ctx.dtype(self.target) in ("float32", ctx.dtype(self.source))
            return f"ty_row_from_{held}" if is_kept else ""
        if held or ctx.element_type(self.source) != "float" or not b.narrow:
            return ""
        if ctx.dtype(self.source) == ctx.dtype(self.target):
            return f"ty_row_pack_{b.narrow}"
        return f"ty_row_{'to' if self.target in ctx.arrays else 'round'}_{b.narrow}"

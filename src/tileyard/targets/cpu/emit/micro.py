"""Micro-kernels: C functions that multiply a panel of rows by a panel of columns in registers."""

from dataclasses import dataclass

from tileyard.targets.cpu.emit.scalars import C_BYTES
from tileyard.targets.cpu.emit.tiles import LINE, Shape


@dataclass(frozen=True, kw_only=True, slots=True)
class Micro:
    """One micro-kernel: ``rows`` x ``vectors`` accumulators.

    Element (i, k) of ``a`` is at ``i * a_row + k * a_depth``, and ``a_step`` is the distance from
    a chunk of ``k`` to the next. ``c_row`` is that between rows of ``c``. ``lines`` of the next
    panel of ``b`` are fetched by each call. ``has_tail`` says that ``depth`` may be no multiple of
    a chunk.
    """

    shape: Shape
    rows: int
    vectors: int
    a_row: int
    a_depth: int
    a_step: int
    c_row: int
    lines: int
    has_tail: bool

    def write(self, name: str) -> str:
        """The C function ``name``: ``c = (is_clear ? 0 : c) + a @ b`` over ``depth`` steps, in order.

        It fetches what the next panel of rows will need.
        """
        scalar, chunk = self.shape.scalar, self.shape.chunk
        vector = f"ty_{scalar}x{self.shape.lanes}"
        text = [
            f"TY_MICRO void {name}(int64_t depth, const {scalar} *restrict a, const {scalar} *restrict b,",
            f"    {scalar} *restrict c, int is_clear, const {scalar} *next_a, const {scalar} *next_b) {{",
            "  TY_FUSED",
        ]
        names = [[f"c{i}_{v}" for v in range(self.vectors)] for i in range(self.rows)]
        text += [f"  {vector} {', '.join(f'{name} = {{0}}' for name in row)};" for row in names]
        text.append("  if (!is_clear) {")
        text += [f"    {line}" for line in self._result(vector, "{name} = {place};")]
        text.append("  }")
        below = range(self.rows, 2 * self.rows)
        text += [f"  __builtin_prefetch(c + {i * self.c_row}, 1);" for i in below]
        per_line = LINE // C_BYTES[scalar]
        text += [f"  __builtin_prefetch(next_b + {i * per_line}, 0, 2);" for i in range(self.lines)]
        advance = f"a += {self.a_step}, next_a += {self.a_step}, b += {chunk * self.shape.columns}"
        text.append(f"  for (; depth >= {chunk}; depth -= {chunk}, {advance}) {{")
        fetched = self._fetches()
        for step in range(chunk):
            text += [f"    {line}" for line in fetched.get(step, [])]
            text += [f"    {line}" for line in self._step(vector, step)]
        text.append("  }")
        if self.has_tail:
            columns = self.shape.columns
            text.append(f"  for (; depth > 0; --depth, a += {self.a_depth}, b += {columns}) {{")
            text += [f"    {line}" for line in self._step(vector, 0)]
            text.append("  }")
        text += [f"  {line}" for line in self._result(vector, "{place} = {name};")]
        return "\n".join([*text, "}", ""])

    def _fetches(self) -> dict[int, list[str]]:
        """Which lines of the next panel of ``a`` are fetched at which step of a chunk."""
        chunk, per_line = self.shape.chunk, LINE // C_BYTES[self.shape.scalar]
        if self.a_depth != 1:
            return {}
        places = [i * self.a_row for i in range(self.rows)]
        if self.a_row == chunk:
            places = list(range(0, self.rows * chunk, per_line))
        found: dict[int, list[str]] = {}
        for i, place in enumerate(places):
            step = i * chunk // len(places)
            found.setdefault(step, []).append(f"__builtin_prefetch(next_a + {place});")
        return found

    def _step(self, vector: str, step: int) -> list[str]:
        columns, lanes = self.shape.columns, self.shape.lanes
        loads = [
            f"const {vector} b{v} = *(const {vector} *)(b + {step * columns + v * lanes});"
            for v in range(self.vectors)
        ]
        lines = ["{ " + " ".join(loads)]
        for i in range(self.rows):
            read = f"const {self.shape.scalar} a{i} = a[{i * self.a_row + step * self.a_depth}];"
            sums = " ".join(f"c{i}_{v} += a{i} * b{v};" for v in range(self.vectors))
            lines.append(f"  {read} {sums}")
        lines[-1] += " TY_STEP; }"
        return lines

    def _result(self, vector: str, form: str) -> list[str]:
        return [
            form.format(
                name=f"c{i}_{v}",
                place=f"*({vector} *)(c + {i * self.c_row + v * self.shape.lanes})",
            )
            for i in range(self.rows)
            for v in range(self.vectors)
        ]


def vector_type(shape: Shape) -> str:
    """The C declaration of the vectors that micro-kernels of this shape are made of."""
    size = C_BYTES[shape.scalar]
    return (
        f"typedef {shape.scalar} ty_{shape.scalar}x{shape.lanes} "
        f"__attribute__((vector_size({shape.lanes * size}), aligned({size}), may_alias));\n"
    )

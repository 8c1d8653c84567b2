"""The state of the code generator while it writes one kernel: lines, names, and what is known."""

import re
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tileyard.ir.nodes import Buffer, Const, Expr, Program, Scalar, Var
from tileyard.ir.printer import print_expr
from tileyard.ir.ranges import Interval, Ranges
from tileyard.ir.specs import tensors
from tileyard.ir.walk import walk
from tileyard.targets.cpu.emit.plan import Plan
from tileyard.targets.cpu.emit.scalars import SCALARS, CScalar
from tileyard.targets.cpu.emit.tiles import Rows, Tile
from tileyard.targets.cpu.machine import Fault, Machine

# ---- text and names -------------------------------------------------------------------------------


_KEYWORDS = (
    "auto break case char const continue default do double else enum extern float for goto if inline "
    "int long register restrict return short signed sizeof static struct switch typedef union "
    "unsigned void volatile while asm typeof linux unix i386 main memcpy memset size_t int8_t "
    "int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t"
)
_OWN = (
    "slot_ content_ buffers scalars grid threads first last scratch shared report block blocks fault "
    "a_ b_ depth_ e_ end_ fill_ from_ i_ is_clear_ j_ k_ left_ next_ p_ panels_ rows_ rest_ width_ "
    "inside_ result_ right_ row_ is_plain_ more_ to_ top_ total_ at_ count_ n_ part_"
)
_ROWS = tuple(f"row{i}_" for i in range(64))
_TAKEN = frozenset((*f"{_KEYWORDS} {_OWN}".split(), *_ROWS))


class Writer:
    """Collects lines; ``block`` indents what is written inside it."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._depth = 0

    def line(self, text: str) -> None:
        """Write one line."""
        self._lines.append("  " * self._depth + text if text else "")

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Writes ``head {``, what is written inside, and ``}``; merges a block that only contains a block."""
        self.line(f"{head} {{" if head else "{")
        self._depth += 1
        place = self.place()
        yield
        self._unwrap(place)
        self._depth -= 1
        self.line("}")

    def either(
        self, tests: Collection[str], first: Callable[[], None], other: Callable[[], None]
    ) -> None:
        """Write ``first`` for when all tests hold, ``other`` for one that fails; without tests ``first``."""
        if not tests:
            first()
            return
        with self.block(f"if ({' && '.join(tests)})"):
            first()
        with self.block("else"):
            other()

    def _unwrap(self, place: int) -> None:
        """Remove the braces of a block if it is all that was written since ``place``."""
        pad = "  " * self._depth
        inside = self._lines[place:]
        edges = [
            i
            for i, line in enumerate(inside)
            if line.startswith(pad) and line[len(pad) : len(pad) + 1] != " "
        ]
        if len(edges) == 2 and (inside[0], inside[-1]) == (f"{pad}{{", f"{pad}}}"):
            self._lines[place:] = [line.removeprefix("  ") for line in inside[1:-1]]

    def place(self) -> int:
        """The place of the next line, for ``insert``."""
        return len(self._lines)

    def insert(self, place: int, text: str) -> None:
        """Write a line at an earlier place, with the indentation of the next line."""
        self._lines.insert(place, "  " * self._depth + text)

    def has(self, word: str, since: int) -> bool:
        """Whether ``word`` was written since that place."""
        return any(re.search(rf"\b{word}\b", line) for line in self._lines[since:])

    def text(self) -> str:
        """All lines."""
        return "\n".join(self._lines) + "\n"


class Names:
    """C names: the user's own if C allows them, and fresh ones."""

    def __init__(self, program: Program) -> None:
        self._used = set(_TAKEN)
        self._names = {name: self.fresh(name) for name in dict.fromkeys(_names_of(program))}

    def __getitem__(self, name: str) -> str:
        """The C name of one of the Program's names."""
        return self._names[name]

    def alias(self, name: str, c_name: str) -> None:
        """Use ``c_name``, which must be fresh, for a name that is in no Program."""
        self._names[name] = c_name

    @contextmanager
    def aliased(self, name: str, c_name: str) -> Iterator[None]:
        """Inside, ``name`` is called ``c_name``."""
        before, self._names[name] = self._names[name], c_name
        yield
        self._names[name] = before

    def fresh(self, stem: str) -> str:
        """An unused C name, as close to ``stem`` as possible."""
        if stem.startswith(("ty_", "TY_", "__")) or not stem.isascii():
            stem = "user_" + "".join(c if c.isascii() else f"x{ord(c):x}" for c in stem)
        name, count = stem, 1
        while name in self._used:
            name, count = f"{stem}_{count}", count + 1
        self._used.add(name)
        return name


def _names_of(program: Program) -> Iterator[str]:
    for param in program.params:
        yield param.var.name if isinstance(param, Scalar) else param.buffer.name
    yield from (var.name for var in program.dims)
    yield from (axis.var.name for axis in program.grid)
    yield from (buffer.name for buffer in program.buffers)
    for stmt in walk(program.body):
        var = getattr(stmt, "var", None)
        if var is not None:
            yield var.name


# ---- state ----------------------------------------------------------------------------------------


Bound = tuple[Expr, Expr]
"""An index and its extent: the index must be at least 0 and less than the extent."""


@dataclass(kw_only=True, slots=True)
class Context:
    """The generator's state.

    ``assumed`` holds bounds that an enclosing condition has established. ``functions`` are the C functions
    that the kernel calls, by their text. ``known`` maps expressions that C has computed to their C names.
    ``statement`` is the current one's number. ``large`` maps arrays that are only written to the C variables
    that say that no cache holds them. ``faults`` describes the kernel's own failures, fault number ``i`` in
    ``faults[i - 1]``. ``lazy`` maps tiles whose clearing is left to the next gemm to the C variables that
    say that they count as clear; ``maybe_clear`` are those that may do so here. ``claims`` maps tiles kept
    between blocks to the C arrays of their slots' claims. ``arrays`` has all in global memory: parameters,
    workspaces, and their views. ``outliving`` variables are declared outside the statements that bind them.
    ``repeats`` maps unfilled tiles to a function from indices to the element read instead. If the build
    ``is_sanitized``, ``last_writes`` maps tiles to the C variables with the number of the fault that names
    their last write.
    """

    program: Program
    machine: Machine
    plan: Plan
    names: Names
    ranges: Ranges
    out: Writer = field(default_factory=Writer)
    arrays: dict[str, Buffer] = field(default_factory=dict)
    _owners: dict[str, str] = field(default_factory=dict)
    assumed: set[Bound] = field(default_factory=set)
    functions: dict[str, str] = field(default_factory=dict)
    known: dict[Expr, str] = field(default_factory=dict)
    large: dict[str, str] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    statement: int = 0
    lazy: dict[str, str] = field(default_factory=dict)
    maybe_clear: set[str] = field(default_factory=set)
    claims: dict[str, str] = field(default_factory=dict)
    outliving: set[str] = field(default_factory=set)
    repeats: dict[str, Callable[[tuple[Expr, ...]], Expr]] = field(default_factory=dict)
    is_sanitized: bool = False
    last_writes: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.arrays = {tensor.buffer.name: tensor.buffer for tensor in tensors(self.program)}
        buffers = self.program.buffers
        self.arrays |= {buffer.name: buffer for buffer in buffers if buffer.scope == "global"}
        self._owners = {buffer.name: buffer.view_of for buffer in buffers if buffer.view_of}
        for name in self.plan.tiles:
            if name.startswith("@"):
                self.names.alias(name, self.names.fresh(name[1:]))
        kept = self.plan.keeping.tiles
        self.claims = {name: self.names.fresh(f"{self.names[name]}_claims") for name in kept}

    def storage(self, buffer: str) -> str:
        """The buffer that owns this one's memory: itself, unless it is a view."""
        return self._owners.get(buffer, buffer)

    def is_aliased(self, buffer: str) -> bool:
        """Whether the memory of a buffer has more than one name."""
        return buffer in self._owners or buffer in self._owners.values()

    def binding(self, var: Var) -> str:
        """The left side of the C statement that binds ``var``."""
        name = self.names[var.name]
        return name if var.name in self.outliving else f"const {SCALARS[var.dtype].value} {name}"

    def dtype(self, buffer: str) -> str:
        """The scalar type of a buffer."""
        if buffer in self.arrays:
            return self.arrays[buffer].dtype
        return self.plan.tiles[buffer].dtype

    def scalar(self, buffer: str) -> CScalar:
        """The C representation of a buffer's elements."""
        return SCALARS[self.dtype(buffer)]

    def element_type(self, buffer: str) -> str:
        """The C type of an element in memory."""
        scalar = self.scalar(buffer)
        return scalar.memory if self.is_memory(buffer) else scalar.tile

    def is_memory(self, buffer: str) -> bool:
        """Whether narrow floats of a buffer are in their own type: in arrays, and in tiles for units."""
        return buffer in self.arrays or self.plan.tiles[buffer].is_memory

    def narrow(self, buffer: str) -> str:
        """The mark of an array's narrow type; empty for other types, and for tiles that hold floats."""
        return self.scalar(buffer).narrow if self.is_memory(buffer) else ""

    def shape(self, buffer: str) -> tuple[Expr, ...]:
        """The extents of a buffer."""
        if buffer in self.arrays:
            return self.arrays[buffer].shape
        return tuple(Const(extent, "int32") for extent in self.plan.tiles[buffer].shape)

    def in_panels(self, buffer: str) -> Tile | None:
        """The tile of this name if it is kept for gemms; None for an array, or a tile in rows."""
        tile = self.plan.tiles.get(buffer)
        return None if tile is None or isinstance(tile.layout, Rows) else tile

    # ---- bounds -----------------------------------------------------------------------------

    def open_bounds(self, buffer: str, indices: tuple[Expr, ...]) -> list[tuple[Bound, bool, bool]]:
        """The indices that may be out of bounds, each with whether its low and its high end are open."""
        found = []
        for index, extent in zip(indices, self.shape(buffer), strict=True):
            if (index, extent) in self.assumed:
                continue
            low = self.ranges.of(index).low < 0
            high = not self.ranges.is_below(index, extent)
            if low or high:
                found.append(((index, extent), low, high))
        return found

    @contextmanager
    def assuming(self, bounds: set[Bound]) -> Iterator[None]:
        """Inside, these bounds are assumed to hold."""
        before = self.assumed
        self.assumed = before | bounds
        yield
        self.assumed = before

    def fault(self, message: str, wrong: Expr | None = None) -> int:
        """The number, from 1, of a fault of the statement that is being written; ``wrong`` is its cause."""
        value = "" if wrong is None else print_expr(self.program, wrong)
        fault = Fault(message=message, statement=self.statement, value=value)
        if fault not in self.faults:
            self.faults.append(fault)
        return self.faults.index(fault) + 1

    # ---- loops of the generator's own ----------------------------------------------------------

    def counter(self, stem: str, extent: int | Expr) -> Var:
        """A variable from 0 to ``extent`` - 1, not yet declared in C."""
        dtype = "int32" if isinstance(extent, int) else "int64"
        high = extent if isinstance(extent, int) else self.ranges.of(extent).high
        return self.variable(stem, dtype, Interval(0, max(high - 1, 0)))

    def variable(self, stem: str, dtype: str, values: Interval) -> Var:
        """A variable with values in this interval, not yet declared in C."""
        var = Var(self.names.fresh(stem), dtype)
        self.names.alias(var.name, var.name)
        self.ranges.bind(var, values)
        return var

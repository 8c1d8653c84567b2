"""What all parts of the code generator share while one kernel is written."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tileyard.ir.nodes import Buffer, Const, Expr, Op, Program, Region, Var
from tileyard.ir.ranges import Interval, Ranges
from tileyard.ir.specs import tensors
from tileyard.ir.text import print_expr
from tileyard.model import Record
from tileyard.targets.cpu.emit.plan import Plan
from tileyard.targets.cpu.emit.scalars import SCALARS, CScalar
from tileyard.targets.cpu.emit.tiles import Rows, Tile
from tileyard.targets.cpu.emit.writer import Names, Writer
from tileyard.targets.cpu.machine import Machine


class Fault(Record):
    """A way in which a kernel itself can fail, and the number of the statement that does.

    ``value`` is what the number is called that was wrong, in the Program's words; empty where no single
    one was.
    """

    message: str
    statement: int
    value: str = ""


Bound = tuple[Expr, Expr]
"""An index and the extent that it must be below; it must not be negative either."""


@dataclass(kw_only=True, slots=True)
class Context:
    """The state of the generator.

    ``assumed`` holds the bounds that an enclosing condition has established. ``functions`` are
    the C functions that the kernel calls, by their text. ``known`` has expressions whose value is in
    C already, each with what it is called there. ``statement`` is the number of the one that is being
    written. ``large`` has the arrays that are only written, each
    with the C variable that says that no cache holds it. ``faults`` describes the kernel's own
    failures; fault number ``i`` is ``faults[i - 1]``. ``lazy`` has the tiles whose clearing is left
    to the next gemm, each with the C variable that says that it counts as clear;
    ``maybe_clear`` are those of them that may, where the generator stands. ``claims`` has the tiles that
    are kept between blocks, each with the C array of its slots' claims. ``arrays`` has everything in
    global memory: parameters, workspaces, and views of them. ``outliving`` are the variables that are
    declared outside the statements that bind them. ``repeats`` are the tiles that are not filled, each
    with what stands for its element at given indices.
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

    def __post_init__(self) -> None:
        self.arrays = {tensor.buffer.name: tensor.buffer for tensor in tensors(self.program)}
        for buffer in self.program.buffers:
            if buffer.scope == "global":
                self.arrays[buffer.name] = buffer
            if buffer.view_of:
                self._owners[buffer.name] = buffer.view_of
        for name in self.plan.tiles:
            if name.startswith("@"):
                self.names.alias(name, self.names.fresh(name[1:]))
        for name in self.plan.keeping.tiles:
            self.claims[name] = self.names.fresh(f"{self.names[name]}_claims")

    def storage(self, buffer: str) -> str:
        """The buffer whose memory this one is: itself, unless it is a view."""
        return self._owners.get(buffer, buffer)

    def is_aliased(self, buffer: str) -> bool:
        """Whether the memory of a buffer has more than one name."""
        return buffer in self._owners or buffer in self._owners.values()

    def binding(self, var: Var) -> str:
        """The left side of what binds ``var``."""
        name = self.names[var.name]
        return name if var.name in self.outliving else f"const {SCALARS[var.dtype].value} {name}"

    def dtype(self, buffer: str) -> str:
        """The scalar type of a buffer."""
        if buffer in self.arrays:
            return self.arrays[buffer].dtype
        return self.plan.tiles[buffer].dtype

    def scalar(self, buffer: str) -> CScalar:
        """How the elements of a buffer live in C."""
        return SCALARS[self.dtype(buffer)]

    def element_type(self, buffer: str) -> str:
        """The C type of an element in memory."""
        scalar = self.scalar(buffer)
        return scalar.memory if buffer in self.arrays else scalar.tile

    def shape(self, buffer: str) -> tuple[Expr, ...]:
        """The extents of a buffer."""
        if buffer in self.arrays:
            return self.arrays[buffer].shape
        return tuple(Const(extent, "int32") for extent in self.plan.tiles[buffer].shape)

    def rows_of(self, buffer: str) -> Tile | None:
        """The tile that is kept in rows under this name; None for an array or another layout."""
        tile = self.plan.tiles.get(buffer)
        return tile if tile is not None and isinstance(tile.layout, Rows) else None

    # ---- bounds -----------------------------------------------------------------------------

    def open_bounds(self, buffer: str, indices: tuple[Expr, ...]) -> list[tuple[Bound, bool, bool]]:
        """The indices that are not certainly inside, each with which end is open: low, high."""
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
        """Inside, these bounds are taken for granted."""
        before = self.assumed
        self.assumed = before | bounds
        yield
        self.assumed = before

    def fault(self, message: str, wrong: Expr | None = None) -> int:
        """The site, from 1, of a failure of the statement that is being written; ``wrong`` is its cause."""
        value = "" if wrong is None else print_expr(self.program, wrong)
        fault = Fault(message=message, statement=self.statement, value=value)
        if fault not in self.faults:
            self.faults.append(fault)
        return self.faults.index(fault) + 1

    # ---- loops of the generator's own ----------------------------------------------------------

    def counter(self, stem: str, extent: int | Expr) -> Var:
        """A variable that runs from 0 below ``extent``, not yet declared in C."""
        var = Var(self.names.fresh(stem), "int32" if isinstance(extent, int) else "int64")
        self.names.bind(var.name)
        high = extent if isinstance(extent, int) else self.ranges.of(extent).high
        self.ranges.bind(var, Interval(0, max(high - 1, 0)))
        return var


def add(left: Expr, right: Expr) -> Expr:
    """The sum of two indices, without what adds nothing."""
    for zero, other in ((left, right), (right, left)):
        if isinstance(zero, Const) and zero.value == 0:
            return other
    if isinstance(left, Const) and isinstance(right, Const):
        return Const(int(left.value) + int(right.value), left.dtype)
    return Op("add", (left, right), "int64" if "int64" in (left.dtype, right.dtype) else "int32")


def ends(region: Region) -> tuple[tuple[Expr, ...], tuple[Expr, ...]]:
    """The first and the last index of a region in each dimension."""
    lasts = (
        add(start, add(extent, Const(-1, extent.dtype)))
        for start, extent in zip(region.starts, region.extents, strict=True)
    )
    return region.starts, tuple(lasts)

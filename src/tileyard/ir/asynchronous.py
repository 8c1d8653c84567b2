"""The asynchronous meaning: what is issued takes effect as late as it may, when a wait covers it.

``interpret.py`` is the other extreme, where it is over when it is issued. What lies between is undefined memory: until
a copy has arrived, its elements hold poison, and whatever touches them, or the elements that it reads, is a Hazard.
A run without hazards has the same result at whatever moment its copies take effect.

The model is PTX's (ISA 8.5, "Asynchronous operations" and "cp.async.wait_group"), for all threads of a block as one: groups
end in order, a wait for N groups covers all but the latest N, and what is in no group is covered by none. Between a wait
and what reads the data TileLang puts the barrier of the block. What a block leaves unfinished at its end touches nothing.
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

import msgspec
import numpy as np

from tileyard.errors import KernelFault
from tileyard.ir.dtypes import poison
from tileyard.ir.interpret import Plain, Run
from tileyard.ir.nodes import (
    Await,
    CommitGroup,
    Expr,
    For,
    Issue,
    Load,
    Program,
    Stmt,
    Store,
    Unit,
    Var,
    WaitGroup,
)
from tileyard.ir.rewrite import rewrite
from tileyard.ir.tiles import Array, Box, Memory
from tileyard.ir.walk import bodies, walk
from tileyard.model import Value

HazardKind = Literal["read before arrival", "overwritten in flight", "source changed in flight"]


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """A statement, by number, with the values of the loops around it."""

    number: int
    loops: tuple[tuple[str, int], ...] = ()


class Wait(msgspec.Struct, frozen=True, kw_only=True):
    """A wait that left an operation unfinished. ``most`` is the largest count that would have covered it.

    ``most`` is None where no count would, because the operation was in no group.
    """

    moment: Moment
    count: int
    most: int | None


class Hazard(msgspec.Struct, frozen=True, kw_only=True):
    """Two accesses to ``buffer`` whose order nothing fixes: at ``access``, and by what was issued at ``issue``.

    ``committed`` says whether it is in a group, ``most`` is then the largest count of a wait before ``access`` that
    covers it; ``left_by`` is the latest wait that did not. ``block`` is the place in the grid, ``blockIdx.x`` first.
    """

    kind: HazardKind
    buffer: str
    access: Moment
    issue: Moment
    committed: bool
    most: int
    left_by: Wait | None
    block: tuple[int, ...]


@dataclass(kw_only=True, eq=False, slots=True)
class _Operation:
    """What was issued by one statement at one time. ``results`` are the elements that it will write."""

    number: int
    issue: Moment
    results: list[tuple[Array, Array, Array]] = field(default_factory=list)
    left_by: Wait | None = None


class _LateMemory(Memory):
    """Memory in which every byte knows the operation under way that reads it, and the one that writes it.

    ``issuing`` is the operation whose accesses are noted, None while others access memory, which ``conflict`` receives.
    """

    def __init__(
        self, memory: Memory, program: Program, conflict: Callable[[HazardKind, str, int], None]
    ) -> None:
        super().__init__(memory.parameters, memory.tensor_floats)
        self._owners = {buffer.name: buffer.view_of or buffer.name for buffer in program.buffers}
        self._conflict = conflict
        self.issuing: _Operation | None = None
        self._readers: dict[str, Array] = {}
        self._writers: dict[str, Array] = {}

    def forget(self) -> None:
        """Begin another block: nothing is under way."""
        self._readers.clear()
        self._writers.clear()

    def load(self, buffer: str, indices: tuple[int, ...]) -> np.generic:
        """One element."""
        if self.is_inside(buffer, indices):
            self._look("read before arrival", self._writers, buffer, indices)
        return super().load(buffer, indices)

    def store(self, buffer: str, indices: tuple[int, ...], value: np.generic) -> None:
        """Write one element, now or later."""
        self._write(buffer, indices, np.asarray(value))

    def read(self, box: Box) -> Array:
        """The content of a box."""
        where = self.overlap(box)[0]
        self._look("read before arrival", self._writers, box.buffer, where)
        self.keep(box.buffer, where)
        return super().read(box)

    def write(self, box: Box, content: Array) -> None:
        """Give a box its content, now or later."""
        outer, inner = self.overlap(box)
        self._write(box.buffer, outer, content[inner])

    def arrive(self, operation: _Operation) -> None:
        """Write what an operation has been to write, and forget it."""
        for place, content, writers in operation.results:
            place[...] = content
            writers[writers == operation.number] = 0
        for readers in self._readers.values():
            readers[readers == operation.number] = 0

    def keep(self, buffer: str, where: tuple[int | slice, ...]) -> None:
        """Note that what is issued reads these elements until its end."""
        if self.issuing is not None:
            self._marks(self._readers, buffer)[where] = self.issuing.number

    def _write(self, buffer: str, where: tuple[int | slice, ...], content: Array) -> None:
        self._look("overwritten in flight", self._writers, buffer, where)
        self._look("source changed in flight", self._readers, buffer, where)
        if self.issuing is None:
            self.array(buffer)[where] = content
            return
        place = self.array(buffer)[(*where, ...)]  # the rest makes a view, of a single element too
        marks = self._marks(self._writers, buffer)[where]
        marks[...] = self.issuing.number
        place[...] = poison(self.dtype(buffer))
        self.issuing.results.append((place, content, marks))

    def _look(
        self,
        kind: HazardKind,
        marks: dict[str, Array],
        buffer: str,
        where: tuple[int | slice, ...],
    ) -> None:
        if self._owners.get(buffer, buffer) in marks:
            found = np.unique(self._marks(marks, buffer)[where])
            for number in found[found != (self.issuing.number if self.issuing else 0)]:
                if number:
                    self._conflict(kind, buffer, int(number))

    def _marks(self, marks: dict[str, Array], buffer: str) -> Array:
        """A number for each byte of a buffer: that of the operation under way, or 0."""
        array, owner = self.array(buffer), self._owners.get(buffer, buffer)
        if owner not in marks:
            marks[owner] = np.zeros(self.array(owner).nbytes, np.int32)
        return marks[owner].reshape(*array.shape, array.itemsize)


@dataclass(kw_only=True, eq=False, slots=True)
class _Groups:
    """What one unit has been asked for: ``open`` is in no group yet, ``groups`` are unfinished, the oldest first."""

    open: list[_Operation] = field(default_factory=list)
    groups: list[list[_Operation]] = field(default_factory=list)


class LateRun(Run):
    """A run in which each operation takes effect at the first wait that covers it. ``hazards`` fills as it goes.

    Of hazards between the same two statements only the first one is kept. With ``corners_only`` the first and the
    last block of each dimension of the grid run; ``count`` is how many have run.
    """

    def __init__(
        self,
        program: Program,
        arrays: Sequence[Array],
        scalars: Sequence[Value] = (),
        say: Callable[[str], object] = lambda _: None,
        *,
        corners_only: bool = False,
    ) -> None:
        self._corners_only = corners_only
        self.count = 0
        program = rewrite(program, lambda stmt: (stmt,)).program  # each statement is one object
        self.hazards: dict[tuple[HazardKind, int, int], Hazard] = {}
        self._numbers = {id(stmt): number for number, stmt in enumerate(walk(program.body))}
        self._loops = dict(_loops_around(program.body, ()))
        self._units: dict[Unit, _Groups] = {}
        self._operations: dict[int, _Operation] = {}
        super().__init__(program, arrays, scalars, say)

    def _make_memory(self, storage: dict[str, Array]) -> Memory:
        plain = super()._make_memory(storage)
        self._late = _LateMemory(plain, self._program, self._note)
        return self._late

    def _iterate(self, var: Var, start: Expr, extent: Expr) -> Iterator[None]:
        is_axis = any(axis.var is var for axis in self._program.grid)
        last = self._evaluator.number(extent) - 1
        for index, _ in enumerate(super()._iterate(var, start, extent)):
            if not (is_axis and self._corners_only) or index in (0, last):
                yield

    def _block(self) -> None:
        self.count += 1
        self._units.clear()
        self._operations.clear()
        self._late.forget()
        super()._block()

    def _issue(self, stmt: Issue) -> Generator[Await, None, None]:
        operation = _Operation(number=len(self._operations) + 1, issue=self._moment())
        self._operations[operation.number] = operation
        self._units.setdefault(stmt.unit, _Groups()).open.append(operation)
        self._late.issuing = operation
        yield from self._body(stmt.body)
        self._late.issuing = None

    def _run(self, stmt: Plain) -> None:
        if self._late.issuing and isinstance(stmt, Store) and isinstance(stmt.value, Load):
            source = self._evaluator.indices(stmt.value.indices)
            if self._late.is_inside(stmt.value.buffer, source):
                self._late.keep(stmt.value.buffer, source)
        super()._run(stmt)

    def _group(self, stmt: CommitGroup | WaitGroup) -> None:
        found = self._units.setdefault(stmt.unit, _Groups())
        if isinstance(stmt, CommitGroup):
            found.groups.append(found.open)
            found.open = []
            return
        count = self._evaluator.number(stmt.count)
        if count < 0:
            raise KernelFault(f"a wait for all but the latest {count} groups")
        while len(found.groups) > count:
            for operation in found.groups.pop(0):
                self._late.arrive(operation)
        left = [(None, found.open), *enumerate(reversed(found.groups))]
        for most, group in left:
            for operation in group:
                operation.left_by = Wait(moment=self._moment(), count=count, most=most)

    def _moment(self) -> Moment:
        """What runs now."""
        number = self._numbers.get(id(self.at), -1)
        loops = self._loops.get(number, ())
        return Moment(number=number, loops=tuple((name, int(self._values[name])) for name in loops))

    def _note(self, kind: HazardKind, buffer: str, number: int) -> None:
        operation, access = self._operations[number], self._moment()
        key = (kind, access.number, operation.issue.number)
        if key in self.hazards:
            return
        groups = [group for unit in self._units.values() for group in reversed(unit.groups)]
        places = [most for most, group in enumerate(groups) if operation in group]
        self.hazards[key] = Hazard(
            kind=kind,
            buffer=buffer,
            access=access,
            issue=operation.issue,
            committed=bool(places),
            most=places[0] if places else 0,
            left_by=operation.left_by,
            block=tuple(int(self._values[axis.var.name]) for axis in self._program.grid),
        )


def _loops_around(
    body: tuple[Stmt, ...], outer: tuple[str, ...], first: int = 0
) -> Generator[tuple[int, tuple[str, ...]], None, int]:
    """For each statement by number the variables of the loops around it."""
    number = first
    for stmt in body:
        yield number, outer
        number += 1
        inside = (*outer, stmt.var.name) if isinstance(stmt, For) else outer
        for inner in bodies(stmt):
            number = yield from _loops_around(inner, inside, number)
    return number
